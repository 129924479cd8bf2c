"""The Gaussian mechanism's exact curve, against the textbook formula at high precision."""

import itertools
import json
import math
from pathlib import Path

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hush import accounting
from hush.accounting import gdp
from hush.errors import InvalidValue, UnsupportedEvent
from hush.events import Composed, Gaussian, GaussianDP, Laplace, NotPrivate, PoissonSampled, Repeated

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "classic_accounting.json").read_text())


def true_log_delta(epsilon, mu):
    with mpmath.workdps(400):  # the two terms of the textbook formula can agree in hundreds of digits
        epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
        first, second = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
        return float(mpmath.log(mpmath.ncdf(first) - mpmath.exp(epsilon) * mpmath.ncdf(second)))


@pytest.mark.parametrize("log_mu", range(-8, 5))
@pytest.mark.parametrize("t", [-0.4, 0.0, 0.3, 2.0, 9.0, 37.0])
def test_log_delta_matches_the_formula_in_400_digits(log_mu, t):
    mu = 10.0**log_mu * 1.37
    epsilon = max(0.0, t * mu + mu * mu / 2)
    assert abs(gdp.log_delta_of(epsilon, mu) - true_log_delta(epsilon, mu)) <= 1e-12 + 1e-14 * mu


def test_log_delta_where_both_tails_are_central():
    for epsilon, mu in ((0.0, 0.5), (0.0, 30.0), (0.1, 3.0), (0.01, 0.499)):
        assert abs(gdp.log_delta_of(epsilon, mu) - true_log_delta(epsilon, mu)) <= 2e-12


@pytest.mark.parametrize("row", REFERENCE["gaussian_dp"])
def test_epsilon_matches_the_reference_from_above(row):
    epsilon = gdp.epsilon_of(row["delta"], row["mu"])
    assert epsilon == pytest.approx(row["epsilon"], rel=5e-12)
    assert true_log_delta(epsilon, row["mu"]) <= math.log(row["delta"])
    assert true_log_delta(epsilon * (1 - 1e-10), row["mu"]) > math.log(row["delta"])


@settings(max_examples=40, deadline=None)
@given(st.floats(-8, 4), st.floats(-300, -0.5))
def test_epsilon_is_never_below_the_truth(log_mu, log_delta):
    mu, delta = 10**log_mu, 10**log_delta
    epsilon = gdp.epsilon_of(delta, mu)
    assert true_log_delta(epsilon, mu) <= math.log(delta)
    assert epsilon == 0 or true_log_delta(epsilon * (1 - 1e-9), mu) > math.log(delta)


@pytest.mark.parametrize("row", REFERENCE["gaussian_dp_delta"])
def test_delta_matches_the_reference(row):
    assert gdp.delta_of(row["epsilon"], row["mu"]) == pytest.approx(row["delta"], rel=5e-12)


@pytest.mark.parametrize("row", REFERENCE["analytic_gaussian"])
def test_analytic_noise_matches_the_reference_from_above(row):
    noise = gdp.analytic_noise(row["epsilon"], row["delta"])
    assert noise == pytest.approx(row["analytic"], rel=5e-12)
    assert true_log_delta(row["epsilon"], 1 / noise) <= math.log(row["delta"])
    assert row["textbook"] == pytest.approx(math.sqrt(2 * math.log(1.25 / row["delta"])) / row["epsilon"], rel=1e-11)


@pytest.mark.parametrize(("epsilon", "needed"), [(9.0, 0.54475), (20.0, 0.29004)])
def test_analytic_noise_where_the_textbook_formula_is_unsafe(epsilon, needed):
    noise = gdp.analytic_noise(epsilon, 1e-5)
    assert noise == pytest.approx(needed, abs=1e-5)
    assert noise > math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon


def test_analytic_noise_at_epsilon_zero_and_tiny_delta():
    assert gdp.analytic_noise(0.0, 0.382924922548) == pytest.approx(1.0, rel=1e-10)
    assert true_log_delta(1.0, 1 / gdp.analytic_noise(1.0, 1e-200)) <= math.log(1e-200)
    with pytest.raises(InvalidValue, match="delta must be above 0"):
        gdp.analytic_noise(1.0, 0.0)


def test_repeated_gaussian_is_one_gaussian_with_mu_times_root_of_steps():
    event = Repeated(Gaussian(20.0), times=100)
    spent = gdp.guarantee(event, delta=1e-5, relation="add_remove")
    assert spent.epsilon == pytest.approx(1.99309140441512, rel=1e-11)
    assert spent.proven
    assert gdp.delta_guarantee(event, epsilon=spent.epsilon, relation="add_remove").delta == pytest.approx(
        1e-5, rel=1e-9
    )
    assert gdp.guarantee(event, delta=1e-5, relation="replace_one").epsilon == pytest.approx(4.37717809568, rel=1e-11)
    assert gdp.compose(*[0.05] * 100) == pytest.approx(0.5, rel=1e-13)


def test_edge_cases():
    assert gdp.guarantee(Composed(), delta=0.0, relation="add_remove").epsilon == 0
    assert gdp.guarantee(Gaussian(1.0), delta=0.0, relation="add_remove").epsilon == math.inf
    assert gdp.guarantee(NotPrivate(), delta=1e-5, relation="add_remove").epsilon == math.inf
    assert gdp.delta_guarantee(NotPrivate(), epsilon=1.0, relation="add_remove").delta == 1
    assert gdp.guarantee(GaussianDP(0.0), delta=0.0, relation="replace_one").epsilon == 0
    with pytest.raises(UnsupportedEvent, match=r"Laplace.*try method='exact'"):
        gdp.guarantee(Composed(Gaussian(1.0), Laplace(1.0)), delta=1e-5, relation="add_remove")


