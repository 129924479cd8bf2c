"""The draws have the laws that the documents state.

Each test has a fixed seed and states the chance that a right program fails it for a seed chosen at random.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from hush import Rng, mechanisms
from hush.mechanisms.choice import choose
from hush.mechanisms.discrete import gaussian_integers, laplace_integers
from hush.mechanisms.draws import Draws

COUNT = 200_000
FALSE_ALARM = 1e-6
WIDTH = stats.norm.isf(FALSE_ALARM / 2)


def fits(found: np.ndarray, law: dict[int, float]) -> bool:
    """Pearson's test on the cells that expect ten or more; the rest is one cell."""
    values, counts = np.unique(found, return_counts=True)
    seen = dict(zip(values.tolist(), counts.tolist(), strict=True))
    common = [value for value, chance in law.items() if chance * len(found) >= 10]
    expected = [law[value] * len(found) for value in common]
    observed = [seen.get(value, 0) for value in common]
    expected.append(len(found) - math.fsum(expected))
    observed.append(len(found) - sum(observed))
    if expected[-1] < 10:  # too thin a cell for the test: put it to the last one
        expected[-2:] = [expected[-2] + expected[-1]]
        observed[-2:] = [observed[-2] + observed[-1]]
    return stats.chisquare(observed, np.array(expected) * (len(found) / math.fsum(expected))).pvalue > FALSE_ALARM


def laplace_law(scale: float) -> dict[int, float]:
    ratio = math.exp(-1 / scale)
    far = math.ceil(40 * scale) + 2
    return {k: (1 - ratio) / (1 + ratio) * math.exp(-abs(k) / scale) for k in range(-far, far + 1)}


def gaussian_law(stddev: float) -> dict[int, float]:
    far = math.ceil(12 * stddev) + 2
    weights = {k: math.exp(-k * k / (2 * stddev * stddev)) for k in range(-far, far + 1)}
    total = math.fsum(weights.values())
    return {k: weight / total for k, weight in weights.items()}


@pytest.mark.parametrize("scale", [0.15, 0.3, 0.5, 1.0, 2.0, 10.0, 77.7])
def test_discrete_laplace_law(scale: float) -> None:
    """False alarm 1e-6 each."""
    assert fits(laplace_integers(COUNT, scale, Draws(Rng.from_seed(11))), laplace_law(scale))


@pytest.mark.parametrize("stddev", [0.3, 0.5, 0.99, 1.0, 3.0, 25.5])
def test_discrete_gaussian_law(stddev: float) -> None:
    """False alarm 1e-6 each."""
    assert fits(gaussian_integers(COUNT, stddev, Draws(Rng.from_seed(11))), gaussian_law(stddev))


@pytest.mark.parametrize(
    ("epsilon", "zero", "variance"),
    [
        (0.1, 0.04995837, 199.833417),
        (0.5, 0.24491866, 7.835396),
        (1.0, 0.46211716, 1.841347),
        (2.0, 0.76159416, 0.362031),
    ],
)
def test_published_values_of_the_discrete_laplace(epsilon: float, zero: float, variance: float) -> None:
    """False alarm 2e-6 each: the number of zeros is binomial; the sum of squares nearly normal."""
    found = mechanisms.discrete_laplace(np.zeros(COUNT, int), sensitivity=1, epsilon=epsilon, rng=Rng.from_seed(12))
    check_zeros_and_variance(np.asarray(found), zero, variance, laplace_law(1 / epsilon))


@pytest.mark.parametrize(
    ("stddev", "zero", "variance"), [(0.5, 0.78657071, 0.21501268), (1, 0.39894228, 0.99999979), (3, 0.13298076, 9.0)]
)
def test_published_values_of_the_discrete_gaussian(stddev: float, zero: float, variance: float) -> None:
    """False alarm 2e-6 each."""
    found = mechanisms.discrete_gaussian(np.zeros(COUNT, int), stddev=stddev, rng=Rng.from_seed(12))
    check_zeros_and_variance(np.asarray(found), zero, variance, gaussian_law(stddev))


