"""One direction of a composition: the interval for epsilon at delta, or for delta at epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

import numpy as np
from scipy.special import log_ndtr

from hush.accounting import gdp
from hush.accounting.exact import single
from hush.accounting.exact.bent import LARGEST_SWELL, bent
from hush.accounting.exact.contour import Line, Sum, mirror_is_below, rough_epsilon
from hush.accounting.exact.layers import FLOOR, Ordinary, layered
from hush.accounting.exact.phases import Direction, Floats, Phases

Interval = tuple[float, float]
_SMALLEST = 680.0  # deltas below e^-680 are reported as at most that
_NARROW = 2e-6  # relative width of delta that needs no second try: it moves epsilon by much less
_ENOUGH = 9e-7  # relative width of epsilon that ends the search on a cheap line
_NEAR_LARGEST = 0.5
_SMALL, _SMALL_SHARES = 1e-7, (0.05, 1e-3)  # epsilons that stand for 0, over the largest delta and over the one asked
_FEW_LOSSES = 1.5  # log moment at Chernoff's order below which a few large losses make up the answer
# One large loss reaches epsilon where that many times what it would give is needed for many losses, and the log moment
# at Chernoff's order is below this.
_SINGLE = (4.0, math.inf), (2.5, 3.0), (1.45, 1.5), (1.0, 0.5)
_PLACES = np.linspace(0.0, 1.0, 17)
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
    if math.erf(_rough_mu(ordinary) / math.sqrt(8)) > 3 * delta:
        return False
    line = ordinary.line(0.0, LITTLE_WORK)
    if line is None:
        return False
    return _stays_within(Sum([line]), 0.0, delta)


def likely_epsilon(phases: Phases, direction: Direction, delta: float, near: float) -> float:
    """About epsilon at delta, if it lies near there, without any bound; NaN where no short rule serves."""
    ordinary = Ordinary(phases, direction, math.log(delta))
    found = rough_epsilon(ordinary.part, ordinary.orders, ordinary.constants, near)
    return math.nan if found is None else found


def delta_interval(phases: Phases, direction: Direction, epsilon: float) -> Interval:
    """Lower and upper end of delta at epsilon; at worst (0, 1)."""
    best = _delta_interval(phases, direction, epsilon)
    small = _SMALL * min(single.total_variation(phases, 2.0), 1.0) if not phases.bounded else 0.0
    if epsilon < small and best[1] * (1 - _NARROW) > best[0]:
        # From a small epsilon: P(S) - e^a Q(S) <= delta(b) + (e^b - e^a) Q(S) for a < b.
        low, high = _delta_interval(phases, direction, small)
        best = max(best[0], low), min(best[1], high + math.expm1(small) - math.expm1(epsilon))
    return best


def _delta_interval(phases: Phases, direction: Direction, epsilon: float) -> Interval:
    best, log_delta = (0.0, 1.0), -20.0
    for _ in range(6):
        ordinary = Ordinary(phases, direction, log_delta)
        guess = max(min(ordinary.chernoff_log_delta(epsilon), -1e-3), -_SMALLEST)
        if abs(guess - log_delta) <= 4:
            break
        log_delta = guess
    for way in (_ordinary_sum, _bent_sum, _layered_sum) * 2:
        total = way(ordinary, epsilon)
        if total is None:
            continue
        value = total.value(epsilon)[0]
        best = max(best[0], value - total.below(epsilon)), min(best[1], value + total.above(epsilon))
        if best[1] * (1 - _NARROW) <= best[0]:
            break
        if 0 < value < 1 and abs(math.log(value) - ordinary.log_delta) > 1:  # aim again, with the right delta
            ordinary = Ordinary(phases, direction, max(math.log(value), -_SMALLEST))
    return best


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
    if math.exp(ordinary.chernoff_log_delta(epsilon)) + ordinary.part.far_mass <= delta * (1 - 1e-6):
        return True
    total = _ordinary_sum(ordinary, epsilon)
    return total is not None and _stays_within(total, epsilon, delta)


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
        if guess <= 0 or ordinary.swell(guess) > LARGEST_SWELL:
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
        if ordinary.direction == "add" or guess <= 0:
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
    """Where to look next, and where to look with layers; `seen` says that a line pointed to `near`."""
    if seen and ordinary.swell(near) < LARGEST_SWELL:
        return near, [near]
    rough, (many, log_moment) = _rough_guess(ordinary), ordinary.saddle_epsilon()
    if seen and abs(near - rough) < 0.3 * rough:
        return near, [near, rough]
    is_single = any(many > ratio * rough and log_moment < most for ratio, most in _SINGLE)
    return (rough if is_single or many <= 0 else many), [rough]


def _other_guesses(ordinary: Ordinary, chernoff: float) -> Iterator[float]:
    """Where else epsilon may lie."""
    found = rough_epsilon(ordinary.part, ordinary.orders, ordinary.constants, chernoff)
    if found is not None:
        yield found
    yield chernoff


def _rough_guess(ordinary: Ordinary) -> float:
    """epsilon if one or two large losses had to reach it, and if many small ones had; where both can, a bit more."""
    phases, log_delta = ordinary.phases, ordinary.log_delta
    large = _jump_guess(phases, log_delta)
    if large > 0 and 2 * float(_log_jumps(phases, np.array([large / 2]))[0]) > log_delta:
        large = 2 * _jump_guess(phases, log_delta / 2)
    small = gdp.epsilon_of(math.exp(log_delta), _rough_mu(ordinary))
    return math.sqrt(math.hypot(large * large, small * small))


def _rough_mu(ordinary: Ordinary) -> float:
    """The distance of the normal approximation, with large losses left out."""
    phases = ordinary.phases
    small = sum(times * prob * prob * math.expm1(min(shift * shift, 1.0)) for prob, shift, times in phases.rows)
    return (2 if ordinary.direction == "replace" else 1) * math.sqrt(small + phases.gaussian)


def _jump_guess(phases: Phases, log_delta: float) -> float:
    """About the epsilon at which the worst phase's single steps have delta."""
    low, high = -40.0, 6.5  # log epsilon
    for _ in range(3):
        places = low + (high - low) * _PLACES
        values = _log_jumps(phases, np.exp(places))
        above = int(np.count_nonzero(values > log_delta))
        if not 0 < above < len(places):
            return 0.0 if above == 0 else math.exp(high)
        (low, high), (first, last) = places[above - 1 : above + 1].tolist(), values[above - 1 : above + 1].tolist()
    return math.exp(low + (first - log_delta) / max(first - last, 1e-300) * (high - low))


def _log_jumps(phases: Phases, epsilons: Floats) -> Floats:
    """log of the largest phase's sum of single steps' deltas at each epsilon; no cancellation is avoided."""
    # H = ndtr(m/2 - v/m) - e^v ndtr(-m/2 - v/m) with v = log(1 + (e^epsilon - 1)/q), [balle18] Theorem 2.
    v = np.log1p(np.multiply.outer(np.expm1(np.minimum(epsilons, 600.0)), 1 / phases.sampling_prob))
    place, half = v / phases.shift, phases.shift / 2
    ahead, behind = log_ndtr(half - place), v + log_ndtr(-half - place)
    difference = np.log(np.maximum(-np.expm1(behind - ahead), 1e-17))
    return np.asarray((ahead + difference + np.log(phases.sampling_prob * phases.times)).max(axis=1))


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
