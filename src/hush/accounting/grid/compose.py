"""Composition on the grid: tilt, transform, multiply, transform back, and a bound on everything that goes wrong.

Masses p at losses l become p e^(c l - K(c)), K the log of their sum: a probability whose composition is centred near
the epsilon in question, so that a delta of 1e-30 is computed to as many digits as one of 0.1 (exponential tilting;
[koskela20] has the untilted method). With N points the transform adds up losses that differ by N spacings. What that
can change is bounded by Chernoff's inequality; what rounding can change by the sum of the transform's moduli.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy
from scipy import fft

from hush.accounting.grid.curves import Array
from hush.accounting.grid.rounding import UNIT, Masses, scan_both

# A transform of N values with sum of moduli 1 is off by at most BUTTERFLY * UNIT * log2(N) in every output: each output
# is a sum over paths of log2(N) stages with factors of modulus 1, each rounded once or twice. Checked in test_compose.
BUTTERFLY = 4.0
ENOUGH = math.log(1e-11)


@dataclass(frozen=True)
class Part:
    """One elementary release on the grid: its masses, the loss of the first, and how often."""

    masses: Masses
    top: float
    count: int


@dataclass(frozen=True)
class Window:
    """The losses top, top - spacing, ... that the transform keeps apart; `first` is the first one's index.

    `step_up` and `step_down` say how far Chernoff's inequality moves the tilt; any values are right, some are better.
    """

    top: float
    spacing: float
    size: int
    first: int
    step_up: float
    step_down: float


class TooCoarse(Exception):
    """No grid of the allowed size holds this loss; the honest answer is that nothing is known."""


def tilted(part: Part, spacing: float, tilt: float) -> tuple[Array, float]:
    """The tilted probabilities and K(tilt) of one release, losses counted from its top."""
    exponent = -tilt * spacing * numpy.arange(len(part.masses.mass))
    occupied = numpy.flatnonzero(part.masses.mass)
    if not occupied.size:
        raise TooCoarse
    peak = float(exponent[occupied[0 if tilt >= 0 else -1]])
    exponent = numpy.minimum(exponent, peak)  # only where there is no mass
    weighted = part.masses.mass * numpy.exp(exponent - peak)
    total = float(weighted.sum())
    return weighted / total, peak + math.log(total)


def log_moment(parts: Sequence[Part], spacing: float, tilt: float) -> float:
    """The composition's K(tilt), losses counted from its top."""
    return math.fsum(part.count * tilted(part, spacing, tilt)[1] for part in parts)


