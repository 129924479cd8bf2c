"""Data-dependent Rényi bounds: published values, the exact divergences that they must bound, and their shape."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import special, stats

from hush.errors import InvalidValue
from hush.pate import VoteCounts, analysis

ORDERS = (2, 5, 10, 14, 20, 32, 64)
TIGHT = 1e-9

# Published values: the reference implementation of the 2018 paper, in double precision -------------------------


@pytest.mark.parametrize(
    ("counts", "stddev", "log_q", "costs"),
    [
        (
            [250] + [0] * 9,
            40,
            -10.0192282943,
            [1.527357263e-05, 1.749152935e-05, 2.333177857e-05, 3.120157896e-05, 5.321317752e-05, 2.034549876e-04,
             1.093369227e-02],
        ),
        (
            [200, 20, 10, 5, 5, 5, 2, 1, 1, 1],
            40,
            -5.8577425283,
            [7.350941881e-04, 8.123440615e-04, 9.931878605e-04, 1.205837047e-03, 1.705568522e-03, 4.016901518e-03,
             3.112043221e-02],
        ),
        ([130, 110, 10] + [0] * 7, 40, -0.789149035772, [0.00125, 0.003125, 0.00625, 0.00875, 0.0125, 0.02, 0.04]),
        (
            [240, 10],
            40,
            -10.6404854817,
            [8.477619834e-06, 9.753930218e-06, 1.316551232e-05, 1.784223857e-05, 3.120970969e-05, 1.267292958e-04,
             8.627955433e-03],
        ),
        ([60, 40], 10, -2.54275269049, [0.02, 0.05, 0.1, 0.14, 0.2, 0.32, 0.64]),
    ],
)  # fmt: skip
def test_gnmax_values(counts: list[int], stddev: float, log_q: float, costs: list[float]) -> None:
    found = analysis.log_miss_probability(counts, stddev)
    assert found == pytest.approx(log_q, rel=1e-11)
    assert analysis.gnmax_rdp(found, stddev, ORDERS) == pytest.approx(costs, rel=TIGHT)


def test_no_underflow_at_e_to_minus_445() -> None:
    log_q = analysis.log_miss_probability([4500, 300, 200], 100)
    assert log_q == pytest.approx(-445.311165152, rel=1e-11)
    costs = np.asarray(analysis.gnmax_rdp(log_q, 100, ORDERS))
    assert costs[0] == pytest.approx(4.217694113e-194, rel=TIGHT)
    assert (costs > 0).all()
    assert (np.diff(costs) > 0).all()
    with mpmath.workdps(400):
        assert costs[0] == pytest.approx(float(theorem_six(log_q, 100, 2)), rel=1e-10)


@pytest.mark.parametrize(
    ("log_q", "stddev", "order", "cost"),
    [
        (-10, 15, 10, 2.51638432553e-4),
        (-20, 40, 14, 3.28142480161e-9),
        (-5, 1.5, 1.1, 0.108981304219),
        (-50, 100, 20, 1.68508424546e-22),
        (-3, 1.5, 2.5, 1.02779959237),
    ],
)
def test_theorem_six_values(log_q: float, stddev: float, order: float, cost: float) -> None:
    assert analysis.gnmax_rdp(log_q, stddev, order) == pytest.approx(cost, rel=TIGHT)
    with mpmath.workdps(60):
        assert float(theorem_six(log_q, stddev, order)) == pytest.approx(cost, rel=TIGHT)


def theorem_six(log_q: float, stddev: float, order: float) -> mpmath.mpf:
    """The formula of the paper, as printed, in the precision that is set."""
    q, s, a = mpmath.e ** mpmath.mpf(log_q), mpmath.mpf(stddev), mpmath.mpf(order)
    mu2 = s * mpmath.sqrt(-mpmath.mpf(log_q))
    mu1 = mu2 + 1
    eps1, eps2 = mu1 / s**2, mu2 / s**2
    big_a = (1 - q) / (1 - (q * mpmath.e**eps2) ** ((mu2 - 1) / mu2))
    big_b = mpmath.e**eps1 / q ** (1 / (mu1 - 1))
    return mpmath.log((1 - q) * big_a ** (a - 1) + q * big_b ** (a - 1)) / (a - 1)


@pytest.mark.parametrize(
    ("threshold", "stddev", "max_count", "order", "log_p", "cost", "free"),
    [
        (200, 20, 250, 14, -0.00622902548586, 0.00432624700258, 0.0175),
        (200, 20, 60, 14, -27.3843074988, 1.27574756039e-11, 0.0175),
        (200, 150, 250, 14, -0.461149090921, 3.1111111111111e-4, 3.1111111111111e-4),
        (1000, 500, 5000, 20, -6.22096057427e-16, 2.27571377296e-17, 4e-5),
    ],
)
def test_threshold_values(threshold, stddev, max_count, order, log_p, cost, free) -> None:
    assert analysis.log_answer_probability(max_count, threshold, stddev) == pytest.approx(log_p, rel=1e-10)
    assert analysis.threshold_rdp(max_count, threshold, stddev, order) == pytest.approx(cost, rel=TIGHT)
    assert analysis.threshold_rdp(threshold, threshold, stddev, order) == pytest.approx(free, rel=1e-12)


@pytest.mark.parametrize(
    ("counts", "scale", "log_q", "costs"),
    [
        ([250, 0, 0], 20, -10.5189985311, [5.68305719e-06, 6.163535716e-06, 6.980368239e-06, 1.092589161e-05]),
        ([130, 110, 10], 20, -1.26987372784, [0.01, 0.025, 0.045, 0.06553324784]),
        ([60, 40], 10, -2, [0.04, 0.06498699148, 0.07463735659, 0.1077024043]),
    ],
)
def test_lnmax_values(counts: list[int], scale: float, log_q: float, costs: list[float]) -> None:
    found = analysis.lnmax_log_miss_probability(counts, scale)
    if log_q == -2:  # the notes round it; (2 + 2) / (4 e^2) is e^-2
        assert found == pytest.approx(-2, abs=1e-12)
    else:
        assert found == pytest.approx(log_q, rel=1e-10)
    assert analysis.lnmax_rdp(found, scale, [2, 5, 9, 20]) == pytest.approx(costs, rel=2e-9)


def test_the_published_totals() -> None:
    rows = np.array([[240, 10] + [0] * 8] * 600 + [[180, 50, 20] + [0] * 7] * 100 + [[130, 110, 10] + [0] * 7] * 50)
    orders = analysis.PAPER_ORDERS
    costs = np.asarray(analysis.gnmax_rdp(analysis.log_miss_probability(rows, 40), 40, orders))
    epsilon, order = analysis.best_epsilon(costs.sum(axis=0), orders, delta=1e-5, classic=True)
    assert (epsilon, order) == (pytest.approx(1.91013410533, rel=1e-10), 15)
    free = analysis.best_epsilon(750 * orders / 40**2, orders, delta=1e-5, classic=True)
    assert free == (pytest.approx(5.11508509299, rel=1e-10), 6)
    answered = np.exp(analysis.log_answer_probability(rows.max(axis=1), 200, 150))
    assert answered.sum() == pytest.approx(423.797202, rel=1e-8)
    tests = np.asarray(analysis.threshold_rdp(rows.max(axis=1), 200, 150, orders))
    expected = tests.sum(axis=0) + (answered[:, None] * costs).sum(axis=0)
    assert analysis.best_epsilon(expected, orders, delta=1e-5, classic=True) == (
        pytest.approx(1.48096167, rel=1e-7),
        17.5,
    )
    moments = np.arange(2.0, 10.0)
    laplace = np.asarray(analysis.lnmax_rdp(analysis.lnmax_log_miss_probability(rows[:100], 20), 20, moments))
    total = analysis.best_epsilon(laplace.sum(axis=0), moments, delta=1e-5, classic=True)
    assert total == (pytest.approx(1.44444291349, rel=1e-10), 9)


@pytest.mark.parametrize(
    ("stddev", "starts"),
    [
        (1.5, (2.8, 2.6, 427, None)),
        (15, (4.8, 4.0, 4.7, 275)),
        (1500, (9.6, 8.8, 6.0, 4)),
        (15000, (12, 11.2, 8.6, 6.4)),
    ],
)
def test_the_bound_falls_as_q_halves_and_is_flat_above(stddev: float, starts: tuple[float | None, ...]) -> None:
    for order, start in zip((1.1, 2.5, 32.0, 250.0), starts, strict=True):
        if start is None:
            continue
        below = np.asarray(analysis.gnmax_rdp(-start - math.log(2) * np.arange(30), stddev, order))
        assert (np.diff(below) < 0).all(), order
        above = np.asarray(analysis.gnmax_rdp(np.linspace(-start * 0.5, 0, 20), stddev, order))
        assert above == pytest.approx(order / stddev**2, rel=1e-12), order


@pytest.mark.parametrize(("stddev", "log_q", "order"), [(0.3, -0.414, 1.1), (0.5, -3.42, 1.5), (0.5, -3.63, 1.5)])
def test_the_bound_is_not_used_where_its_conditions_fail(stddev: float, log_q: float, order: float) -> None:
    """At these points the formula of Theorem 6 gives less than order / stddev^2, and does not hold."""
    assert analysis.gnmax_rdp(log_q, stddev, order) == pytest.approx(order / stddev**2, rel=1e-12)


# The truth: the divergence between what neighbours give --------------------------------------------------------


def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
    """The Rényi divergence of two laws on a few labels."""
    return float(np.logaddexp.reduce(order * np.log(p) + (1 - order) * np.log(q))) / (order - 1)


def gnmax_law(counts: tuple[int, ...], stddev: float) -> np.ndarray:
    """The chance of each label, by quadrature."""

    z = np.linspace(-30, 30, 6001)  # the trapezoid rule converges faster than any power on such a line
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])

    def chance(label: int) -> float:
        leads = [(counts[label] - count) / stddev for other, count in enumerate(counts) if other != label]
        return float((density * np.prod([special.ndtr(z + lead) for lead in leads], axis=0)).sum())

    return np.array([chance(label) for label in range(len(counts))])


def neighbours(counts: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All counts after one vote moved."""
    found = []
    for source in range(len(counts)):
        for target in range(len(counts)):
            if source != target and counts[source]:
                moved = list(counts)
                moved[source] -= 1
                moved[target] += 1
                found.append(tuple(moved))
    return found


