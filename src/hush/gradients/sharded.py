"""The clipped sum of a model whose parameters are sharded by FSDP2 (`fully_shard`), by the tape.

FSDP's own hooks gather the parameters of a module before its forward and backward pass and free them afterwards. The
tape sees the gathered ones; it notes activations and their gradients, which are this process's own. Each parameter's
weighted product is handed over as soon as it is made, one at a time, and nothing of a parameter's size is kept.

All processes run the same passes in the same order, or they would wait for each other: a process without examples runs
one row of zeros, which counts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hush.errors import InvalidValue, NoRule, NotIsolated
from hush.gradients import clipping as clip
from hush.gradients.batches import Batch, LossFunction, SplitBatch, mapped, num_examples, take, tensors
from hush.gradients.clipped import _members, _pieces, _units
from hush.gradients.isolation import _SHUFFLES, _differ, _shuffled
from hush.gradients.layout import layout_of, mark
from hush.gradients.methods import taped
from hush.gradients.norms import measure
from hush.gradients.precision import exact_arithmetic, wide_dtype
from hush.gradients.tape import Tape
from hush.gradients.uses import Use
from hush.rng import same_draws

Deliver = Callable[[str, Tensor], None]


class Gathered:
    """A sharded model, and the parameters that its forward pass sees."""

    def __init__(self, model: nn.Module) -> None:
        from torch.distributed.fsdp import FSDPModule

        self.model = model
        self._modules: list[Any] = [module for module in model.modules() if isinstance(module, FSDPModule)]
        self._homes: dict[str, Any] = {}
        found: dict[str, nn.Parameter] = {}
        before = dict(model.named_parameters())
        for module in self._modules:
            module.unshard()
            now = dict(model.named_parameters())
            new = {name: value for name, value in now.items() if value is not before[name]}
            module.reshard()
            found |= new
            self._homes |= dict.fromkeys(new, module)
        self.parameters = {name: found[name] for name, value in before.items() if value.requires_grad and name in found}
        if missing := [name for name, value in before.items() if value.requires_grad and name not in found]:
            raise InvalidValue(
                f"parameter {missing[0]!r} is not sharded although others are; call fully_shard on the whole model too."
            )

    def clipped_sum(
        self,
        loss_fn: LossFunction,
        batch: Batch,
        clip_norm: float,
        *,
        clipping: clip.Clipping,
        units: Tensor | None,
        deliver: Deliver,
    ) -> tuple[Tensor, int]:
        """Hand each parameter's clipped sum to `deliver`, the last parameter first; the norms, and how many broke."""
        count = num_examples(batch)
        real = batch if count else mapped(lambda tensor: tensor.new_zeros(1, *tensor.shape[1:]), batch)
        uses = self._uses(loss_fn, real)
        with torch.no_grad(), exact_arithmetic():
            if units is not None and count:
                index, present = _members(units)
                uses = {name: [use.grouped(index, present) for use in found] for name, found in uses.items()}
            squares = measure(uses)
            norms, factors, broken = (
                clip.factors(squares, clip_norm, clipping, self.parameters) if squares else _none(real)
            )
            if not count:
                broken = torch.ones(1, dtype=torch.bool, device=norms.device)
            if broken is not None:
                uses = {name: [use.without(broken) for use in found] for name, found in uses.items()}
            for name in reversed(self.parameters):
                deliver(name, _product(self.parameters[name], uses.pop(name, []), factors.get(name)))
            nonfinite = 0 if broken is None else int(broken.sum())
            return (norms, nonfinite) if count else (norms[:0], 0)

    def check_isolation(self, loss_fn: LossFunction, batch: Batch, rows: int) -> None:
        """Raise `NotIsolated` if one example changes another's loss, the norm of its gradient, or a buffer.

        It looks at exactly `rows` examples, zeros where the batch has fewer: as many passes in every process.
        """
        few = mapped(lambda tensor: _exactly(tensor, rows), batch)
        before = self._seen(loss_fn, few)
        changed = [self._seen(loss_fn, mapped(partial(_shuffled, seed), few)) for seed in range(_SHUFFLES)]
        pairs = [pair for after in changed for pair in zip(before, after, strict=True)]
        if any(_differ(one[1:], other[1:]) for one, other in pairs):  # judged last: the others make as many passes
            raise NotIsolated(
                "one example changes another's loss or gradient, so no clipping can bound what it contributes; "
                "hush.check_isolation(model, loss_fn, batch) before fully_shard names the layer."
            )

    def _seen(self, loss_fn: LossFunction, batch: Batch) -> tuple[Tensor, Tensor]:
        """The losses, and the norms of the gradients."""
        heard: list[Tensor] = []

        def listened(*args: Any, **named: Any) -> Tensor:
            losses = loss_fn(*args, **named)
            heard.append(losses.detach())
            return losses

        def drop(name: str, value: Tensor) -> None:
            del name, value

        with same_draws():
            norms, _ = self.clipped_sum(listened, batch, 1.0, clipping="flat", units=None, deliver=drop)
        return heard[0], norms

    def _uses(self, loss_fn: LossFunction, batch: Batch) -> dict[str, list[Use]]:
        def work(rows: Batch) -> dict[str, list[Use]]:
            try:
                tape, _ = taped(self.model, loss_fn, mapped(Tensor.clone, rows), parameters=self.parameters)
            except (NoRule, SplitBatch) as reason:
                if "told apart" in str(reason):
                    raise NotIsolated(
                        f"one example changes another's loss or gradient, as far as the tape can tell: {reason}"
                    ) from None
                raise NoRule(f"{reason} A sharded model has no other method than the tape.") from None
            with self._at_hand(tape), torch.no_grad(), exact_arithmetic():
                return tape.uses()

        with torch.enable_grad(), self._followed():
            return work(batch)

    @contextmanager
    def _at_hand(self, tape: Tape) -> Iterator[None]:
        """The parameters that others are made of, gathered once more: their gradients are pulled back."""
        names = {name for weight, _ in tape._derived.values() for name in tape.origins(weight)}
        homes = [module for module in self._modules if any(self._homes[name] is module for name in names)]
        for module in homes:
            module.unshard()
        try:
            yield
        finally:
            for module in homes:
                module.reshard()

    @contextmanager
    def _followed(self) -> Iterator[None]:
        """FSDP hands a module copies of its inputs; here they keep what the tape knows of them."""
        given: list[list[Tensor]] = []

        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            given.append(list(tensors((*args, *kwargs.values()))))

        def after(module: nn.Module, args: Any, kwargs: Any) -> None:
            _copy_marks(given.pop(), list(tensors((*args, *kwargs.values()))))

        hooks = [m.register_forward_pre_hook(before, prepend=True, with_kwargs=True) for m in self._modules]
        hooks += [m.register_forward_pre_hook(after, with_kwargs=True) for m in self._modules]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def pieces_of(batch: Batch, groups: Tensor | None, size: int | None) -> list[tuple[Batch, Tensor | None]]:
    """The batch in pieces of at most `size` examples, each with the units that they belong to; one piece at least."""
    if not num_examples(batch):
        return [(batch, None)]
    return [(piece, units) for piece, units, _ in _pieces(batch, _units(groups, batch), None, size)]


def no_piece(batch: Batch) -> tuple[Batch, Tensor | None]:
    """A piece without examples."""
    return take(batch, slice(0, 0)), None


def _exactly(tensor: Tensor, rows: int) -> Tensor:
    return torch.cat([tensor[:rows], tensor.new_zeros(max(0, rows - len(tensor)), *tensor.shape[1:])])


def _copy_marks(before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
    for old, new in zip(before, after, strict=True):
        layout = layout_of(old)
        if new is not old and layout is not None:
            mark(new, layout)


def _product(parameter: nn.Parameter, uses: Sequence[Use], factors: Tensor | None) -> Tensor:
    if not uses or factors is None:
        return torch.zeros(parameter.shape, dtype=wide_dtype(parameter.dtype), device=parameter.device)
    total = uses[0].weighted(factors)
    for use in uses[1:]:
        total = total + use.weighted(factors)
    return total.reshape(parameter.shape)


def _none(batch: Batch) -> tuple[Tensor, dict[str, Tensor], None]:
    """No parameter was used: every gradient is zero."""
    return tensors(batch)[0].new_zeros(num_examples(batch), dtype=torch.float32), {}, None
