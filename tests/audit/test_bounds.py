"""The bounds: reference values, exact validity against mechanisms whose truth is known, edges and refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom, norm

from hush import audit
from hush.accounting.gdp import analytic_noise, delta_of
from hush.audit.counts import Guesses
from hush.audit.one_run import one_run_tail
from hush.audit.one_run_fdp import mu_one_run, refutes
from hush.audit.rates import lower_rate, mu_at_least, safe_rates
from hush.errors import InvalidValue

# (num_canaries, num_guesses, num_correct, delta) -> epsilon at significance 0.05, to the digits given
ONE_RUN = {
    (1_000, 100, 100, 0.0): 3.492965,
    (1_000, 100, 100, 1e-5): 3.465376,
    (1_000, 100, 90, 1e-5): 1.626143,
    (5_000, 100, 100, 1e-5): 3.352420,
    (1_000, 1_000, 1_000, 1e-5): 5.782283,
    (100_000, 1_500, 1_429, 1e-5): 2.668754,
    (100, 100, 75, 0.0): 0.702214,
}


@pytest.mark.parametrize("counts", ONE_RUN, ids=str)
def test_one_run_has_the_reference_values(counts: tuple[int, int, int, float]) -> None:
    assert audit.one_run_bound(*counts, significance=0.05) == pytest.approx(ONE_RUN[counts], abs=6e-7)


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("counts", [(50, 20, 15), (50, 50, 49), (10, 1, 1), (30, 30, 3)])
def test_one_run_tail_is_the_theorems(counts: tuple[int, int, int], epsilon: float) -> None:
    m, r, v = counts
    chance, delta = math.exp(epsilon) / (1 + math.exp(epsilon)), 1e-3
    f = [float(binom.sf(k - 1, r, chance)) for k in range(r + 1)]
    expected = f[v] + 2 * m * delta * max((f[v - i] - f[v]) / i for i in range(1, v + 1))
    assert one_run_tail(Guesses(m, r, v), epsilon, delta) == pytest.approx(expected, rel=1e-9)


def test_clopper_pearson_has_the_reference_values() -> None:
    assert audit.clopper_pearson_bound(500, 500, 0, 500, 0.0, 0.01) == pytest.approx(4.541916, abs=6e-7)
    assert audit.clopper_pearson_bound(90, 100, 10, 100, 0.0, 0.05) == pytest.approx(1.542152, abs=6e-7)
    counts = audit.rates.Counts(500, 500, 0, 500)
    assert safe_rates(counts, 0.01) == pytest.approx((0.98945931, 0.01054069), abs=6e-9)
    counts = audit.rates.Counts(90, 100, 10, 100)
    assert safe_rates(counts, 0.05) == pytest.approx((0.82377740, 0.17622260), abs=6e-9)


def test_rates_are_those_of_another_library() -> None:
    for successes, trials in [(1, 10), (3, 7), (10, 10), (499, 1_000)]:
        assert lower_rate(successes, trials, 0.03) == pytest.approx(beta.ppf(0.03, successes, trials - successes + 1))


def test_gdp_bound_inverts_the_gaussian_curve() -> None:
    """The bound's epsilon has the stated delta at the mu of the safe rates."""
    counts = (800, 1_000, 150, 1_000)
    epsilon = audit.gdp_bound(*counts, delta=1e-4, significance=0.05)
    low, high = beta.ppf(0.025, 800, 201), beta.ppf(0.975, 151, 850)
    mu = norm.ppf(low) - norm.ppf(high)
    assert mu_at_least(audit.rates.Counts(*counts), 0.05) == pytest.approx(mu, rel=1e-6)
    assert delta_of(epsilon, mu) == pytest.approx(1e-4, rel=1e-6)


# The scores of JAX Privacy's tests: 10,000 normal quantiles shifted by 1, 2 or 4 against 10,000 unshifted. Its answers
# take the best vertex of the ROC's hull at significance 0.05 over the number of vertices, which counts thresholds
# chosen on the same data; Hush's bounds are the same at one vertex, and Hush fixes the number of guesses instead.
JAX = {1: (1.13346, 2.164749), 2: (2.311945, 4.7218075), 4: (4.395568, 9.133752)}


def hull(shift: float, number: int = 10_000) -> list[tuple[int, int]]:
    """(false positives, true positives) at the vertices of the ROC's upper hull."""
    quantiles = norm.ppf((numpy.arange(number) + 0.5) / number)
    scores = numpy.concatenate([quantiles + shift, quantiles])
    members = numpy.repeat([1, 0], number)[numpy.argsort(-scores, kind="stable")]
    points = [(0, 0), *zip(numpy.cumsum(1 - members).tolist(), numpy.cumsum(members).tolist(), strict=True)]
    found: list[tuple[int, int]] = []
    for x, y in points:
        while len(found) > 1:
            (x1, y1), (x2, y2) = found[-2:]
            if (x2 - x1) * (y - y1) < (y2 - y1) * (x - x1):
                break
            found.pop()
        found.append((x, y))
    return found