def check_zeros_and_variance(found: np.ndarray, zero: float, variance: float, law: dict[int, float]) -> None:
    assert law[0] == pytest.approx(zero, abs=6e-9)
    moments = [math.fsum(chance * k**power for k, chance in law.items()) for power in (2, 4)]
    assert moments[0] == pytest.approx(variance, rel=2e-6)
    assert stats.binomtest(int(np.sum(found == 0)), COUNT, zero).pvalue > FALSE_ALARM
    spread = math.sqrt((moments[1] - moments[0] ** 2) / COUNT)
    assert abs(float(np.mean(found.astype(float) ** 2)) - variance) < WIDTH * spread
    assert abs(float(np.mean(found))) < WIDTH * math.sqrt(variance / COUNT)


@pytest.mark.parametrize("scale", [1e4, 1e6, 2.0**33])
def test_wide_discrete_noise_is_the_real_one_to_the_eye(scale: float) -> None:
    """False alarm 2e-6 each: the steps are too small for Kolmogorov and Smirnov's test to see."""
    assert (
        stats.kstest(laplace_integers(COUNT, scale, Draws(Rng.from_seed(13))) / scale, "laplace").pvalue > FALSE_ALARM
    )
    assert stats.kstest(gaussian_integers(COUNT, scale, Draws(Rng.from_seed(13))) / scale, "norm").pvalue > FALSE_ALARM


@pytest.mark.parametrize("value", [0.0, 1 / 3, -1e6])
def test_real_noise(value: float) -> None:
    """False alarm 2e-6 each; the grid is 2^-24 of the scale."""
    values = np.full(COUNT, value)
    found = mechanisms.laplace(values, sensitivity=3.0, epsilon=0.5, rng=Rng.from_seed(14))
    assert stats.kstest((np.asarray(found) - value) / 6, "laplace").pvalue > FALSE_ALARM
    found = mechanisms.gaussian(values, sensitivity=3.0, noise_multiplier=2.0, rng=Rng.from_seed(14))
    assert stats.kstest((np.asarray(found) - value) / 6, "norm").pvalue > FALSE_ALARM


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 0.999])
def test_low_digits_tell_nothing(fraction: float) -> None:
    """False alarm 2e-6 each: the last four bits on the grid are even, wherever between two points the value lies."""
    grid = 2.0**-24  # of a noise of scale 1 to 2
    for found in (
        mechanisms.laplace(np.full(COUNT, fraction * grid), sensitivity=1.0, epsilon=1.0, rng=Rng.from_seed(15)),
        mechanisms.gaussian(
            np.full(COUNT, fraction * grid), sensitivity=1.0, noise_multiplier=1.0, rng=Rng.from_seed(15)
        ),
    ):
        counts = np.bincount((np.asarray(found) / grid).astype(np.int64) & 15, minlength=16)
        assert stats.chisquare(counts).pvalue > FALSE_ALARM


def test_tails_of_real_noise() -> None:
    """False alarm 8e-6: what goes beyond 2, 3, 4 (and 8 scales for Laplace) is binomial."""
    many = np.zeros(1_000_000)
    normal = np.abs(np.asarray(mechanisms.gaussian(many, sensitivity=1.0, noise_multiplier=1.0, rng=Rng.from_seed(16))))
    double = np.abs(np.asarray(mechanisms.laplace(many, sensitivity=1.0, epsilon=1.0, rng=Rng.from_seed(16))))
    for bound in (2.0, 3.0, 4.0, 8.0):
        assert stats.binomtest(int(np.sum(normal > bound)), len(many), 2 * stats.norm.sf(bound)).pvalue > FALSE_ALARM
        assert stats.binomtest(int(np.sum(double > bound)), len(many), math.exp(-bound)).pvalue > FALSE_ALARM


