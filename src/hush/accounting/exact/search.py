"""One direction of a composition: the interval for epsilon at delta, or for delta at epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

import numpy as np

from hush.accounting import gdp
from hush.accounting.exact import single
from hush.accounting.exact.bent import LARGEST_SWELL, bent
from hush.accounting.exact.contour import Line, Sum, mirror_is_below
from hush.accounting.exact.jumps import log_jumps, rough_guess, rough_mu
from hush.accounting.exact.layers import FLOOR, Ordinary, layered
from hush.accounting.exact.phases import Direction, Phases
from hush.accounting.exact.rough import Rough, rough, saddle

Interval = tuple[float, float]
_SMALLEST = 680.0  # deltas below e^-680 are reported as at most that
_NARROW = 2e-6  # relative width of delta that needs no second try: it moves epsilon by much less
_ENOUGH = 9e-7  # relative width of epsilon that ends the search on a cheap line
_NEAR_LARGEST = 0.5
_SMALL, _SMALL_SHARES = 1e-7, (0.05, 1e-3)  # epsilons that stand for 0, over the largest delta and over the one asked
_TYPICAL_SWELL, _LARGEST_FALL = 3.0, 40.0  # how far delta lies below Chernoff's bound, in powers of e
_FEW_LOSSES = 1.5  # log moment at Chernoff's order below which a few large losses make up the answer
# One large loss reaches epsilon where that many times what it would give is needed for many losses, and the log moment
# at Chernoff's order is below this.
_SINGLE = (4.0, math.inf), (2.5, 3.0), (1.45, 1.5), (1.0, 0.5)
_BENT_DIGITS = 15.0
_FROM_BELOW = 0.9
_FEW_DIGITS = 7.0  # enough to see that "add" costs less than "remove"
_MOST_BENT = 6  # phases for which a bent contour is the cheaper way
_SHARP_WORK = 2e4
_QUICK_WORK, LITTLE_WORK, _LAYER_WORK, _MUCH_WORK = 2e5, 4e5, 3e6, 8e6  # contour nodes times quadrature nodes


def epsilon_interval(phases: Phases, direction: Direction, delta: float) -> tuple[Interval, Line | None]:
    """Lower and upper end of epsilon at delta, at worst (0, infinity), and the ordinary line if one was found."""
    if not phases.bounded and single.total_variation(phases, 2.0 if direction == "replace" else 1.0) <= delta:
        return (0.0, 0.0), None
    ordinary = Ordinary(phases, direction, math.log(delta))
    if _costs_nothing(ordinary, delta):
        return (0.0, 0.0), None
    best = 0.0, math.inf
    for attempt, enough in _attempts(ordinary, ordinary.chernoff_epsilon()):
        best = max(best[0], attempt[0]), min(best[1], attempt[1])
        if best[1] * (1 - enough) <= best[0]:
            break
    if best[0] <= 0 < best[1] and _costs_next_to_nothing(ordinary, delta):
        return (0.0, 0.0), None
    return best, ordinary.found if ordinary.served(best[1]) else None


def _costs_next_to_nothing(ordinary: Ordinary, delta: float) -> bool:
    """Whether delta(0) is surely within delta, seen from small epsilons: P(S) - Q(S) <= delta(e) + (e^e - 1) Q(S)."""
    for small in (share * delta for share in _SMALL_SHARES):
        for way in (_bent_sum, _layered_sum):
            total = way(ordinary, small)
            if total is not None and _stays_within(total, small, delta - math.expm1(small)):
                return True
    return False


def _costs_nothing(ordinary: Ordinary, delta: float) -> bool:
    """Whether delta(0) is surely within delta; asked only where the normal approximation finds it possible."""
    if math.erf(rough_mu(ordinary) / math.sqrt(8)) > 3 * delta:
        return False
    line = ordinary.line(0.0, LITTLE_WORK)
    if line is None:
        return False
    return _stays_within(Sum([line]), 0.0, delta)


def likely_epsilon(phases: Phases, direction: Direction, delta: float, near: float) -> Rough | None:
    """About epsilon at delta, if it lies near there, without any bound; None where no short rule serves."""
    return rough(Ordinary(phases, direction, math.log(delta)), near)


def saddle_epsilon(phases: Phases, direction: Direction, delta: float) -> Rough | None:
    """The same to a percent or so, wherever it lies."""
    return saddle(Ordinary(phases, direction, math.log(delta)))


def delta_interval(phases: Phases, direction: Direction, epsilon: float, least: float = 0.0) -> Interval:
    """Lower and upper end of delta at epsilon; at worst (0, 1). What is below `least` is not told apart."""
    ordinary = _aimed(phases, direction, epsilon, least)
    if least > 0 and ordinary.log_delta <= math.log(least) and _is_bounded(ordinary, epsilon, least):
        return 0.0, least
    best = _delta_interval(ordinary, epsilon)
    small = _SMALL * min(single.total_variation(phases, 2.0), 1.0) if not phases.bounded else 0.0
    if epsilon < small and best[1] * (1 - _NARROW) > best[0]:
        # From a small epsilon: P(S) - e^a Q(S) <= delta(b) + (e^b - e^a) Q(S) for a < b.
        low, high = _delta_interval(_aimed(phases, direction, small), small)
        best = max(best[0], low), min(best[1], high + math.expm1(small) - math.expm1(epsilon))
    return best


def _delta_interval(ordinary: Ordinary, epsilon: float) -> Interval:
    best, phases, direction = (0.0, 1.0), ordinary.phases, ordinary.direction
    first = _quick_sum if direction != "add" and len(phases.times) <= _MOST_BENT else _ordinary_sum
    for way in (first, _bent_sum, _layered_sum, _ordinary_sum, _bent_sum, _layered_sum):
        total = way(ordinary, epsilon)
        if total is None:
            continue
        value = total.value(epsilon)[0]
        if not math.isfinite(value):  # a term overflows, which says nothing
            continue
        best = max(best[0], value - total.below(epsilon)), min(best[1], value + total.above(epsilon))
        if best[1] * (1 - _NARROW) <= best[0]:
            break
        if 0 < value < 1 and abs(math.log(value) - ordinary.log_delta) > 1:  # aim again, with the right delta
            ordinary = Ordinary(phases, direction, max(math.log(value), -_SMALLEST))
    return best


def _aimed(phases: Phases, direction: Direction, epsilon: float, least: float = 0.0) -> Ordinary:
    """The composition on nodes that serve for about the delta at this epsilon, or for the least one of interest."""
    log_delta, lowest = -20.0, max(math.log(max(least, 1e-300)), -_SMALLEST)
    for _ in range(5):
        ordinary = Ordinary(phases, direction, log_delta)
        guess = max(min(_likely_log_delta(ordinary, epsilon), -1e-3), lowest)
        if abs(guess - log_delta) <= (4 if guess > lowest else 0):
            break
        log_delta = guess
    return ordinary


def _likely_log_delta(ordinary: Ordinary, epsilon: float) -> float:
    """About log delta at epsilon: a bit below Chernoff's bound, or what one large loss gives where few make it up."""
    bound, log_moment = ordinary.chernoff_log_delta(epsilon), ordinary.saddle_log_moment(epsilon)
    many = bound - min(_TYPICAL_SWELL, -bound / 4)
    if log_moment > min(_FEW_LOSSES, -0.12 * bound) or ordinary.direction == "add" or epsilon <= 0:
        return many
    large = float(log_jumps(ordinary.phases, np.array([epsilon]))[0])
    small = gdp.log_delta_of(epsilon, rough_mu(ordinary))
    known = (value for value in (large, small) if not math.isnan(value))  # logs of nothing less nothing are not
    return min(max([bound - _LARGEST_FALL, *known]), many)


