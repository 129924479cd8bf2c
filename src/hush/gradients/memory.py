"""How much memory a computation takes, and the physical batch that fits a limit."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hush import _check
from hush.errors import Unreachable
from hush.gradients.batches import Batch, LossFunction, num_examples, take, tensors
from hush.gradients.clipped import Method, clipped_sum

_ENOUGH = 1024  # examples, from which on memory grows linearly


class _Meter(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive at once, from the results of every operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():
            given = {value.untyped_storage()._cdata for value in tensors((*args, *(kwargs or {}).values()))}
            for value in tensors((result,)):
                storage = value.untyped_storage()
                if storage._cdata not in given:  # a view of what was there takes nothing
                    self._count(storage)
        return result

    def _count(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._seen:
            return
        self._seen.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that the tensors made by `work` take at once; the same on every device and every run."""
    with _Meter() as meter:
        work()
    return meter.peak


def physical_batch_size_for(
    model: nn.Module, loss_fn: LossFunction, batch: Batch, clip_norm: float, *, memory_limit: int, method: str = "auto"
) -> int:
    """The largest physical batch, within a few in a hundred, whose private gradient fits in `memory_limit` bytes.

    That is beside the model. Batches of 8, 16, 32 ... examples are measured, up to a thousand or so: of small ones the
    gradients themselves take most, of large ones the maps, so that few examples do not tell what many take. `batch`
    needs a few examples that are as large as any.
    """
    limit = _check.whole("memory_limit", memory_limit)
    count = max(2, min(num_examples(batch), 8))

    def measured(count: int) -> int:
        index = torch.arange(count) % num_examples(batch)
        piece, kind = take(batch, index), cast("Method", method)
        job = partial(clipped_sum, model, loss_fn, piece, clip_norm, method=kind, physical_batch_size=count)
        return peak_bytes(job)  # in one piece, as it will be

    measured(count)  # the first pass may try several ways
    small, large = measured(count), measured(2 * count)
    each = max((large - small) / count, 1.0)
    if small + (1 - count) * each > limit:
        raise Unreachable(
            f"one example needs about {small + (1 - count) * each:.0f} bytes, over the limit of {limit}; raise "
            "memory_limit, or train fewer parameters."
        )
    count *= 2
    while 2 * count <= (size := count + (limit - large) / each) and count < _ENOUGH:
        count, small, large = 2 * count, large, measured(2 * count)
        each = max((large - small) / (count / 2), 1.0)
    found = max(1, int(0.95 * size))
    if (
        count < found < 2 * count and (most := measured(found)) > limit
    ):  # what an example takes grows, so that this is enough
        found = int(count + (limit - large) * (found - count) / (most - large))
    return found
