"""Rows within public bounds: what is longer is scaled down, what lies outside is moved to the bound.

Nothing is read from the data here: a bound is an argument, and a row looks at no other row.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy
from numpy.typing import NDArray

from hush import _check
from hush.errors import InvalidValue

Floats = NDArray[numpy.float64]
_ROUNDING = 2.0**-30  # rows are made shorter by this share: more than rounding can add, up to a million columns


def within_norm(rows: Floats, norm: float) -> Floats:
    """The rows divided by `norm`, those that are longer scaled down: each has length at most 1.

    >>> within_norm(numpy.array([[3.0, 4.0], [0.0, 1.0]]), 2.0).round(6).tolist()
    [[0.6, 0.8], [0.0, 0.5]]
    """
    largest = numpy.abs(rows).max(axis=1, initial=0.0, keepdims=True)
    scale = numpy.where(largest > 0, largest, 1.0)  # first by the largest entry: squares of huge entries overflow
    shares = rows / scale
    lengths = numpy.sqrt(numpy.einsum("ij,ij->i", shares, shares))[:, None]
    with numpy.errstate(over="ignore"):
        factors = numpy.minimum(scale / norm, 1 / numpy.maximum(lengths, 2.0**-60))
    return numpy.asarray(shares * (factors * (1 - _ROUNDING)))


def with_constant(rows: Floats, constant: float) -> Floats:
    """The rows and a last column that holds a constant, for the intercept."""
    return numpy.hstack([rows, numpy.full((len(rows), 1), constant)])


@dataclass(frozen=True)
class Box:
    """Public bounds of numbers: one pair for all columns, or one for each."""

    low: Floats
    high: Floats

    @property
    def middle(self) -> Floats:
        """Halfway between the bounds."""
        return numpy.asarray(self.low + (self.high - self.low) / 2)

    @property
    def half(self) -> Floats:
        """Half the distance between the bounds."""
        return numpy.asarray((self.high - self.low) / 2)

    def to_unit(self, values: Floats) -> Floats:
        """The values moved into the box and stretched to [-1, 1]."""
        inside = numpy.clip(values, self.low, self.high)
        return numpy.clip((inside - self.middle) / self.half, -1.0, 1.0)


def box(name: str, bounds: object, columns: int) -> Box:
    """A pair (low, high) of numbers, or of one number for each column.

    >>> box("x_bounds", (0, [1, 2]), 2).half.tolist()
    [0.5, 1.0]
    """
    wanted = f"{name} must be a pair (low, high) of finite numbers with low below high, for all columns or one each"
    if not isinstance(bounds, tuple | list | numpy.ndarray) or len(bounds) != 2:
        raise InvalidValue(f"{wanted}; got {_short(bounds)}. They come from public knowledge, never from the data.")
    try:
        low, high = (numpy.broadcast_to(numpy.asarray(end, dtype=numpy.float64), (columns,)) for end in bounds)
    except (TypeError, ValueError):
        raise InvalidValue(f"{wanted} of the {columns}; got {_short(bounds)}.") from None
    with numpy.errstate(all="ignore"):
        fine = numpy.isfinite(low) & numpy.isfinite(high) & (low < high) & numpy.isfinite(high - low)
    if not fine.all():
        raise InvalidValue(f"{wanted}; got {_short(bounds)}.")
    return Box(low, high)


def _short(value: object) -> str:
    return repr(value).replace("\n", " ")[:60]


def is_norm_pair(bounds: object) -> bool:
    """Whether bounds are two numbers, (x_norm, y_bound), and not two pairs."""
    return isinstance(bounds, tuple | list) and len(bounds) == 2 and all(isinstance(end, Real) for end in bounds)


def needed_norm(value: object, name: str = "data_norm") -> float:
    """A bound on the length of a row, which has no default."""
    if value is None:
        raise InvalidValue(
            f"{name} is needed: the most that a row's Euclidean length can be, from public knowledge and never from "
            "the data; longer rows are scaled down to it."
        )
    return _check.positive(name, value)
