"""The exact accountant on well-known settings: published rows to their last digit, closed forms, outright failures."""

from __future__ import annotations

import math
from decimal import Decimal

import mpmath
import numpy as np
import pytest

from hush import accounting
from hush.events import (
    ApproximateDP,
    Composed,
    Event,
    Gaussian,
    GaussianDP,
    PoissonSampled,
    Repeated,
)


def sampled(sampling_prob: float, noise_multiplier: float, steps: int) -> Event:
    return Repeated(PoissonSampled(Gaussian(noise_multiplier), sampling_prob), steps)


THREE_PHASES = Composed(sampled(0.01, 4.0, 2000), sampled(0.02, 2.0, 500), sampled(0.005, 1.0, 5000))
HUNDRED_PHASES = Composed(*(sampled(0.01, 1 + 0.02 * index, 50) for index in range(100)))
ROWS = {  # every digit is right, the last one rounded
    "c01": (sampled(0.01, 4.0, 10_000), 1e-5, "0.94686680076438"),
    "c02": (sampled(0.01, 2.0, 20_000), 1e-5, "3.18689983708349"),
    "c03": (sampled(0.01, 4.0, 20_000), 1e-5, "1.38479073634841"),
    "c04": (sampled(0.01, 8.0, 20_000), 1e-5, "0.63771234356330"),
    "c05": (sampled(1e-4, 1.0, 1_000_000), 1e-6, "0.53242115554386"),
    "c06": (sampled(0.01, 4.0, 10_000), 1e-10, "1.52821847666395"),
    "c07": (sampled(0.01, 0.5, 1_000), 1e-5, "13.3608239853496"),
    "c08": (sampled(0.01, 0.5, 10_000), 1e-5, "43.3664898604199"),
    "c09": (sampled(1.0, 20.0, 100), 1e-5, "1.99309140441512"),
    "c10": (sampled(1.0, 10.0, 1_000), 1e-5, "17.8565868301076"),
    "c11": (sampled(0.08192, 3.0, 2_500), 1e-5, "6.57889585057720"),
    "c12": (sampled(0.5, 1.0, 1), 1e-5, "3.53399798544900"),
    "c13": (THREE_PHASES, 1e-5, "2.22839579648979"),
    "c14": (sampled(0.2, 1.0, 500), 1e-5, "38.1702472064878"),
    "c15": (sampled(0.001, 50.0, 100), 1e-6, "0.00043957378131202"),
    "c16": (HUNDRED_PHASES, 1e-5, "1.93996222123685"),
    "c17": (sampled(0.01, 1.0, 1_000), 1e-15, "4.85453775060492"),
    "c18": (sampled(1e-5, 0.6, 100_000), 1e-8, "0.26307451802055"),
    "one step": (sampled(0.01, 1.0, 1), 1e-5, "0.199450447796"),
    "one step, small noise": (sampled(0.01, 0.5, 1), 1e-5, "3.02535780548"),
    "mu 0.25": (Gaussian(4.0), 1e-5, "0.926341503998"),
    "mu 0.25, smaller delta": (Gaussian(4.0), 1e-10, "1.49202685699"),
    "mu 0.5, smaller delta": (Gaussian(2.0), 1e-10, "3.09943033024"),
    "mu 1": (GaussianDP(1.0), 1e-5, "4.37717809568"),
    "mu 1, smaller delta": (GaussianDP(1.0), 1e-10, "6.54792406687"),
    "mu 2": (Repeated(Gaussian(1.0), 4), 1e-5, "9.99725614643"),
    "mu 2, smaller delta": (Repeated(Gaussian(1.0), 4), 1e-10, "14.2740896451"),
}
REPLACE_ROWS = {
    "c01": (sampled(0.01, 4.0, 10_000), "1.99312005705771"),
    "c02": (sampled(0.01, 2.0, 20_000), "6.60170088031288"),
    "c07": (sampled(0.01, 0.5, 1_000), "15.1613595991578"),
    "full batch": (sampled(1.0, 20.0, 100), "4.377178096"),
}


