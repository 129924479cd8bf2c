"""The least noise that a plan's budget allows. Never over budget: the finished plan is accounted once more."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from hush import accounting
from hush.errors import Unreachable
from hush.privacy import Budget
from hush.sampling import max_batch_size_for
from hush.training.costs import cost

if TYPE_CHECKING:
    from hush.training.plan import TrainingPlan

_CAP_SHARE = 1e-3  # of delta: what a cap chosen here may cost


def filled_in(draft: TrainingPlan) -> TrainingPlan:
    """The draft with its noise, and with a cap on the batch where sampling is truncated and none was given."""
    assert draft.budget is not None
    if draft.sampling == "truncated_poisson" and draft.max_batch_size is None:
        draft = replace(draft, max_batch_size=_max_batch_size(draft))
    steps = 1 if draft.sampling == "ordered" else draft.steps + draft.spare_steps
    noise = accounting.noise_for(
        _budget_of_gaussian(draft), sampling_prob=draft.sampling_prob, steps=steps, relation=draft.relation
    )
    return _checked(replace(draft, noise_multiplier=_rounded_up(noise)))


def _rounded_up(noise: float) -> float:
    """To nine digits, so that the same call gives the same plan, and fingerprint, on every machine."""
    unit = 10.0 ** (math.floor(math.log10(noise)) - 8)
    return round(math.ceil(noise / unit + 0.1) * unit, 12)


def _max_batch_size(draft: TrainingPlan) -> int:
    assert draft.budget is not None
    assert draft.num_examples is not None
    failure = _CAP_SHARE * draft.budget.delta / (draft.steps + draft.spare_steps)
    return max_batch_size_for(draft.num_examples, draft.sampling_prob, failure=failure)


def _budget_of_gaussian(draft: TrainingPlan) -> Budget:
    """What is left for the noise when truncation has taken its delta: of delta = p + (1 - p) d, this d."""
    from hush.sampling import TruncatedPoisson

    assert draft.budget is not None
    if not isinstance(draft.sampler, TruncatedPoisson):
        return draft.budget
    steps, delta = draft.steps + draft.spare_steps, draft.budget.delta
    total = min(1.0, steps * draft.sampler.failure)  # at least 1 - (1 - p)^steps
    if total >= delta:
        raise Unreachable(
            f"a batch of the other examples reaches max_batch_size {draft.max_batch_size} with a chance of "
            f"{total:.3g} in {steps} steps, more than delta; use a larger max_batch_size."
        )
    return Budget(epsilon=draft.budget.epsilon, delta=(delta - total) / (1 - total) * (1 - 1e-12))


def _checked(plan: TrainingPlan) -> TrainingPlan:
    assert plan.budget is not None
    for _ in range(60):
        event = plan.event if plan.sampling == "ordered" else plan.event_of(plan.steps + plan.spare_steps)
        spent = cost(event, delta=plan.delta, relation=plan.relation)
        if plan.budget.allows(spent):
            return plan
        plan = replace(plan, noise_multiplier=plan.noise_multiplier * (1 + 1e-8))
    raise Unreachable(f"no noise_multiplier was found whose cost is inside {plan.budget}; please report this plan.")
