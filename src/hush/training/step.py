"""Private gradients for people who write their own loop: clipped, summed, charged, noised, divided, into `.grad`."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor, nn

from hush.errors import InvalidValue, UnplannedBatch
from hush.gradients import physical_batch_size_for
from hush.gradients.batches import Batch, LossFunction, num_examples
from hush.gradients.clipped import Method
from hush.gradients.guarded import logged_by, settle
from hush.gradients.spot_check import check_collated, check_rows, kept_rows, watched_randomness
from hush.gradients.state import check_initialised
from hush.mechanisms import gaussian
from hush.privacy import Guarantee
from hush.rng import Rng
from hush.training.charges import Charges
from hush.training.clipping import ClipNorm
from hush.training.closures import CHANGES, print_of_closure
from hush.training.costs import cost
from hush.training.distributed import Engine, engine_for
from hush.training.draws import UNPLANNED, Draw, Taken
from hush.training.earlier import Earlier, digests, notes_on, remember, remember_values
from hush.training.guards import Reach
from hush.training.losses import Losses, unheard
from hush.training.lots import Lot, as_lot, to_device
from hush.training.noise_choice import Noise, noise_source
from hush.training.spots import SpotChecks
from hush.training.team import Team

if TYPE_CHECKING:
    from hush.ledger import Account
    from hush.training.plan import TrainingPlan


@dataclass(frozen=True)
class StepReport:
    """What was seen at one step. `step` and `clip_norm` may be shown; the rest was read from the data without noise.

    `loss` is the mean over the batch, or None where it was empty or stayed inside a transformed function. `nonfinite`
    is how many units had a NaN or infinite gradient, and counted as zero. `norm` is the mean norm of the units'
    gradients and `clipped` the share above the clip norm; None for an empty batch, and without privacy.
    """

    step: int
    clip_norm: float
    loss: float | None
    nonfinite: int
    method: str
    norm: float | None = None
    clipped: float | None = None


class PrivateGradients:
    """Gives each trainable parameter its private gradient, and counts what that costs.

        private = PrivateGradients(model, plan)
        for batch in plan.batches(dataset):
            private.backward(loss_fn, batch)
            optimizer.step(); optimizer.zero_grad()
        private.guarantee()

    Under torchrun each process gives its share of the lot (`plan.batches` hands it out), and gets the whole gradient.

    Args:
        model: Any unmodified module; it is not wrapped and keeps its names.
        plan: What will be done.
        account: A ledger account to charge before every step; None counts in memory only.
        rng: Where the noise comes from; fresh entropy if None.
        method: How gradients are taken, as in `clipped_sum`.
        note: What the ledger's rows say beside the charges.
        block: How many steps are charged at once.
        first: The step to begin with, counted from 0, where an earlier process did the others.
        most: At most this many steps; None for all that the plan has left.
        memory_limit: Bytes that a gradient may take; the physical batch size is then found on the first batch, unless
            the plan names one.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: TrainingPlan,
        *,
        account: Account | None = None,
        rng: Rng | None = None,
        method: Method = "auto",
        note: str = "",
        block: int = 100,
        first: int = 0,
        most: int | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self.model, self.plan, self.method = model, plan, method
        self.clip_norm = ClipNorm(plan.clip_norm, plan.adaptive, plan.expected_batch_size)
        self._parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
        if not self._parameters:
            raise InvalidValue("the model has no trainable parameter: nothing has requires_grad.")
        for name, value in self._parameters.items():
            check_initialised(name, value)
        self._device = next(iter(self._parameters.values())).device
        self.team = Team.current(self._device)
        self._engine: Engine = engine_for(model, plan, method, self.team)
        self._charges = Charges(plan, account, note=note, block=block, first=first, most=most, team=self.team)
        self._rng = self.team.noise(rng or Rng.from_entropy())
        self._noise: Noise | None = noise_source(plan, self._rng, first) if plan.private else None
        self._losses: Losses | None = None
        self._memory_limit, self._physical = memory_limit, plan.physical_batch_size
        if memory_limit is not None and self._engine.in_lockstep:
            raise InvalidValue("memory_limit is not for sharded models; give the plan a physical_batch_size.")
        self.reach = Reach(self._parameters)
        self._taken = Taken(plan)
        self._step = first
        self._spots = SpotChecks(self._rng, plan.steps)
        self._margin = _rounding(self._parameters, plan.expected_batch_size)
        self._is_settled = self._collates_randomly = self._closes_over_rows = False
        self._closure: Any = None
        event = (lambda: self._charges.event) if plan.private else None
        self._record = Earlier(note or f"run {id(self)}", event, plan.relation, plan.delta)
        self._earlier = notes_on(dict(model.named_parameters()), self._record)
        self._began_with = digests(self._parameters)

    @property
    def steps(self) -> int:
        """How many steps were started here."""
        return self._charges.steps

    def backward(self, loss_fn: LossFunction, batch: Batch | Lot) -> StepReport:
        """Put the private gradient of this batch into `.grad` of every trainable parameter.

        An empty batch gives noise alone. What was in `.grad` before is replaced.

        Raises:
            BudgetExceeded: this step is not in the plan or does not fit under the account's cap; nothing was released.
            NotIsolated: one example changes another's gradient, or a pass keeps something of the examples.
        """
        self._charges.require_room()
        work, charged, failure = None, 0, None
        try:
            work = self._work(loss_fn, batch)
            charged = self._charges.charge()  # on disk before any noisy value exists
        except Exception as error:  # the other processes hear of it too, where they can
            if work is None and self._engine.in_lockstep:
                raise
            failure = error
        mine = work or _NOTHING
        numbers = [charged, mine.units, *mine.loss, mine.nonfinite, mine.count, *mine.norms]
        found = self.team.add_up([*map(float, numbers), *self.reach.look(mine.gradients)], failure)
        assert work is not None
        return self._release(work, found)

    def guarantee(self) -> Guarantee:
        """What the charged steps cost; notes say what it does not cover and what could not be checked."""
        remember_values(self._parameters, self._began_with, self._record)
        found = cost(self._charges.event, delta=self.plan.delta, relation=self.plan.relation)
        return replace(found, notes=(*found.notes, *self.notes()))

    def notes(self) -> tuple[str, ...]:
        """What the guarantee does not cover, and what could not be checked."""
        notes = [*self._earlier]
        if self._taken.unplanned and self.plan.private:
            notes += [UNPLANNED, "whether examples depend on what they are collated with was not checked."]
        if self._collates_randomly:
            notes.append(
                "collate is random, so whether examples depend on what they are collated with was not checked."
            )
        if self._closes_over_rows:
            notes.append(CHANGES)
        for name in logged_by(self.model):
            notes.append(f"{name} keeps something of the private batches, which the released model must not depend on.")
        if self._engine.in_lockstep and self.plan.private:
            notes.append("the model is sharded, so no example's gradient was compared with its gradient alone.")
        return tuple(notes)

    def close(self) -> None:
        """Give back the charged steps that never started; with an account, no further step is possible."""
        self._charges.close()
        remember_values(self._parameters, self._began_with, self._record)

    def __enter__(self) -> PrivateGradients:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def _find_physical_batch(self, loss_fn: LossFunction, lot: Lot) -> None:
        if self._memory_limit is not None and self._physical is None and num_examples(lot.batch):
            self._physical = physical_batch_size_for(
                self.model,
                loss_fn,
                lot.batch,
                self.clip_norm.value,
                memory_limit=self._memory_limit,
                method=self.method,
            )

    def _work(self, loss_fn: LossFunction, batch: Batch | Lot) -> _Work:
        """What this process's share of the lot gives; nothing of it is private yet."""
        draw = self._drawn(as_lot(batch))
        lot = to_device(as_lot(batch), self._device)
        if self._losses is None or self._losses.loss_fn is not loss_fn:
            self._losses = Losses(loss_fn)
        losses, rows = self._losses, num_examples(lot.batch)
        self._check_lot(lot, rows)
        rows_alone = (
            self._spots.rows(self._step, rows if lot.units is None else lot.units) if draw is None else draw.rows
        )
        if not self.plan.private:
            gradients = self._engine.plain_sum(losses, losses.take(lot), size=self.plan.physical_batch_size)
            return _Work(gradients, rows, losses.sums(), 0, 0.0, "plain")
        given = losses.take(lot)
        kept, places = kept_rows(given, rows_alone) if rows_alone else (given, [])  # a pass may write into it unseen
        self._look_at_closure(loss_fn)
        if rows and not self._is_settled and not self._engine.in_lockstep:
            settle(self.model, loss_fn, lot.batch)
            self._is_settled = True
        self._engine.check_isolation(loss_fn, lot.batch)
        self._find_physical_batch(loss_fn, lot)
        clip_norm = self.clip_norm.value * (1 - self._margin)
        with watched_randomness() as is_random:
            total, found = self._engine.clipped_sum(
                losses, given, clip_norm, groups=lot.groups, size=self._physical, rows=rows_alone
            )
        if found:
            own_loss, was_random = unheard(losses), is_random()
            check_rows(self.model, own_loss, kept, places, found, method=self.method, is_random=was_random)
        if draw is not None and draw.alone and not self._engine.in_lockstep:
            check_collated(self.model, loss_fn, to_device(draw.alone, self._device))
        self._collates_randomly = self._collates_randomly or (draw is not None and draw.is_random)
        self._check_names(total.gradients)
        norms = total.norms[: lot.units]
        count = self.clip_norm.centred_count(norms) if self.plan.adaptive is not None else 0.0
        seen = _seen(norms, self.clip_norm.value)
        # Rows of padding may break too, and are nobody's.
        nonfinite = total.nonfinite and int((~torch.isfinite(norms)).sum())
        return _Work(total.gradients, norms.shape[0], losses.sums(), nonfinite, count, total.method, seen)

    def _check_lot(self, lot: Lot, rows: int) -> None:
        """Refuse a lot that cannot be one of the plan's, and warn of one that was not drawn by it."""
        plan = self.plan
        if not plan.private:
            return
        if plan.unit == "person" and lot.groups is None:
            raise InvalidValue(
                "the plan protects a person with all their examples, and this batch does not say whose they are; "
                "take it from plan.batches(dataset, people=...), or give a Lot with groups."
            )
        most, copies = plan.max_batch_size, plan.augmentations
        if most is not None and rows > most * copies:
            raise InvalidValue(
                f"the plan's batches have at most {most} examples, and this one has {rows // copies}; take the batches "
                "from plan.batches(dataset)."
            )

    def _drawn(self, lot: Lot) -> Draw | None:
        """Return the draw of the plan's sampler that this lot is; warn where it is none."""
        if not self.plan.private:
            return None
        return self._taken.take(lot.batch, self._step, num_examples(lot.batch))

    def _look_at_closure(self, loss_fn: LossFunction) -> None:
        """Warn once of a tensor that the loss function closes over and that is not the one of the step before."""
        found = print_of_closure(loss_fn, self.model)
        if self._closure not in (None, found) and not self._closes_over_rows:
            self._closes_over_rows = True
            warnings.warn(CHANGES, UnplannedBatch, stacklevel=4)
        self._closure = found

    def _check_names(self, gradients: dict[str, Tensor]) -> None:
        """Refuse, before anything is charged, a model whose parameters were frozen or unfrozen meanwhile."""
        changed = sorted(gradients.keys() ^ self._parameters.keys())
        if changed:
            raise InvalidValue(
                f"{', '.join(changed[:3])}: frozen or unfrozen after PrivateGradients was made; make it anew, with "
                "`first` as the number of steps taken."
            )

    def _release(self, work: _Work, found: list[float]) -> StepReport:
        """Add noise to the sums and give them out; `found` are the numbers of all processes added up."""
        charged, units, loss, weight, nonfinite, count, norm, clipped, *reached = found
        plan, clip_norm = self.plan, self.clip_norm.value
        step = self._charges.start(int(charged))
        self._step += 1
        remember(self._parameters, self._record)
        if units:
            self.reach.see(reached)
        assert work.gradients is not None
        gradients = self._engine.released(work.gradients, self._add_noise if plan.private else None)
        for name, parameter in self._parameters.items():
            parameter.grad = gradients[name].div_(plan.expected_batch_size).to(parameter.dtype)
        self._move_clip_norm(count)
        shares = (norm / units, clipped / units) if units and plan.private else (None, None)
        return StepReport(step, clip_norm, loss / weight if weight else None, int(nonfinite), work.method, *shares)

    def _add_noise(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        assert self._noise is not None
        return self._noise.add(gradients, self.plan.gradient_noise_multiplier * self.clip_norm.value)

    def _move_clip_norm(self, count: float) -> None:
        adaptive = self.plan.adaptive
        if adaptive is not None and self.plan.private:
            # One unit moves the count by 1/2; exact noise, as for every released number.
            noise = 2 * adaptive.count_stddev
            noisy = self.team.by_first(
                lambda: float(gaussian(count, sensitivity=0.5, noise_multiplier=noise, rng=self._rng))
            )
            self.clip_norm.update(noisy)


def _rounding(parameters: dict[str, nn.Parameter], batch_size: float) -> float:
    """Return by how much rounding may lengthen what one example adds to a sum of so many, relative to the clip norm.

    Norms and products are off by a few units in the last place, and a sum of B gradients by about sqrt(B) units of its
    length, which is at most B clip norms; see docs/theory/private-gradients.md.
    """
    wide = all(value.dtype == torch.float64 for value in parameters.values())
    unit = torch.finfo(torch.float64 if wide else torch.float32).eps
    return min(0.01, unit * (64 + batch_size))


@dataclass(frozen=True)
class _Work:
    """One process's part of a step: sums, and numbers that are added up over the processes."""

    gradients: dict[str, Tensor] | None
    units: int
    loss: tuple[float, float]
    nonfinite: int
    count: float
    method: str
    norms: tuple[float, float] = (0.0, 0.0)


_NOTHING = _Work(None, 0, (0.0, 0.0), 0, 0.0, "")


def _seen(norms: Tensor, clip_norm: float) -> tuple[float, float]:
    """The sum of the finite norms, and how many are above the clip norm."""
    found = norms.detach().cpu().numpy()  # few numbers, for which numpy is quicker
    total = float(numpy.add.reduce(found))
    if not math.isfinite(total):
        total = float(found[numpy.isfinite(found)].sum())
    return total, float(numpy.count_nonzero(found > clip_norm))