def test_noise_is_independent() -> None:
    """False alarm 6e-6: neighbouring draws, of values, sizes and signs."""
    for found in (
        np.asarray(mechanisms.laplace(np.zeros(COUNT), sensitivity=1.0, epsilon=1.0, rng=Rng.from_seed(17))),
        np.asarray(mechanisms.gaussian(np.zeros(COUNT), sensitivity=1.0, noise_multiplier=1.0, rng=Rng.from_seed(17))),
    ):
        for view in (found, np.abs(found), np.sign(found)):
            chance = abs(float(np.corrcoef(view[:-1], view[1:])[0, 1])) * math.sqrt(COUNT)
            assert chance < WIDTH


# Against OpenDP ------------------------------------------------------------------------------------------------


def opendp_draws(kind: str, scale: float, count: int) -> np.ndarray:
    dp.enable_features("contrib")
    space = (
        dp.vector_domain(dp.atom_domain(T=int)),
        (dp.l1_distance(T=int) if kind == "laplace" else dp.l2_distance(T=float)),
    )
    make: Any = dp.m.make_laplace if kind == "laplace" else dp.m.make_gaussian
    return np.array(make(*space, scale=scale)([0] * count))


@pytest.mark.parametrize(("kind", "scale"), [("laplace", 0.7), ("laplace", 5.0), ("gaussian", 0.8), ("gaussian", 6.0)])
def test_same_law_as_opendp(kind: str, scale: float) -> None:
    """False alarm 1e-6 each: a two-sample chi-squared test. OpenDP's draws are fresh in each run."""
    count = 20_000
    ours = (laplace_integers if kind == "laplace" else gaussian_integers)(count, scale, Draws(Rng.from_seed(18)))
    theirs = opendp_draws(kind, scale, count)
    far = int(3 * scale) + 1
    table = [np.bincount(np.clip(draws, -far, far) + far, minlength=2 * far + 1) for draws in (ours, theirs)]
    assert stats.chi2_contingency(np.array(table)[:, np.sum(table, axis=0) > 0]).pvalue > FALSE_ALARM


# Choices and answers -------------------------------------------------------------------------------------------

UTILITIES = [3.0, 2.0, 0.0]
TRIALS = 5_000


@pytest.mark.parametrize(
    ("epsilon", "chances"),
    [(1.0, (0.54654939, 0.33149896, 0.12195165)), (2.0, (0.70538451, 0.25949646, 0.03511903))],
)
def test_published_chances_of_the_exponential_mechanism(epsilon: float, chances: tuple[float, ...]) -> None:
    """False alarm 1e-6 each."""
    rng = Rng.from_seed(19)
    found = [mechanisms.exponential(UTILITIES, sensitivity=1.0, epsilon=epsilon, rng=rng) for _ in range(TRIALS)]
    assert fits(np.array(found), dict(enumerate(chances)))
    found = [
        mechanisms.exponential(UTILITIES, sensitivity=1.0, epsilon=epsilon / 2, monotone=True, rng=rng)
        for _ in range(TRIALS)
    ]
    assert fits(np.array(found), dict(enumerate(chances)))


def flip_law(utilities: list[float], rate: float) -> dict[int, float]:
    """Permute-and-flip by its definition: the mean over all orders."""
    chances = [math.exp(-rate * (max(utilities) - utility)) for utility in utilities]
    law = dict.fromkeys(range(len(utilities)), 0.0)
    orders = list(itertools.permutations(range(len(utilities))))
    for order in orders:
        left = 1.0
        for place in order:
            law[place] += left * chances[place] / len(orders)
            left *= 1 - chances[place]
    return law


def test_report_noisy_max_is_permute_and_flip() -> None:
    """False alarm 2e-6: its law by definition, and the law of the largest utility plus exponential noise."""
    rng, utilities = Rng.from_seed(20), [3.0, 2.0, 3.0, 0.0]
    found = [mechanisms.report_noisy_max(utilities, sensitivity=1.0, epsilon=1.0, rng=rng) for _ in range(TRIALS)]
    law = flip_law(utilities, 0.5)
    assert fits(np.array(found), law)
    noise = np.random.default_rng(21).exponential(2.0, size=(COUNT, 4))
    assert fits(np.argmax(np.array(utilities) + noise, axis=1), law)


