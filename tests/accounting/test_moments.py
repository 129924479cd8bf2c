"""The moments accountant against the published number, exact binomial sums and the Rényi accountant."""

import json
import math
from pathlib import Path

import mpmath
import pytest

from hush.accounting import moments, rdp
from hush.errors import InvalidValue, UnsupportedEvent
from hush.events import Composed, FixedSizeSampled, Gaussian, Laplace, NotPrivate, PoissonSampled, PureDP, Repeated

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "classic_accounting.json").read_text())
TRUTH = REFERENCE["sampled_gaussian_truth"]
CLASSIC = Repeated(PoissonSampled(Gaussian(4.0), 0.01), 10_000)


def exact_log_moment(sampling_prob, noise_multiplier, moment):
    """log E_{N(0)}[((1-q) + q dN(1)/dN(0))^(moment+1)], term by term."""
    with mpmath.workdps(50):
        q, s, a = mpmath.mpf(sampling_prob), mpmath.mpf(noise_multiplier), moment + 1
        terms = (
            mpmath.binomial(a, k) * (1 - q) ** (a - k) * q**k * mpmath.exp(k * (k - 1) / (2 * s * s))
            for k in range(a + 1)
        )
        return float(mpmath.log(mpmath.fsum(terms)))


def test_the_published_setting_gives_the_published_number():
    spent = moments.guarantee(CLASSIC, delta=1e-5, relation="add_remove")
    assert spent.epsilon == pytest.approx(REFERENCE["strong_composition"]["moments"], abs=5e-7)
    best = min(range(1, 65), key=lambda moment: (1e4 * exact_log_moment(0.01, 4, moment) + math.log(1e5)) / moment)
    assert spent.notes == (f"moment {best}",)
    assert moments.guarantee(CLASSIC, delta=1e-5, relation="zero_out").epsilon == spent.epsilon


@pytest.mark.parametrize("noise_multiplier", [0.5, 1.0, 4.0, 50.0])
@pytest.mark.parametrize("sampling_prob", [1e-5, 0.01, 0.4])
@pytest.mark.parametrize("moment", [1, 2, 7, 40, 200])
def test_log_moment_is_the_exact_binomial_sum_rounded_up(noise_multiplier, sampling_prob, moment):
    found = moments.log_moment(PoissonSampled(Gaussian(noise_multiplier), sampling_prob), moment, "add_remove")
    exact = exact_log_moment(sampling_prob, noise_multiplier, moment)
    assert exact <= found <= exact * (1 + 3e-11)


@pytest.mark.parametrize("row", TRUTH, ids=lambda row: row["id"])
def test_never_below_the_truth_nor_below_the_renyi_accountant(row):
    event = Repeated(PoissonSampled(Gaussian(row["noise_multiplier"]), row["sampling_prob"]), row["steps"])
    spent = moments.guarantee(event, delta=row["delta"], relation="add_remove").epsilon
    assert spent >= row["epsilon"]
    assert spent >= rdp.guarantee(event, delta=row["delta"], relation="add_remove").epsilon * (1 - 1e-9)


def test_delta_form_inverts_the_epsilon_form():
    spent = moments.guarantee(CLASSIC, delta=1e-5, relation="add_remove")
    back = moments.delta_guarantee(CLASSIC, epsilon=spent.epsilon, relation="add_remove")
    assert back.delta == pytest.approx(1e-5, rel=1e-9)
    assert moments.delta_guarantee(CLASSIC, epsilon=0.0, relation="add_remove").delta == 1


def test_edge_cases():
    for delta in (0.0, 1e-5):
        assert moments.guarantee(Composed(), delta=delta, relation="add_remove").epsilon == 0
        assert moments.guarantee(NotPrivate(), delta=delta, relation="add_remove").epsilon == math.inf
    assert moments.guarantee(Laplace(1.0), delta=0.0, relation="add_remove").epsilon == math.inf
    assert moments.delta_guarantee(Composed(), epsilon=0.0, relation="add_remove").delta == 0
    assert moments.delta_guarantee(NotPrivate(), epsilon=3.0, relation="add_remove").delta == 1
    nested = PoissonSampled(FixedSizeSampled(PureDP(1.0), 1, 2), 0.5)
    with pytest.raises(UnsupportedEvent, match="PoissonSampled of FixedSizeSampled"):
        moments.guarantee(nested, delta=0.0, relation="add_remove")
    with pytest.raises(InvalidValue, match="moment must be at most 512"):
        moments.log_moment(CLASSIC, 513, "add_remove")
