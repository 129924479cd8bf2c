"""Private gradients for people who write their own loop: clipped, summed, charged, noised, divided, into `.grad`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hush.errors import InvalidValue
from hush.gradients import clipped_sum, physical_batch_size_for
from hush.gradients.batches import Batch, LossFunction, call, num_examples, split
from hush.gradients.clipped import Method
from hush.mechanisms import gaussian
from hush.privacy import Guarantee
from hush.rng import Rng
from hush.training.charges import Charges
from hush.training.clipping import ClipNorm
from hush.training.costs import cost
from hush.training.guards import IsolationGuard, Reach
from hush.training.losses import Losses
from hush.training.lots import Lot, as_lot, to_device
from hush.training.noise_choice import Noise, noise_source

if TYPE_CHECKING:
    from hush.ledger import Account
    from hush.training.plan import TrainingPlan


@dataclass(frozen=True)
class StepReport:
    """What was seen at one step. `step` and `clip_norm` may be shown; the rest was read from the data without noise.

    `loss` is the mean over the batch, or None where it was empty or stayed inside a transformed function. `nonfinite`
    is how many units had a NaN or infinite gradient, and counted as zero.
    """

    step: int
    clip_norm: float
    loss: float | None
    nonfinite: int
    method: str


class PrivateGradients:
    """Gives each trainable parameter its private gradient, and counts what that costs.

        private = PrivateGradients(model, plan)
        for batch in plan.batches(dataset):
            private.backward(loss_fn, batch)
            optimizer.step(); optimizer.zero_grad()
        private.guarantee()

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
        self._device = next(iter(self._parameters.values())).device
        self._charges = Charges(plan, account, note=note, block=block, first=first, most=most)
        self._rng = rng or Rng.from_entropy()
        self._noise: Noise | None = noise_source(plan, self._rng, first) if plan.private else None
        self._isolation = IsolationGuard()
        self._losses: Losses | None = None
        self._memory_limit, self._physical = memory_limit, plan.physical_batch_size
        self.reach = Reach(self._parameters)

    @property
    def steps(self) -> int:
        """How many steps were started here."""
        return self._charges.steps

    def backward(self, loss_fn: LossFunction, batch: Batch | Lot) -> StepReport:
        """Put the private gradient of this batch into `.grad` of every trainable parameter.

        An empty batch gives noise alone. What was in `.grad` before is replaced.

        Raises:
            BudgetExceeded: this step is not in the plan or does not fit under the account's cap; nothing was released.
            NotIsolated: one example changes another's gradient; seen on the first batch.
        """
        self._charges.require_room()
        lot = to_device(as_lot(batch), self._device)
        if self._losses is None or self._losses.loss_fn is not loss_fn:
            self._losses = Losses(loss_fn)
        if not self.plan.private:
            return self._plain(self._losses, lot)
        self._isolation.check(self.model, loss_fn, lot.batch)
        self._find_physical_batch(loss_fn, lot)
        return self._private(self._losses, lot)

    def guarantee(self) -> Guarantee:
        """What the charged steps cost."""
        return cost(self._charges.event, delta=self.plan.delta, relation=self.plan.relation)

    def close(self) -> None:
        """Give back the charged steps that never started; with an account, no further step is possible."""
        self._charges.close()

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

    def _private(self, losses: Losses, lot: Lot) -> StepReport:
        plan, clip_norm = self.plan, self.clip_norm.value
        total = clipped_sum(
            self.model,
            losses,
            losses.take(lot),
            clip_norm,
            method=self.method,
            clipping=plan.clipping,
            groups=lot.groups,
            physical_batch_size=self._physical,
        )
        gradients, norms = total.gradients, total.norms[: lot.units]
        if len(norms):
            self.reach.see(gradients)
        step = self._charges.step()  # on disk before any noisy value exists
        self._add_noise(gradients, norms)
        for name, parameter in self._parameters.items():
            parameter.grad = gradients[name].div_(plan.expected_batch_size)
        return StepReport(step, clip_norm, losses.mean(), total.nonfinite, total.method)

    def _add_noise(self, gradients: dict[str, Tensor], norms: Tensor) -> None:
        assert self._noise is not None
        plan = self.plan
        gradients.update(self._noise.add(gradients, plan.gradient_noise_multiplier * self.clip_norm.value))
        if plan.adaptive is not None:
            # One unit moves the count by 1/2; exact noise, as for every released number.
            count, noise = self.clip_norm.centred_count(norms), 2 * plan.adaptive.count_stddev
            self.clip_norm.update(float(gaussian(count, sensitivity=0.5, noise_multiplier=noise, rng=self._rng)))

    def _plain(self, losses: Losses, lot: Lot) -> StepReport:
        """The twin's step: the ordinary gradient of the sum, over the same divisor."""
        for parameter in self._parameters.values():
            parameter.grad = None
        batch = losses.take(lot)
        if count := num_examples(lot.batch):
            for part in split(batch, self.plan.physical_batch_size or count):
                torch.autograd.backward(call(losses, self.model, part).sum() / self.plan.expected_batch_size)
        for parameter in self._parameters.values():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        step = self._charges.step()
        if count:
            self.reach.see({name: value.grad for name, value in self._parameters.items() if value.grad is not None})
        return StepReport(step, self.plan.clip_norm, losses.mean(), 0, "plain")