def bisected(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Neighbouring numbers, the claim false at the first and true at the second; (0, low) where it is true at low."""
    if holds(low):
        return 0.0, low
    for _ in range(200):
        middle = low + (high - low) / 2
        if not low < middle < high or high - low < 1e-15 * high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


@dataclass(frozen=True)
class Composition:
    """Delta as a function of epsilon for one composition on a grid, with the size of its errors.

    `infinite` is the mass at infinity. `noise` bounds the error of each tilted probability, `relative` all relative
    errors of the finite part, `above` the mass of losses over the window, `aliased` the tilted mass outside of it.
    """

    window: Window
    tilt: float
    log_moment: float
    curve: Array
    weighted: Array
    trusted: int
    infinite: float
    noise: float
    relative: float
    above: float
    aliased: float

    def finite(self, epsilon: float) -> float:
        """Delta at epsilon from the losses in the window."""
        steps = (self.window.top - epsilon) / self.window.spacing
        if steps <= 0:
            return 0.0
        index = min(int(steps), len(self.curve) - 1)
        loss = self.window.top - index * self.window.spacing
        return float(self.curve[index] - math.expm1(min(epsilon - loss, 0.0)) * self.weighted[index])

    def covers(self, epsilon: float) -> bool:
        """Whether epsilon lies above the window's end, where the untilted masses are numbers."""
        return (self.window.top - epsilon) / self.window.spacing < self.trusted

    def upper(self, epsilon: float) -> float:
        """Not below the true delta of the masses."""
        if not self.covers(epsilon):
            return 1.0
        rounding = self.noise * self._weight_sum() * self._exponential(epsilon)
        total = max(self.finite(epsilon), 0.0) + rounding
        return min(1.0, (total * (1 + self.relative) + self.above + self.infinite) * (1 + 4 * UNIT))

    def lower(self, epsilon: float) -> float:
        """Not above the true delta of the masses."""
        if not self.covers(epsilon):
            return self.infinite
        wrong = (self.noise * self._weight_sum() + self.aliased * self._largest_weight()) * self._exponential(epsilon)
        value = self.finite(epsilon) * (1 - self.relative) - wrong * (1 + self.relative)
        return max(0.0, (max(value, 0.0) + self.infinite) * (1 - 4 * UNIT))

    def solve_upper(self, delta: float) -> float:
        """An epsilon at which `upper` is at most delta; infinity where the window has none."""
        low = max(0.0, self.window.top - (self.trusted - 1) * self.window.spacing)
        high = max(self.window.top, low)
        if self.upper(high) > delta:
            return math.inf
        return bisected(lambda epsilon: self.upper(epsilon) <= delta, low, high)[1]

    def solve_lower(self, delta: float) -> float:
        """An epsilon at which `lower` is at least delta; 0 where none was found near the estimate."""
        low = max(0.0, self.window.top - (self.trusted - 1) * self.window.spacing)
        target = delta - self.infinite
        high = bisected(lambda epsilon: self.finite(epsilon) < target, low, max(self.window.top, low))[1]
        back = 1e-15 * high
        while self.lower(high - back) < delta:  # `lower` is 0 far below, where its error terms grow
            back *= 2
            if high - back <= low:
                return 0.0
        return bisected(lambda epsilon: self.lower(epsilon) < delta, high - back, high)[0]

    def _exponential(self, epsilon: float) -> float:
        # e^(K - c epsilon): what one unit of tilted probability at epsilon is worth.
        return math.exp(min(self.log_moment - self.tilt * (epsilon - self.window.top), 700.0))

    def _largest_weight(self) -> float:
        # The maximum over x > 0 of e^(-c x) (1 - e^-x).
        c = self.tilt
        return math.exp(c * math.log(c) - (1 + c) * math.log1p(c))

    def _weight_sum(self) -> float:
        # Over a grid: at most the integral over the spacing, plus once the maximum; and never more than size * maximum.
        c, largest = self.tilt, self._largest_weight()
        return min(1 / (self.window.spacing * c * (1 + c)) + largest, self.window.size * largest)


def composed(parts: Sequence[Part], window: Window, tilt: float, *, infinite: float) -> Composition:
    """The composition of `parts`, seen through `window`."""
    offset = window.first * window.spacing  # from the sum of all tops down to the window's first loss
    probabilities, moment, noise, relative = _transformed(parts, window, tilt)
    exponent = moment + tilt * (offset + window.spacing * numpy.arange(window.size))
    trusted = int(numpy.searchsorted(exponent, 600.0)) - 1
    mass = numpy.roll(probabilities, -(window.first % window.size)) * numpy.exp(numpy.minimum(exponent, 600.0))
    curve, weighted = scan_both(mass, window.spacing)
    relative += UNIT * (4 * math.log2(window.size) + 8 + 2 * abs(moment) + 2 * tilt * window.size * window.spacing)
    over, under = _outside(parts, window, tilt, moment)
    return Composition(
        window=window,
        tilt=tilt,
        log_moment=moment + tilt * offset,
        curve=curve,
        weighted=weighted,
        trusted=max(trusted, 0),
        infinite=infinite,
        noise=noise,
        relative=relative,
        above=math.exp(min(over[1], 0.0)) * (1 + 1e-9),
        aliased=min(1.0, math.exp(min(over[0], 0.0)) + math.exp(min(under, 0.0))) * (1 + 1e-9),
    )


def _transformed(parts: Sequence[Part], window: Window, tilt: float) -> tuple[Array, float, float, float]:
    # With a_i the transforms and e_i their errors, |prod a^T - prod b^T| <= sum T_i e_i / M_i * prod M^T, M = |a| + e.
    size = window.size
    stage = BUTTERFLY * UNIT * math.log2(size)
    logarithm = numpy.zeros(size // 2 + 1, dtype=numpy.complex128)
    modulus, per_unit = numpy.zeros(size // 2 + 1), numpy.zeros(size // 2 + 1)
    moment = relative = 0.0
    for part in parts:
        probability, own = tilted(part, window.spacing, tilt)
        moment += part.count * own
        depth = tilt * window.spacing * len(probability)
        relative += part.count * UNIT * (8 + 2 * min(depth, 750.0) + 2 * abs(own))
        transform = fft.rfft(_folded(probability, size))
        bound = numpy.abs(transform) + stage
        logs = numpy.log(numpy.where(transform == 0, 1e-300, transform))
        logarithm += part.count * logs
        modulus += part.count * numpy.log(bound)
        per_unit += part.count * (stage / bound + UNIT * (4 + 2 * numpy.abs(logs)))
    product = numpy.exp(logarithm)
    largest = numpy.exp(numpy.minimum(modulus, 1.0))
    error = numpy.minimum(per_unit * largest, 2.0)
    noise = (_full_sum(error, size) + stage * _full_sum(largest, size)) / size
    # Below 0 is rounding: cutting it off brings each probability nearer to the truth.
    return numpy.maximum(fft.irfft(product, size), 0.0), moment, noise, relative


def _full_sum(half: Array, size: int) -> float:
    # The sum over all frequencies of an even function given on the first half.
    total = 2 * float(half.sum()) - float(half[0])
    return total - float(half[-1]) if size % 2 == 0 else total


def _folded(values: Array, size: int) -> Array:
    rows = -(-len(values) // size)
    padded = numpy.zeros(rows * size)
    padded[: len(values)] = values
    result: Array = padded.reshape(rows, size).sum(axis=0)
    return result


def _outside(parts: Sequence[Part], window: Window, tilt: float, moment: float) -> tuple[tuple[float, float], float]:
    # Logs of: the tilted and the plain mass of losses above the window, and the tilted mass below it. Chernoff: with
    # x the loss counted from the top, P_c(x > w) <= e^(K(c+k) - K(c) - k w) and P_c(x < w) <= e^(K(c-k) - K(c) + k w).
    high = -window.first * window.spacing
    low = -(window.first + window.size - 1) * window.spacing
    deepest = sum(part.count * (len(part.masses.mass) - 1) for part in parts)
    over_tilted = over_plain = under = -math.inf
    if window.first > 0:
        over_tilted = over_plain = math.inf
        for step in (window.step_up, window.step_up / 2, window.step_up / 5):
            up = log_moment(parts, window.spacing, tilt + step)
            over_tilted = min(over_tilted, up - moment - step * high)
            over_plain = min(over_plain, up - (tilt + step) * high)
            if over_tilted < ENOUGH:
                break
    if window.first + window.size <= deepest:
        under = math.inf
        for step in (window.step_down, window.step_down / 2, window.step_down / 5):
            under = min(under, log_moment(parts, window.spacing, tilt - step) - moment + step * low)
            if under < ENOUGH:
                break
    slack = 1e-9  # for the rounding of the moments themselves
    return (over_tilted + slack, over_plain + slack), under + slack