@pytest.mark.parametrize("counts", [(9, 1), (20, 0), (6, 4), (8, 1, 1), (14, 3, 1)])
@pytest.mark.parametrize("stddev", [1.0, 3.0])
def test_gnmax_bounds_the_exact_divergence_of_every_neighbour(counts: tuple[int, ...], stddev: float) -> None:
    law = gnmax_law(counts, stddev)
    log_q = float(analysis.log_miss_probability(counts, stddev))
    assert 1 - law[0] <= math.exp(log_q) * (1 + 1e-9)
    for order in (1.5, 2.0, 5.0, 15.0):
        claimed = analysis.gnmax_rdp(log_q, stddev, order)
        worst = max(divergence(law, gnmax_law(other, stddev), order) for other in neighbours(counts))
        assert worst <= claimed * (1 + 1e-7) + 1e-12, order


@given(st.integers(0, 60), st.floats(0.5, 20), st.floats(1.01, 60))
@settings(max_examples=200)
def test_the_threshold_bounds_the_exact_divergence(max_count: int, stddev: float, order: float) -> None:
    def law(count: int) -> np.ndarray:
        z = (count - 30) / stddev
        return np.exp([stats.norm.logcdf(z), stats.norm.logsf(z)])

    claimed = analysis.threshold_rdp(max_count, 30, stddev, order)
    for other in (max_count - 1, max_count + 1):
        p, q = law(max_count), law(other)
        assume(min(*p, *q) > 1e-250)
        assert divergence(p, q, order) <= claimed * (1 + 1e-7) + 1e-12


