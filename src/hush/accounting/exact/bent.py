"""delta(epsilon) along a bent contour, for heavy tails: a hyperbola that turns to the right, with every error bounded.

On z(x) = c + A sin(b + i x) the factor e^{-z epsilon} falls like e^{-epsilon A sin b cosh x}, and the nodes are spaced
evenly in the logarithm of the height: rare large losses and a narrow bulk are seen at once. The transform is analytic
everywhere, so the line of the inversion formula may be bent. A shift of x by i y is another b, so the trapezoid rule's
error is bounded by the integrals along two neighbouring hyperbolas, by what is left at the ends, and by a vertical line
from the last point on.
"""

from __future__ import annotations

import math

import numpy as np

from hush.accounting.exact.contour import Sum
from hush.accounting.exact.decay import steepest_tail
from hush.accounting.exact.logs import log_complex, log_one_plus
from hush.accounting.exact.nodes import Nodes, TooManyNodes
from hush.accounting.exact.path import Path
from hush.accounting.exact.phases import Floats
from hush.accounting.exact.transforms import UNIT, Complexes, Whole

BEND = 0.15  # b, and how far on either side of it the neighbouring hyperbolas lie
_RIGHT, _LEFT = 1.5, 8.0  # how far the integrand may rise on the real axis up to the neighbours, in powers of e
_REACHES = np.exp(np.linspace(-4.0, 1.8, 48))  # orders looked at, over about the best one
_PLACES = np.linspace(0.0, 1.0, 33)
_LARGEST = 690.0
LARGEST_SWELL = 14.0  # where the terms exceed delta by more, rounding spoils the answer
_MOST_NODES = 500
_LONGER = (1.12, 1.3, 1.6)  # over the likely end of the contour: what is tried until the rest is bounded
_LOW = 0.8
_ENOUGH, _SLACK = 17.0, 5.0
_ACROSS = np.linspace(-1.0, 1.0, 13)


class Hyperbola:
    """z(x) = start + scale * sin(bend + i x)."""

    def __init__(self, start: float, scale: float) -> None:
        self.start, self.scale = start, scale

    def at(self, x: Complexes | Floats) -> Complexes:
        """The points z."""
        return np.asarray(self.start + self.scale * np.sin(BEND + 1j * x))

    def log_speed(self, x: Complexes | Floats) -> Complexes:
        """log of dz / (i dx)."""
        return log_complex(np.asarray(self.scale * np.cos(BEND + 1j * x)))


class Bent(Sum):
    """A bent contour's rule as a function of epsilon, with a two-sided error."""

    def __init__(self, z: Complexes, log_terms: Complexes, log_errors: Floats, rates: Floats, far_mass: float) -> None:
        super().__init__([], 0.0)
        self._z, self._log_terms, self._size = z, log_terms, np.abs(z)
        self._log_errors, self._rates = log_errors, rates
        self.far_mass, self.largest_order = far_mass, float(rates.max())

    def alias(self, epsilon: float) -> float:
        """None: the errors of this rule have no sign, and all are in `either_side`."""
        return 0.0

    def either_side(self, epsilon: float) -> float:
        """All errors but the mass dropped."""
        terms = np.exp(np.minimum((self._log_terms - self._z * epsilon).real, _LARGEST))
        rounding = UNIT * float(terms @ (len(terms) + 4 * abs(epsilon) * self._size))
        return rounding + float(np.exp(np.minimum(self._log_errors - self._rates * epsilon, _LARGEST)).sum())


