"""Local and smooth sensitivity: published values, brute force over all votes, and the price of a release."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hush import Rng
from hush.errors import InvalidValue
from hush.mechanisms.draws import Draws
from hush.pate import ConfidentGNMax, GNMax, VoteCounts, analysis
from hush.pate.consensus import log_miss_probability
from hush.pate.private_costs import local_sensitivity, smoothable_rdp
from hush.pate.sanitise import ReleasePlan, published_release_rdp, release_rdp
from hush.pate.smooth import conditions, cost_at, crossing_log_q, moved_log_q, smooth_sensitivity

# Published values: the unit tests of the reference implementation ----------------------------------------------


@pytest.mark.parametrize(
    ("stddev", "order", "log_q"),
    [
        (40, 14, -3.4029724174),
        (15, 10, -2.98297058187),
        (100, 20, -3.88650764976),
        (1.5, 2.5, -2.77777777778),
        (1.5, 1.1, -2.9499558499),
    ],
)
def test_crossing(stddev: float, order: float, log_q: float) -> None:
    assert crossing_log_q(stddev, order) == pytest.approx(log_q, rel=1e-10)


def test_gnmax_values() -> None:
    found = analysis.gnmax_local_sensitivity([10, 0, 0], 10, 0.5, 1.5)
    assert found == pytest.approx([3.13503646e-17, 1.60178280e-08, 5.90681786e-03] + [5.99981308] * 7, rel=1e-8)
    found = analysis.gnmax_local_sensitivity([1000, 500, 300, 200, 0], 2000, 250, 10)
    expected = [0.0] * 298 + [2.77693450548e-7, 2.10853979548e-6] + [2.73113623988e-6] * 1700
    assert found == pytest.approx(expected, rel=1e-8, abs=0)


def test_the_order_of_the_classes_does_not_matter() -> None:
    one = analysis.gnmax_local_sensitivity([10, 0, 0], 10, 0.5, 1.5)
    assert (analysis.gnmax_local_sensitivity([0, 10, 0], 10, 0.5, 1.5) == one).all()


LOW = [1.60212079e-01, 2.07021132e-01, 2.07021132e-01, 1.93127860e-01, 1.68302106e-01, 1.42180452e-01, 1.16054002e-01,
       9.01543247e-02, 6.45775697e-02, 3.94153241e-02, 1.47826870e-02, 1.48454129e-04]  # fmt: skip
HIGH = [0, 0, 0, 1.48454129e-04, 1.47826870e-02, 3.94153241e-02, 6.45775697e-02, 9.01543247e-02, 1.16054002e-01,
        1.42180452e-01, 1.42180452e-01, 1.48454129e-04, 1.47826870e-02, 3.94153241e-02, 6.45775697e-02, 9.01543266e-02,
        1.16054000e-01, 1.42180452e-01, 1.68302106e-01, 1.93127860e-01]  # fmt: skip


@pytest.mark.parametrize(("threshold", "values"), [(2, LOW), (16, HIGH)])
def test_threshold_values(threshold: float, values: list[float]) -> None:
    found = analysis.threshold_local_sensitivity(20, 30, threshold, 2, 10)
    expected = values + [0.0] * (30 - len(values))
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-12)


def test_conditions() -> None:
    assert conditions(20.0, 10, 25.0) == (True, False)
    assert conditions(30.0, 10, 25.0) == (True, True)


# The truth: all votes of a few teachers ------------------------------------------------------------------------


def all_votes(teachers: int, classes: int) -> list[tuple[int, ...]]:
    return [row for row in itertools.product(range(teachers + 1), repeat=classes) if sum(row) == teachers]


def moved_votes(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many votes must move to come from one row to the other."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) // 2


@pytest.mark.parametrize(("classes", "stddev", "order"), [(2, 2.0, 2.0), (2, 4.0, 3.0), (3, 3.0, 2.0), (3, 1.5, 1.5)])
def test_the_curve_bounds_the_true_sensitivity_at_every_distance(classes: int, stddev: float, order: float) -> None:
    teachers = 12
    assert conditions(stddev, classes, order) == (True, True)
    rows = all_votes(teachers, classes)
    costs = cost_at(log_miss_probability(rows, stddev), stddev, order)
    distance = np.array([[moved_votes(one, other) for other in rows] for one in rows])
    true_local = np.where(distance == 1, np.abs(costs[:, None] - costs[None, :]), 0).max(axis=1)
    for row, distances in zip(rows, distance, strict=True):
        curve = np.maximum.accumulate(analysis.gnmax_local_sensitivity(row, teachers, stddev, order))
        for moved in range(teachers):
            assert true_local[distances <= moved].max() <= curve[moved] * (1 + 1e-9) + 1e-15
    assert costs.max() > 2 * costs.min()  # there is something to bound


@pytest.mark.parametrize("aggregator", [GNMax(3.0), ConfidentGNMax(7.0, 1.5, 3.0)], ids=str)
def test_two_queries_together(aggregator) -> None:
    """A teacher may move its vote on each query: brute force over pairs of rows. The curves must rise before a sum."""
    teachers, order, smoothness = 8, 2.0, 0.2
    rows = all_votes(teachers, 2)
    pairs = list(itertools.product(rows, rows))
    both = np.array([True, True])

    def facts(pair: tuple[tuple[int, ...], ...]) -> tuple[float, float]:
        votes = VoteCounts(np.array(pair), teachers)
        local = local_sensitivity(aggregator, votes, both, both, order)
        return smoothable_rdp(aggregator, votes, both, both, order), smooth_sensitivity(local, smoothness)

    table = {pair: facts(pair) for pair in pairs}
    for one, other in itertools.product(pairs, pairs):
        if max(moved_votes(*rows) for rows in zip(one, other, strict=True)) == 1:
            (cost, smooth), (other_cost, other_smooth) = table[one], table[other]
            assert abs(cost - other_cost) <= smooth * (1 + 1e-9)
            assert other_smooth <= math.exp(smoothness) * smooth * (1 + 1e-9)


def test_one_moved_vote_keeps_q_within_its_range() -> None:
    for row in all_votes(10, 3):
        log_q = float(log_miss_probability(row, 2.0))
        for other in all_votes(10, 3):
            if moved_votes(row, other) == 1:
                moved = float(log_miss_probability(other, 2.0))
                cap = math.log(2 / 3)  # q itself is capped at 1 - 1/classes, its range is not
                assert moved <= float(moved_log_q(log_q, 2.0, 3, 1)) + 1e-9 or log_q >= cap - 1e-9
                assert moved >= float(moved_log_q(log_q, 2.0, 3, -1)) - 1e-9


def test_far_beyond_underflow() -> None:
    found = analysis.gnmax_local_sensitivity([50_000, 0, 0], 50_000, 100.0, 20.0)
    assert np.isfinite(found).all()
    assert (np.diff(found) >= 0).all()
    assert found[0] == 0 < found[-1]


# Releases ------------------------------------------------------------------------------------------------------


def normal_divergence(order: float, means: float, ratio: float) -> float:
    """Of N(0, 1) from N(means, ratio^2), by summing the density on a fine grid."""
    x = np.linspace(-400, 400, 80_001)
    log_p = -(x**2) / 2
    log_q = -((x - means) ** 2) / (2 * ratio**2) - math.log(ratio)
    logs = order * log_p + (1 - order) * log_q - 0.5 * math.log(2 * math.pi)
    top = float(logs.max())
    return (top + math.log(float(np.exp(logs - top).sum()) * (x[1] - x[0]))) / (order - 1)


@pytest.mark.parametrize(
    ("smoothness", "stddev", "order", "shift"),
    [(0.0329, 11.59, 14, 0.0), (0.02, 10, 8, 0.0), (0.02, 10, 8, 4.0), (0.005, 3, 20, 2.0), (0.1, 2, 2.5, 1.0)],
)
def test_the_price_bounds_every_pair_of_normal_laws(smoothness, stddev, order, shift) -> None:
    price = release_rdp(smoothness, stddev, order, shift=shift)
    found = []
    for ratio in np.exp(np.linspace(-smoothness, smoothness, 9)):
        means = min(1.0, ratio) / stddev + shift * abs(1 - ratio)
        found += [normal_divergence(order, sign * means, float(ratio)) for sign in (1, -1)]
    assert max(found) <= price * (1 + 1e-6)
    assert max(found) == pytest.approx(price, rel=1e-6)


def test_the_published_price_is_below_the_truth() -> None:
    assert published_release_rdp(0.0329, 11.59, 14) == pytest.approx(0.244466384288, rel=1e-10)
    assert published_release_rdp(0.02, 10, 8) == pytest.approx(0.133669324851, rel=1e-10)
    ratio = math.exp(-0.0329)
    assert normal_divergence(14, ratio / 11.59, ratio) > 2 * published_release_rdp(0.0329, 11.59, 14)


def test_orders_beyond_the_range_are_refused() -> None:
    with pytest.raises(InvalidValue, match="order"):
        release_rdp(0.05, 10.0, 14.0)
    with pytest.raises(InvalidValue, match="order"):
        ReleasePlan(order=14.0, smoothness=0.05, release_stddev=10.0)
    with pytest.raises(InvalidValue, match="failure_prob"):
        ReleasePlan(order=14.0, smoothness=0.01, release_stddev=10.0, failure_prob=0.0)


def test_a_release_is_above_the_cost_as_often_as_it_says() -> None:
    """2,000 releases at a chance of failure of 0.1: between 150 and 250 of them fail. False alarm 1e-12."""
    plan = ReleasePlan(order=14.0, smoothness=0.01, release_stddev=10.0, failure_prob=0.1)
    draws = Draws(Rng.from_seed(0))
    failures = sum(plan.release(0.5, 0.01, draws) < 0.5 for _ in range(2000))
    assert 105 < failures < 295


def test_a_release_tells_its_value_on_a_public_grid_only() -> None:
    plan, draws = ReleasePlan(order=14.0, smoothness=0.01, release_stddev=10.0), Draws(Rng.from_seed(0))
    for sensitivity in (0.0, 1e-200, 1e-9, 0.3):
        value = plan.release(0.5, sensitivity, draws)
        assert value * 2**20 == round(value * 2**20)


def test_failing_conditions_are_refused() -> None:
    votes = VoteCounts([[240] + [10] + [0] * 8], 250)
    mask = np.array([True])
    with pytest.raises(InvalidValue, match="C5 and C6"):
        local_sensitivity(GNMax(20.0), votes, mask, mask, 25.0)
