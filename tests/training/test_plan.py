"""Plans: what is refused, what is calibrated, and that the event follows from the settings."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields

import pytest

from hush import Budget, accounting, events
from hush.errors import InvalidValue, Unreachable, UnreadableFile
from hush.training import AdaptiveClipping, TrainingPlan
from hush.training.plan_checks import FIELD_CHECKS

Make = Callable[..., TrainingPlan]
BUDGET = Budget(epsilon=3.0, delta=1e-5)


def test_the_promised_call_works_as_written() -> None:
    plan = TrainingPlan.for_budget(
        Budget(epsilon=3.0, delta=1e-5), sampling_prob=0.01, expected_batch_size=600, steps=2_000, clip_norm=1.0
    )
    spent = plan.guarantee()
    assert 2.9999 < spent.epsilon <= 3.0
    step = events.PoissonSampled(events.Gaussian(plan.noise_multiplier), 0.01)
    assert plan.event == events.Repeated(step, 2_000)


@pytest.mark.parametrize(
    "settings",
    [
        {"sampling_prob": 0.02, "steps": 300},
        {"sampling_prob": 0.02, "steps": 300, "spare_steps": 60},
        {"sampling_prob": 0.02, "steps": 300, "relation": "replace_one"},
        {"sampling_prob": 1.0, "steps": 50, "sampling": "full_batch"},
        {"sampling_prob": 0.02, "steps": 300, "sampling": "truncated_poisson", "num_examples": 5_000},
        {
            "sampling_prob": 0.02,
            "steps": 300,
            "sampling": "truncated_poisson",
            "num_examples": 5_000,
            "max_batch_size": 165,
        },
        {
            "sampling_prob": 1.0,
            "steps": 50,
            "sampling": "ordered",
            "num_examples": 1000,
            "bands": 5,
            "relation": "zero_out",
        },
    ],
    ids=lambda value: "-".join(f"{item}" for item in value.values()),
)
@pytest.mark.parametrize("epsilon", [0.3, 8.0])
def test_calibrated_plans_are_inside_the_budget_and_near_it(settings: dict[str, object], epsilon: float) -> None:
    budget = Budget(epsilon=epsilon, delta=1e-5)
    plan = TrainingPlan.for_budget(budget, expected_batch_size=100, clip_norm=1.0, **settings)  # type: ignore[arg-type]
    longest = plan.event if plan.sampling == "ordered" else plan.event_of(plan.steps + plan.spare_steps)
    spent = accounting.guarantee(longest, delta=1e-5, relation=plan.relation)
    assert budget.allows(spent)
    assert spent.epsilon > 0.999 * epsilon
    again = TrainingPlan.for_budget(budget, expected_batch_size=100, clip_norm=1.0, **settings)  # type: ignore[arg-type]
    assert again.fingerprint == plan.fingerprint


def test_truncation_that_costs_more_than_delta_is_refused() -> None:
    with pytest.raises(Unreachable, match="larger max_batch_size"):
        TrainingPlan.for_budget(
            BUDGET,
            sampling_prob=0.02,
            expected_batch_size=100,
            steps=300,
            clip_norm=1.0,
            sampling="truncated_poisson",
            num_examples=5_000,
            max_batch_size=120,
        )


@pytest.mark.parametrize(("epochs", "prob", "steps"), [(1, 0.01, 100), (3, 1 / 93, 279), (0.3, 0.1, 3), (2, 0.3, 7)])
def test_epochs_become_whole_steps(epochs: float, prob: float, steps: int) -> None:
    plan = TrainingPlan.for_budget(BUDGET, sampling_prob=prob, expected_batch_size=10, epochs=epochs, clip_norm=1.0)
    assert plan.steps == steps


def test_steps_and_epochs_together_or_neither_are_refused() -> None:
    for both in ({}, {"steps": 5, "epochs": 1.0}):
        with pytest.raises(InvalidValue, match="either steps or epochs"):
            TrainingPlan.for_budget(BUDGET, sampling_prob=0.1, expected_batch_size=10, clip_norm=1.0, **both)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"noise_multiplier": 0.0}, "without_privacy"),
        ({"clip_norm": math.inf}, "without_privacy"),
        ({"sampling_prob": 0.0}, "sampling_prob"),
        ({"sampling_prob": 1.1}, "sampling_prob"),
        ({"expected_batch_size": 0}, "expected_batch_size"),
        ({"steps": 2.0}, "steps"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"delta": 1.0}, "delta"),
        ({"relation": "swap"}, "relation"),
        ({"sampling": "shuffle"}, "sampling must be one of poisson"),
        ({"sampling": "full_batch"}, "sampling_prob must be 1"),
        ({"sampling": "truncated_poisson"}, "needs num_examples"),
        ({"max_batch_size": 5}, "max_batch_size is for"),
        ({"bands": 5}, "bands is for"),
        ({"sampling": "ordered", "sampling_prob": 1.0, "num_examples": 9}, "needs bands"),
        ({"sampling": "ordered", "sampling_prob": 1.0, "num_examples": 9, "bands": 1}, "zero_out"),
        ({"clipping": "median"}, "clipping"),
        ({"adaptive": 0.5}, "AdaptiveClipping"),
        ({"adaptive": AdaptiveClipping(quantile=0.5, count_stddev=0.5)}, "count_stddev"),
        ({"adaptive": AdaptiveClipping(quantile=0.5, count_stddev=5.0), "clipping": "per_layer"}, "flat"),
        ({"average": "last"}, "average"),
        ({"average_decay": 1.0}, "average_decay"),
        ({"project_to": -1.0}, "project_to"),
        ({"secure": 1}, "secure"),
        ({"unit": "family"}, "unit"),
        ({"budget": 3.0}, "budget"),
        ({"budget": Budget(epsilon=1.0, delta=1e-6)}, "delta must be the budget's"),
        ({"spare_steps": -1}, "spare_steps"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_settings_are_refused_by_name(make_plan: Make, change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        make_plan(**change)


def test_every_field_is_checked_and_frozen(make_plan: Make) -> None:
    assert set(FIELD_CHECKS) == {field.name for field in fields(TrainingPlan)}
    with pytest.raises(FrozenInstanceError):
        make_plan().noise_multiplier = 0.1


CHANGES: dict[str, object] = {
    "noise_multiplier": 1.5,
    "sampling_prob": 0.2,
    "expected_batch_size": 30,
    "steps": 13,
    "clip_norm": 2.0,
    "delta": 1e-6,
    "relation": "zero_out",
    "num_examples": 300,
    "clipping": "per_layer",
    "adaptive": AdaptiveClipping(quantile=0.5, count_stddev=5.0),
    "augmentations": 2,
    "unit": "person",
    "average": "ema",
    "average_decay": 0.9,
    "project_to": 3.0,
    "secure": True,
    "budget": Budget(epsilon=4.0, delta=1e-5),
    "spare_steps": 3,
    "physical_batch_size": 7,
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_field_is_in_the_fingerprint_and_survives_json(make_plan: Make, name: str) -> None:
    plan = make_plan(**{name: CHANGES[name]})
    assert plan.fingerprint != make_plan().fingerprint
    assert TrainingPlan.from_json(plan.to_json()) == plan
    assert json.loads(plan.to_json())[name] is not None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"steps": 3}', "null"])
def test_other_texts_are_not_plans(text: str) -> None:
    with pytest.raises(UnreadableFile):
        TrainingPlan.from_json(text)


def test_edited_texts_are_refused(make_plan: Make) -> None:
    data = json.loads(make_plan().to_json())
    for change in ({"steps": -1}, {"sampling": "shuffle"}, {"budget": {"epsilon": 1.0}}, {"extra": 1}):
        with pytest.raises(UnreadableFile):
            TrainingPlan.from_json(json.dumps({**data, **change}))


def test_the_twin_is_not_private_and_keeps_the_sampling(make_plan: Make) -> None:
    plan = make_plan(sampling_prob=0.3, budget=Budget(epsilon=50.0, delta=1e-5))
    twin = plan.without_privacy()
    assert twin.event == events.Repeated(events.NotPrivate(), plan.steps)
    assert twin.guarantee().epsilon == math.inf
    assert (twin.sampler, twin.expected_batch_size, twin.steps) == (plan.sampler, plan.expected_batch_size, plan.steps)
    assert TrainingPlan.from_json(twin.to_json()) == twin


def test_adaptive_clipping_costs_what_the_plan_says() -> None:
    """The gradients and the count are one Gaussian vector: 1/z_delta^2 + (1/2)^2 / sigma_b^2 = 1/z^2."""
    for noise, count in [(1.0, 5.0), (0.7, 0.4), (3.0, 1.6)]:
        plan = AdaptiveClipping(quantile=0.5, count_stddev=count)
        own = plan.gradient_noise_multiplier(noise)
        joint = 1 / own**2 + 0.25 / count**2
        assert joint == pytest.approx(1 / noise**2, rel=1e-12)
        assert own > noise
