"""Delta at an epsilon, epsilon at a delta: intervals that hold the truth.

| case | answer |
|---|---|
| empty composition | 0 |
| a single release (Gaussians count as one) | its closed form |
| delta = 0 | the sum of the largest losses; infinity where one has no bound or there is mass at infinity |
| delta not above the mass at infinity | infinity |
| NotPrivate inside | delta 1, epsilon infinity |
| delta(0) not above delta | epsilon 0 |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy

from hush import _check
from hush.accounting.grid import compose, plan, rounding
from hush.accounting.grid.curves import RELATIVE_ERROR, Curve
from hush.accounting.grid.directions import Direction, directions
from hush.errors import InvalidValue
from hush.events import Event
from hush.privacy import Relation, check_relation

TARGET_WIDTH = 1e-6
SMALLEST, LARGEST = 2**12, 2**17
MOST_POINTS = 2**20  # of a window whose spacing is limited from above; a longer one would take seconds and gigabytes
SMALLEST_DELTA = 1e-250
# Log of the total mass that rounding up leaves. Above it the bound says nothing, and further out its power overflows.
LARGEST_SCALE = 600.0
UNIT = rounding.UNIT

Interval = tuple[float, float]


def delta_interval(event: Event, *, epsilon: float, relation: Relation) -> Interval:
    """The smallest delta for which (epsilon, delta) holds lies between the two numbers.

    >>> from hush import events
    >>> low, high = delta_interval(events.GaussianDP(1.0), epsilon=1.0, relation="add_remove")
    >>> low <= 0.126936737506644 <= high and high - low < 1e-12
    True
    """
    epsilon = _check.nonnegative("epsilon", epsilon)
    low = high = 0.0
    for direction in directions(event, check_relation(relation)):
        found = _or_unknown(partial(_delta, direction, epsilon, enough=low), (0.0, 1.0))
        low, high = max(low, found[0]), max(high, found[1])
    return low, high


def epsilon_interval(event: Event, *, delta: float, relation: Relation) -> Interval:
    """The smallest epsilon for which (epsilon, delta) holds lies between the two numbers.

    >>> from hush import events
    >>> low, high = epsilon_interval(events.PureDP(0.5), delta=0.0, relation="add_remove")
    >>> low <= 0.5 <= high and high - low < 1e-14
    True
    """
    delta = _check.delta(delta)
    if 0 < delta < SMALLEST_DELTA:
        raise InvalidValue(f"delta must be 0 or at least {SMALLEST_DELTA:g} here; got {delta!r}.")
    low = high = 0.0
    for direction in directions(event, check_relation(relation)):
        found = _or_unknown(partial(_epsilon, direction, delta, enough=low), (0.0, math.inf))
        low, high = max(low, found[0]), max(high, found[1])
    return low, high


def _or_unknown(answer: Callable[[], Interval], unknown: Interval) -> Interval:
    try:
        return answer()
    except compose.TooCoarse:
        return unknown


def _delta(direction: Direction, epsilon: float, *, enough: float) -> Interval:
    if not direction:
        return 0.0, 0.0
    if any(curve.infinite_mass == 1 for curve, _ in direction):
        return 1.0, 1.0
    if _is_single(direction):
        return _single_delta(direction[0][0], epsilon)
    if epsilon >= (greatest := _greatest_loss(direction)[1]):
        return _infinite_mass(direction)
    first = plan.coarse(direction, rounding.DEEPEST if math.isinf(greatest) else -300.0)
    tilt, log_delta = plan.for_epsilon(first, epsilon)
    log_delta = max(log_delta - 4, rounding.DEEPEST)
    chosen = plan.window(first, tilt, epsilon, log_delta)

    def answer(pair: Bounds) -> Interval:
        return pair.below.lower(epsilon + pair.misplaced), pair.above.upper(max(epsilon - pair.misplaced, 0.0))

    return _refined(direction, chosen, answer, enough)


def _epsilon(direction: Direction, delta: float, *, enough: float) -> Interval:
    if not direction:
        return 0.0, 0.0
    least, most = _infinite_mass(direction)
    if delta < least or least == 1:
        return math.inf, math.inf
    if most > 0 and delta <= most:
        return 0.0, math.inf
    greatest = _greatest_loss(direction)
    if delta == 0 or greatest[1] <= enough:
        return (greatest[0] if delta == 0 else 0.0), greatest[1]
    if _is_single(direction):
        return _single_epsilon(direction[0][0], delta, greatest)
    log_delta = math.log(delta)
    first = plan.coarse(direction, log_delta - 30)
    tilt, guess = plan.for_delta(first, math.log(max(delta - most, 1e-3 * delta)))
    chosen = plan.window(first, tilt, guess, log_delta)

    def answer(pair: Bounds) -> Interval:
        low, high = pair.below.solve_lower(delta), pair.above.solve_upper(delta)
        high = min(high + pair.misplaced, greatest[1])
        return min(max(low - pair.misplaced, 0.0), high), high

    low, high = _refined(direction, chosen, answer, enough)
    if low == 0 < high and _or_unknown(partial(_delta, direction, 0.0, enough=delta), (0.0, 1.0))[1] <= delta:
        return 0.0, 0.0
    return low, high


@dataclass(frozen=True)
class Bounds:
    """Compositions whose curves lie below and above the true one, losses misplaced by at most `misplaced`."""

    below: compose.Composition
    above: compose.Composition
    misplaced: float


def _refined(direction: Direction, chosen: plan.Plan, answer: Callable[[Bounds], Interval], enough: float) -> Interval:
    # Widths fall with the square of the spacing, so the second size is usually the last. A direction that is known to
    # stay under `enough`, what another one reaches, needs no more digits.
    size, low, high = SMALLEST, 0.0, math.inf
    while True:
        spacing, exact = plan.spacing(direction, chosen, size)
        found = answer(_bounds(direction, chosen, spacing))
        low, high = max(low, found[0]), min(high, found[1])
        width = (high - low) / high if 0 < high < math.inf else float(high > 0)
        if exact or width <= TARGET_WIDTH or size >= LARGEST or high <= enough:
            return low, high
        wanted = size * math.sqrt(width / TARGET_WIDTH) * 1.1
        size = min(LARGEST, max(2 * size, 2 ** math.ceil(math.log2(wanted))))


def _bounds(direction: Direction, chosen: plan.Plan, spacing: float) -> Bounds:
    steps = sum(count for _, count in direction)
    above, below, misplaced = [], [], 0.0
    for curve, count in direction:
        where = rounding.span(curve, chosen.log_delta - math.log(steps) - 25)
        cells = max(1, min(math.ceil((where.top - where.bottom) / spacing - 1e-6), plan.MOST_CELLS))
        if not where.closed:  # the first that is finite of bottom, top and 0 lies on the grid
            base = next(loss for loss in (curve.bottom, curve.top, 0.0) if math.isfinite(loss))
            top = base + math.ceil((where.top - base) / spacing) * spacing
            where = rounding.Span(top, where.bottom, closed=False)
            cells = min(math.ceil((top - where.bottom) / spacing - 1e-6), plan.MOST_CELLS)
        above.append(compose.Part(rounding.above(curve, where, spacing, cells), where.top, count))
        below.append(compose.Part(rounding.below(curve, where, spacing, cells), where.top, count))
        misplaced += 8 * UNIT * count * (abs(where.top) + cells * spacing)
    return Bounds(_composition(below, chosen, spacing), _composition(above, chosen, spacing), misplaced)


def _composition(parts: list[compose.Part], chosen: plan.Plan, spacing: float) -> compose.Composition:
    summit = math.fsum(part.count * part.top for part in parts)
    first = max(0, math.floor((summit - chosen.high) / spacing))
    points = math.ceil((chosen.high - chosen.low) / spacing) + 3
    if points > MOST_POINTS:
        raise compose.TooCoarse
    size = 2 ** max(4, math.ceil(math.log2(points)))
    window = compose.Window(summit - first * spacing, spacing, size, first, chosen.step_up, chosen.step_down)
    if any(not part.masses.scale > part.masses.infinite for part in parts):
        raise compose.TooCoarse
    scale = math.fsum(part.count * math.log(part.masses.scale) for part in parts)
    if scale > LARGEST_SCALE:
        raise compose.TooCoarse
    kept = math.fsum(part.count * math.log1p(-part.masses.infinite / part.masses.scale) for part in parts)
    tilt = min(chosen.tilt, 300 / spacing)  # neighbouring losses stay comparable
    return compose.composed(parts, window, tilt, infinite=-math.exp(scale) * math.expm1(kept))


def _is_single(direction: Direction) -> bool:
    return len(direction) == 1 and direction[0][1] == 1


def _infinite_mass(direction: Direction) -> Interval:
    if all(curve.infinite_mass == 0 for curve, _ in direction):
        return 0.0, 0.0
    if any(curve.infinite_mass == 1 for curve, _ in direction):
        return 1.0, 1.0
    kept = math.fsum(count * math.log1p(-curve.infinite_mass) for curve, count in direction)
    value, error = -math.expm1(kept), 8 * UNIT
    return value * (1 - error), min(1.0, value * (1 + error))


def _greatest_loss(direction: Direction) -> Interval:
    value = math.fsum(count * curve.top for curve, count in direction)
    error = 8 * UNIT * math.fsum(count * abs(curve.top) for curve, count in direction)
    return (value, value) if math.isinf(value) else (max(value - error, 0.0), max(value + error, 0.0))


def _single_value(curve: Curve, epsilon: float, sign: int) -> float:
    # The curve's value, rounded up (sign 1) or down (sign -1).
    moved = epsilon * (1 - sign * 8 * UNIT)
    value = float(curve.finite(numpy.array([moved]))[0]) if moved < curve.top else 0.0
    return max(0.0, min(1.0, (value + curve.infinite_mass) * (1 + sign * 2 * RELATIVE_ERROR)))


def _single_delta(curve: Curve, epsilon: float) -> Interval:
    return _single_value(curve, epsilon, -1), _single_value(curve, epsilon, 1)


def _single_epsilon(curve: Curve, delta: float, greatest: Interval) -> Interval:
    high = greatest[1] if math.isfinite(greatest[1]) else 1.0
    while _single_value(curve, high, 1) > delta and high < 1e300 and math.isinf(greatest[1]):
        high *= 2
    upper = compose.bisected(lambda epsilon: _single_value(curve, epsilon, 1) <= delta, 0.0, high)[1]
    lower = compose.bisected(lambda epsilon: _single_value(curve, epsilon, -1) < delta, 0.0, high)[0]
    return min(lower, upper), upper