@given(st.integers(0, 40), st.floats(1.0, 20), st.floats(1.01, 40))
@settings(max_examples=200)
def test_lnmax_bounds_the_exact_divergence_of_two_classes(gap: int, scale: float, order: float) -> None:
    def law(lead: float) -> np.ndarray:
        x = abs(lead) / scale
        miss = (2 + x) / (4 * math.exp(x))  # of the difference of two Laplace numbers
        return np.array([1 - miss, miss] if lead >= 0 else [miss, 1 - miss])

    log_q = analysis.lnmax_log_miss_probability([gap, 0], scale)
    claimed = analysis.lnmax_rdp(log_q, scale, order)
    for other in (gap - 2, gap + 2):
        assert divergence(law(gap), law(other), order) <= claimed * (1 + 1e-9) + 1e-14


# Shape ---------------------------------------------------------------------------------------------------------

counts_of = st.lists(st.integers(0, 2000), min_size=2, max_size=8).filter(lambda row: sum(row) > 0)


@given(counts_of, st.floats(0.3, 500), st.floats(1.01, 500))
@example([2000, 0], 0.3, 1.01)
def test_cost_is_within_0_and_the_cost_of_any_votes(counts: list[int], stddev: float, order: float) -> None:
    log_q = float(analysis.log_miss_probability(counts, stddev))
    assert -math.inf < log_q <= math.log1p(-1 / len(counts))
    assert 0 <= analysis.gnmax_rdp(log_q, stddev, order) <= order / stddev**2 * (1 + 1e-15)
    assert 0 <= analysis.threshold_rdp(max(counts), 500, stddev, order) <= order / (2 * stddev**2) * (1 + 1e-12)
    cost = analysis.lnmax_rdp(analysis.lnmax_log_miss_probability(counts, stddev), stddev, order)
    assert 0 <= cost <= min(2 / stddev, 2 * order / stddev**2) * (1 + 1e-15)


