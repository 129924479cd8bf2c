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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from hush import _check
from hush.errors import InvalidValue
from hush.gradients import clipping as clip
from hush.gradients import looped, methods
from hush.gradients.batches import Batch, LossFunction, num_examples, split, take, tensors
from hush.gradients.heap import keep_heap
from hush.gradients.keeping import kept
from hush.gradients.layers import apart, biases
from hush.gradients.methods import METHODS, uses_by
from hush.gradients.norms import measure
from hush.gradients.precision import wide
from hush.gradients.sums import place, weighted
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
    whose maps are large beside their parameters have large batches cut in a few pieces.
    """
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
        zeros = {name: torch.zeros_like(value) for name, value in trainable.items()}
        return ClippedSum(zeros, torch.zeros(0), 0, methods.remembered(model, method))
    job = _Job(model, modules, trainable, loss_fn, clip_norm, method, clipping, physical_batch_size is not None)
    pieces = [
        job.one_piece(piece, members)
        for part, own in _begun(model, batch, units, physical_batch_size)
        for piece, members in _pieces(part, own, _fitting(model, trainable, part, physical_batch_size))
    ]
    return pieces[0] if len(pieces) == 1 else _added(pieces)


def _trainable(modules: list[tuple[str, nn.Module]]) -> dict[str, nn.Parameter]:
    """What `named_parameters` gives, as far as it is trainable, without going through the modules once more."""
    found, seen = {}, set()
    for path, module in modules:
        for name, value in module._parameters.items():
            if value is not None and value.requires_grad and id(value) not in seen:
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
    model: nn.Module, batch: Batch, units: Tensor | None, size: int | None
) -> Iterator[tuple[Batch, Tensor | None]]:
    """The batch; for a model that was not seen before a few examples come first, to tell what each takes."""
    if model not in _held and size is None and units is None and num_examples(batch) > 2 * _LEAST_PIECE:
        _held[model] = 0.0
        yield take(batch, slice(0, _LEAST_PIECE)), None
        batch = take(batch, slice(_LEAST_PIECE, None))
    yield batch, units


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


def _pieces(batch: Batch, units: Tensor | None, size: int | None) -> Iterator[tuple[Batch, Tensor | None]]:
    """The batch cut into physical batches; a person's examples stay together."""
    if size is None or _check.whole("physical_batch_size", size) >= num_examples(batch):
        yield batch, units
    elif units is None:
        yield from ((piece, None) for piece in split(batch, size))
    else:
        order = torch.argsort(units, stable=True)
        sizes, start = torch.bincount(units).tolist(), 0
        while sizes:
            taken = sizes.pop(0)
            while sizes and taken + sizes[0] <= size:
                taken += sizes.pop(0)
            rows = order[start : start + taken]
            yield take(batch, rows), units[rows] - units[rows[0]]
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

    def one_piece(self, batch: Batch, units: Tensor | None) -> ClippedSum:
        """The clipped sum of some examples, computed at once."""
        model, loss_fn = self.model, self.loss_fn
        with torch.enable_grad():
            name, uses = uses_by(self.method, model, self.trainable, loss_fn, batch, self.modules)
            if uses is None:
                with kept(model, batch, self.modules) as own:
                    return _looped(model, loss_fn, own, self.clip_norm, self.clipping, units)
        if not self.is_cut:
            found = {place(tensor): tensor.nbytes for some in uses.values() for use in some for tensor in use.held()}
            _held[model] = sum(found.values()) / num_examples(batch)
        with torch.no_grad():
            if units is not None:
                apart(uses)
                index, present = _members(units)
                uses = {key: [use.grouped(index, present) for use in found] for key, found in uses.items()}
            return self._combined(uses, name, lambda: self._foreign(batch))

    def _foreign(self, batch: Batch) -> set[int]:
        """Where tensors lie that belong to the user, which nothing here may overwrite."""
        found = {place(tensor) for tensor in tensors(batch)}
        for _, module in self.modules:
            for values in (module._parameters, module._buffers):
                found.update([place(tensor) for tensor in values.values() if tensor is not None])
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


def _looped(
    model: nn.Module, loss_fn: LossFunction, batch: Batch, clip_norm: float, clipping: str, units: Tensor | None
) -> ClippedSum:
    total = {name: torch.zeros_like(value) for name, value in model.named_parameters() if value.requires_grad}
    norms, nonfinite = [], 0
    for found in looped.gradients(model, loss_fn, batch, units):
        squares = {name: torch.linalg.vector_norm(wide(value)).square()[None] for name, value in found.items()}
        norm, factors, broken = clip.factors(squares, clip_norm, clipping, total)
        norms.append(norm)
        if broken is not None:
            nonfinite += 1
            continue
        for name, value in found.items():
            total[name].add_(value * factors[name][0].to(value.dtype))
    return ClippedSum(total, torch.cat(norms), nonfinite, "looped")


def _added(pieces: list[ClippedSum]) -> ClippedSum:
    total = pieces[0].gradients
    for piece in pieces[1:]:
        for name, value in piece.gradients.items():
            total[name] = total[name] + value
    norms = torch.cat([piece.norms for piece in pieces])
    return ClippedSum(total, norms, sum(piece.nonfinite for piece in pieces), pieces[-1].method)
