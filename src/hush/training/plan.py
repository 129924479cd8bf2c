"""The training plan: what will be done, frozen, with the event that says it.

>>> from hush.privacy import Budget
>>> plan = TrainingPlan.for_budget(Budget(epsilon=3.0, delta=1e-5), sampling_prob=0.01, expected_batch_size=600,
...                                steps=2_000, clip_norm=1.0)
>>> round(plan.noise_multiplier, 4), plan.guarantee().epsilon <= 3.0
(0.9304, True)
>>> plan.step_event
PoissonSampled(event=Gaussian(noise_multiplier=0.930389...), sampling_prob=0.01)

Sampler, clip norm, noise, divisor and event come from this one object. Everything in it is public: it may be printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hush.errors import InvalidValue
from hush.events import Event, Gaussian, NotPrivate, Repeated
from hush.gradients.clipping import Clipping
from hush.privacy import Budget, Guarantee, Relation
from hush.rng import Rng
from hush.sampling import FullBatch, OrderedPasses, Poisson, Sampling, TruncatedPoisson
from hush.training import plan_checks, plan_text
from hush.training.calibration import filled_in
from hush.training.clipping import AdaptiveClipping
from hush.training.costs import cost

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.data import Dataset


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """One training, before it happens.

    Attributes:
        noise_multiplier: Noise standard deviation over `clip_norm`; 0 only in a plan `without_privacy`.
        sampling_prob: The chance of one unit to join a step; 1 where nothing is sampled.
        expected_batch_size: The divisor of the noisy sum. A public constant, never the realised batch.
        steps: How many noisy gradients are released.
        clip_norm: Bound on one unit's gradient (L2); the starting value if clipping is adaptive.
        delta: The delta of the guarantee.
        relation: Which data sets are neighbours.
        sampling: "poisson", "truncated_poisson", "full_batch", or "ordered" (no sampling: correlated noise).
        max_batch_size: The cap of truncated Poisson sampling; batches are padded to it.
        num_examples: A public bound on the size of the data set, for "truncated_poisson" and "ordered".
        clipping: "flat", "per_layer" or "automatic".
        adaptive: Settings of a clip norm that follows a quantile, or None.
        augmentations: Augmented copies of each example, averaged before clipping.
        unit: What a neighbour adds or removes: an "example", or a "person" with all their examples.
        average: "ema" or "mean" over the steps' weights; the model ends with the average.
        average_decay: The decay of "ema".
        project_to: Radius of the L2 ball that the trainable weights are projected onto after each step, or None.
        secure: Noise from a cryptographic generator, safe against the low bits of floats.
        bands: Bands of the correlated noise, for "ordered".
        budget: What may be spent at most, repeats after a crash included; None for no limit but `steps`.
        spare_steps: Steps that the budget holds ready for repeats after a crash.
        physical_batch_size: Rows in memory at once; it does not change the result.
    """

    noise_multiplier: float
    sampling_prob: float
    expected_batch_size: int
    steps: int
    clip_norm: float
    delta: float
    relation: Relation = "add_remove"
    sampling: str = "poisson"
    max_batch_size: int | None = None
    num_examples: int | None = None
    clipping: Clipping = "flat"
    adaptive: AdaptiveClipping | None = None
    augmentations: int = 1
    unit: str = "example"
    average: str = "none"
    average_decay: float = 0.99
    project_to: float | None = None
    secure: bool = False
    bands: int | None = None
    budget: Budget | None = None
    spare_steps: int = 0
    physical_batch_size: int | None = None

    def __post_init__(self) -> None:
        for name, check in plan_checks.FIELD_CHECKS.items():
            value = getattr(self, name)
            if value is not None or name not in plan_checks.MAY_BE_NONE:
                object.__setattr__(self, name, check(name, value))
        plan_checks.check_together(self)

    @classmethod
    def for_budget(
        cls,
        budget: Budget,
        *,
        sampling_prob: float,
        expected_batch_size: int,
        clip_norm: float,
        steps: int | None = None,
        epochs: float | None = None,
        relation: Relation = "add_remove",
        sampling: str = "poisson",
        max_batch_size: int | None = None,
        num_examples: int | None = None,
        clipping: Clipping = "flat",
        adaptive: AdaptiveClipping | None = None,
        augmentations: int = 1,
        unit: str = "example",
        average: str = "none",
        average_decay: float = 0.99,
        project_to: float | None = None,
        secure: bool = False,
        bands: int | None = None,
        spare_steps: int = 0,
        physical_batch_size: int | None = None,
    ) -> TrainingPlan:
        """The plan with the least noise whose cost is inside the budget, spare steps included.

        Give `steps`, or `epochs`: the number of times that an example is expected to take part.
        """
        draft = cls(
            noise_multiplier=1e6,  # replaced below; large, so that no other setting refuses it
            sampling_prob=sampling_prob,
            expected_batch_size=expected_batch_size,
            steps=plan_checks.steps_of(steps, epochs, sampling_prob),
            clip_norm=clip_norm,
            delta=plan_checks.budget(budget).delta,
            relation=relation,
            sampling=sampling,
            max_batch_size=max_batch_size,
            num_examples=num_examples,
            clipping=clipping,
            augmentations=augmentations,
            unit=unit,
            average=average,
            average_decay=average_decay,
            project_to=project_to,
            secure=secure,
            bands=bands,
            budget=budget,
            spare_steps=spare_steps,
            physical_batch_size=physical_batch_size,
        )
        return replace(filled_in(draft), adaptive=adaptive)

    def without_privacy(self) -> TrainingPlan:
        """The twin: same sampling and divisor, no noise, no clipping. Its event is `NotPrivate`."""
        return replace(self, noise_multiplier=0.0, clip_norm=math.inf, adaptive=None, budget=None, spare_steps=0)

    @property
    def private(self) -> bool:
        """False for a twin without noise."""
        return self.noise_multiplier > 0

    @cached_property
    def sampler(self) -> Sampling:
        """How the rows of a step are chosen."""
        if self.sampling == "truncated_poisson":
            cap, number = plan_checks.given(self, "max_batch_size"), plan_checks.given(self, "num_examples")
            return TruncatedPoisson(self.sampling_prob, cap, number)
        if self.sampling == "ordered":
            return OrderedPasses(self.expected_batch_size, plan_checks.given(self, "num_examples"))
        return FullBatch() if self.sampling == "full_batch" else Poisson(self.sampling_prob)

    @property
    def gradient_noise_multiplier(self) -> float:
        """Noise on the gradients over the clip norm: a little more than `noise_multiplier` if clipping is adaptive."""
        if self.adaptive is None or not self.private:
            return self.noise_multiplier
        return self.adaptive.gradient_noise_multiplier(self.noise_multiplier)

    @cached_property
    def step_event(self) -> Event:
        """What one step does to the data. With correlated noise there is no such thing: see `event`."""
        if not self.private:
            return NotPrivate()
        if isinstance(self.sampler, OrderedPasses):
            raise InvalidValue("the steps of correlated noise are one event together: use plan.event.")
        return self.sampler.event(Gaussian(self.noise_multiplier))

    @property
    def event(self) -> Event:
        """What the whole plan does to the data, spare steps left out."""
        return self.event_of(self.steps)

    def event_of(self, steps: int) -> Event:
        """What that many steps do to the data."""
        if self.private and isinstance(self.sampler, OrderedPasses):
            from hush.training.correlated import event_of

            return event_of(self, steps)
        return Repeated(self.step_event, steps)

    def guarantee(self) -> Guarantee:
        """What the whole plan costs, by the exact accountant."""
        return cost(self.event, delta=self.delta, relation=self.relation)

    def batches(
        self,
        dataset: Dataset[Any],
        *,
        rng: Rng | None = None,
        people: Tensor | None = None,
        augment: Callable[[Any], Any] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        workers: int = 0,
        first: int = 0,
    ) -> Iterator[Any]:
        """The batch of each step, for people who write their own loop. Every one must go to `backward`, empty or not.

        Under torchrun, each process gets its share of the same lots.

        Args:
            dataset: Any map-style data set.
            rng: Where the sampling comes from; fresh entropy if None.
            people: For `unit="person"`, the number of the person that each row belongs to.
            augment: Random augmentation of a batch, each row for itself; needed if `augmentations` is above 1.
            collate: How items become a batch; torch's default if None. Not used for a `TensorDataset`.
            workers: Processes that load items.
            first: The step to begin with, counted from 0.
        """
        from hush.training.feed import Feed
        from hush.training.guards import CheckedAugmentation
        from hush.training.team import Team

        team = Team.current()
        feed = Feed(
            self,
            dataset,
            people=people,
            augment=None if augment is None else CheckedAugmentation(augment),
            collate=collate,
            workers=workers,
            team=team,
        )
        return feed.batches(team.sampling(rng or Rng.from_entropy()), first=first)

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the plan's JSON: two plans are the same if these are."""
        return plan_text.fingerprint(self)

    def to_json(self) -> str:
        """One line of JSON; the same plan always gives the same text."""
        return plan_text.to_json(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> TrainingPlan:
        """The plan that `to_json` wrote; anything else is refused with the reason."""
        return plan_text.from_json(cls, text)