def _quick_sum(ordinary: Ordinary, epsilon: float) -> Sum | None:
    line = ordinary.line(epsilon, _QUICK_WORK)
    return None if line is None else Sum([ordinary.sharpened(line, epsilon, _SHARP_WORK)])


def _ordinary_sum(ordinary: Ordinary, epsilon: float) -> Sum | None:
    line = ordinary.line(epsilon, LITTLE_WORK)
    return None if line is None else Sum([ordinary.sharpened(line, epsilon, LITTLE_WORK)])


def _bent_sum(ordinary: Ordinary, epsilon: float) -> Sum | None:
    if ordinary.direction == "add" or epsilon <= 0 or _is_small(ordinary.phases):
        return None
    if ordinary.swell(epsilon) > LARGEST_SWELL:
        return None
    return bent(ordinary.part, epsilon, _BENT_DIGITS, ordinary.saddle(epsilon))


def _layered_sum(ordinary: Ordinary, epsilon: float) -> Sum | None:
    if ordinary.direction == "add" or epsilon <= 0:
        return None
    return layered(ordinary.phases, ordinary.direction, ordinary.log_delta, epsilon, _MUCH_WORK)


def is_below(phases: Phases, direction: Direction, epsilon: float, delta: float, opposite: Line | None = None) -> bool:
    """Whether this direction is surely no worse than (epsilon, delta); False where that is not quickly seen.

    `opposite` is a line of the direction "remove" that served near there.
    """
    if not 0 < delta < 1 or not math.isfinite(epsilon):
        return False
    if direction == "add" and not phases.gaussian:
        largest = -float(phases.times @ phases.log_rest)
        if largest + sum(count * loss.largest for loss, count in phases.bounded) <= epsilon:
            return True
    if opposite is not None and mirror_is_below(opposite, epsilon, _FEW_DIGITS):
        return True
    ordinary = Ordinary(phases, direction, math.log(delta))
    if _is_bounded(ordinary, epsilon, delta):
        return True
    total = _ordinary_sum(ordinary, epsilon)
    return total is not None and _stays_within(total, epsilon, delta)


