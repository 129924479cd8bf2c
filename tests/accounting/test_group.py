"""Group privacy against its sums, and against what is exact for pure and Gaussian mechanisms."""

import json
import math
from dataclasses import replace
from pathlib import Path

import mpmath
import pytest

from hush.accounting import gdp
from hush.accounting.group import group, group_gdp, group_rdp, group_zcdp
from hush.errors import InvalidValue
from hush.privacy import Budget, Guarantee

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "classic_accounting.json").read_text())
ONE = Guarantee(epsilon=1.0, delta=1e-5, relation="add_remove", method="exact", epsilon_lower=0.9)


@pytest.mark.parametrize("row", REFERENCE["group"])
def test_group_matches_the_reference_from_above(row):
    result = group(replace(ONE, epsilon=row["epsilon"], delta=row["delta"]), row["size"])
    exact = sum(mpmath.mpf(row["delta"]) * mpmath.exp(i * row["epsilon"]) for i in range(row["size"]))
    assert result.delta == pytest.approx(row["group_delta"], rel=1e-11)
    assert exact <= result.delta
    assert row["size"] * row["epsilon"] <= result.epsilon <= row["size"] * row["epsilon"] * (1 + 1e-13)


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("mu", [0.05, 0.3])
def test_group_is_not_below_the_exact_curve_of_a_gaussian_group(size, mu):
    epsilon = gdp.epsilon_of(1e-8, mu)
    result = group(Guarantee(epsilon=epsilon, delta=1e-8, relation="add_remove", method="gdp"), size)
    assert gdp.delta_of(result.epsilon, group_gdp(mu, size)) <= result.delta


def test_size_one_changes_nothing_and_lower_ends_are_dropped():
    assert group(ONE, 1) is ONE
    assert group(ONE, 3).epsilon_lower == 0
    assert "groups of 3" in group(ONE, 3).notes[-1]
    assert group(ONE, 3).relation == "add_remove"


def test_epsilon_zero_and_delta_zero_and_infinity():
    assert group(replace(ONE, epsilon=0.0, epsilon_lower=0.0), 7).delta == pytest.approx(7e-5, rel=1e-13)
    assert group(replace(ONE, delta=0.0), 7).delta == 0
    assert group(replace(ONE, epsilon=math.inf), 2).epsilon == math.inf
    assert group(replace(ONE, epsilon=math.inf), 2).delta == 1


@pytest.mark.parametrize(("epsilon", "size"), [(0.01, 100_000), (500.0, 2), (3.0, 1000), (701.0, 2)])
def test_large_groups_are_capped_and_never_below_the_sum(epsilon, size):
    result = group(replace(ONE, epsilon=epsilon, delta=1e-300, epsilon_lower=0.0), size)
    exact = mpmath.mpf(1e-300) * mpmath.expm1(size * mpmath.mpf(epsilon)) / mpmath.expm1(epsilon)
    assert min(exact, 1) <= result.delta <= min(1.0, float(min(exact, 1)) * (1 + 1e-10))


def test_an_approximation_stays_one():
    claim = replace(ONE, proven=False)
    assert not group(claim, 4).proven
    assert not Budget(100.0, 0.9).allows(group(claim, 4))
    assert Budget(100.0, 0.9).allows(group(ONE, 4))


def test_other_kinds_of_groups():
    assert group_rdp(32.0, 0.1, 4) == pytest.approx((8.0, 0.9))
    assert group_rdp(32.0, 0.1, 3) == group_rdp(32.0, 0.1, 4)
    assert group_rdp(32.0, 0.1, 1) == (32.0, 0.1)
    assert group_zcdp(0.5, 3) == 4.5
    assert group_gdp(0.5, 3) == 1.5
    # zCDP of a Gaussian group is its exact divergence; the general Rényi bound must not be below it.
    order, divergence = group_rdp(16.0, 16.0 * 0.5, 4)
    assert divergence >= group_zcdp(0.5, 4) * order
    with pytest.raises(InvalidValue, match="order must be at least 8 for a group of 4"):
        group_rdp(7.0, 0.1, 4)
    with pytest.raises(InvalidValue, match="size"):
        group(ONE, 0)
