"""The exact accountant's answer for any composition: which method serves, both directions, the worse of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from types import ModuleType

from hush.accounting import rdp
from hush.accounting.exact import search, single
from hush.accounting.exact.phases import Direction
from hush.accounting.exact.reading import Reading, read
from hush.accounting.exact.rough import Rough
from hush.accounting.exact.transforms import UNIT
from hush.events import ApproximateDP, Event, Laplace, PureDP, RandomizedResponse, flat
from hush.privacy import Relation

Interval = tuple[float, float]
_LARGEST_SHIFT = 25.0  # 1 / noise_multiplier; below a noise of 0.04 one sampled step alone costs hundreds
_MOST_STEPS = 1e11
_SMALLEST_PROB = 1e-100
_LARGEST_LOSS = 1e12
_EXTREME = "the Rényi bound alone, for so little noise or so many steps"
_WIDE = 1e-4  # relative width from which the loss grid is asked as well


def epsilon_interval(
    event: Event, *, delta: float, relation: Relation, reading: Reading | None = None
) -> tuple[Interval, str]:
    """(lower, upper) of the smallest epsilon at delta, and the way it was found. `reading` is the event's, if known."""
    reading = reading or read(event, relation)
    if not reading.is_private:
        return (math.inf, math.inf), "no privacy at all"
    if _is_extreme(reading):
        bound = _renyi(lambda: rdp.guarantee(event, delta=delta, relation=relation).epsilon, math.inf)
        plain = _plain_sum(event, delta, relation)
        return (0.0, min(bound, plain)), _EXTREME if bound <= plain else "the sum of largest losses, for so many steps"
    least, most = _without_failures(reading, delta)
    if least <= 0 or not _has_contour(reading):
        low, high = _grid_epsilon(event, delta, relation)
        high = min(high, _plain_sum(event, delta, relation))
        return (min(low, high), high), "loss grid"
    (low, high), way = _epsilon_of(reading, relation, least)
    if most > least:
        low = _epsilon_of(reading, relation, most)[0][0]
    if high * (1 - _WIDE) <= low:
        return (low, high), way
    return _meet((low, high), _grid_epsilon(event, delta, relation)), f"{way} and loss grid"


def _epsilon_of(reading: Reading, relation: Relation, delta: float) -> tuple[Interval, str]:
    """The interval for epsilon of what cannot fail outright."""
    curve = single.curve_of(reading.phases, relation)
    if curve is not None:
        return single.epsilon_at(curve, delta), "closed form"
    found, line = search.epsilon_interval(reading.phases, _first(relation), delta)
    if found[1] == 0:  # delta(0), the total variation distance, is that of both directions
        return found, "contour"
    if relation != "replace_one" and not search.is_below(reading.phases, "add", found[1], delta, line):
        found = _worse(found, search.epsilon_interval(reading.phases, "add", delta)[0])
    return found, "contour"


def delta_interval(
    event: Event, *, epsilon: float, relation: Relation, reading: Reading | None = None, least: float = 0.0
) -> tuple[Interval, str]:
    """(lower, upper) of the smallest delta at epsilon, and the way it was found. `reading` is the event's, if known.

    A delta that is surely at most `least` is not worked out further.
    """
    reading = reading or read(event, relation)
    if not reading.is_private:
        return (1.0, 1.0), "no privacy at all"
    if _is_extreme(reading):
        return (
            0.0,
            _renyi(lambda: rdp.delta_guarantee(event, epsilon=epsilon, relation=relation).delta, 1.0),
        ), _EXTREME
    if not _has_contour(reading):
        return _grid().delta_interval(event, epsilon=epsilon, relation=relation), "loss grid"
    curve = single.curve_of(reading.phases, relation)
    if curve is not None:
        return _with_failures(reading, single.delta_at(curve, epsilon)), "closed form"
    found = search.delta_interval(reading.phases, _first(relation), epsilon, least)
    if relation != "replace_one" and not search.is_below(reading.phases, "add", epsilon, found[1]):
        found = _worse(found, search.delta_interval(reading.phases, "add", epsilon, least))
    if found[1] <= least and reading.log_intact == 0:
        return found, "contour"
    found = _with_failures(reading, found)
    if found[1] * (1 - _WIDE) <= found[0]:
        return found, "contour"
    return _meet(found, _grid().delta_interval(event, epsilon=epsilon, relation=relation)), "contour and loss grid"


