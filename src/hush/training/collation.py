"""Collating a batch, and some of its items alone: what a row is must not depend on the others in the batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import Dataset

from hush.errors import NotIsolated
from hush.gradients.batches import Batch, constants, mapped, num_examples, take, tensors
from hush.gradients.prints import print_of
from hush.gradients.spot_check import watched_randomness
from hush.gradients.stateless import Stateless
from hush.rng import fixed_seeds

Collate = Callable[[list[Any]], Any]
_EARLY = 6  # batches in which rows alone are not as in the batch, and gradients are compared
_OTHERS = 8  # items among which two of the same lengths are looked for


@dataclass(frozen=True)
class Alone:
    """Places in a batch of items that are collated alone as well; it travels behind the numbers of the rows."""

    places: list[int]
    is_due: bool  # or looked at only where a row alone is not as in the batch


@dataclass(frozen=True)
class Loaded:
    """A batch, the places to check in it, and these rows as collated alone and in the batch."""

    batch: Batch
    rows: list[int]
    pairs: list[tuple[Batch, Batch]]
    is_random: bool


class Items(Dataset[Any]):
    """A data set that hands on which of its items are collated alone."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._dataset: Any = dataset

    def __getitems__(self, numbers: list[Any]) -> list[Any]:
        alone = [numbers.pop()] if isinstance(numbers[-1], Alone) else []
        is_due = bool(alone) and alone[0].is_due
        if is_due and len(set(numbers)) > 2:
            self._check_memory(numbers)
        many = getattr(self._dataset, "__getitems__", None)
        if is_due and callable(many):
            self._check_many(many, numbers)
        return [*(many(numbers) if callable(many) else [self._dataset[number] for number in numbers]), *alone]

    def _check_memory(self, numbers: list[int]) -> None:
        """Raise `NotIsolated` if an item, read from the same seeds, depends on which one was read before."""
        one, other, third = list(dict.fromkeys(numbers))[:3]

        def after(earlier: int) -> Any:
            found = []
            for number in (earlier, one):
                with fixed_seeds():
                    found.append(self._dataset[number])
            return print_of(found[-1])

        if after(other) == (again := after(other)) and after(third) != again:
            raise NotIsolated(
                "an item of the data set depends on which item was read before; let each item be made of its own "
                "record alone."
            )

    def _check_many(self, many: Callable[[list[int]], list[Any]], numbers: list[int]) -> None:
        """Raise `NotIsolated` if an item, read at the same place from the same seeds, depends on the others."""

        def first(others: list[int]) -> Any:
            with fixed_seeds():
                return print_of(many([numbers[0], *others])[0])

        others = numbers[1:]
        if first(others) == (again := first(others)) and first(others[::-1][: len(others) // 2]) != again:
            raise NotIsolated(
                "an item that the data set's __getitems__ gives depends on the others that are asked for; let each "
                "item be made of its own record alone."
            )

    def __getitem__(self, number: int) -> Any:
        return self._dataset[number]

    def __len__(self) -> int:
        return len(self._dataset)


class Collation:
    """Collates a batch, and some of its items alone.

    One item of every batch is collated alone. Where it does not come out as in the batch, padded less for instance,
    its gradient is compared too: in the first few such batches, in those that are due, and where a length or a number
    is larger or smaller than in all batches before.
    """

    def __init__(self, collate: Collate, *, keeps_order: bool) -> None:
        self._collate = Stateless(collate, "collate")
        self._keeps_order = keeps_order
        self._is_random = False
        self._differing = 0  # batches in which a row alone was not as in the batch
        self._least: list[float] = []
        self._most: list[float] = []

    def __call__(self, items: list[Any]) -> Any:
        """Return the batch, or a `Loaded` where gradients are to be compared."""
        if not isinstance(items[-1], Alone):
            return self._collate(items)
        look = items.pop()
        if self._is_random and not look.is_due:  # a row alone is another one each time
            return self._collate(items)
        copies = [copy.deepcopy(items[place]) for place in look.places]
        again = [copy.deepcopy(item) for item in copies]
        others = [copy.deepcopy(items[place]) for place in _others(look.places[0], len(items))] if look.is_due else []
        alone = [self._collate([item]) for item in copies]
        batch = self._collate(items)
        within = [self._within(batch, row, place) for row, place in zip(alone, look.places, strict=True)]
        is_same = all(print_of(one) == print_of(other) for one, other in zip(alone, within, strict=True))
        self._differing += not is_same
        is_record = self._is_record(batch)
        if not look.is_due and (is_same or (self._differing > _EARLY and not is_record)):
            return batch
        if not self._is_random:
            self._is_random = any(self._varies(item, one) for item, one in zip(again, alone, strict=True))
        if self._is_random and others:
            self._check_replayed(again[0], others)
        return Loaded(batch, look.places, list(zip(alone, within, strict=True)), self._is_random)

    def _varies(self, item: Any, alone: Batch) -> bool:
        """Return whether collating an item again gives another row, or draws random numbers on the way."""
        with watched_randomness() as is_random:
            found = [print_of(self._collate([copy.deepcopy(item)])) for _ in range(3)]
        return is_random() or any(one != print_of(alone) for one in found)

    def _within(self, batch: Batch, alone: Batch, place: int) -> Batch:
        """Return the row of an item in the batch: at its place, or where a collation that sorts has put it."""
        count = num_examples(batch)
        for row in (place, *range(count)):
            if row < count and _agrees(alone, take(batch, slice(row, row + 1))):
                if row != place and self._keeps_order:
                    raise NotIsolated("collate changes the order of the examples, by which people are known; keep it.")
                return mapped(torch.clone, take(batch, slice(row, row + 1)))
        return mapped(torch.clone, take(batch, slice(place, place + 1)))

    def _is_record(self, batch: Batch) -> bool:
        """Return whether a length or a number in the batch is beyond those of all batches before."""
        lengths = [float(size) for tensor in tensors(batch) for size in tensor.shape[1:]]
        found = lengths + [float(value) for value in constants(batch) if type(value) in (int, float)]
        is_new = len(found) != len(self._most)
        before = (found, found) if is_new else (self._least, self._most)
        self._least, self._most = list(map(min, found, before[0])), list(map(max, found, before[1]))
        return is_new or [self._least, self._most] != [*before]

    def _check_replayed(self, item: Any, others: list[Any]) -> None:
        """Raise `NotIsolated` if, from the same seeds, no row of a batch outlasts that all others are exchanged."""

        def collated(other: Any) -> Batch:
            with fixed_seeds():
                return self._collate([copy.deepcopy(item), *(copy.deepcopy(other) for _ in range(3))])

        alike = [other for other in others if _lengths(other) == _lengths(others[0])]
        if len(alike) < 2 or print_of(alike[0]) == print_of(alike[1]):
            return
        first, second = collated(alike[0]), collated(alike[1])
        if print_of(collated(alike[0])) != print_of(first) or num_examples(first) != num_examples(second):
            return  # nobody can say what this collation does
        rows = range(num_examples(first))
        if not any(print_of(take(first, slice(r, r + 1))) == print_of(take(second, slice(r, r + 1))) for r in rows):
            raise NotIsolated(
                "collate makes a row of other examples too (a mixture, or a statistic of the batch), so no clipping "
                "can bound what an example contributes; collate each example for itself."
            )


def _others(place: int, count: int) -> list[int]:
    return [row for row in range(count) if row != place][:_OTHERS]


def _lengths(item: Any) -> Any:
    """Return the lengths of all that an item is made of."""
    if isinstance(item, Tensor | numpy.ndarray):
        return tuple(item.shape)
    if isinstance(item, Mapping):
        return tuple((key, _lengths(value)) for key, value in item.items())
    if isinstance(item, list | tuple):
        return tuple(map(_lengths, item))
    return len(item) if isinstance(item, str) else type(item)


def _agrees(alone: Batch, within: Batch) -> bool:
    """Return whether two rows are the same but for what one has more at the end or at the beginning."""

    def cut(tensor: Tensor, shape: list[int], *, at_end: bool) -> Tensor:
        for axis, size in enumerate(shape):
            tensor = tensor.narrow(axis, 0 if at_end else tensor.shape[axis] - size, size)
        return tensor

    left, right = tensors(alone), tensors(within)
    if len(left) != len(right) or any(one.ndim != other.ndim for one, other in zip(left, right, strict=True)):
        return False
    shapes = [list(map(min, one.shape, other.shape)) for one, other in zip(left, right, strict=True)]
    return any(
        all(
            torch.equal(cut(one, shape, at_end=at_end), cut(other, shape, at_end=at_end))
            for one, other, shape in zip(left, right, shapes, strict=True)
        )
        for at_end in (True, False)
    )
