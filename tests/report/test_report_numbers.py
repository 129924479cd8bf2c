"""Printed numbers are on their safe side, and close."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hush.report.numbers import shown

VALUES = st.floats(1e-12, 1e9, allow_nan=False)


@given(VALUES)
def test_up_is_not_below_and_down_not_above(value: float) -> None:
    exact = Fraction(repr(value))
    assert Fraction(shown(value, "down")) <= exact <= Fraction(shown(value, "up"))
    assert float(shown(value, "up")) == pytest.approx(value, rel=1e-5)


@given(st.floats(1e-6, 1.0))
def test_percentages_keep_their_side(value: float) -> None:
    exact = 100 * Fraction(repr(value))
    low, high = (Fraction(shown(value, rule).removesuffix(" %")) for rule in ("percent down", "percent up"))
    assert low <= exact <= high
    assert float(high) == pytest.approx(100 * value, rel=1e-3)


def test_words_for_what_is_no_number() -> None:
    assert [shown(value) for value in (math.inf, "infinity", None, True, "poisson")] == [
        *("infinite", "infinite", "none", "yes", "poisson"),
    ]
    assert shown(60_000, "as is") == "60,000"
    assert shown(12.4378461, "as is") == "12.4378461"
