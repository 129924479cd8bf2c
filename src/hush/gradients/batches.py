"""Batches: a tensor, a tuple or a mapping of tensors that share their first axis."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, TypeAlias, cast

import numpy
import torch
from torch import Tensor, nn

from hush.errors import InvalidValue


class SplitBatch(Exception):
    """A condition on the batch has another answer for some examples than for others; `verdicts` (batch,) are theirs."""

    def __init__(self, verdicts: Tensor) -> None:
        super().__init__("a condition in the model has different answers for different examples.")
        self.verdicts = verdicts


Batch: TypeAlias = Any  # a tensor, or a tuple, list or mapping of tensors and constants
LossFunction: TypeAlias = Callable[..., Tensor]

_SEQUENCES = (tuple, list)


def call(loss_fn: LossFunction, model: nn.Module, batch: Batch) -> Tensor:
    """`loss_fn(model, *batch)`, or with keywords where the batch is a mapping; compiled functions run uncompiled."""
    is_compiling = "torch._dynamo" in sys.modules  # otherwise nothing was compiled, and to import it takes long
    with torch.compiler.set_stance("force_eager") if is_compiling else nullcontext():
        if isinstance(batch, Tensor):
            return loss_fn(model, batch)
        if not isinstance(batch, _SEQUENCES) and isinstance(batch, Mapping):
            return loss_fn(model, **batch)
        return loss_fn(model, *batch)


def mapped(function: Callable[[Tensor], Any], batch: Batch) -> Batch:
    """The same batch with the function applied to every tensor in it."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, _SEQUENCES):
        return tuple([mapped(function, value) for value in batch])
    if isinstance(batch, Mapping):
        return {key: mapped(function, value) for key, value in batch.items()}
    return batch


def tensors(batch: Batch) -> list[Tensor]:
    """All tensors of the batch."""
    if isinstance(batch, Tensor):
        return [batch]
    if isinstance(batch, _SEQUENCES):
        return [tensor for value in batch for tensor in tensors(value)]
    if isinstance(batch, Mapping):
        return [tensor for value in batch.values() for tensor in tensors(value)]
    return []


def constants(batch: Batch) -> list[Any]:
    """All in the batch that is no tensor, and so belongs to no example."""
    if isinstance(batch, Tensor):
        return []
    if isinstance(batch, _SEQUENCES):
        return [value for part in batch for value in constants(part)]
    if isinstance(batch, Mapping):
        return [value for part in batch.values() for value in constants(part)]
    return [batch]


def num_examples(batch: Batch) -> int:
    """The number of examples: the length that all tensors of the batch share."""
    sizes: set[int | None] = set()
    if type(batch) is tuple and all(type(value) is Tensor for value in batch):  # as nearly always, and quicker
        sizes.update([value.shape[0] if value.ndim else None for value in batch])
    else:
        _note_lengths(batch, sizes)
    if len(sizes) != 1 or None in sizes:
        raise InvalidValue(
            "a batch must be tensors whose first axis is the example, all of one length; "
            f"got lengths {sorted(map(str, sizes))}."
        )
    return cast("int", sizes.pop())


def _note_lengths(batch: Batch, sizes: set[int | None]) -> None:
    """Of all tensors; None for one without axes. A list of numbers or texts is refused: nothing here could cut it."""
    if isinstance(batch, Tensor):
        sizes.add(batch.shape[0] if batch.ndim else None)
        return
    is_list = isinstance(batch, list) and batch and not isinstance(batch[0], Tensor | Mapping | list | tuple)
    if is_list or isinstance(batch, numpy.ndarray):
        kind = f"list of {type(batch[0]).__name__}" if is_list else "numpy array"
        raise InvalidValue(
            f"a batch must not hold a {kind}: it cannot be cut into examples; make it a tensor with one row for each "
            "example, or a tuple if it is a constant."
        )
    if isinstance(batch, _SEQUENCES):
        for value in batch:
            _note_lengths(value, sizes)
    elif isinstance(batch, Mapping):
        for value in batch.values():
            _note_lengths(value, sizes)


def take(batch: Batch, index: Tensor | slice) -> Batch:
    """The examples at these places."""
    return mapped(lambda tensor: tensor[index], batch)


def split(batch: Batch, size: int) -> Iterator[Batch]:
    """The batch in pieces of at most `size` examples."""
    for start in range(0, num_examples(batch), size):
        yield take(batch, slice(start, start + size))


def checked_losses(losses: object, count: int) -> Tensor:
    """The losses, if there is one for each example."""
    if not isinstance(losses, Tensor) or losses.shape != (count,):
        came = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise InvalidValue(
            f"loss_fn must return one loss per example, shape ({count},); got {came}. "
            "Use reduction='none', and average over tokens or pixels inside each example only."
        )
    if not torch.is_floating_point(losses):
        raise InvalidValue(f"loss_fn must return floating-point losses; got {losses.dtype}.")
    return losses
