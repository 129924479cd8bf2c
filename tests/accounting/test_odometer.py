"""The odometer: never below the exact number, hardly above it, for every step of a run."""

from __future__ import annotations

import math

import pytest

from hush import accounting, events
from hush.errors import InvalidValue
from hush.privacy import Relation

STEP = events.PoissonSampled(events.Gaussian(noise_multiplier=4.0), sampling_prob=0.01)
HEAVY = events.PoissonSampled(events.Gaussian(noise_multiplier=0.5), sampling_prob=1e-4)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_every_step_agrees_with_the_exact_accountant(relation: Relation) -> None:
    odometer = accounting.Odometer(delta=1e-5, relation=relation)
    last = 0.0
    for step in range(1, 301):
        odometer.add(STEP)
        epsilon = odometer.epsilon()
        assert epsilon >= last
        last = epsilon
        if step in (1, 2, 3, 10, 50, 51, 52, 77, 150, 299):
            exact = accounting.guarantee(events.Repeated(STEP, step), delta=1e-5, relation=relation)
            assert exact.epsilon_lower <= epsilon <= exact.epsilon * (1 + 1e-6)


def test_phases_may_be_mixed() -> None:
    odometer = accounting.Odometer(delta=1e-6)
    other = events.PoissonSampled(events.Gaussian(2.0), 0.02)
    for _ in range(40):
        odometer.add(STEP)
        odometer.add(other, times=3)
        odometer.epsilon()
    exact = accounting.guarantee(events.Composed(events.Repeated(STEP, 40), events.Repeated(other, 120)), delta=1e-6)
    assert exact.epsilon_lower <= odometer.epsilon() <= exact.epsilon * (1 + 1e-6)
    assert odometer.steps == 160


@pytest.mark.parametrize("event", [HEAVY, events.Laplace(10.0), events.Gaussian(20.0)])
def test_where_no_gauge_serves_the_answer_is_safe_and_close(event: events.Event) -> None:
    odometer = accounting.Odometer(delta=1e-6)
    for step in range(1, 121):
        odometer.add(event)
        epsilon = odometer.epsilon()
        if step in (1, 2, 119, 120):
            exact = accounting.guarantee(events.Repeated(event, step), delta=1e-6)
            ahead = accounting.guarantee(events.Repeated(event, math.ceil(step * 1.02)), delta=1e-6)
            assert exact.epsilon_lower <= epsilon <= ahead.epsilon * (1 + 1e-9)


def test_nothing_done_costs_nothing() -> None:
    odometer = accounting.Odometer(delta=1e-5)
    assert odometer.epsilon() == 0.0
    assert odometer.guarantee().epsilon == 0.0


def test_no_privacy_is_infinite() -> None:
    odometer = accounting.Odometer(delta=1e-5)
    odometer.add(events.NotPrivate())
    assert odometer.epsilon() == math.inf


@pytest.mark.parametrize("bad", [None, 1.0, "Gaussian"])
def test_what_is_not_an_event_is_refused(bad: object) -> None:
    with pytest.raises(InvalidValue, match="event"):
        accounting.Odometer(delta=1e-5).add(bad)  # type: ignore[arg-type]