@given(counts_of, st.floats(0.5, 300), st.floats(1.1, 200))
def test_cost_falls_as_consensus_grows(counts: list[int], stddev: float, order: float) -> None:
    """Moving a vote to the winner from any other class never makes q larger, nor the cost."""
    winner = int(np.argmax(counts))
    before = float(analysis.log_miss_probability(counts, stddev))
    for loser in range(len(counts)):
        if loser == winner or not counts[loser]:
            continue
        moved = list(counts)
        moved[loser] -= 1
        moved[winner] += 1
        after = float(analysis.log_miss_probability(moved, stddev))
        assert after <= before + 1e-12
        assert analysis.gnmax_rdp(after, stddev, order) <= analysis.gnmax_rdp(before, stddev, order) * (1 + 1e-9)


@given(st.lists(st.floats(-900, 0), min_size=1, max_size=5), st.lists(st.floats(1.01, 300), min_size=1, max_size=4))
def test_arrays_agree_with_single_numbers(logs: list[float], orders: list[float]) -> None:
    for cost in (analysis.gnmax_rdp, analysis.lnmax_rdp):
        table = np.asarray(cost(logs, 40.0, orders))
        assert table.shape == (len(logs), len(orders))
        single = [[cost(log_q, 40.0, order) for order in orders] for log_q in logs]
        assert table == pytest.approx(np.array(single), rel=1e-13, abs=0)
        assert isinstance(cost(logs[0], 40.0, orders[0]), float)


def test_votes_and_their_counts_are_the_same_question() -> None:
    votes = VoteCounts([[240, 10], [130, 120]], 250)
    assert (analysis.log_miss_probability(votes, 40.0) == analysis.log_miss_probability(votes.counts, 40.0)).all()


def test_no_miss_costs_nothing() -> None:
    assert analysis.gnmax_rdp(-math.inf, 40.0, 2.0) == 0
    assert analysis.lnmax_rdp(-math.inf, 40.0, 2.0) == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda: analysis.gnmax_rdp(0.1, 40, 2),
        lambda: analysis.gnmax_rdp(math.nan, 40, 2),
        lambda: analysis.gnmax_rdp(-3, -1, 2),
        lambda: analysis.gnmax_rdp(-3, 40, 1),
        lambda: analysis.gnmax_rdp(-3, 40, [2, 0.5]),
        lambda: analysis.gnmax_rdp(-3, 40, []),
        lambda: analysis.log_miss_probability([3], 40),
        lambda: analysis.log_miss_probability([3, -1], 40),
        lambda: analysis.log_miss_probability([3, math.inf], 40),
        lambda: analysis.best_epsilon([1.0], [2.0], delta=0.0),
        lambda: analysis.best_epsilon([1.0, 2.0], [2.0], delta=1e-5),
    ],
)
def test_what_has_no_meaning_is_refused(ask) -> None:
    with pytest.raises(InvalidValue):
        ask()