def test_utilities_of_any_size() -> None:
    """No overflow; differences alone count. False alarm 1e-6."""
    rng = Rng.from_seed(22)
    for shift in (1e9, -1e9):
        found = [
            mechanisms.exponential([shift, shift - 1], sensitivity=1.0, epsilon=2.0, rng=rng)
            for _ in range(TRIALS // 2)
        ]
        assert stats.binomtest(found.count(1), len(found), 1 / (1 + math.e)).pvalue > FALSE_ALARM / 2
    assert mechanisms.exponential([1.7e308, -1.7e308], sensitivity=1.0, epsilon=1.0) == 0
    assert mechanisms.report_noisy_max([1.7e308, -1.7e308], sensitivity=1e-300, epsilon=1e300) == 0


@pytest.mark.parametrize("sensitivity", [5e-324, 1e-323, 3e-310, 1e-300, 1e300])
@pytest.mark.parametrize("epsilon", [1.0, 1e-300])
def test_choices_at_any_sensitivity(sensitivity: float, epsilon: float) -> None:
    """Utilities one sensitivity apart, also where epsilon over the sensitivity is no float. False alarm 2e-6."""
    rng, utilities, trials = Rng.from_seed(25), [0.0, sensitivity], TRIALS // 4
    odds = math.exp(-epsilon / 2)
    for mechanism, chance in ((mechanisms.exponential, odds / (1 + odds)), (mechanisms.report_noisy_max, odds / 2)):
        found = [mechanism(utilities, sensitivity=sensitivity, epsilon=epsilon, rng=rng) for _ in range(trials)]
        assert stats.binomtest(found.count(0), trials, chance).pvalue > FALSE_ALARM


def test_a_denormal_gap_is_not_rounded_away() -> None:
    """Halving the utilities would make these equal. False alarm 1e-6."""
    rng, utilities = Rng.from_seed(26), [-1e308, 0.0, 5e-324]
    found = [mechanisms.exponential(utilities, sensitivity=5e-324, epsilon=4.0, rng=rng) for _ in range(TRIALS // 4)]
    assert 0 not in found
    assert stats.binomtest(found.count(1), len(found), 1 / (1 + math.exp(2))).pvalue > FALSE_ALARM


def test_choice_with_multiplicities() -> None:
    """False alarm 1e-6."""
    source, counts = Draws(Rng.from_seed(23)), np.array([1, 1000, 0, 7])
    exponents = [0, 7, 0, 2]
    found = [
        choose(np.array(exponents, float), lambda place: Fraction(exponents[place]), counts, source)
        for _ in range(TRIALS)
    ]
    weights = counts * np.exp(-np.array(exponents, float))
    assert fits(np.array(found), dict(enumerate((weights / weights.sum()).tolist())))
    assert 2 not in found


@pytest.mark.parametrize(("categories", "epsilon"), [(2, math.log(3)), (2, 0.1), (10, 1.0), (3, 4.0), (1000, 6.0)])
def test_randomized_response_law_and_estimate(categories: int, epsilon: float) -> None:
    """False alarm 2e-6 each: the chances, and an estimate within its own standard deviation."""
    truth = np.full(COUNT, 1)
    found = mechanisms.randomized_response(truth, epsilon=epsilon, categories=categories, rng=Rng.from_seed(24))
    total = math.exp(epsilon) + categories - 1
    law = {k: (math.exp(epsilon) if k == 1 else 1.0) / total for k in range(categories)}
    assert fits(found, law)
    keep, lie = law[1], law[0]
    estimate = mechanisms.randomized_response.estimate(found, epsilon=epsilon, categories=categories)
    assert abs(estimate[1] - 1) < WIDTH * math.sqrt(keep * (1 - keep) / COUNT) / (keep - lie)


def test_the_tests_have_teeth() -> None:
    found = laplace_integers(COUNT, 10.0, Draws(Rng.from_seed(11)))
    assert not fits(found, laplace_law(9.8))
    assert not fits(np.where(found == 0, 1, found), laplace_law(10.0))
    assert not fits(gaussian_integers(COUNT, 25.5, Draws(Rng.from_seed(11))), gaussian_law(26.5))