def last_digit(text: str) -> float:
    """One unit in the last place that is given."""
    return 10.0 ** Decimal(text).as_tuple().exponent


@pytest.mark.parametrize(("event", "delta", "text"), ROWS.values(), ids=ROWS)
def test_published_rows_to_their_last_digit(event, delta, text):
    found, rounding = accounting.guarantee(event, delta=delta), last_digit(text)
    assert found.epsilon_lower - rounding <= float(text) <= found.epsilon + rounding
    assert found.gap <= 1e-6 * found.epsilon


@pytest.mark.parametrize(("event", "text"), REPLACE_ROWS.values(), ids=REPLACE_ROWS)
def test_published_rows_under_replace_one(event, text):
    found, rounding = accounting.guarantee(event, delta=1e-5, relation="replace_one"), last_digit(text)
    assert found.epsilon_lower - rounding <= float(text) <= found.epsilon + rounding
    assert found.gap <= 1e-6 * found.epsilon


@pytest.mark.parametrize(("epsilon", "text"), [(1.0, "0.126936737507"), (0.0, "0.382924922548")])
def test_delta_of_one_gaussian(epsilon, text):
    found = accounting.delta(Gaussian(1.0), epsilon=epsilon)
    assert found.delta_lower - last_digit(text) <= float(text) <= found.delta + last_digit(text)
    assert found.delta - found.delta_lower < 1e-10


# Closed forms, in 60 digits --------------------------------------------------------------------------------------


def gaussian_delta(mu: mpmath.mpf, epsilon: mpmath.mpf) -> mpmath.mpf:
    """Balle and Wang 2018, Theorem 8."""
    half = epsilon / mu
    return mpmath.ncdf(mu / 2 - half) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - half)


@pytest.fixture(autouse=True)
def sixty_digits():
    with mpmath.workdps(60):
        yield


FULL_BATCH = [  # noise_multiplier, steps, delta
    (float(10 ** rng.uniform(-0.5, 2.0)), round(10 ** rng.uniform(0, 5)), float(10 ** rng.uniform(-30, -2)))
    for rng in (np.random.default_rng(seed) for seed in range(40))
]


@pytest.mark.parametrize(("noise", "steps", "delta"), FULL_BATCH)
@pytest.mark.parametrize(("relation", "factor"), [("add_remove", 1), ("replace_one", 2)])
def test_full_batches_are_one_gaussian(noise, steps, delta, relation, factor):
    found = accounting.guarantee(sampled(1.0, noise, steps), delta=delta, relation=relation)
    mu = factor * mpmath.sqrt(steps) / mpmath.mpf(noise)
    assert gaussian_delta(mu, mpmath.mpf(found.epsilon)) <= delta
    if found.epsilon_lower > 0:
        assert gaussian_delta(mu, mpmath.mpf(found.epsilon_lower)) >= delta
    assert found.gap <= 1e-9 * found.epsilon


@pytest.mark.parametrize("seed", range(40))
def test_one_sampled_step_has_a_closed_form(seed):
    """Removing: q * delta of the Gaussian at log(1 + (e^epsilon - 1)/q) (Balle, Barthe, Gaboardi 2018, Theorem 2)."""
    rng = np.random.default_rng(1000 + seed)
    prob, noise = float(10 ** rng.uniform(-5, 0)), float(10 ** rng.uniform(-0.5, 1.5))
    delta = prob * float(10 ** rng.uniform(-25, -1.5))
    found = accounting.guarantee(PoissonSampled(Gaussian(noise), prob), delta=delta)

    def truth(epsilon: float) -> mpmath.mpf:
        inner = mpmath.log(1 + mpmath.expm1(epsilon) / mpmath.mpf(prob))
        return mpmath.mpf(prob) * gaussian_delta(1 / mpmath.mpf(noise), inner)

    assert truth(found.epsilon) <= delta
    if found.epsilon_lower > 0:
        assert truth(found.epsilon_lower) >= delta
    assert found.gap <= 1e-8 * found.epsilon


