"""A curve between two others whose losses lie on a uniform grid.

A measure with mass p_i at grid losses l_i has a curve that is linear in t = e^epsilon between neighbouring t_i, and any
such convex decreasing polygon belongs to a measure. If one curve is below another at every t, so are their
compositions with anything ([zhu22] Thm. 10; the argument is linear and needs no total mass of 1). Hence two polygons:

- above: the chords of the convex curve, corners at the grid ([doroshenko22], "connect the dots"), from (0, 1) to the
  lowest corner, and constant beyond the highest, whose height is mass at infinity.
- below: in each cell a line under the tangent at the cell's middle. With corner i at the lower of the two tangents
  that meet its cells, each edge has both ends under its cell's tangent, so all of it; the tangent of a convex curve is
  below the curve. The highest lines are the one tangent that is 0 at the last corner; with an atom on top it is the
  one at the top, slope Q(L = top). Left of the lowest corner: the curve itself, a line if all losses are above, or the
  tangent at the lowest corner. Both gaps are second order in the spacing where the loss has a density.

Corners that rounding made concave are left out: chords over fewer corners are still above the curve, and the convex
hull is below the polygon it came from. Last, the masses' own curve is summed again, all terms positive, compared with
the corners, and the masses scaled so that the comparison holds with `margin` to spare.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from hush.accounting.grid.curves import RELATIVE_ERROR, Array, Curve

Indices = NDArray[numpy.intp]

UNIT = 2.0**-52
LOST_BELOW = 2e-15  # P's mass under the grid of a curve without a bottom
TINY = 1e-290  # under it numbers lose digits; as mass at infinity it covers them
DEEPEST = math.log(TINY)


@dataclass(frozen=True)
class Span:
    """Where a curve's grid ends: at `top` exactly, and at or below `bottom`. `closed`: P(L = top) > 0."""

    top: float
    bottom: float
    closed: bool


@dataclass(frozen=True)
class Masses:
    """`mass[j]` at the loss top - j * spacing, and `infinite` at infinity; `scale` is their total."""

    mass: Array
    infinite: float
    scale: float


def span(curve: Curve, log_delta: float) -> Span:
    """From where all but `LOST_BELOW` lies above, to where the curve is under e^log_delta or ends."""
    ladder = numpy.exp2(numpy.arange(-50, 14, dtype=numpy.float64))
    closed = math.isfinite(curve.top) and curve.top_mass > 0
    top = curve.top
    if not closed:
        level = math.exp(min(max(log_delta, DEEPEST), 0.0))
        top = min(top, _first(ladder, lambda x: curve.finite(x) <= level))
    bottom = -_first(ladder, lambda x: 1 - curve.infinite_mass - curve.finite(-x) - curve.slope(-x) <= LOST_BELOW)
    return Span(top, min(max(bottom, curve.bottom), top), closed)


def _first(ladder: Array, holds: Callable[[Array], NDArray[numpy.bool_]]) -> float:
    for _ in range(2):
        found = numpy.flatnonzero(holds(ladder))
        index = int(found[0]) if found.size else len(ladder) - 1
        ladder = numpy.linspace(ladder[max(index - 1, 0)], ladder[index], 33)
    return float(ladder[-1])


def above(curve: Curve, where: Span, spacing: float, cells: int) -> Masses:
    """Masses whose curve is nowhere below `curve`."""
    epsilon = where.top - spacing * numpy.arange(cells, -1, -1, dtype=numpy.float64)
    height = curve.finite(epsilon)
    if where.closed:
        height[-1] = 0.0
    start = 1 - curve.infinite_mass
    mass, kept = _convex(height, start, spacing)
    curve_again, total = scan(mass[::-1], spacing)
    tail = float(height[kept[-1]])
    if ((height > 0) & (height < TINY)).any():
        tail = max(tail, TINY)
    again = curve_again[::-1][kept] + tail
    positive = again > 0
    ratio = float(numpy.max(height[kept][positive] / again[positive], initial=start / (total + tail)))
    scale = max(1.0, ratio) * (1 + margin(cells))
    infinite = (curve.infinite_mass + tail) * scale
    return Masses(mass[::-1] * scale, infinite, scale * (total + tail + curve.infinite_mass))


def below(curve: Curve, where: Span, spacing: float, cells: int) -> Masses:
    """Masses whose curve is nowhere above `curve`."""
    epsilon = where.top - spacing * numpy.arange(cells, -1, -1, dtype=numpy.float64)
    height, start = _under_tangents(curve, where, epsilon, spacing)
    mass, kept = _convex(height, start, spacing)
    curve_again, total = scan(mass[::-1], spacing)
    again, wanted = curve_again[::-1][kept], height[kept]
    positive = wanted > 0
    ratio = float(numpy.max(again[positive] / wanted[positive], initial=total / start if start > 0 else 1.0))
    scale = (1 - margin(cells)) / max(1.0, ratio)
    if total == 0:
        mass[0] = TINY  # next to nothing at the lowest loss, so that there is something to compose
    infinite = curve.infinite_mass * (1 - 4 * UNIT)
    return Masses(mass[::-1] * scale, infinite, total * scale + infinite)


def margin(cells: int) -> float:
    """Relative rounding of a curve's value and of a sum over a grid of `cells`."""
    return RELATIVE_ERROR + UNIT * (4 * math.log2(cells + 2) + 32)