def best_over_hull(
    shift: float, refuted: Callable[[Guesses, float, float], bool], bound: Callable[..., float]
) -> float:
    """The best vertex; a vertex that does not refute the best epsilon so far is passed over."""
    vertices = hull(shift)
    level, best = 0.05 / len(vertices), 0.0
    for fp, tp in vertices:
        if tp + fp and refuted(Guesses(20_000, tp + fp, tp), best * (1 + 1e-6) + 1e-6, level):
            best = bound(20_000, tp + fp, tp, 1e-6, level)
    return best


@pytest.mark.parametrize("shift", JAX)
def test_one_run_agrees_with_jax_privacy_at_its_vertices(shift: int) -> None:
    def refuted(counts: Guesses, epsilon: float, level: float) -> bool:
        return one_run_tail(counts, epsilon, 1e-6) <= level

    assert best_over_hull(shift, refuted, audit.one_run_bound) == pytest.approx(JAX[shift][0], rel=2e-5)


@pytest.mark.parametrize("shift", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 4])
def test_one_run_fdp_agrees_with_jax_privacy_at_its_vertices(shift: int) -> None:
    def refuted(counts: Guesses, epsilon: float, level: float) -> bool:
        mu = 1 / analytic_noise(epsilon, 1e-6)
        return refutes(counts, lambda chance: float(ndtr(ndtri(chance) - mu)), level)

    assert best_over_hull(shift, refuted, audit.one_run_fdp_bound) == pytest.approx(JAX[shift][1], rel=2e-5)


# Validity, exactly: the chance that a bound is above the truth, summed over all outcomes ---------------------------


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("guesses", [1, 20, 150])
def test_one_run_is_valid_and_tight_for_randomized_response(epsilon: float, guesses: int) -> None:
    """Every guess is right with chance e^epsilon / (1 + e^epsilon): the worst case of the theorem at delta 0."""
    chance = math.exp(epsilon) / (1 + math.exp(epsilon))
    bounds = [audit.one_run_bound(200, guesses, right, 0.0, 0.05) for right in range(guesses + 1)]
    above = sum(binom.pmf(right, guesses, chance) for right, bound in enumerate(bounds) if bound > epsilon)
    assert above <= 0.05
    if guesses == 150:
        assert above > 0.005


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("guesses", [10, 60])
def test_one_run_fdp_is_valid_for_independent_gaussians(mu: float, guesses: int) -> None:
    chance = norm.cdf(mu / 2)
    bounds = [mu_one_run(guesses, guesses, right, significance=0.05) for right in range(guesses + 1)]
    assert bounds == sorted(bounds)
    assert sum(binom.pmf(right, guesses, chance) for right, bound in enumerate(bounds) if bound > mu) <= 0.05


def chance_above(bound: Callable[..., float], truth: float, tpr: float, fpr: float, number: int, delta: float) -> float:
    """The chance that `bound` is above `truth` if the rates are these."""
    total = 0.0
    for hits in range(number + 1):
        for alarms in range(number + 1):
            if bound(hits, number, alarms, number, delta=delta, significance=0.1) > truth:
                total += float(binom.pmf(hits, number, tpr) * binom.pmf(alarms, number, fpr))
    return total


@pytest.mark.parametrize(("epsilon", "fpr"), [(0.5, 0.3), (1.0, 0.1), (2.0, 0.05)])
def test_clopper_pearson_is_valid_at_the_edge(epsilon: float, fpr: float) -> None:
    delta = 0.01
    tpr = math.exp(epsilon) * fpr + delta
    assert chance_above(audit.clopper_pearson_bound, epsilon, tpr, fpr, 40, delta) <= 0.1


@pytest.mark.parametrize(("mu", "threshold"), [(0.5, 0.25), (1.0, 0.5), (1.0, 1.5)])
def test_gdp_is_valid_on_its_curve(mu: float, threshold: float) -> None:
    tpr, fpr = norm.sf(threshold - mu), norm.sf(threshold)
    counts = [(hits, alarms) for hits in range(41) for alarms in range(41)]
    above = sum(
        binom.pmf(hits, 40, tpr) * binom.pmf(alarms, 40, fpr)
        for hits, alarms in counts
        if mu_at_least(audit.rates.Counts(hits, 40, alarms, 40), 0.1) > mu
    )
    assert above <= 0.1


# Edges ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [audit.one_run_bound, audit.one_run_fdp_bound])
def test_no_guess_and_no_right_guess_say_nothing(bound: Callable[..., float]) -> None:
    assert bound(10, 0, 0, 1e-5, 0.05) == 0
    assert bound(10, 10, 0, 1e-5, 0.05) == 0
    assert bound(10, 10, 5, 1e-5, 0.05) == 0
    assert bound(1, 1, 1, 1e-5, 0.05) == 0


