"""The sum over examples of each example's clipped gradient: the one quantity that private training needs.

    >>> import torch
    >>> model = torch.nn.Linear(3, 2)
    >>> def loss_fn(model, x, y):
    ...     return torch.nn.functional.cross_entropy(model(x), y, reduction="none")
    >>> batch = torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])
    >>> total = clipped_sum(model, loss_fn, batch, clip_norm=1.0)
    >>> total.gradients["weight"].shape, total.norms.shape, total.method
    (torch.Size([2, 3]), torch.Size([5]), 'tape')

Edge cases: an empty batch gives zeros; a gradient of norm 0 stays 0; an example whose gradient is NaN or infinite
counts as zero and is counted in `nonfinite` (that number is private data: do not release it). The model, its buffers,
its training flags, its `.grad`s and the batch are as before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from hush import _check
from hush.errors import InvalidValue
from hush.gradients import clipping as clip
from hush.gradients import looped, methods
from hush.gradients.batches import Batch, LossFunction, SplitBatch, num_examples, split, take, tensors
from hush.gradients.heap import keep_heap
from hush.gradients.layers import apart, biases
from hush.gradients.methods import METHODS, uses_by
from hush.gradients.norms import measure
from hush.gradients.precision import exact_arithmetic, wide_dtype
from hush.gradients.state import check_initialised, memory_of
from hush.gradients.sums import weighted
from hush.gradients.uses import Use

Method = Literal["auto", "tape", "vectorized", "looped"]

_MOST_HELD = 2**24  # bytes kept for the sums, above which a batch is worked on in pieces: less memory, and cache
_LEAST_SHARE = 16  # ... if that is so many times what the parameters take, since every piece adds to all of them
_LEAST_PIECE = 32  # examples

_held: WeakKeyDictionary[nn.Module, float] = WeakKeyDictionary()  # bytes for each example, as last seen


@dataclass(frozen=True, eq=False)
class ClippedSum:
    """What `clipped_sum` found. `norms` and `nonfinite` are private data."""

    gradients: dict[str, Tensor]
    norms: Tensor
    nonfinite: int
    method: str


Row = dict[str, Tensor]  # one example's gradient


def clipped_sum(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Batch,
    clip_norm: float,
    *,
    method: Method = "auto",
    clipping: clip.Clipping = "flat",
    groups: Tensor | None = None,
    physical_batch_size: int | None = None,
) -> ClippedSum:
    """The sum over examples of the gradient of `loss_fn(model, *batch)`, each clipped to `clip_norm` (L2).

    `groups` gives the person to whom each example belongs: a person's gradients are added, then clipped together.
    `physical_batch_size` bounds how many examples are computed at once; the result is the same. If it is None, models
    whose maps are large beside their parameters have large batches cut in a few pieces. Sums are float32 or wider,
    whatever the parameters are.
    """
    total, _ = clipped_sum_and_rows(
        model, loss_fn, batch, clip_norm, method=method, clipping=clipping, groups=groups, size=physical_batch_size
    )
    return total


def clipped_sum_and_rows(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Batch,
    clip_norm: float,
    *,
    method: Method = "auto",
    clipping: clip.Clipping = "flat",
    groups: Tensor | None = None,
    size: int | None = None,
    rows: Sequence[int] = (),
    in_full: bool = False,
) -> tuple[ClippedSum, list[Row]]:
    """Return the clipped sum, and the gradients of the examples at `rows` as they went into it, before clipping.

    `in_full` compares the values of all parameters before and after each pass.
    """
    physical_batch_size = size
    clip_norm = _check.positive("clip_norm", clip_norm)
    _check.one_of("method", method, ("auto", *METHODS))
    _check.one_of("clipping", clipping, clip.CLIPPINGS)
    modules = list(model.named_modules())
    trainable = _trainable(modules)
    if not trainable:
        raise InvalidValue("the model has no trainable parameter; set requires_grad on those that should learn.")
    if all(value.is_cpu for value in trainable.values()):
        keep_heap()
    count, units = num_examples(batch), _units(groups, batch)
    if count == 0:
        zeros = {name: _zeros(value) for name, value in trainable.items()}
        return ClippedSum(zeros, torch.zeros(0), 0, methods.remembered(model, method)), []
    is_cut = physical_batch_size is not None
    job = _Job(model, modules, trainable, loss_fn, clip_norm, method, clipping, is_cut, in_full, rows)
    numbers = torch.arange(count) if rows else None
    pieces = [
        job.one_piece(piece, members, own)
        for part, units, own in _begun(model, batch, units, numbers, physical_batch_size)
        for piece, members, own in _pieces(part, units, own, _fitting(model, trainable, part, physical_batch_size))
    ]
    found = {number: row for _, taken in pieces for number, row in taken.items()}
    sums = [total for total, _ in pieces]
    return sums[0] if len(sums) == 1 else _added(sums), [found[number] for number in rows]


def _zeros(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter, dtype=wide_dtype(parameter.dtype))


def _trainable(modules: list[tuple[str, nn.Module]]) -> dict[str, nn.Parameter]:
    """What `named_parameters` gives, as far as it is trainable, without going through the modules once more."""
    found, seen = {}, set()
    for path, module in modules:
        for name, value in module._parameters.items():
            if value is not None and value.requires_grad and id(value) not in seen:
                check_initialised(name, value)
                seen.add(id(value))
                found[f"{path}.{name}" if path else name] = value
    return found


def _units(groups: Tensor | None, batch: Batch) -> Tensor | None:
    if groups is None:
        return None
    if not isinstance(groups, Tensor) or groups.shape != (num_examples(batch),) or groups.is_floating_point():
        raise InvalidValue("groups must be whole numbers, one for each example of the batch.")
    return torch.unique(groups, return_inverse=True)[1]


def _begun(
    model: nn.Module, batch: Batch, units: Tensor | None, numbers: Tensor | None, size: int | None
) -> Iterator[tuple[Batch, Tensor | None, Tensor | None]]:
    """The batch; for a model that was not seen before a few examples come first, to tell what each takes."""
    if model not in _held and size is None and units is None and num_examples(batch) > 2 * _LEAST_PIECE:
        _held[model] = 0.0
        few, others = slice(0, _LEAST_PIECE), slice(_LEAST_PIECE, None)
        yield take(batch, few), None, None if numbers is None else numbers[few]
        batch, numbers = take(batch, others), None if numbers is None else numbers[others]
    yield batch, units, numbers


def _fitting(model: nn.Module, trainable: dict[str, nn.Parameter], batch: Batch, size: int | None) -> int | None:
    """How many examples to compute at once: `size`, or by what this model's examples took before; None for all."""
    if size is not None:
        return size
    count = num_examples(batch)
    held = _held.get(model, 0.0) * count
    if held <= _MOST_HELD or held <= _LEAST_SHARE * sum(value.nbytes for value in trainable.values()):
        return None
    pieces = max(2, math.ceil(held / (2 * _MOST_HELD)))
    return max(_LEAST_PIECE, -(-count // pieces))


def _pieces(
    batch: Batch, units: Tensor | None, numbers: Tensor | None, size: int | None
) -> Iterator[tuple[Batch, Tensor | None, Tensor | None]]:
    """The batch cut into physical batches, with the examples' numbers; a person's examples stay together."""
    if size is None or _check.whole("physical_batch_size", size) >= num_examples(batch):
        yield batch, units, numbers
    elif units is None:
        cut = [None] * num_examples(batch) if numbers is None else list(numbers.split(size))
        yield from ((piece, None, own) for piece, own in zip(split(batch, size), cut, strict=False))
    else:
        order = torch.argsort(units, stable=True)
        sizes, start = torch.bincount(units).tolist(), 0
        while sizes:
            taken = sizes.pop(0)
            while sizes and taken + sizes[0] <= size:
                taken += sizes.pop(0)
            rows = order[start : start + taken]
            own = None if numbers is None else numbers[rows.cpu()]
            yield take(batch, rows), units[rows] - units[rows[0]], own
            start += taken


@dataclass(frozen=True)
class _Job:
    """What is the same for all pieces of a batch."""

    model: nn.Module
    modules: list[tuple[str, nn.Module]]
    trainable: dict[str, nn.Parameter]
    loss_fn: LossFunction
    clip_norm: float
    method: str
    clipping: str
    is_cut: bool  # by the caller's physical batch size
    in_full: bool
    rows: Sequence[int]

    def one_piece(
        self, batch: Batch, units: Tensor | None, numbers: Tensor | None
    ) -> tuple[ClippedSum, dict[int, Row]]:
        """The clipped sum of some examples, computed at once, and the rows among them that are asked for."""
        model, loss_fn = self.model, self.loss_fn
        asked = {} if numbers is None else {n: at for at, n in enumerate(numbers.tolist()) if n in set(self.rows)}
        with torch.enable_grad():
            try:
                name, uses = uses_by(
                    self.method, model, self.trainable, loss_fn, batch, self.modules, in_full=self.in_full
                )
            except SplitBatch as cut:
                return self._in_two(batch, units, numbers, cut.verdicts)
            if uses is None:
                return self._looped(batch, units, asked)
        if not self.is_cut:
            found = {
                memory_of(tensor): tensor.nbytes for some in uses.values() for use in some for tensor in use.held()
            }
            _held[model] = sum(found.values()) / num_examples(batch)
        with torch.no_grad(), exact_arithmetic():
            taken = {number: self._row(uses, at) for number, at in asked.items()}
            if units is not None:
                apart(uses)
                index, present = _members(units)
                uses = {key: [use.grouped(index, present) for use in found] for key, found in uses.items()}
            return self._combined(uses, name, lambda: self._foreign(batch)), taken

    def _in_two(
        self, batch: Batch, units: Tensor | None, numbers: Tensor | None, verdicts: Tensor
    ) -> tuple[ClippedSum, dict[int, Row]]:
        """The same for those examples for which a condition in the model holds, and for those for which it does not."""
        if units is not None:  # a person may have examples of both kinds
            return self._looped(
                batch, units, {} if numbers is None else dict(zip(numbers.tolist(), range(len(numbers)), strict=True))
            )
        pieces, norms = [], None
        for side in (verdicts, ~verdicts):
            index = torch.nonzero(side)[:, 0]
            total, taken = self.one_piece(take(batch, index), None, None if numbers is None else numbers[index.cpu()])
            norms = total.norms.new_empty(len(verdicts)) if norms is None else norms
            norms[index] = total.norms
            pieces.append((total, taken))
        assert norms is not None
        both = _added([total for total, _ in pieces])
        return replace(both, norms=norms), {**pieces[0][1], **pieces[1][1]}

    def _row(self, uses: dict[str, list[Use]], at: int) -> Row:
        """One example's gradient, written out."""
        index = torch.tensor([at])
        own = {name: [use.take(index.to(use.held()[0].device)) for use in found] for name, found in uses.items()}
        apart(own)
        found = {name: torch.stack([use.rows()[0] for use in some]).sum(0) for name, some in own.items()}
        return {
            name: found[name].reshape(value.shape) if name in found else _zeros(value)
            for name, value in self.trainable.items()
        }

    def _looped(self, batch: Batch, units: Tensor | None, asked: dict[int, int]) -> tuple[ClippedSum, dict[int, Row]]:
        """One example, or one person, after the other."""
        total = {name: _zeros(value) for name, value in self.trainable.items()}
        norms, nonfinite, taken = [], 0, {}
        places = {at: number for number, at in asked.items()} if units is None else {}
        found_at = looped.gradients(self.model, self.loss_fn, batch, units, self.modules)
        for at, found in enumerate(found_at):
            if at in places:
                taken[places[at]] = found
            with torch.no_grad(), exact_arithmetic():
                squares = {name: torch.linalg.vector_norm(value).square()[None] for name, value in found.items()}
                norm, factors, broken = clip.factors(squares, self.clip_norm, self.clipping, total)
                norms.append(norm)
                if broken is not None:
                    nonfinite += 1
                    continue
                for name, value in found.items():
                    total[name].add_(value * factors[name][0])
        if units is not None:
            taken = {
                number: next(
                    looped.gradients(self.model, self.loss_fn, take(batch, slice(at, at + 1)), None, self.modules)
                )
                for number, at in asked.items()
                if number in set(self.rows)
            }
        return ClippedSum(total, torch.cat(norms), nonfinite, "looped"), taken

    def _foreign(self, batch: Batch) -> set[int]:
        """Where tensors lie that belong to the user, which nothing here may overwrite."""
        found = {memory_of(tensor) for tensor in tensors(batch)}
        for _, module in self.modules:
            for values in (module._parameters, module._buffers):
                found.update([memory_of(tensor) for tensor in values.values() if tensor is not None])
        return found

    def _combined(self, uses: dict[str, list[Use]], method: str, foreign: Callable[[], set[int]]) -> ClippedSum:
        norms, factors, broken = clip.factors(measure(uses), self.clip_norm, self.clipping, self.trainable)
        for weight, bias in biases(uses):
            factors[bias] = factors[weight]
        nonfinite = 0 if broken is None else int(broken.sum())
        if broken is not None and nonfinite:  # zero times NaN is NaN, so their rows are blanked as well
            uses = {name: [use.without(broken) for use in found] for name, found in uses.items()}
        return ClippedSum(weighted(self.trainable, uses, factors, foreign), norms, nonfinite, method)


def _members(units: Tensor) -> tuple[Tensor, Tensor]:
    """(units, largest number of members): which examples belong to each unit, and which entries are real."""
    sizes = torch.bincount(units)
    order = torch.argsort(units, stable=True)
    place = torch.arange(int(sizes.max()), device=units.device)
    start = torch.cumsum(sizes, 0) - sizes
    present = place < sizes[:, None]
    return order[(start[:, None] + place).clamp(max=len(units) - 1)], present


def _added(pieces: list[ClippedSum]) -> ClippedSum:
    total = pieces[0].gradients
    for piece in pieces[1:]:
        for name, value in piece.gradients.items():
            total[name] = total[name] + value
    norms = torch.cat([piece.norms for piece in pieces])
    return ClippedSum(total, norms, sum(piece.nonfinite for piece in pieces), pieces[-1].method)
