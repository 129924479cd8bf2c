"""The terms of which the ends of an exact interval are made: each widens it, and none may be left out.

They are far below what a comparison with known values can see, so they are looked at one by one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest

from hush import events
from hush.accounting import guarantee
from hush.accounting.exact import answer, search
from hush.accounting.exact.contour import Sum


class StandIn:
    """A line whose sum is 0 and whose errors are known."""

    z = numpy.array([1.0 + 0j])
    log_terms = numpy.array([-numpy.inf + 0j])
    orders = numpy.array([1.0])
    far_mass = 0.25

    def beyond(self, epsilon: float) -> float:
        return 0.5

    def blur(self, epsilon: float) -> float:
        return 2.0

    def alias(self, epsilon: float) -> float:
        return 8.0


def test_every_error_is_in_the_end_that_it_widens() -> None:
    total = Sum([StandIn(), StandIn()], extra=64.0)  # type: ignore[list-item]
    assert total.above(1.0) == pytest.approx(64 + 2 * (0.25 + 0.5 + 2.0))
    assert total.below(1.0) == pytest.approx(64 + 2 * (0.5 + 2.0 + 8.0))


STEPS = events.Repeated(events.PoissonSampled(events.Gaussian(1.0), 0.1), 10)


@pytest.fixture
def worse_by_adding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the direction "add" the worse one, which it is for no event that the other tests ask about."""

    def interval(phases: Any, direction: str, *_: Any) -> tuple[float, float]:
        return (0.3, 0.4) if direction == "add" else (0.1, 0.2)

    monkeypatch.setattr(search, "is_below", lambda *_: False)
    monkeypatch.setattr(search, "delta_interval", interval)
    monkeypatch.setattr(search, "epsilon_interval", lambda *arguments: (interval(*arguments), None))


@pytest.mark.usefixtures("worse_by_adding")
def test_the_worse_direction_is_the_answer() -> None:
    found, _ = answer._epsilon_of(answer.read(STEPS, "add_remove"), "add_remove", 1e-5)
    assert found == (0.3, 0.4)
    monkeyed, _ = answer.delta_interval(STEPS, epsilon=1.0, relation="add_remove", least=1.0)
    assert monkeyed == (0.3, 0.4)


@pytest.mark.parametrize(("relation", "twice"), [("add_remove", 1), ("replace_one", 2), ("zero_out", 1)])
def test_laplace_noise_at_delta_0_costs_its_largest_loss(relation: Any, twice: int) -> None:
    for times in (1, 3):
        event = events.Repeated(events.Laplace(4.0), times)
        found = guarantee(event, delta=0.0, relation=relation)
        assert found.epsilon == pytest.approx(twice * times / 4)
        assert found.epsilon >= twice * times / 4
        mixed = guarantee(events.Composed(event, events.ApproximateDP(0.5, 1e-6)), delta=1e-6, relation=relation)
        assert mixed.epsilon == pytest.approx(twice * times / 4 + 0.5)


def test_plain_claims_do_not_fit_a_smaller_delta() -> None:
    assert guarantee(events.ApproximateDP(0.5, 1e-6), delta=9e-7).epsilon == math.inf
