"""Zero-concentrated privacy against its closed forms and against the exact Gaussian."""

import json
import math
from pathlib import Path

import mpmath
import pytest

from hush.accounting import gdp, zcdp
from hush.errors import UnsupportedEvent
from hush.events import (
    ApproximateDP,
    Composed,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NotPrivate,
    PoissonSampled,
    PureDP,
    Repeated,
    ZeroConcentratedDP,
)

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "classic_accounting.json").read_text())


@pytest.mark.parametrize("row", REFERENCE["zcdp"])
def test_conversions_match_the_reference(row):
    assert zcdp.classic_epsilon(row["rho"], row["delta"]) == pytest.approx(row["classic"], rel=1e-11)
    if row["tight"]:
        assert zcdp.tight_epsilon(row["rho"], row["delta"]) == pytest.approx(row["tight"], rel=1e-11)


@pytest.mark.parametrize("row", REFERENCE["analytic_gaussian"])
def test_classic_conversion_gives_the_zcdp_noise_of_the_reference(row):
    rho = 1 / (2 * row["zcdp"] ** 2)
    assert zcdp.classic_epsilon(rho, row["delta"]) == pytest.approx(row["epsilon"], rel=1e-10)


@pytest.mark.parametrize("rho", [1e-8, 1e-3, 0.1, 2.0, 50.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-30])
def test_tight_conversion_is_the_minimum_over_orders_and_not_below_the_exact_gaussian(rho, delta):
    epsilon = zcdp.tight_epsilon(rho, delta)
    assert gdp.epsilon_of(delta, math.sqrt(2 * rho)) <= epsilon <= zcdp.classic_epsilon(rho, delta)

    def at(x):
        a = 1 + mpmath.exp(x)
        return rho * a + mpmath.log(1 - 1 / a) - (mpmath.log(delta) + mpmath.log(a)) / (a - 1)

    if epsilon > 0:
        start = math.log(math.sqrt(math.log(1 / delta) / rho))
        place = min((start + k / 100 for k in range(-400, 400)), key=at)
        best = at(mpmath.findroot(lambda x: mpmath.diff(at, x), place))
        assert float(best) <= epsilon * (1 + 1e-13)
        assert epsilon <= float(best) * (1 + 1e-9)


def test_rho_adds_and_doubles_its_root_under_replace_one():
    event = Composed(Repeated(Gaussian(4.0), 8), PureDP(0.2), Laplace(2.0), ZeroConcentratedDP(0.01))
    assert zcdp.rho_of(event, "add_remove") == pytest.approx(8 / 32 + 0.02 + 0.125 + 0.01, rel=1e-14)
    assert zcdp.rho_of(event, "replace_one") == pytest.approx(8 / 8 + 0.02 + 0.5 + 0.01, rel=1e-14)
    assert zcdp.rho_of(PoissonSampled(Gaussian(1.0), 1.0), "zero_out") == 0.5


def test_delta_form_inverts_the_epsilon_form():
    event = Repeated(Gaussian(4.0), 10)
    spent = zcdp.guarantee(event, delta=1e-6, relation="add_remove")
    assert zcdp.delta_guarantee(event, epsilon=spent.epsilon, relation="add_remove").delta == pytest.approx(
        1e-6, rel=1e-8
    )
    assert any("classic" in note for note in spent.notes)


def test_edge_cases():
    assert zcdp.guarantee(Composed(), delta=0.0, relation="add_remove").epsilon == 0
    assert zcdp.guarantee(Gaussian(1.0), delta=0.0, relation="add_remove").epsilon == math.inf
    assert zcdp.guarantee(NotPrivate(), delta=1e-5, relation="add_remove").epsilon == math.inf
    assert zcdp.delta_guarantee(NotPrivate(), epsilon=1.0, relation="add_remove").delta == 1
    for event in (PoissonSampled(Gaussian(1.0), 0.5), FixedSizeSampled(Gaussian(1.0), 1, 2), ApproximateDP(1.0, 1e-9)):
        with pytest.raises(UnsupportedEvent, match=rf"zcdp cannot bound {type(event).__name__}.*exact"):
            zcdp.guarantee(event, delta=1e-5, relation="add_remove")
