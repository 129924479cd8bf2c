"""Argument checks. Each returns the value in its plain Python type, or raises one clear line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real

from hush.errors import InvalidValue


def number(name: str, value: object, *, wanted: str = "a finite number") -> float:
    """A finite float; booleans, strings, NaN and infinities are refused."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidValue(f"{name} must be {wanted}; got {value!r}.")
    try:
        result = float(value)
    except OverflowError:
        raise InvalidValue(f"{name} must be {wanted}; got a number too large for a float.") from None
    if not math.isfinite(result):
        raise InvalidValue(f"{name} must be {wanted}; got {result!r}.")
    return result


def positive(name: str, value: object) -> float:
    """A finite number above zero."""
    result = number(name, value, wanted="a finite number above 0")
    if result <= 0:
        raise InvalidValue(f"{name} must be above 0; got {result!r}.")
    return result


def nonnegative(name: str, value: object) -> float:
    """A finite number, zero or above."""
    result = number(name, value, wanted="a finite number, 0 or above")
    if result < 0:
        raise InvalidValue(f"{name} must be 0 or above; got {result!r}.")
    return result


def probability(name: str, value: object) -> float:
    """A probability above 0 and at most 1."""
    result = number(name, value, wanted="a probability above 0 and at most 1")
    if not 0 < result <= 1:
        raise InvalidValue(f"{name} must be above 0 and at most 1; got {result!r}.")
    return result


def delta(value: object, name: str = "delta") -> float:
    """A delta: 0 or above, below 1."""
    result = number(name, value, wanted="in [0, 1)")
    if not 0 <= result < 1:
        raise InvalidValue(f"{name} must be in [0, 1), well below 1/num_examples; got {result!r}.")
    return result


def whole(name: str, value: object, *, least: int = 1) -> int:
    """A whole number of at least `least`; floats are refused, even whole ones."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidValue(f"{name} must be a whole number, at least {least}; got {value!r}.")
    result = int(value)
    if result < least:
        raise InvalidValue(f"{name} must be at least {least}; got {result}.")
    return result


def one_of(name: str, value: object, choices: Sequence[str]) -> str:
    """One of the given words."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidValue(f"{name} must be one of {', '.join(choices)}; got {value!r}.")
    return value