def _is_bounded(ordinary: Ordinary, epsilon: float, delta: float) -> bool:
    """Whether Chernoff's bound alone shows it; the nodes are for this delta."""
    return math.exp(ordinary.chernoff_log_delta(epsilon)) + ordinary.part.far_mass <= delta * (1 - 1e-6)


def _stays_within(total: Sum, epsilon: float, delta: float) -> bool:
    return total.value(epsilon)[0] + total.above(epsilon) <= delta


def _attempts(ordinary: Ordinary, chernoff: float) -> Iterator[tuple[Interval, float]]:
    """From cheap to dear, each with the relative width that ends the search."""
    if ordinary.direction == "add":
        near, trusted, found = _ordinary(ordinary, chernoff, LITTLE_WORK)
        yield found, _ENOUGH
        guesses = [near, chernoff]
    else:
        near, trusted, found = chernoff, False, (0.0, math.inf)
        many, log_moment = ordinary.saddle_epsilon()
        # A delta near the largest possible leaves little to fall: there a line serves whatever makes up the answer.
        if log_moment > min(_FEW_LOSSES, -0.12 * ordinary.log_delta) or many < _NEAR_LARGEST * chernoff:
            is_short = len(ordinary.phases.times) <= _MOST_BENT
            near, trusted, found = _ordinary(ordinary, chernoff, _QUICK_WORK if is_short else LITTLE_WORK)
            yield found, _ENOUGH
        near, guesses = _aims(ordinary, near, trusted or near != chernoff)
        if ordinary.swell(near) < LARGEST_SWELL and not _is_small(ordinary.phases):
            near, trusted, found = _bent(ordinary, near, trusted)
            yield found, 1e-6
            guesses = [near] if trusted else guesses
        guesses = guesses or [rough_guess(ordinary)]
        for guess in chain(guesses, () if trusted else _other_guesses(ordinary, chernoff)):
            near, is_there, found = _layered(ordinary, guess)
            yield found, 1e-6
            if is_there:  # another guess would end at the same layers
                break
    for guess in (near, *guesses):
        yield _ordinary(ordinary, guess, _MUCH_WORK)[2], 1e-4


def _ordinary(ordinary: Ordinary, guess: float, most_work: float) -> tuple[float, bool, Interval]:
    """An epsilon, whether it is at least about right, and the interval around it."""
    delta = math.exp(ordinary.log_delta)
    sharp_work = _SHARP_WORK if most_work <= _QUICK_WORK else most_work
    for _ in range(4):
        line, is_sharp = ordinary.line(guess, most_work), False
        if line is None:
            break
        if line.blur(guess) > 0.1 * delta:
            line, is_sharp = ordinary.sharpened(line, guess, sharp_work), True
            if line.blur(guess) > 0.1 * delta:  # nothing found on this line would be near the truth
                break
        ordinary.found, total = line, Sum([line])
        epsilon = ordinary.found_at = total.solve(delta, guess)
        if abs(epsilon - guess) <= 0.15 * abs(guess):
            sharper = line if is_sharp else ordinary.sharpened(line, epsilon, sharp_work)
            if sharper is not line:
                total = Sum([sharper])
                epsilon = total.solve(delta, epsilon)
            return epsilon, sharper.blur(epsilon) < delta / 2, _enclose(total, epsilon, delta)
        guess = min(max(epsilon, 0.05 * guess), 20 * guess)
    return guess, False, (0.0, math.inf)


def _bent(ordinary: Ordinary, guess: float, trusted: bool) -> tuple[float, bool, Interval]:
    """The same by a bent contour, which serves heavy tails."""
    delta, found = math.exp(ordinary.log_delta), (0.0, math.inf)
    for attempt in range(3):
        if not 0 < guess < math.inf or ordinary.swell(guess) > LARGEST_SWELL:
            break
        total = bent(ordinary.part, guess, _BENT_DIGITS, ordinary.saddle(guess))
        epsilon = math.nan if total is None else total.solve(delta, guess)
        if total is None or not total.either_side(epsilon) < delta / 2:
            if attempt or trusted or not epsilon < guess:
                break
            guess = min(max(epsilon, 0.3 * guess), 0.7 * guess)
            continue
        found, trusted, change, guess = _enclose(total, epsilon, delta), True, abs(epsilon / guess - 1), epsilon
        if change <= 0.01 or found[1] * (1 - 2 * _ENOUGH) <= found[0]:
            break
    return guess, trusted, found


