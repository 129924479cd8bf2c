"""One example (or one person's examples) at a time. Slow, and always right: the truth that the tests hold others to."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from hush.gradients.batches import Batch, LossFunction, call, checked_losses, num_examples, take


def gradients(
    model: nn.Module, loss_fn: LossFunction, batch: Batch, units: Tensor | None
) -> Iterator[dict[str, Tensor]]:
    """The gradient of each unit in turn, as one for every trainable parameter."""
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    count = num_examples(batch)
    for unit in range(count if units is None else int(units.max()) + 1):
        rows = slice(unit, unit + 1) if units is None else torch.nonzero(units == unit)[:, 0]
        piece = take(batch, rows)
        losses = [checked_losses(call(loss_fn, model, one), 1) for one in _singles(piece)]
        total = torch.cat(losses).sum()
        if not total.requires_grad:
            yield {name: torch.zeros_like(value) for name, value in named.items()}
            continue
        found = torch.autograd.grad(total, list(named.values()), allow_unused=True, materialize_grads=True)
        yield {name: value.to_dense() if value.is_sparse else value for name, value in zip(named, found, strict=True)}


def _singles(batch: Batch) -> Iterator[Batch]:
    for index in range(num_examples(batch)):
        yield take(batch, slice(index, index + 1))