def bent(part: Whole, epsilon: float, digits: float, saddle: float) -> Bent | None:
    """The contour for an answer near epsilon; None where rounding would spoil it or it would be too much work."""
    shape = shape_of(part, epsilon, saddle)
    if shape is None:
        return None
    hyperbola, swell, steepness = shape
    step = 2 * math.pi * BEND / (digits + swell + steepness)
    end = end_of(part, hyperbola, epsilon, digits + 3) if swell < LARGEST_SWELL else None
    if end is None or end / step > _MOST_NODES:
        return None
    try:
        plain = _Plain(part, digits + swell)
        rules = (_Rule(part, hyperbola, step, longer * end, plain) for longer in _LONGER)
        return next((found for rule in rules if (found := rule.sum(epsilon)) is not None), None)
    except TooManyNodes:
        return None


def shape_of(part: Whole, epsilon: float, saddle: float) -> tuple[Hyperbola, float, float] | None:
    """The hyperbola between two orders at which the integrand is little above its least."""
    orders = _REACHES * saddle
    heights = part.log_moments(orders) - orders * epsilon - np.log(orders * (orders + 1)) - part.nodes.log_delta
    heights[~np.isfinite(heights)] = math.inf
    least = int(np.argmin(heights))
    if not math.isfinite(heights[least]) or least == 0:
        return None
    far, near = heights[least:] > heights[least] + _RIGHT, heights[least::-1] > heights[least] + _LEFT
    right = least + (int(np.argmax(far)) - 1 if far.any() else len(far) - 1)
    left = least - (int(np.argmax(near)) - 1 if near.any() else len(near) - 1)
    if not left < right:
        return None
    start, scale = float(orders[left]), float(orders[right] - orders[left]) / math.sin(2 * BEND)
    centre = start + scale * math.sin(BEND)
    swell = max(float(heights[least]) + math.log(centre), 0.0)
    return Hyperbola(start, scale), swell, max(float(heights[left] - heights[least]), 2.0)


def end_of(part: Whole, hyperbola: Hyperbola, epsilon: float, digits: float) -> float | None:
    """About the x from which on the integrand is below e^-digits of delta; None where epsilon is not above 0."""
    if not epsilon > 0:  # a guess for a delta near 1 can be negative, where the hyperbola opens to the wrong side
        return None
    log_delta, centre = part.nodes.log_delta, float(hyperbola.at(np.zeros(1))[0].real)
    log_moment = part.tilt_to(centre)
    drop = digits + max(log_moment - centre * epsilon - log_delta, 0.0)
    longest = math.acosh(1 + drop / (epsilon * hyperbola.scale * math.sin(BEND)))
    x = longest * _PLACES
    z = hyperbola.at(x)
    sizes = part.log_sizes(z.imag) + log_moment - z.real * epsilon - np.log(np.abs(z * (z + 1)))
    above = np.nonzero(sizes + hyperbola.log_speed(x).real > log_delta - digits)[0]
    return float(x[min(int(above[-1]) + 1, len(x) - 1)]) if len(above) else None


def lowest_of(nodes: Nodes) -> Floats:
    """The heights up to which the losses' own line serves, per phase."""
    assert nodes.far is not None
    room = nodes.far + 3 + (np.log(nodes.prob) - nodes.shift**2 / 2) / nodes.shift
    return np.asarray(_LOW * np.maximum(room, 0.0) / nodes.shift)


class _Plain:
    """The losses' own line: low on the contour it is good enough, and a lifted path would cancel."""

    def __init__(self, part: Whole, exponent: float) -> None:
        nodes = part.nodes
        self.low = lowest_of(nodes)
        self.powers = exponent + np.log(nodes.times)
        self.path = Path(nodes, 0.0, self.powers, self.low)


