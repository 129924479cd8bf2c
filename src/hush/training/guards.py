"""What is checked while a run goes on, so that a wrong run ends at its start and says why.

| what | when | error |
|---|---|---|
| one example changes another's gradient, loss or a buffer | first batch with two finite rows | `NotIsolated` |
| `augment` mixes rows | first batch with two rows | `NotIsolated` |
| `loss_fn` does not give one loss per row | every call | `InvalidValue` |
| a trainable parameter is not in the optimizer | before the first step | `NotLearning` |
| a trainable parameter has had no gradient, or has not moved | after `guard_steps` steps | `NotLearning` |
| a step is not in the plan, or does not fit under the cap | that step | `BudgetExceeded` |
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hush.errors import NotIsolated, NotLearning
from hush.gradients.batches import Batch, LossFunction, mapped, num_examples, take, tensors
from hush.gradients.isolation import is_checked
from hush.training.parts import local
from hush.training.team import Team

_ROWS = 16  # mixing shows on any two rows; more only cost time


class IsolationGuard:
    """Checks the first batch that has two rows."""

    def __init__(self, method: str = "auto") -> None:
        self._method, self._checked = method, False

    def check(self, model: nn.Module, loss_fn: LossFunction, batch: Batch) -> None:
        """Raise `NotIsolated` if one row changes what another gives, by the run's own method."""
        if not self._checked:
            self._checked = is_checked(model, loss_fn, batch, method=self._method)


class Reach:
    """Which parameters have had a gradient other than zero, before noise."""

    def __init__(self, names: Collection[str], *, most: int = 100) -> None:
        self.missing = set(names)
        self.seen = 0
        self._most = most  # looking costs a pass over the gradients, so it ends

    def look(self, gradients: dict[str, Tensor] | None) -> list[float]:
        """For each missing name, in their order, 1 if its gradient is other than zero; None stands for zeros."""
        if self.seen >= self._most:
            return []
        return [float(gradients is not None and bool(gradients[name].any())) for name in sorted(self.missing)]

    def see(self, found: list[float]) -> None:
        """Take in what all processes found at one step that had rows."""
        self.seen += 1
        self.missing -= {name for name, count in zip(sorted(self.missing), found, strict=False) if count}


class MovementGuard:
    """Every trainable parameter must have a gradient and move within `steps` steps that had rows."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        steps: int,
        may_rest: Collection[str],
        team: Team | None = None,
    ) -> None:
        self._team = team or Team()
        self._parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self._steps = steps
        self._may_rest = frozenset(may_rest)
        _check_optimizer(self._parameters, optimizer, self._may_rest)
        self._before = {name: _mark(value) for name, value in self._parameters.items()} if steps else {}

    def after_step(self, reach: Reach) -> None:
        """Look once, when so many steps have had rows."""
        taken = reach.seen
        if taken < self._steps or not self._before:
            return
        self.finish()
        if unreached := sorted(reach.missing - self._may_rest):
            raise NotLearning(
                f"{_names(unreached)} had no gradient in {taken} steps, so only noise would move it; is it used by "
                "loss_fn? Freeze it by requires_grad_(False), or name it in may_rest."
            )

    def finish(self) -> None:
        """Raise if a parameter has the values it began with; called at the end of shorter runs too."""
        moved = torch.tensor([float(_mark(self._parameters[name]) != mark) for name, mark in self._before.items()])
        anywhere = self._team.total(moved).tolist()  # a process may hold nothing of a sharded parameter
        still = [name for name, count in zip(self._before, anywhere, strict=True) if not count]
        still = [name for name in still if name not in self._may_rest]
        self._before = {}
        if still:
            raise NotLearning(
                f"{_names(still)} has not moved although it is trainable; is its learning rate 0, or was the "
                "parameter replaced after the optimizer was made? Make the optimizer anew, or freeze the parameter."
            )


def _check_optimizer(parameters: dict[str, nn.Parameter], optimizer: Optimizer, may_rest: Collection[str]) -> None:
    held = {id(value) for group in optimizer.param_groups for value in group["params"]}
    missing = [name for name, value in parameters.items() if id(value) not in held and name not in may_rest]
    if missing:
        raise NotLearning(
            f"{_names(missing)} is trainable but not in the optimizer, so it would never move; "
            "make the optimizer after the model has its final parameters, or freeze it by requires_grad_(False)."
        )
    known = {id(value) for value in parameters.values()}
    strange = sum(id(v) not in known and v.requires_grad for group in optimizer.param_groups for v in group["params"])
    if strange:
        raise NotLearning(
            f"the optimizer holds {strange} trainable tensors that are not parameters of this model, which would get "
            "no private gradient; make it from this model's parameters."
        )


class CheckedAugmentation:
    """An augmentation that is checked on its first batch of two rows."""

    def __init__(self, augment: Callable[[Batch], Batch]) -> None:
        self._augment = augment
        self._checked = False

    def __call__(self, batch: Batch) -> Batch:
        """The augmented batch."""
        if not self._checked and num_examples(batch) > 1:
            check_augmentation(self._augment, batch)
            self._checked = True
        return self._augment(batch)


def check_augmentation(augment: Callable[[Batch], Batch], batch: Batch) -> None:
    """Raise `NotIsolated` if changing the first row changes another row of the augmented batch.

    Both calls begin at the same state of torch's global generator, which is put back afterwards. A function that is
    random in another way cannot be compared, and is let through.
    """
    if num_examples(batch) < 2:
        return
    batch = take(batch, slice(0, _ROWS))
    state = torch.get_rng_state()

    def run(rows: Batch) -> list[Tensor]:
        torch.set_rng_state(state)
        return [value.detach().clone() for value in tensors(augment(mapped(torch.clone, rows)))]

    try:
        once, again, changed = run(batch), run(batch), run(mapped(_first_row_changed, batch))
    finally:
        torch.set_rng_state(state)
    if not all(_same(a, b) for a, b in zip(once, again, strict=True)):
        return
    if not all(_same(a[1:], b[1:]) for a, b in zip(once, changed, strict=True)):
        raise NotIsolated(
            "augment lets one example change another (a mixture, or a statistic of the batch), so no clipping can "
            "bound what an example contributes; augment each row for itself."
        )


def _first_row_changed(tensor: Tensor) -> Tensor:
    result = tensor.clone()
    result[0] = 1 - result[0] if tensor.is_floating_point() else result[0].flip(-1) if result[0].ndim else result[0]
    return result


def _same(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and bool(torch.equal(torch.nan_to_num(left), torch.nan_to_num(right)))


def _mark(value: Tensor) -> tuple[float, float]:
    """Two numbers that change when the values do, without a copy of them."""
    flat = local(value.detach())
    return float(flat.sum(dtype=torch.float64)), float(torch.linalg.vector_norm(flat, dtype=torch.float64))


def _names(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return f"parameter {shown}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
