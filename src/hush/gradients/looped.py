"""One example (or one person's examples) at a time. Slow, and always right: the truth that the tests hold others to."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from hush.gradients.batches import Batch, LossFunction, call, checked_losses, mapped, num_examples, take
from hush.gradients.guarded import guarded, refuse_changes
from hush.gradients.precision import exact_arithmetic, wide
from hush.gradients.reach import Modules
from hush.gradients.state import ReadOnly, Snapshot

Row = dict[str, Tensor]


def gradients(
    model: nn.Module, loss_fn: LossFunction, batch: Batch, units: Tensor | None, modules: Modules | None = None
) -> Iterator[Row]:
    """Yield the gradient of each unit in turn, as one for every trainable parameter, in float32 or wider.

    Raises:
        NotIsolated: A pass keeps something of its example, which the next one could see.
    """
    modules = list(model.named_modules()) if modules is None else modules
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    before, after_one = Snapshot(model, loss_fn, modules, in_full=True), None
    count = num_examples(batch)
    with ReadOnly(modules):
        for unit in range(count if units is None else int(units.max()) + 1):
            rows = slice(unit, unit + 1) if units is None else torch.nonzero(units == unit)[:, 0]
            total: Row = {}
            for one in _singles(take(batch, rows)):
                found = guarded(model, loss_fn, one, modules, lambda own: _gradient(model, named, loss_fn, own))
                total = {name: value + total[name] if name in total else value for name, value in found.items()}
                after_one = after_one or Snapshot(model, loss_fn, modules, in_full=False)
            yield total
    refuse_changes(before)
    if after_one is not None:  # a count of calls would tell how many examples there were
        after_one.restore()


def alone(model: nn.Module, loss_fn: LossFunction, batch: Batch) -> Row:
    """Return the gradient of a batch of one example."""
    modules = list(model.named_modules())
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    with ReadOnly(modules):
        found: Row = guarded(model, loss_fn, batch, modules, lambda own: _gradient(model, named, loss_fn, own))
    return found


def _gradient(model: nn.Module, named: dict[str, nn.Parameter], loss_fn: LossFunction, batch: Batch) -> Row:
    with torch.enable_grad():
        loss = checked_losses(call(loss_fn, model, mapped(Tensor.clone, batch)), 1)[0]
        if not loss.requires_grad:
            return {name: wide(torch.zeros_like(value)) for name, value in named.items()}
        with exact_arithmetic():
            found = torch.autograd.grad(loss, list(named.values()), allow_unused=True, materialize_grads=True)
    dense = [value.to_dense() if value.is_sparse else value for value in found]
    return {name: wide(value) for name, value in zip(named, dense, strict=True)}


def _singles(batch: Batch) -> Iterator[Batch]:
    for index in range(num_examples(batch)):
        yield take(batch, slice(index, index + 1))