def _layered(ordinary: Ordinary, guess: float) -> tuple[float, bool, Interval]:
    """The same by layers; it is right, not only about right, where it says so."""
    delta, found = math.exp(ordinary.log_delta), (0.0, math.inf)
    for _ in range(4):
        if ordinary.direction == "add" or not 0 < guess < math.inf:  # a rule that overflows solves for NaN
            break
        total = layered(ordinary.phases, ordinary.direction, ordinary.log_delta, guess, _LAYER_WORK)
        if total is None:
            break
        if not total.lines:  # nothing reaches so far
            guess *= 0.3
            continue
        epsilon = total.solve(delta, guess)
        if FLOOR * guess * 1.001 <= epsilon <= 1.3 * guess:
            here = _enclose(total, epsilon, delta)
            found = max(found[0], here[0]), min(found[1], here[1])
            is_there = abs(epsilon - guess) <= 0.02 * guess
            if found[1] * (1 - (1e-4 if is_there else 1e-6)) <= found[0]:
                return epsilon, True, found
            if is_there:  # but nothing is bounded: a guess from further below is cut into other layers
                epsilon *= _FROM_BELOW
        guess = min(max(epsilon, 0.3 * guess), 3 * guess)
    return guess, False, found


def _is_small(phases: Phases) -> bool:
    """Few steps with much noise: on a bent contour their transforms hardly fall."""
    return phases.steps <= 8 and phases.largest_shift < 0.3


def _aims(ordinary: Ordinary, near: float, seen: bool) -> tuple[float, list[float]]:
    """Where to look next, and where to look with layers if that is known; `seen` says that a line pointed to `near`."""
    if seen and ordinary.swell(near) < LARGEST_SWELL:
        return near, [near]
    many, log_moment = ordinary.saddle_epsilon()
    reaches = [many / ratio for ratio, most in _SINGLE if log_moment < most]
    if (
        not seen
        and many > 0
        and reaches
        and float(log_jumps(ordinary.phases, np.array(reaches[-1:]))[0]) > ordinary.log_delta
    ):
        return many, []  # one large loss reaches as far, and all together further
    rough = rough_guess(ordinary)
    if seen and abs(near - rough) < 0.3 * rough:
        return near, [near, rough]
    is_single = any(many > ratio * rough and log_moment < most for ratio, most in _SINGLE)
    return (rough if is_single or many <= 0 else many), [rough]


def _other_guesses(ordinary: Ordinary, chernoff: float) -> Iterator[float]:
    """Where else epsilon may lie."""
    found = rough(ordinary, chernoff)
    if found is not None:
        yield found.epsilon
    yield chernoff


def ordinary_answer(ordinary: Ordinary, guess: float) -> tuple[float, bool, Interval]:
    """epsilon by one short line, whether it can be trusted, and its interval."""
    return _ordinary(ordinary, guess, LITTLE_WORK)


def _enclose(total: Sum, epsilon: float, delta: float) -> Interval:
    """The ends at which the rule with its errors is still above, and surely below, delta; after `solve`."""
    either = total.either_side(epsilon)
    low = _lower_end(total, epsilon, delta, total.slope, either + total.alias(epsilon))
    return low, _upper_end(total, epsilon, delta, total.slope, either + total.far_mass)


def _lower_end(total: Sum, epsilon: float, delta: float, slope: float, error: float) -> float:
    if not (slope < 0 and math.isfinite(error)):
        return 0.0
    width = 1.02 * error / -slope + 4e-16 * abs(epsilon)
    for _ in range(4):
        end = epsilon - width
        if end <= 0:
            break
        # Every error bound is a sum of e^{-order epsilon} at orders up to the largest, but for constants.
        swollen = error * math.exp(total.largest_order * width) if total.largest_order * width < 1 else total.below(end)
        if total.value(end)[0] - swollen >= delta:
            return end
        width *= 3
    return 0.0


def _upper_end(total: Sum, epsilon: float, delta: float, slope: float, error: float) -> float:
    if not (slope < 0 and math.isfinite(error)):
        return math.inf
    width = 1.02 * error / -slope + 4e-16 * abs(epsilon)
    for _ in range(4):
        end = max(epsilon + width, 0.0)
        # Above epsilon every error bound only falls, but for the rounding of a larger exponent.
        swollen = error * (1 + 2 * width / epsilon) if epsilon > 0 else total.above(end)
        if total.value(end)[0] + swollen <= delta:
            return end
        width *= 3
    return math.inf