@pytest.mark.parametrize("bound", [audit.clopper_pearson_bound, audit.gdp_bound])
def test_rates_that_say_nothing(bound: Callable[..., float]) -> None:
    for counts in [(0, 0, 0, 0), (5, 5, 0, 0), (0, 0, 0, 5), (0, 9, 0, 9), (9, 9, 9, 9), (3, 9, 6, 9)]:
        assert bound(*counts, delta=1e-5, significance=0.05) == 0


def test_a_large_delta_leaves_nothing() -> None:
    assert audit.one_run_bound(1_000, 100, 90, 0.5, 0.05) == 0
    assert audit.clopper_pearson_bound(90, 100, 10, 100, 0.9, 0.05) == 0


def test_more_right_guesses_never_lower_a_bound() -> None:
    for bound in (audit.one_run_bound, audit.one_run_fdp_bound):
        found = [bound(200, 100, right, 1e-5, 0.05) for right in range(101)]
        assert found == sorted(found)
        assert found[-1] > 1
    for bound in (audit.clopper_pearson_bound, audit.gdp_bound):
        rising = [bound(hits, 50, 5, 50, 1e-5, 0.05) for hits in range(51)]
        falling = [bound(45, 50, alarms, 50, 1e-5, 0.05) for alarms in range(51)]
        assert rising == sorted(rising)
        assert falling == sorted(falling, reverse=True)


def test_certainty_is_finite() -> None:
    assert math.isfinite(audit.one_run_bound(10**6, 10**6, 10**6, 0.0, 0.05))
    assert math.isfinite(audit.one_run_fdp_bound(2_000, 2_000, 2_000, 1e-9, 0.05))
    assert math.isfinite(audit.gdp_bound(10**6, 10**6, 0, 10**6, 1e-9, 0.05))


BAD_GUESSES: list[dict[str, Any]] = [
    {"num_canaries": 0},
    {"num_canaries": 10.0},
    {"num_guesses": 101},
    {"num_guesses": -1},
    {"num_correct": 51},
    {"num_correct": True},
    {"delta": math.nan},
    {"delta": 1.0},
    {"delta": -1e-9},
    {"significance": 0.0},
    {"significance": 1.0},
    {"significance": math.nan},
]


@pytest.mark.parametrize("change", BAD_GUESSES, ids=str)
@pytest.mark.parametrize("bound", [audit.one_run_bound, audit.one_run_fdp_bound])
def test_guesses_outside_their_domain_are_refused(bound: Callable[..., float], change: dict[str, Any]) -> None:
    usual = {"num_canaries": 100, "num_guesses": 50, "num_correct": 40, "delta": 1e-5, "significance": 0.05}
    with pytest.raises(InvalidValue):
        bound(**{**usual, **change})


BAD_COUNTS: list[dict[str, Any]] = [
    {"true_positives": 11},
    {"true_positives": -1},
    {"false_positives": 11},
    {"false_positives": 1.5},
    {"positives": -1},
    {"negatives": math.nan},
    {"delta": math.inf},
    {"significance": 2},
]


@pytest.mark.parametrize("change", BAD_COUNTS, ids=str)
@pytest.mark.parametrize("bound", [audit.clopper_pearson_bound, audit.gdp_bound])
def test_counts_outside_their_domain_are_refused(bound: Callable[..., float], change: dict[str, Any]) -> None:
    usual = {"true_positives": 9, "positives": 10, "false_positives": 1, "negatives": 10}
    with pytest.raises(InvalidValue):
        bound(**{**usual, "delta": 1e-5, "significance": 0.05, **change})


@pytest.mark.parametrize("bound", [audit.one_run_fdp_bound])
def test_gaussian_curves_need_a_delta(bound: Callable[..., float]) -> None:
    with pytest.raises(InvalidValue, match="above 0"):
        bound(100, 50, 40, 0.0, 0.05)
    with pytest.raises(InvalidValue, match="above 0"):
        audit.gdp_bound(9, 10, 1, 10, 0.0, 0.05)


@pytest.mark.parametrize(
    ("counts", "values"),
    [
        ((473, 984, 755, 1705), (1.01166194, 1.01189079, 1.01148934, 1.01167669)),
        ((1000, 1010, 10, 10010), (589.27335593, 568.32659563, 613.58766147, 592.63264572)),
    ],
)
def test_asymptotic_ratios_are_those_of_another_library(
    counts: tuple[int, int, int, int], values: tuple[float, ...]
) -> None:
    methods = ("katz_log", "adjusted_log", "bailey", "inverse_sinh")
    found = [audit.ratio_lower_end(*counts, significance=0.05, method=method) for method in methods]
    assert found == pytest.approx(values, rel=1e-8)
    with pytest.raises(InvalidValue, match="adjusted_log"):
        audit.ratio_lower_end(0, 10, 1, 10, significance=0.05, method="katz_log")