# Mechanisms that may fail outright: delta = failed + (1 - failed) * delta of the rest --------------------------


def failing_rows() -> list[tuple[float, int, float]]:
    """(delta of one failure, how many, delta): what is left for the rest is from all of delta down to 1e-14 of it."""
    rng, rows = np.random.default_rng(7), []
    while len(rows) < 60:
        chance, count = float(10 ** rng.uniform(-9, -4)), int(rng.choice([1, 2, 3, 7, 100, 1000]))
        with mpmath.workdps(60):
            failed = 1 - (1 - mpmath.mpf(chance)) ** count
            rows.append((chance, count, float(failed * (1 + mpmath.mpf(10) ** rng.uniform(-14, -1)))))
    return rows


def left_over(chance: float, count: int, delta: float) -> mpmath.mpf:
    failed = 1 - (1 - mpmath.mpf(chance)) ** count
    return (mpmath.mpf(delta) - failed) / (1 - failed)


def test_failures_take_their_share_of_delta():
    finite = 0
    for chance, count, delta in failing_rows():
        event = Composed(Repeated(ApproximateDP(0.0, chance), count), Gaussian(10.0))
        found, left = accounting.guarantee(event, delta=delta), left_over(chance, count, delta)
        if math.isfinite(found.epsilon):
            finite += 1
            assert gaussian_delta(mpmath.mpf("0.1"), mpmath.mpf(found.epsilon)) <= left, (chance, count, delta)
        if left > 0 and math.isfinite(found.epsilon_lower) and found.epsilon_lower > 0:
            low = gaussian_delta(mpmath.mpf("0.1"), mpmath.mpf(found.epsilon_lower))
            assert low >= left, (chance, count, delta)
        else:
            assert left <= 0 or found.epsilon_lower == 0
    assert finite > 45


def test_failures_add_to_delta():
    for chance, count, _ in failing_rows()[:50]:
        event = Composed(Repeated(ApproximateDP(0.0, chance), count), Gaussian(10.0))
        found = accounting.delta(event, epsilon=0.3)
        failed = 1 - (1 - mpmath.mpf(chance)) ** count
        truth = failed + (1 - failed) * gaussian_delta(mpmath.mpf("0.1"), mpmath.mpf(0.3))
        assert found.delta_lower <= truth <= found.delta


SAMPLED_LEFT = [  # delta of one failure, how many, delta, epsilon of c01's steps at what is left
    (7.908172184274374e-08, 2, 1.5816343743157767e-07, "2.314099589361298"),
    (1.3403842157150337e-09, 100, 1.340384126781876e-07, "2.362889851069676"),
    (2.5478232393773935e-05, 1000, 0.0251567176641045, "1.866123612931309"),
    (1e-06, 3, 3.0000000001e-06, "1.669166637552444"),
    (1e-06, 3, 3.00001e-06, "1.611591844547420"),
]


@pytest.mark.parametrize(("chance", "count", "delta", "text"), SAMPLED_LEFT)
def test_failures_beside_sampled_steps(chance, count, delta, text):
    """What is left of delta is a difference of nearly equal numbers; its rounding must be inside the interval."""
    event = Composed(Repeated(ApproximateDP(0.0, chance), count), sampled(0.01, 4.0, 10_000))
    found = accounting.guarantee(event, delta=delta)
    assert found.epsilon_lower <= float(text) <= found.epsilon


def test_a_delta_below_the_failures_is_never_met():
    event = Composed(ApproximateDP(0.1, 1e-6), sampled(0.01, 4.0, 100))
    assert accounting.guarantee(event, delta=0.999e-6).epsilon_lower == math.inf
    assert math.isfinite(accounting.guarantee(event, delta=1.001e-6).epsilon)
