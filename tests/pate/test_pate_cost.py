"""The three epsilons of a list of votes, and that the private one cannot pass for a promise."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
from scipy import stats

from hush import Budget, Ledger, Rng, accounting
from hush.errors import BudgetExceeded, InvalidValue
from hush.events import ApproximateDP, Event
from hush.mechanisms.real import grid_of
from hush.pate import (
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    PateCost,
    UnpublishableEpsilon,
    VoteCounts,
    analysis,
    cost_of,
)
from hush.pate.cost import rdp_total
from hush.pate.private_costs import query_rdp, settled, settled_threshold
from hush.pate.sanitise import ReleasePlan, plan_for
from hush.privacy import Guarantee

DELTA = 1e-5
ROWS = np.array([[240, 10] + [0] * 8] * 60 + [[180, 50, 20] + [0] * 7] * 10 + [[130, 110, 10] + [0] * 7] * 5)
VOTES = VoteCounts(ROWS, 250)
CONFIDENT = ConfidentGNMax(200, 150, 40)
RELEASE = ReleasePlan(order=20.0, smoothness=0.005, release_stddev=20.0)


def private_epsilon(cost: PateCost) -> float:
    assert cost.data_dependent is not None
    return cost.data_dependent.private_value()


def test_the_private_epsilon_of_gnmax_is_the_papers() -> None:
    """Ten times the rows of the published vector, up to the step of the grid (1e-6) and with the classic conversion."""
    votes = VoteCounts(np.repeat(ROWS, 10, axis=0), 250)
    aggregator = GNMax(40.0)
    total = rdp_total(aggregator, votes, aggregator.answer(votes), analysis.PAPER_ORDERS)
    classic, order = analysis.best_epsilon(total, analysis.PAPER_ORDERS, delta=DELTA, classic=True)
    assert (classic, order) == (pytest.approx(1.91013410533, rel=1e-5), 15)
    assert classic > 1.91013410533  # the grid is counted against us
    cost = cost_of(aggregator, votes, aggregator.answer(votes), delta=DELTA)
    assert private_epsilon(cost) < classic
    assert cost.data_independent.epsilon == pytest.approx(4.2, abs=0.1)


@pytest.mark.parametrize("aggregator", [LNMax(20.0), GNMax(40.0), CONFIDENT], ids=str)
def test_the_private_epsilon_is_never_above_the_public_one(aggregator) -> None:
    for rows in (ROWS, np.full((30, 10), 25), ROWS[:1]):
        votes = VoteCounts(rows, 250)
        cost = cost_of(aggregator, votes, aggregator.answer(votes), delta=DELTA)
        assert 0 <= private_epsilon(cost) <= cost.data_independent.epsilon


def test_realised_cost_counts_what_happened_and_not_what_was_expected() -> None:
    answers = CONFIDENT.answer(VOTES, rng=Rng.from_seed(0))
    total = rdp_total(CONFIDENT, VOTES, answers, [10.0])[0]
    expected = 0.0
    for row, answered in zip(ROWS, answers.answered.tolist(), strict=True):
        expected += float(analysis.threshold_rdp(row.max(), 200, 150, 10.0))
        if answered:
            expected += float(analysis.gnmax_rdp(analysis.log_miss_probability(row, 40), 40, 10.0))
    assert total == pytest.approx(expected, rel=1e-5)


def test_queries_beyond_the_budget_cost_nothing() -> None:
    answers = CONFIDENT.answer(VOTES, budget=Budget(0.3, DELTA))
    costs = query_rdp(CONFIDENT, VOTES, answers.asked, answers.answered, np.array([2.0, 8.0]))
    assert (costs[~answers.asked] == 0).all()
    assert (costs[answers.asked] > 0).all()


def test_in_blocks_as_in_one() -> None:
    votes = VoteCounts(np.repeat(ROWS, 60, axis=0), 250)  # 4,500 queries: more than one block
    aggregator = GNMax(40.0)
    answers = aggregator.answer(votes)
    whole = query_rdp(aggregator, votes, answers.asked, answers.answered, np.array([2.0, 8.0])).sum(axis=0)
    assert rdp_total(aggregator, votes, answers, [2.0, 8.0]) == pytest.approx(whole, rel=1e-12)


def test_the_grid_is_counted_against_us() -> None:
    grid = grid_of(40.0)
    lowered = settled(np.array([[7, 3], [5, 5]]), 40.0)
    assert lowered.tolist() == [[7 - grid, 3], [5 - grid, 5]]
    for threshold in (200.0, 200.3, -1.7):
        point = settled_threshold(threshold, 40.0)
        step = grid
        for value in (point - step / 4, point + step / 4):
            rounded = math.floor(value / step + 0.5) * step  # to the nearest point, as the noisy maximum is
            assert (rounded >= threshold) == (value >= point)


def test_an_interactive_cost_needs_the_student() -> None:
    aggregator = InteractiveGNMax(100.0, 150.0, 40.0, confidence=0.9)
    student = np.full(ROWS.shape, 0.1)
    answers = aggregator.answer(VOTES, student)
    with pytest.raises(InvalidValue, match="probabilities"):
        cost_of(aggregator, VOTES, answers, delta=DELTA)
    cost = cost_of(aggregator, VOTES, answers, delta=DELTA, probabilities=student)
    assert 0 < private_epsilon(cost) <= cost.data_independent.epsilon


def test_discrete_noise_has_no_private_bound() -> None:
    aggregator = GNMax(40.0, noise="discrete")
    cost = cost_of(aggregator, VOTES, aggregator.answer(VOTES), delta=DELTA)
    assert cost.data_dependent is None
    assert "no bound" in str(cost)


# Types and print -----------------------------------------------------------------------------------------------


def test_the_private_epsilon_cannot_be_used_as_a_number_or_a_promise() -> None:
    secret = UnpublishableEpsilon(1.25, delta=DELTA, order=15.0)
    assert not isinstance(secret, Guarantee)
    assert not hasattr(secret, "epsilon")
    assert "do not publish" in str(secret)
    assert "do not publish" in repr(secret)
    assert "1.25" not in repr(secret)
    for misuse in (float, int, math.ceil, pickle.dumps, json.dumps, lambda value: value + 1, lambda value: value < 2):
        with pytest.raises(TypeError):
            misuse(secret)
    with pytest.raises((AttributeError, TypeError)):
        Budget(2.0, DELTA).allows(secret)  # type: ignore[arg-type]


def test_print_has_the_three_side_by_side_and_json_only_the_public_ones() -> None:
    votes = VoteCounts(ROWS * 10, 2500)
    cost = cost_of(GNMax(200.0), votes, GNMax(200.0).answer(votes, delta=DELTA), release=RELEASE)
    text = str(cost)
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["data-independent", "data-dependent", "sanitised"]
    assert text.count("(publishable)") == 2
    assert text.count("do not publish") == 1
    assert set(cost.to_dict()) == {"data_independent", "sanitised"}
    secret = str(private_epsilon(cost))[:6]
    assert secret not in json.dumps(cost.to_dict())
    assert secret not in repr(cost)


# The sanitised one ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregator", [GNMax(200.0), ConfidentGNMax(1500.0, 700.0, 200.0)], ids=str)
def test_sanitised_is_above_the_private_cost_and_carries_its_price(aggregator) -> None:
    votes = VoteCounts(np.repeat(ROWS * 10, 15, axis=0), 2500)
    answers = aggregator.answer(votes, rng=Rng.from_seed(0))
    cost = cost_of(aggregator, votes, answers, delta=DELTA, release=RELEASE, rng=Rng.from_seed(0))
    assert cost.sanitised is not None
    order = RELEASE.order
    at_order = rdp_total(aggregator, votes, answers, [order]) + RELEASE.rdp(order)
    least, _ = analysis.best_epsilon(at_order, [order], delta=DELTA)
    assert least < cost.sanitised.epsilon < least + 0.5
    assert cost.sanitised.epsilon < cost.data_independent.epsilon
    assert any("its neighbours" in note for note in cost.sanitised.notes)
    assert any("more" in note for note in cost.data_independent.notes)


def test_the_release_is_charged_before_it_is_made() -> None:
    charged: list[Event] = []

    class Account:
        def charge(self, event: Event) -> None:
            charged.append(event)
            raise BudgetExceeded("no.")

    votes = VoteCounts(ROWS, 250)
    answers = GNMax(200.0).answer(votes, delta=DELTA)
    with pytest.raises(BudgetExceeded):
        cost_of(GNMax(200.0), votes, answers, release=RELEASE, account=Account())
    (event,) = charged
    assert isinstance(event, ApproximateDP)
    assert event == RELEASE.event(DELTA)
    at_one_order, _ = analysis.best_epsilon([RELEASE.rdp(20.0)], [20.0], delta=DELTA)
    assert 0 < event.epsilon <= at_one_order  # the best of all orders
    assert accounting.guarantee(event, delta=DELTA).epsilon == pytest.approx(event.epsilon, rel=1e-9)


def test_release_and_answers_share_one_cap_when_the_release_has_its_own_delta(tmp_path) -> None:
    account = Ledger(tmp_path / "ledger.db").account("votes", cap=Budget(epsilon=2.0, delta=DELTA))
    votes = VoteCounts(ROWS, 250)
    answers = GNMax(200.0).answer(votes, delta=DELTA, account=account)
    with pytest.raises(BudgetExceeded):  # the whole delta for the release leaves none for the answers
        cost_of(GNMax(200.0), votes, answers, release=RELEASE, account=account)
    cost_of(GNMax(200.0), votes, answers, release=RELEASE, release_delta=DELTA / 10, account=account)
    assert RELEASE.event(DELTA / 10) in account.event.events


@pytest.mark.parametrize(("epsilon", "order"), [(0.05, 12.0), (0.2, 12.0), (0.2, 60.0), (1.0, 3.0)])
def test_a_plan_for_a_price_costs_that_price_and_no_more(epsilon: float, order: float) -> None:
    plan = plan_for(epsilon, delta=1e-6, order=order)
    assert plan.order == order
    assert 0.98 * epsilon < plan.event(1e-6).epsilon <= epsilon
    # Two neighbours whose noise differs by the most that the smoothness allows: delta by quadrature, without orders.
    centre, lift = 1 / plan.release_stddev, plan.shift * np.expm1(plan.smoothness)
    grid = np.linspace(-12, 12, 200_001)
    first = stats.norm.pdf(grid)
    second = stats.norm.pdf(grid, loc=centre + lift, scale=np.exp(plan.smoothness))
    for one, other in ((first, second), (second, first)):
        excess = np.maximum(one - np.exp(plan.event(1e-6).epsilon) * other, 0)
        assert np.trapezoid(excess, grid) <= 1e-6


@pytest.mark.parametrize("aggregator", [LNMax(20.0), GNMax(40.0, noise="discrete")], ids=str)
def test_what_cannot_be_sanitised_is_refused(aggregator) -> None:
    answers = aggregator.answer(VOTES, delta=DELTA)
    with pytest.raises(InvalidValue, match="sanitised"):
        cost_of(aggregator, VOTES, answers, release=RELEASE)


def test_answers_of_other_votes_are_refused() -> None:
    answers = GNMax(40.0).answer(VOTES[:3], delta=DELTA)
    with pytest.raises(InvalidValue, match="belong"):
        cost_of(GNMax(40.0), VOTES, answers)
    with pytest.raises(InvalidValue, match="this aggregator"):
        cost_of(GNMax(80.0), VOTES[:3], answers)
