"""What goes into a mechanism and comes out of it: plain numbers and arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray

from hush import _check
from hush.errors import InvalidValue
from hush.privacy import Relation

_EXACT_BELOW = 2.0**53  # whole numbers below it are float64s


def finite_floats(name: str, value: ArrayLike, *, exact: bool = True) -> NDArray[numpy.float64]:
    """The value as an array of finite floats; empty arrays, NaN, infinities and other kinds are refused.

    With `exact`, so are numbers that a float64 cannot hold: rounding two values can move them further apart.
    """
    try:
        array = numpy.asarray(value)
        if array.dtype.kind not in "fiu":
            raise TypeError
        result = array.astype(numpy.float64)
    except (TypeError, ValueError):
        raise InvalidValue(f"{name} must be a number or an array of numbers; got {_kind(value)}.") from None
    whole = array.dtype.kind in "iu" and result.size and float(numpy.abs(result).max()) >= _EXACT_BELOW
    if exact and (whole or array.dtype.itemsize > result.dtype.itemsize):
        raise InvalidValue(
            f"{name} must fit into float64 without rounding; use discrete noise for large whole numbers."
        )
    if not result.size:
        raise InvalidValue(f"{name} must not be empty.")
    if not numpy.isfinite(result).all():
        raise InvalidValue(f"{name} must be finite; it holds NaN or infinity.")
    return result


def whole_numbers(name: str, value: ArrayLike) -> NDArray[numpy.int64]:
    """The value as an array of whole numbers within 2^62; floats may be whole numbers below 2^53."""
    array = numpy.asarray(value)
    if array.dtype == numpy.float64 and (numpy.abs(array) < _EXACT_BELOW).all() and (array == numpy.rint(array)).all():
        array = array.astype(numpy.int64)
    if array.dtype.kind not in "iu":
        raise InvalidValue(f"{name} must be a whole number or an array of them; got {_kind(value)}.")
    if not array.size:
        raise InvalidValue(f"{name} must not be empty.")
    if int(array.max()) > 1 << 62 or int(array.min()) < -(1 << 62):
        raise InvalidValue(f"{name} must be within 2^62 on both sides.")
    return array.astype(numpy.int64)


def records(name: str, values: ArrayLike) -> NDArray[numpy.float64]:
    """One number for each record, in one row. No records at all are fine: that too is a data set with neighbours."""
    if isinstance(values, Sequence | numpy.ndarray) and not isinstance(values, str) and len(values) == 0:
        return numpy.empty(0)
    result = finite_floats(name, values, exact=False)
    if result.ndim != 1:
        raise InvalidValue(f"{name} must be a row of numbers, one for each record; got {_kind(values)}.")
    return result


def row_of(name: str, values: object) -> list[Any]:
    """The entries of a list, an array or a series, one for each record; they may be anything hashable but NaN."""
    row = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(row, str | bytes) or not isinstance(row, Sequence):
        raise InvalidValue(f"{name} must be in one row, one for each record; got {_kind(values)}.")
    try:
        broken = any(value != value for value in set(row))
    except TypeError:
        raise InvalidValue(f"{name} must be in one row, one for each record, with no rows inside.") from None
    if broken:
        raise InvalidValue(f"{name} must not hold NaN; give missing values a category of their own.")
    return list(row)


def limits(bounds: object) -> tuple[float, float]:
    """(low, high), both finite and low below high."""
    if not isinstance(bounds, Sequence) or len(bounds) != 2:
        raise InvalidValue(f"bounds must be a pair (low, high), known without the data; got {_short(bounds)}.")
    low, high = _check.number("bounds[0]", bounds[0]), _check.number("bounds[1]", bounds[1])
    if not low < high or not math.isfinite(high - low):
        raise InvalidValue(f"bounds must be (low, high) with low below high; got {_short(bounds)}.")
    return low, high


def row_relation(relation: object) -> Relation:
    """`add_remove` or `replace_one`; a record that counts as zero has no meaning for a row of numbers."""
    return _check.one_of("relation", relation, ("add_remove", "replace_one"))  # type: ignore[return-value]


def plain_floats(result: NDArray[numpy.float64], like: ArrayLike) -> float | NDArray[numpy.float64]:
    """The array, or the plain number if the value was one."""
    return float(result.reshape(())) if numpy.ndim(like) == 0 else result.reshape(numpy.shape(like))


def plain_integers(result: NDArray[numpy.int64], like: ArrayLike) -> int | NDArray[numpy.int64]:
    """The array, or the plain whole number if the value was one."""
    return int(result.reshape(())) if numpy.ndim(like) == 0 else result.reshape(numpy.shape(like))


def _kind(value: object) -> str:
    """What it is, without what is in it: an error message must not show data."""
    shape = getattr(value, "shape", None)
    return type(value).__name__ + (f" of shape {shape}" if shape is not None else "")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