def _under_tangents(curve: Curve, where: Span, epsilon: Array, spacing: float) -> tuple[Array, float]:
    # Each cell's line at its left and right corner, then the lower of the two lines at every corner.
    point = epsilon[1:] - spacing / 2
    covered = curve.bottom >= epsilon[0] - 1e-9 * spacing
    if covered:  # all losses are above the lowest corner: the tangent there keeps Q's total
        point[0] = epsilon[0] + 1e-6 * spacing
    value, slope = curve.finite(point), curve.slope(point)
    left = value - slope * numpy.expm1(epsilon[:-1] - point)
    right = value - slope * numpy.expm1(epsilon[1:] - point)
    if where.closed and curve.top_mass > 0:
        left[-1], right[-1] = -curve.top_mass * math.expm1(-spacing), 0.0
    if (right < 0).any() or not (where.closed and curve.top_mass > 0):
        _run_out(curve, left, right, epsilon)
    height = numpy.append(left, 0.0)
    height[1:] = numpy.minimum(height[1:], right)
    lowest = float(curve.finite(epsilon[:1])[0])
    height[0] = min(height[0], lowest)
    start = 1 - curve.infinite_mass if covered else lowest + float(curve.slope(epsilon[:1])[0])
    return numpy.maximum(height, 0.0), start


def _run_out(curve: Curve, left: Array, right: Array, epsilon: Array) -> None:
    # Ends the polygon with the tangent that is 0 at the last corner, or at the first one where a tangent is below 0.
    falling = numpy.flatnonzero(right < 0)
    last = int(falling[0]) + 1 if falling.size else len(left)
    low, high = float(epsilon[0]), float(epsilon[last])
    for _ in range(4):  # the tangent's height at the last corner grows with the point where it touches
        points = numpy.linspace(low, high, 33)
        over = curve.finite(points) - curve.slope(points) * numpy.expm1(numpy.minimum(epsilon[last] - points, 700.0))
        index = max(int(numpy.argmax(over >= 0)), 1)
        low, high = float(points[index - 1]), float(points[index])
    touch = numpy.array([high])
    cell = min(int(numpy.searchsorted(epsilon, high, side="right")) - 1, last - 1)
    steep = float(curve.slope(touch)[0]) * math.exp(min(epsilon[last] - high, 700.0))
    if float(curve.finite(touch)[0]) < steep * -math.expm1(high - epsilon[last]):
        steep = 0.0  # it touches nowhere: nothing is left but 0
    lowered = -steep * numpy.expm1(numpy.minimum(epsilon[cell:] - epsilon[last], 0.0))
    left[cell:], right[cell:] = lowered[:-1], lowered[1:]


def _convex(height: Array, start: float, spacing: float) -> tuple[Array, Indices]:
    # Masses of the polygon over the corners that stay: t_i times the fall of the slope at t_i. The slope of an edge of
    # length w, times the t at its right end, is fall / (1 - e^-w); at its left end, fall / (e^w - 1).
    kept = numpy.arange(len(height))
    passes = 0
    while True:
        passes += 1
        if passes == 40:
            kept = _hull(height, kept, start, spacing)
        corner = height[kept]
        width = numpy.diff(kept) * spacing
        fall = corner[:-1] - corner[1:]
        mass = numpy.append(start - corner[0], fall / -numpy.expm1(-width))
        mass[:-1] -= fall / numpy.expm1(numpy.minimum(width, 700.0))
        good = mass >= 0
        if good.all() or len(kept) == 1 or passes > 50:
            break
        kept = kept[good] if good.any() else kept[:1]
    result = numpy.zeros_like(height)
    result[kept] = numpy.maximum(mass, 0.0)
    return result, kept


def _hull(height: Array, kept: Indices, start: float, spacing: float) -> Indices:
    # The lower convex hull, corner by corner; for shapes that the passes above would wear down too slowly.
    stack: list[int] = []
    for corner in kept.tolist():
        while stack:
            at = stack[-1]
            before = stack[-2] if len(stack) > 1 else None
            gap = math.inf if before is None else (at - before) * spacing
            fall = (start if before is None else height[before]) - height[at]
            ahead = height[at] - height[corner]
            if fall / -math.expm1(-gap) >= ahead / math.expm1(min((corner - at) * spacing, 700.0)):
                break
            stack.pop()
        stack.append(corner)
    return numpy.array(stack, dtype=numpy.intp)


def scan(mass: Array, spacing: float) -> tuple[Array, float]:
    """The curve of masses at 0, -spacing, -2 spacing, ... at those losses, and their total."""
    curve, weighted = scan_both(mass, spacing)
    return curve, float(curve[-1] + weighted[-1])


def scan_both(mass: Array, spacing: float) -> tuple[Array, Array]:
    """The curve, D_k = sum over j < k of m_j (1 - e^(l_k - l_j)), and G_k = sum over j <= k of m_j e^(l_k - l_j).

    Both by doubling the distance that is summed over, so that a value is rounded about log2(n) times, not n times.
    """
    weighted = mass.copy()
    shift = 1
    while shift < len(mass) and shift * spacing < 800:
        weighted[shift:] += math.exp(-shift * spacing) * weighted[:-shift].copy()
        shift *= 2
    steps = numpy.zeros_like(mass)
    steps[1:] = -math.expm1(-spacing) * weighted[:-1]
    shift = 1
    while shift < len(mass):
        steps[shift:] += steps[:-shift].copy()
        shift *= 2
    return steps, weighted
