"""Laplace and Gaussian noise on real numbers, free of what floating-point numbers tell.

The released number is a multiple of a public grid: the grid point at or next to value + noise, where the noise is the
real-valued one and the choice of the point is exact (`hush.mechanisms.draws`). Rounding comes after the noise, so it is
post-processing: the event of the real-valued mechanism holds as it stands, and no sensitivity grows. Which numbers can
come out does not depend on the value [Mironov 2012].
"""

from __future__ import annotations

import math
from typing import Literal

import numpy

from hush.errors import InvalidValue
from hush.mechanisms.draws import Draws, Floats, Line

GRID_BITS = 24  # the noise's scale is 2^24 to 2^25 steps of the grid
_EXPONENTS = 400  # scales from 2^-400 to 2^400
_FARTHEST = 2.0**600  # values beyond so many steps of the grid are held there
Kind = Literal["laplace", "gaussian"]


def add_laplace(values: Floats, scale: float, draws: Draws, *, down: bool = False) -> Floats:
    """`values` plus independent Laplace noise of this scale, to the nearest grid point or (`down`) to the one below."""
    return _add(values, scale, draws, "laplace", down)


def add_gaussian(values: Floats, stddev: float, draws: Draws) -> Floats:
    """`values` plus independent Gaussian noise of this standard deviation, to the nearest grid point."""
    return _add(values, stddev, draws, "gaussian", False)


def _add(values: Floats, scale: float, draws: Draws, kind: Kind, down: bool) -> Floats:
    grid = grid_of(scale)
    steps = numpy.clip(values.reshape(-1), -_FARTHEST * grid, _FARTHEST * grid) / grid
    whole = numpy.floor(steps)
    line = Line(scale / grid, draws.signs(len(steps)), steps - whole, 0.0 if down else 0.5)
    noise = draws.floor_exponentials(line) if kind == "laplace" else draws.floor_normals(line)
    # Both terms are exact, so the sum is the correctly rounded whole number of steps: a function of it alone.
    return numpy.multiply(whole + noise, grid, dtype=numpy.float64).reshape(values.shape)


def grid_of(scale: float) -> float:
    """The grid: the power of two with 2^24 <= scale / grid < 2^25.

    >>> grid_of(1.5) == 2.0**-24
    True
    """
    exponent = math.frexp(scale)[1] - 1
    if abs(exponent) > _EXPONENTS:
        raise InvalidValue(f"the noise must be within 2^-{_EXPONENTS} and 2^{_EXPONENTS}; it would be {scale!r}.")
    return math.ldexp(1.0, exponent - GRID_BITS)