def likely_epsilon(event: Event, *, delta: float, relation: Relation, near: float | None) -> Rough | None:
    """About epsilon at delta, if it lies near there, by a short rule without any bound: only a guess, or None.

    Where nothing is known of the place, to a percent or so.
    """
    reading = read(event, relation)
    served = reading.is_private and reading.log_intact == 0 and not _is_extreme(reading) and _has_contour(reading)
    if not served or delta <= 0 or not len(reading.phases.times):
        return None
    if near is None:
        return search.saddle_epsilon(reading.phases, _first(relation), delta)
    return search.likely_epsilon(reading.phases, _first(relation), delta, near)


def _plain_sum(event: Event, delta: float, relation: Relation) -> float:
    """Basic composition where every part has a largest loss and the deltas fit; infinite otherwise.

    The sum is exact, and rounded up only where it is no float: one claim costs the number that it claims.
    """
    epsilon, spent = Fraction(0), Fraction(0)
    for part, times in flat(event):
        match part:
            case PureDP(cost) | RandomizedResponse(cost):
                epsilon += times * Fraction(cost)
            case Laplace(scale):
                epsilon += times * (2 if relation == "replace_one" else 1) / Fraction(scale)
            case ApproximateDP(cost, failure):
                epsilon, spent = epsilon + times * Fraction(cost), spent + times * Fraction(failure)
            case _:
                return math.inf
    return _rounded_up(epsilon) if spent <= Fraction(delta) else math.inf


def _rounded_up(exact: Fraction) -> float:
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def _grid() -> ModuleType:
    """Imported where it is needed: most questions never need it."""
    from hush.accounting import grid

    return grid


def _grid_epsilon(event: Event, delta: float, relation: Relation) -> Interval:
    """Return the loss grid's interval for epsilon, or that nothing is known where delta is too small for it."""
    grid = _grid()
    if 0 < delta < grid.SMALLEST_DELTA:
        return 0.0, math.inf
    low, high = grid.epsilon_interval(event, delta=delta, relation=relation)
    return low, high


def _first(relation: Relation) -> Direction:
    return "replace" if relation == "replace_one" else "remove"


def _has_contour(reading: Reading) -> bool:
    return reading.is_served and (len(reading.phases.times) > 0 or not reading.phases.bounded)


def _is_extreme(reading: Reading) -> bool:
    """So little noise that one step's losses do not fit on a line of nodes, or more steps than rounding allows."""
    phases = reading.phases
    count = phases.steps + sum(count for _, count in phases.bounded)
    largest = max((loss.largest for loss, _ in phases.bounded), default=0.0)
    little_noise = phases.largest_shift > _LARGEST_SHIFT or reading.smallest_prob < _SMALLEST_PROB
    return little_noise or count > _MOST_STEPS or max(largest, phases.gaussian) > _LARGEST_LOSS


def _renyi(answer: Callable[[], float], unknown: float) -> float:
    """The Rényi bound; where even that overflows, that nothing is known."""
    try:
        found = answer()
    except (ArithmeticError, MemoryError, ValueError):  # HushErrors about values are ValueErrors
        return unknown
    return unknown if math.isnan(found) else found


def _without_failures(reading: Reading, delta: float) -> Interval:
    """delta left for the rest, from delta = 1 - intact * (1 - rest): both ends, since the subtraction cancels."""
    if reading.log_intact == 0:
        return delta, delta
    failed = -math.expm1(reading.log_intact)
    if failed >= 1:
        return -1.0, -1.0
    slack = failed * (8 + 2 * reading.failing) * UNIT
    least, most = (delta - failed - slack) / (1 - failed), (delta - failed + slack) / (1 - failed)
    return least * (1 - 4 * UNIT), most * (1 + 4 * UNIT)


def _with_failures(reading: Reading, rest: Interval) -> Interval:
    failed = -math.expm1(reading.log_intact)
    low, high = (failed + (1 - failed) * end for end in rest)
    slack = (8 + 2 * reading.failing) * UNIT
    return low * (1 - slack), min(high * (1 + slack), 1.0)


def _worse(one: Interval, other: Interval) -> Interval:
    return max(one[0], other[0]), max(one[1], other[1])


def _meet(one: Interval, other: Interval) -> Interval:
    """Both hold the truth, so their intersection does. If they do not meet, one is wrong: then all between is kept."""
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low <= high else (min(one[0], other[0]), max(one[1], other[1]))