class _Rule:
    """The trapezoid rule on a hyperbola up to about `end`, and its errors."""

    def __init__(self, part: Whole, hyperbola: Hyperbola, step: float, end: float, plain: _Plain) -> None:
        self.part, self.hyperbola, self.step = part, hyperbola, step
        count = math.ceil(end / step)
        self.x = step * np.arange(count + 1, dtype=np.float64)
        self.stop = step * (count + 0.5)
        self.last = complex(hyperbola.at(np.array([self.stop]))[0])
        self.plain, self.low = plain.path, plain.low
        self.lifted = Path(part.nodes, self.last.imag, plain.powers, np.zeros_like(self.low))

    def sum(self, epsilon: float) -> Bent | None:
        """The rule with its errors; None where nothing bounds what lies above its last point."""
        beyond = self._beyond(epsilon)
        if beyond is None:
            return None
        count, shift = len(self.x), 1j * BEND
        sparse = self.x[::3]
        x = np.concatenate([self.x, sparse + shift, sparse - shift, self.stop + shift * _ACROSS])
        z = self.hyperbola.at(x)
        log_terms, errors = self._log_terms(z, count)
        log_terms += self.hyperbola.log_speed(x) - math.log(math.pi)
        main = log_terms[:count] + math.log(self.step)
        main[0] -= math.log(2)
        edges = log_terms[count : -len(_ACROSS)].real + math.log(3 * self.step / math.expm1(self._turns))
        ends = log_terms[-len(_ACROSS) :].real + self._log_ends()
        log_errors = np.concatenate([main.real + np.log(errors), edges, ends, [beyond]])
        rates = np.append(z.real, self.last.real)
        return Bent(z[:count], main, log_errors, rates, self.part.far_mass)

    @property
    def _turns(self) -> float:
        return 2 * math.pi * BEND / self.step

    def _log_ends(self) -> Floats:
        """log weights of points across the end, where the integrand is about exponential between two of them."""
        return np.asarray(
            math.log(2 * BEND * (_ACROSS[1] - _ACROSS[0])) - np.log1p(np.exp(self._turns * np.abs(_ACROSS)))
        )

    def _log_terms(self, z: Complexes, count: int) -> tuple[Complexes, Floats]:
        """log of the integrand without e^{-z epsilon}, and the relative error of the first `count` values."""
        part, times = self.part, self.part.nodes.times
        excess, error = self._transforms(z, count)
        rest = part.rest(z)
        log_power = log_one_plus(excess) @ times + rest
        share = np.log1p(error / np.maximum(np.abs(1 + excess[:count]), 1e-300)) @ times
        reach = sum(number * loss.largest for loss, number in part.nodes.phases.bounded)
        rounding = 16 + 4 * np.abs(log_power[:count]) + 4 * np.abs(rest[:count]) + 16 * reach * np.abs(z[:count])
        return log_power - log_complex(z * (z + 1)), np.expm1(np.minimum(share, _LARGEST)) + UNIT * rounding

    def _transforms(self, z: Complexes, count: int) -> tuple[Complexes, Floats]:
        """The steps' transforms by the path that serves, and the first `count` values' errors."""
        is_low = np.asarray(z.imag[:, None] <= self.low)
        excess, error = np.empty(is_low.shape, dtype=np.complex128), np.empty((count, len(self.low)))
        for path, wanted in ((self.plain, is_low), (self.lifted, ~is_low)):
            rows = np.asarray(wanted.any(axis=1))
            if not rows.any():
                continue
            main = np.nonzero(rows[:count])[0]
            here, noise = path.excess(z[rows], len(main))
            excess[wanted] = here[wanted[rows]]
            bound = path.quadrature(z[main]) + noise
            error[wanted[:count]] = bound[wanted[main]]
        return excess, error

    def _beyond(self, epsilon: float) -> float | None:
        """log of a bound on the integral along the vertical line from the last point on, over e^{-Re z epsilon}."""
        part, order, height = self.part, self.last.real, self.last.imag
        outside = float(part.rest(np.array([order]))[0]) - part.nodes.phases.gaussian * height * height / 2
        enough = part.nodes.log_delta + order * epsilon + math.log(math.pi * height) - _ENOUGH
        bound = self.lifted.log_bound(self.last) + outside
        if not bound <= enough:
            bound = min(bound, steepest_tail(part, order, height, enough))
        return bound - math.log(math.pi * height) if bound <= enough + _SLACK else None
