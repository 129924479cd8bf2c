"""A loss function that is listened to: each row's weight is applied, and the sum is kept for the history."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from hush.gradients.batches import Batch, LossFunction, call, checked_losses, num_examples
from hush.training.lots import Lot


class Losses:
    """Calls `loss_fn` for a lot. Where a lot has weights, its batch here is (batch, weights).

    The sums are not private. Inside a transformed function (vmap) nothing can be kept, and `sums` gives zeros.
    """

    def __init__(self, loss_fn: LossFunction) -> None:
        self.loss_fn = self.__wrapped__ = loss_fn
        self._weighted = False
        self._heard: list[tuple[Tensor, Tensor | None]] = []

    def take(self, lot: Lot) -> Batch:
        """Listen from here on to this lot, and give the batch to call with."""
        self._heard.clear()
        self._weighted = lot.weights is not None
        return (lot.batch, lot.weights) if self._weighted else lot.batch

    def __call__(self, model: nn.Module, *batch: Any, **named: Any) -> Tensor:
        """One loss per row."""
        losses, weights = self._called(model, batch, named)
        with torch._C.DisableTorchFunction():  # what follows the model's functions need not see this
            if not torch._C._functorch.is_functorch_wrapped_tensor(losses):
                self._heard.append((losses.detach(), weights))
        return losses if weights is None else losses * weights

    def _unheard(self, model: nn.Module, *batch: Any, **named: Any) -> Tensor:
        losses, weights = self._called(model, batch, named)
        return losses if weights is None else losses * weights

    def _called(self, model: nn.Module, batch: Any, named: Any) -> tuple[Tensor, Tensor | None]:
        inner = batch[0] if self._weighted else (named or batch)
        losses = call(self.loss_fn, model, inner)
        with torch._C.DisableTorchFunction():
            checked_losses(losses, num_examples(inner))
        return losses, batch[1] if self._weighted else None

    def sums(self) -> tuple[float, float]:
        """The weighted sum of the finite losses heard since `take`, and the sum of their weights."""
        result = total = 0.0
        for losses, weights in self._heard:
            added = losses if weights is None else losses * weights
            sums = float(added.sum(dtype=torch.float64)), losses.shape[0] if weights is None else float(weights.sum())
            if not math.isfinite(sums[0]):  # 0 times NaN is NaN: rows of padding can spoil it too
                real = torch.isfinite(losses)
                kept = real.to(losses.dtype) if weights is None else weights * real
                sums = float((losses.nan_to_num(0.0, 0.0, 0.0) * kept).sum(dtype=torch.float64)), float(kept.sum())
            result, total = result + sums[0], total + sums[1]
        self._heard.clear()
        return result, total


def unheard(loss_fn: LossFunction) -> LossFunction:
    """The same losses for rows that are none of the lot's, and not listened to."""
    return loss_fn._unheard if isinstance(loss_fn, Losses) else loss_fn