@pytest.mark.parametrize("row", REFERENCE["clt_mu"])
def test_clt_mu_matches_the_reference(row):
    setting = next(one for one in REFERENCE["sampled_gaussian_truth"] if one["id"] == row["id"])
    step = PoissonSampled(Gaussian(setting["noise_multiplier"]), setting["sampling_prob"])
    event = Repeated(step, setting["steps"])
    assert gdp.clt_mu(event, "add_remove") == pytest.approx(row["mu"], rel=1e-11)
    claim = gdp.clt_guarantee(event, delta=setting["delta"], relation="add_remove")
    assert not claim.proven
    assert claim.epsilon_lower == 0
    assert "not a bound" in claim.notes[0]


def test_clt_adds_phases_and_keeps_full_batches_exact():
    sampled = Repeated(PoissonSampled(Gaussian(4.0), 0.01), 10_000)
    both = gdp.clt_mu(Composed(sampled, Gaussian(2.0)), "add_remove")
    assert both == pytest.approx(math.hypot(0.253957592755, 0.5), rel=1e-11)
    full = PoissonSampled(Gaussian(1.0), 1.0)
    assert gdp.clt_guarantee(full, delta=1e-5, relation="add_remove").epsilon == pytest.approx(4.37717809568, rel=1e-11)
    with pytest.raises(UnsupportedEvent, match="PoissonSampled of Gaussian under replace_one"):
        gdp.clt_guarantee(sampled, delta=1e-5, relation="replace_one")


@pytest.mark.parametrize("mu", [0.7, 30.0, 1e3])
@pytest.mark.parametrize("t", [-29.0, -3.0, -0.1, 2.0])
def test_delta_where_both_terms_of_the_formula_are_large(mu: float, t: float) -> None:
    epsilon = max(0.0, mu * t + mu * mu / 2)
    error = gdp.log_delta_of(epsilon, mu) - true_log_delta(epsilon, mu)
    assert abs(error) < 1e-12 + 1e-14 * mu


def test_the_limit_has_a_number_at_small_noise_too() -> None:
    event = Repeated(PoissonSampled(Gaussian(0.1), 0.01), 3_000)
    assert accounting.guarantee(event, delta=1e-5, method="gdp_clt").epsilon > 1e40


@pytest.mark.parametrize(
    "log_mu", [-323.3, -300, -200, -155, -100, -30, -9, 4.5, 6, 20, 75, 100, 150, 155, 200, 300, 308]
)
@pytest.mark.parametrize("epsilon", [0.0, 5e-324, 1e-300, 1e-20, 1.0, 700.0, 1e20, 1e300])
def test_log_delta_of_any_mu_is_a_number(log_mu, epsilon):
    """No "math domain error", however small or large mu and epsilon are; and delta falls in epsilon, rises in mu."""
    mu = 10.0**log_mu
    value = gdp.log_delta_of(epsilon, mu)
    assert -math.inf <= value <= 1e-12 + 1e-14 * mu
    assert gdp.log_delta_of(2 * epsilon, mu) <= value + 1e-10
    assert gdp.log_delta_of(epsilon, 2 * mu if mu < 1e300 else mu) >= value - 1e-10
    assert 0 <= gdp.delta_of(epsilon, mu) <= 1


@pytest.mark.parametrize(
    ("log_mu", "t"),
    [(log_mu, t) for log_mu in (-300, -160, -40, -13) for t in (0.0, 1.0, 19.0, 21.0, 37.0, 1e3, 1e8)][:-2],
)
def test_log_delta_of_a_small_mu_is_the_first_term_of_its_series(log_mu, t):
    """delta = mu (phi(t) - t Phi(-t)) (1 + O(mu + mu t)) for a small mu [Balle, Wang 2018, Thm. 8]."""
    mu = 10.0**log_mu
    with mpmath.workdps(60):
        s = mpmath.mpf(t)
        truth = mpmath.log(mu) + mpmath.log(mpmath.npdf(s) - s * mpmath.erfc(s / mpmath.sqrt(2)) / 2)
    assert abs(gdp.log_delta_of(t * mu, mu) - truth) <= 2e-11 + 1e-14 * abs(truth)


@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-9, 0.3, 0.9, 1 - 1e-6, 1 - 2**-53])
def test_epsilon_is_found_for_every_mu(delta):
    """The answer is an upper bound, monotone in mu, and infinite only where epsilon is beyond 1e299."""
    found = [gdp.epsilon_of(delta, 10.0**power) for power in range(-320, 309, 4)]
    assert all(one <= other for one, other in itertools.pairwise(found))
    assert all(math.isfinite(one) for one in found[:117])
    for power in (-2, 0, 1):
        mu = 10.0**power
        assert true_log_delta(gdp.epsilon_of(delta, mu), mu) <= math.log(delta)


@pytest.mark.parametrize("noise", [1e-300, 1e-160, 1e-6, 1e6, 1e160, 1e300])
@pytest.mark.parametrize("times", [1, 10**12])
def test_guarantees_of_any_noise(noise, times):
    """Tiny noise is no privacy and much noise costs next to nothing, but never exactly nothing."""
    event = Repeated(Gaussian(noise), times)
    spent = gdp.guarantee(event, delta=1e-5, relation="add_remove")
    assert (spent.epsilon == 0) == (math.sqrt(times) / noise < 1e-5)
    curve = gdp.delta_guarantee(event, epsilon=1.0, relation="add_remove")
    assert 0 < curve.delta <= 1
    assert accounting.guarantee(event, delta=1e-5).epsilon_lower <= spent.epsilon
