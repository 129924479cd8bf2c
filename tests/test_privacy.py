"""Budget, Guarantee and Evidence: their safe sides and their refusals."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hush import Budget, Evidence, Guarantee
from hush.errors import InvalidValue
from hush.privacy import round_up


def claim(epsilon: float = 1.0, delta: float = 1e-5, **more: object) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=delta, relation="add_remove", method="exact", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (math.nan, 1e-5), (1, 1), (1, -1e-9), (1, math.nan)]
)
def test_a_budget_outside_its_domain_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidValue, match=r"epsilon|delta"):
        Budget(epsilon, delta)


def test_a_budget_allows_only_proven_claims_inside_it() -> None:
    budget = Budget(1.0, 1e-5)
    assert budget.allows(claim(1.0))
    assert not budget.allows(claim(math.nextafter(1.0, 2)))
    assert not budget.allows(claim(1.0, delta=2e-5))
    assert not budget.allows(claim(0.5, proven=False))


@pytest.mark.parametrize(
    "more", [{"epsilon_lower": 1.1}, {"epsilon_lower": -0.1}, {"delta_lower": 1e-4}, {"epsilon": -1.0}, {"delta": 1.5}]
)
def test_a_guarantee_whose_ends_are_crossed_is_refused(more: dict[str, float]) -> None:
    with pytest.raises(InvalidValue):
        claim(**more)


def test_an_infinite_guarantee_is_json() -> None:
    assert json.loads(json.dumps(claim(math.inf).to_dict(), allow_nan=False))["epsilon"] == "infinity"


def test_a_claim_that_is_not_proven_says_so() -> None:
    assert "not a bound" in str(claim(proven=False))
    assert "not a bound" not in str(claim())


@given(st.floats(1e-300, 1e300))
def test_printed_epsilon_is_never_below_the_number(value: float) -> None:
    assert value <= float(round_up(value)) <= value * (1 + 1.1e-5)


def test_evidence_contradicts_a_smaller_claim_only() -> None:
    evidence = Evidence(epsilon_at_least=1.5, delta=1e-5, significance=0.05, method="one run")
    assert evidence.contradicts(claim(1.0))
    assert not evidence.contradicts(claim(1.5))
    assert not evidence.contradicts(claim(1.0, delta=1e-4))  # at a larger delta both can be true
    with pytest.raises(InvalidValue, match="add_remove"):
        evidence.contradicts(Guarantee(epsilon=1.0, delta=1e-5, relation="replace_one", method="exact"))


@pytest.mark.parametrize("significance", [0.0, 1.0, math.nan, -0.1])
def test_evidence_needs_a_significance(significance: float) -> None:
    with pytest.raises(InvalidValue, match="significance"):
        Evidence(epsilon_at_least=1.0, delta=0.0, significance=significance, method="one run")


def test_a_written_guarantee_may_differ_in_digits_and_not_in_what_it_claims() -> None:
    found = claim(1.0, epsilon_lower=0.9999, notes=("a note",))
    written = found.to_dict()
    assert found.agrees_with(written)
    assert found.agrees_with(json.loads(json.dumps(written)))
    assert found.agrees_with({**written, "epsilon": 1.00001, "epsilon_lower": 0.99995})
    wrong = [
        {"epsilon": 0.99},
        {"epsilon": 0.9998, "epsilon_lower": 0.9997},  # below the interval that holds the truth
        {"epsilon": 1.1},
        {"epsilon": "infinity"},
        {"epsilon": "1.0"},
        {"delta": 1e-6},
        {"relation": "replace_one"},
        {"notes": []},
        {"proven": False},
        {"more": 1},
    ]
    for change in wrong:
        assert not found.agrees_with({**written, **change}), change
    endless = claim(math.inf)
    assert endless.agrees_with(endless.to_dict())
    assert not endless.agrees_with(written)


@pytest.mark.parametrize("value", [0.82345678, 0.8234562, 1.99999999, 1e-9 / 3])
def test_shown_numbers_are_on_their_safe_side(value: float) -> None:
    guarantee = Guarantee(epsilon=value, delta=1e-5, relation="add_remove", method="exact")
    evidence = Evidence(epsilon_at_least=value, delta=1e-5, significance=0.05, method="one run")
    assert float(re.findall(r"[\d.]+(?:e-?\d+)?", str(guarantee))[0]) > value
    assert float(re.findall(r"[\d.]+(?:e-?\d+)?", str(evidence))[0]) < value
