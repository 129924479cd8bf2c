"""One direction of a composition: the interval for epsilon at delta, or for delta at epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import ndtr

from hush.accounting import gdp
from hush.accounting.exact import single
from hush.accounting.exact.contour import Line, Sum, mirror_is_below, rough_epsilon
from hush.accounting.exact.layers import FLOOR, Ordinary, layered
from hush.accounting.exact.phases import Direction, Phases

Interval = tuple[float, float]
_SMALLEST = 680.0  # deltas below e^-680 are reported as at most that
_NARROW = 1e-8  # relative width that needs no second try
_FEW_DIGITS = 7.0  # enough to see that "add" costs less than "remove"
LITTLE_WORK, _LAYER_WORK, _MUCH_WORK = 4e5, 3e6, 8e6  # contour nodes times quadrature nodes


def epsilon_interval(phases: Phases, direction: Direction, delta: float) -> tuple[Interval, Line | None]:
    """Lower and upper end of epsilon at delta, at worst (0, infinity), and the ordinary line if one was found."""
    if not phases.bounded and single.total_variation(_doubled(phases, direction)) <= delta:
        return (0.0, 0.0), None
    ordinary = Ordinary(phases, direction, math.log(delta))
    if _costs_nothing(ordinary, delta):
        return (0.0, 0.0), None
    best = 0.0, math.inf
    for attempt, enough in _attempts(ordinary, ordinary.chernoff_epsilon()):
        best = max(best[0], attempt[0]), min(best[1], attempt[1])
        if best[1] * (1 - enough) <= best[0]:
            break
    return best, ordinary.found


def _costs_nothing(ordinary: Ordinary, delta: float) -> bool:
    """Whether delta(0) is surely within delta; asked only where the normal approximation finds it possible."""
    if 2 * float(ndtr(_rough_mu(ordinary) / 2)) - 1 > 3 * delta:
        return False
    line = ordinary.line(0.0, LITTLE_WORK)
    if line is None:
        return False
    return _stays_within(Sum([line]), 0.0, delta)


def delta_interval(phases: Phases, direction: Direction, epsilon: float) -> Interval:
    """Lower and upper end of delta at epsilon; at worst (0, 1)."""
    best, log_delta = (0.0, 1.0), -20.0
    for _ in range(6):
        ordinary = Ordinary(phases, direction, log_delta)
        guess = max(min(ordinary.chernoff_log_delta(epsilon), -1e-3), -_SMALLEST)
        if abs(guess - log_delta) <= 4:
            break
        log_delta = guess
    for ways in (_ordinary_sum, _layered_sum) * 2:
        total = ways(ordinary, epsilon)
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
        largest = -float(phases.times @ np.log1p(-phases.sampling_prob))
        if largest + sum(count * loss.largest for loss, count in phases.bounded) <= epsilon:
            return True
    if opposite is not None and mirror_is_below(opposite, epsilon, _FEW_DIGITS):
        return True
    ordinary = Ordinary(phases, direction, math.log(delta))
    if ordinary.chernoff_log_delta(epsilon) <= ordinary.log_delta - 1e-6 and ordinary.part.far_mass == 0:
        return True
    total = _ordinary_sum(ordinary, epsilon)
    return total is not None and _stays_within(total, epsilon, delta)


def _stays_within(total: Sum, epsilon: float, delta: float) -> bool:
    return total.value(epsilon)[0] + total.above(epsilon) <= delta


def _attempts(ordinary: Ordinary, chernoff: float) -> Iterator[tuple[Interval, float]]:
    """From cheap to dear, each with the relative width that ends the search: one short line, layers, one long line."""
    near, trusted, found = _ordinary(ordinary, chernoff, LITTLE_WORK)
    yield found, 1e-8
    guesses = []
    for guess in [near] if trusted else _guesses(ordinary, chernoff):
        guesses.append(guess)
        near, found = _layered(ordinary, guess)
        yield found, 1e-6
    for guess in (near, *guesses):
        yield _ordinary(ordinary, guess, _MUCH_WORK)[2], 1e-4


def _ordinary(ordinary: Ordinary, guess: float, most_work: float) -> tuple[float, bool, Interval]:
    """An epsilon, whether it is at least about right, and the interval around it."""
    delta = math.exp(ordinary.log_delta)
    for _ in range(4):
        line, is_sharp = ordinary.line(guess, most_work), False
        if line is None:
            break
        if line.blur(guess) > 0.1 * delta:
            line, is_sharp = ordinary.sharpened(line, guess, most_work), True
            if line.blur(guess) > 0.1 * delta:  # nothing found on this line would be near the truth
                break
        ordinary.found, total = line, Sum([line])
        epsilon = total.solve(delta, guess)
        if abs(epsilon - guess) <= 0.15 * abs(guess):
            sharper = line if is_sharp else ordinary.sharpened(line, epsilon, most_work)
            if sharper is not line:
                ordinary.found, total = sharper, Sum([sharper])
                epsilon = total.solve(delta, epsilon)
            return epsilon, sharper.blur(epsilon) < delta / 2, _enclose(total, epsilon, delta)
        guess = min(max(epsilon, 0.05 * guess), 20 * guess)
    return guess, False, (0.0, math.inf)


def _layered(ordinary: Ordinary, guess: float) -> tuple[float, Interval]:
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
            found = _enclose(total, epsilon, delta)
            if found[1] * (1 - 1e-6) <= found[0] or abs(epsilon - guess) <= 0.02 * guess:
                return epsilon, found
        guess = min(max(epsilon, 0.3 * guess), 3 * guess)
    return guess, found


def _guesses(ordinary: Ordinary, chernoff: float) -> Iterator[float]:
    """Where epsilon may lie, the likeliest first."""
    found = rough_epsilon(ordinary.part, ordinary.orders, ordinary.constants, chernoff)
    if found is not None:
        yield found
    yield _rough_guess(ordinary)
    yield chernoff


def _rough_guess(ordinary: Ordinary) -> float:
    """epsilon if one large loss alone had to reach it, or many small ones: the larger of the two."""
    jump = _jump_guess(ordinary.phases, ordinary.log_delta)
    return max(jump, gdp.epsilon_of(math.exp(ordinary.log_delta), _rough_mu(ordinary)))


def _rough_mu(ordinary: Ordinary) -> float:
    """The distance of the normal approximation, with large losses left out."""
    phases = ordinary.phases
    small = phases.times @ (phases.sampling_prob**2 * np.expm1(np.minimum(phases.shift**2, 1.0)))
    return (2 if ordinary.direction == "replace" else 1) * math.sqrt(float(small) + phases.gaussian)


def _jump_guess(phases: Phases, log_delta: float) -> float:
    """epsilon at which the single steps' closed forms sum to delta."""
    steps = list(zip(phases.sampling_prob, phases.shift, phases.times, strict=True))

    def log_sum(epsilon: float) -> float:
        rise = math.expm1(min(epsilon, 600.0))
        return max(gdp.log_delta_of(math.log1p(rise / q), m) + math.log(q * n) for q, m, n in steps)

    low, high = -40.0, 6.5
    if log_sum(math.exp(low)) <= log_delta:
        return 0.0
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if log_sum(math.exp(middle)) > log_delta else (low, middle)
    return math.exp(high)


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


def _doubled(phases: Phases, direction: Direction) -> Phases:
    """Under replace_one the two ends lie twice as far apart."""
    if direction != "replace":
        return phases
    return Phases(phases.sampling_prob, 2 * phases.shift, phases.times, phases.gaussian)
