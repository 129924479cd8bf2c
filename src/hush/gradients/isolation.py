"""Proof by trial that examples do not mix: change one example, and nothing of the others may move.

Clipping bounds what one example contributes only if no other example's gradient depends on it. Batch normalisation, a
loss averaged over the batch's tokens, a contrastive loss or a buffer that learns break that, silently. This check runs
on the first batch of every training run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from hush.errors import InvalidValue, NotIsolated
from hush.gradients.batches import Batch, LossFunction, call, checked_losses, mapped, num_examples, take, tensors
from hush.gradients.clipped import clipped_sum, clipped_sum_and_rows
from hush.gradients.guarded import named_failures
from hush.gradients.spot_check import check_rows, watched_randomness, without_randomness
from hush.gradients.state import Snapshot
from hush.rng import Rng, kept_generators

_MOST_EXAMPLES = 16  # of the batch are looked at
_SHUFFLES = 3  # different first examples are tried
_PROBES = 2  # examples whose whole gradient is compared
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 2e-2}

Change = Callable[[Tensor], Tensor]


def check_isolation(model: nn.Module, loss_fn: LossFunction, batch: Batch, *, method: str = "auto") -> None:
    """Raise `NotIsolated`, naming the layer, where one example changes another's loss, gradient or a buffer.

    It also compares the gradients of `method` with plain backward passes. The model and the batch stay as they are.
    Examples whose gradient is not finite are left out: they count as zero in a sum.
    """
    if not is_checked(model, loss_fn, batch, method=method):
        raise InvalidValue(
            "check_isolation needs at least 2 examples with finite gradients, to see whether they mix; "
            f"the batch has {num_examples(batch)} rows."
        )


def is_checked(model: nn.Module, loss_fn: LossFunction, batch: Batch, *, method: str = "auto") -> bool:
    """The same; False where there are no two examples to look at."""
    few = take(batch, slice(0, _MOST_EXAMPLES))
    if num_examples(few) < 2:
        return False
    shuffles: list[Change] = [partial(_shuffled, seed) for seed in range(_SHUFFLES)]
    with kept_generators(), _undisturbed(model, loss_fn):
        before = _Pass(model, loss_fn, mapped(Tensor.clone, few))
        for good in (_finite_inputs, partial(_finite_gradients, model, loss_fn, method)):
            if before.is_finite:
                break
            few = take(few, good(few))
            if num_examples(few) < 2:
                return False
            before = _Pass(model, loss_fn, mapped(Tensor.clone, few))
        for change in (*shuffles, _masked):
            _check_change(model, loss_fn, few, change, before)
        _check_gradients(model, loss_fn, few, method)
    return True


# One example that is not finite would spoil the others' gradients in a plain backward pass: 0 times NaN is NaN.


def _finite_inputs(batch: Batch) -> Tensor:
    """The places of examples without NaN or infinity; all, where that leaves no two: a mask may be infinite."""
    rows = [torch.isfinite(tensor).reshape(len(tensor), -1).all(dim=1).cpu() for tensor in tensors(batch)]
    places = torch.stack(rows).all(dim=0).nonzero()[:, 0]
    return places if len(places) > 1 else torch.arange(num_examples(batch))


def _finite_gradients(model: nn.Module, loss_fn: LossFunction, method: str, batch: Batch) -> Tensor:
    """The places of examples with a finite gradient."""
    with without_randomness():
        norms = clipped_sum(model, loss_fn, batch, 1.0, method=method).norms  # type: ignore[arg-type]
    return torch.isfinite(norms).nonzero()[:, 0].cpu()


def _check_change(model: nn.Module, loss_fn: LossFunction, batch: Batch, change: Change, before: _Pass) -> None:
    changed = mapped(change, batch)
    if change is _masked and all(map(torch.equal, tensors(batch), tensors(changed))):
        return  # nothing that could be a mask
    try:
        after = _Pass(model, loss_fn, changed)
    except (RuntimeError, IndexError, ValueError):
        if change is _masked:  # not every whole number is a mask
            return
        raise
    if _differ(before.losses[1:], after.losses[1:]):
        raise NotIsolated(_blame(before, after))
    for before_row, after_row in zip(before.gradients, after.gradients, strict=True):
        if not all(map(torch.equal, before_row, after_row)) and _differ(_row(before_row), _row(after_row)):
            raise NotIsolated(_blame(before, after))


def _check_gradients(model: nn.Module, loss_fn: LossFunction, batch: Batch, method: str) -> None:
    """The method's gradients against plain backward passes of single examples."""
    rows = list(range(1, min(1 + _PROBES, num_examples(batch))))
    with watched_randomness() as is_random:
        own = mapped(Tensor.clone, batch)
        _, found = clipped_sum_and_rows(model, loss_fn, own, 1.0, method=method, rows=rows)  # type: ignore[arg-type]
    check_rows(model, loss_fn, batch, rows, found, method=method, is_random=is_random())  # type: ignore[arg-type]


