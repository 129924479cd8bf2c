"""What is checked while a run goes on, so that a wrong run ends at its start and says why.

| what | when | error |
|---|---|---|
| one example changes another's gradient or loss | first batch with two finite rows, and spot checks | `NotIsolated` |
| a pass changes parameters, buffers, attributes or variables | every pass | `NotIsolated` |
| `augment` mixes rows | first batch with two rows, and at random | `NotIsolated` |
| `loss_fn` does not give one loss per row | every call | `InvalidValue` |
| a trainable parameter is not in the optimizer | before the first step | `NotLearning` |
| a trainable parameter has had no gradient, or has not moved | after `guard_steps` steps | `NotLearning` |
| a step is not in the plan, or does not fit under the cap | that step | `BudgetExceeded` |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hush.errors import InvalidValue, NotIsolated, NotLearning
from hush.gradients.batches import Batch, LossFunction, constants, mapped, num_examples, take, tensors
from hush.gradients.isolation import is_checked
from hush.gradients.prints import print_of
from hush.gradients.stateless import Stateless
from hush.rng import Rng, fixed_seeds
from hush.training.parts import local
from hush.training.team import Team

_SEEDS = 24  # from which the first batch is augmented to see whether rows mix
_AGAIN = 1 / 16  # of the later batches at which it is seen whether the augmentation can still be replayed


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
    """An augmentation that cannot mix rows: applied row by row, or replayed and compared.

    A function that gives the same rows again from the same seeds of torch, numpy and `random` is checked on every row:
    each against each other in the first batch, and a random half against the other half, both ways, in every later
    one. Any other function is applied to one row at a time.
    """

    def __init__(self, augment: Callable[[Batch], Batch]) -> None:
        self._augment = Stateless(augment, "augment")
        self._is_replayable: bool | None = None
        self._stream = Rng.from_entropy().stream("augmentation checks")

    def __call__(self, batch: Batch) -> Batch:
        """Return the augmented batch."""
        count = num_examples(batch)
        if count < 2:
            return self._augment(batch)
        if self._is_replayable is None:
            self._is_replayable = is_replayable(self._augment, batch)
            if self._is_replayable:
                check_augmentation(self._augment, batch)
        elif self._is_replayable and self._stream.random() < _AGAIN:
            self._is_replayable = is_replayable(self._augment, batch)
        if not self._is_replayable:
            return _joined([self._augment(take(batch, slice(row, row + 1))) for row in range(count)])
        # What is used is what is checked: from this seed, and again with other values in either half of the rows.
        half = torch.from_numpy(self._stream.integers(0, 2, count).astype(bool))
        seed = int(torch.randint(2**31, ()))  # from the generator that people seed to repeat an augmentation
        with fixed_seeds(seed):
            result = self._augment(mapped(torch.clone, batch))
        _compare(self._augment, batch, [half, ~half], seed, before=_parts(result))
        return result


def is_replayable(augment: Callable[[Batch], Batch], batch: Batch) -> bool:
    """Return whether the function gives the same rows again from the same seeds."""
    (one, known), (other, others) = _replayed(augment, batch), _replayed(augment, batch)
    return known == others and all(map(_same, one, other))


def check_augmentation(augment: Callable[[Batch], Batch], batch: Batch) -> None:
    """Raise `NotIsolated` if changing any row changes another row of the augmented batch.

    Rows are changed in groups, one group for each binary digit of a row's number and one for its opposite: any two
    rows are once in different groups, each way.
    """
    count = num_examples(batch)
    if count < 2:
        return
    numbers = torch.arange(count)
    groups = [(numbers >> digit) % 2 == side for digit in range((count - 1).bit_length()) for side in (0, 1)]
    _compare(augment, batch, groups)
    for seed in range(1, _SEEDS):  # what happens at random may not happen from one seed
        _compare(augment, batch, groups[:2], seed)


def _compare(
    augment: Callable[[Batch], Batch],
    batch: Batch,
    groups: list[Tensor],
    seed: int = 0,
    before: _Parts | None = None,
) -> None:
    rows, known = _replayed(augment, batch, seed) if before is None else before
    count = num_examples(batch)
    if any(value.shape[:1] != (count,) for value in rows):
        raise InvalidValue(f"augment must return as many rows as it got, {count}.")
    for changed in groups:
        after, others = _replayed(augment, mapped(partial(_changed_rows, changed), batch), seed)
        kept = (~changed).nonzero()[:, 0]
        if known != others or not all(
            _same(one[kept.to(one.device)], other[kept.to(other.device)])
            for one, other in zip(rows, after, strict=True)
        ):
            raise NotIsolated(_MIXES)


_MIXES = (
    "augment lets one example change another (a mixture, or a statistic of the batch), so no clipping can bound what "
    "an example contributes; augment each row for itself."
)
_Parts = tuple[list[Tensor], Any]  # the tensors of a batch, and a print of what else is in it


def _parts(batch: Batch) -> _Parts:
    return [value.detach().clone() for value in tensors(batch)], print_of(constants(batch))


def _replayed(augment: Callable[[Batch], Batch], batch: Batch, seed: int = 0) -> _Parts:
    """Return what the function gives from fixed seeds; the user's generators are put back."""
    with fixed_seeds(seed):
        return _parts(augment(mapped(torch.clone, batch)))


def _changed_rows(chosen: Tensor, tensor: Tensor) -> Tensor:
    """The same with other values in the chosen rows: such as occur in the tensor, moved a little where they may be."""
    result = tensor.clone()
    where = chosen.to(tensor.device)
    others = tensor.roll(1, 0).flip(-1) if tensor.ndim > 1 else tensor.roll(1, 0)
    result[where] = (others[where] * -0.7 + 0.3).to(tensor.dtype) if tensor.is_floating_point() else others[where]
    return result


def _joined(pieces: list[Batch]) -> Batch:
    """Batches of one row each as one batch."""
    first = pieces[0]
    if isinstance(first, Tensor):
        return torch.cat(pieces)
    if isinstance(first, Mapping):
        return {key: _joined([piece[key] for piece in pieces]) for key in first}
    if isinstance(first, tuple | list):
        return tuple(_joined([piece[place] for piece in pieces]) for place in range(len(first)))
    if any(print_of(piece) != print_of(first) for piece in pieces):
        raise NotIsolated(_MIXES)
    return first


def _same(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and bool(torch.equal(torch.nan_to_num(left), torch.nan_to_num(right)))


def _mark(value: Tensor) -> tuple[float, float]:
    """Two numbers that change when the values do, without a copy of them."""
    flat = local(value.detach())
    return float(flat.sum(dtype=torch.float64)), float(torch.linalg.vector_norm(flat, dtype=torch.float64))


def _names(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return f"parameter {shown}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