class _Pass:
    """One forward pass with the same random draws each time, what each module gave, and the losses."""

    def __init__(self, model: nn.Module, loss_fn: LossFunction, batch: Batch) -> None:
        self._model, self.calls = model, list[tuple[str, nn.Module, list[Tensor], list[Tensor]]]()
        hooks = [
            module.register_forward_hook(self._keep(name), with_kwargs=True)
            for name, module in model.named_modules()
            if not isinstance(module, torch.jit.ScriptModule)
        ]
        try:
            with without_randomness(), torch.enable_grad():
                self.losses = checked_losses(call(loss_fn, model, batch), num_examples(batch))
        finally:
            for hook in hooks:
                hook.remove()

    def _keep(self, name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            given = [value.detach().clone() for value in tensors((*args, *kwargs.values()))]
            self.calls.append((name, module, given, [value.detach() for value in tensors((output,))]))

        return hook

    @property
    def is_finite(self) -> bool:
        """Whether all losses, and the gradients of those that are looked at, are finite."""
        found = [self.losses, *(value for row in self.gradients for value in row)]
        return all(bool(torch.isfinite(value).all()) for value in found)

    @cached_property
    def gradients(self) -> list[list[Tensor]]:
        """The gradients of each of a few losses, none of them the changed example's, by all weights."""
        return list(self._gradients())

    def _gradients(self) -> Iterator[list[Tensor]]:
        weights = [value for value in self._model.parameters() if value.requires_grad]
        for index in range(1, min(1 + _PROBES, len(self.losses))):
            if not self.losses.requires_grad:
                yield [self.losses.new_zeros(1)]
                continue
            with without_randomness(), named_failures():  # a checkpoint runs its part of the forward pass again
                found = torch.autograd.grad(
                    self.losses[index], weights, retain_graph=True, allow_unused=True, materialize_grads=True
                )
            yield [value.to_dense() if value.is_sparse else value for value in found]


def _row(gradients: list[Tensor]) -> Tensor:
    return torch.cat([value.reshape(-1) for value in gradients])


def _blame(before: _Pass, after: _Pass) -> str:
    """The first module that changed another example's row, or the code just before it."""
    count = len(before.losses)

    def mixed(old: list[Tensor], new: list[Tensor]) -> bool:
        rows = [pair for pair in zip(old, new, strict=False) if pair[0].shape == pair[1].shape and pair[0].ndim]
        return any(len(one) == count and _differ(one[1:], other[1:]) for one, other in rows)

    for (name, module, given, made), (_, _, given_then, made_then) in zip(before.calls, after.calls, strict=False):
        kind = type(module).__name__
        if mixed(given, given_then):
            owner = name.rpartition(".")[0] or "the model"
            return f"the code of {owner} that calls {name} ({kind}) lets one example change another's; {_hint('')}."
        if mixed(made, made_then):
            return f"{name or 'the model'} ({kind}) lets one example change another's result; {_hint(kind)}."
    return (
        "loss_fn, or a backward pass in the model, lets one example change another's loss or gradient; compute each "
        "example's loss from that example alone (no mean over the batch or over all its tokens, no comparison between "
        "examples)."
    )


def _hint(kind: str) -> str:
    if "BatchNorm" in kind:
        return "use GroupNorm, or keep it in eval mode with statistics from public data"
    return "make it treat each example by itself"


def _differ(one: Tensor, other: Tensor) -> bool:
    one, other = one.detach(), other.detach()
    if torch.equal(one, other):  # the usual case, and far cheaper than the rest
        return False
    if not one.is_floating_point():
        return True
    limit = _TOLERANCE.get(one.dtype, 1e-4)
    scale = torch.nan_to_num(one).abs().max() if one.numel() else 0.0
    return not torch.allclose(one, other, rtol=limit, atol=limit * float(scale) + 1e-12, equal_nan=True)


def _shuffled(seed: int, tensor: Tensor) -> Tensor:
    """The same batch with another first example, made of values that occur in the batch."""
    result = tensor.clone()
    generator = Rng.from_seed(seed).torch_stream("another example")
    values = tensor.reshape(-1)
    if tensor.ndim == 1 and not tensor.is_floating_point():  # a label: another one, each time another if there are
        others = torch.unique(values[values != values[0]])
        if len(others):
            result[0] = others[seed % len(others)]
        return result
    if not len(values) or not tensor[0].numel():
        return result
    chosen = torch.randint(len(values), (tensor[0].numel(),), generator=generator).to(tensor.device)
    row = values[chosen].reshape(tensor[0].shape)
    if tensor.is_floating_point():
        row = row + torch.randn(row.shape, generator=generator).to(tensor) * (tensor.std() + 0.1)
    result[0] = row
    return result


def _masked(tensor: Tensor) -> Tensor:
    """The same batch with zeros in the later half of the first example's whole numbers: another mask."""
    result = tensor.clone()
    if not tensor.is_floating_point() and tensor.ndim > 1:
        result[0, ..., tensor.shape[-1] // 2 :] = 0
    return result


@contextmanager
def _undisturbed(model: nn.Module, loss_fn: LossFunction) -> Iterator[None]:
    """Model and loss function as they were."""
    before = Snapshot(model, loss_fn, list(model.named_modules()), in_full=True)
    try:
        yield
    finally:
        before.restore()
