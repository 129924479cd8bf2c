"""delta(epsilon) as a contour integral, by the trapezoid rule, with every error bounded.

For a positive measure of losses with transform M(z) = E e^{zL}, and any c > 0 (Alghamdi et al. 2023),

    delta(epsilon) = 1/(2 pi i) * integral over Re z = c of M(z) e^{-z epsilon} / (z (z + 1)) dz.

The trapezoid rule with step h gives, by Poisson summation, exactly the sum over integers k of
delta(epsilon + k a) e^{k a c} with a = 2 pi / h: every term is positive, so the rule lies above, and the excess is
bounded by Chernoff's inequality at orders c' on either side of c.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hush.accounting.exact.decay import first_height, jumps_reach, quadrature_error, whole_reach
from hush.accounting.exact.phases import Floats
from hush.accounting.exact.transforms import UNIT, Complexes, Jumps, Whole

_LARGEST = 690.0  # exponents above this overflow
_LARGEST_SWELL = 34.0  # where the terms exceed delta by more than e^34, rounding leaves nothing of it
_NEAR = np.array([0.7, 1.0, 1.4, 2.0, 2.8, 4.0])  # orders at which Chernoff's bound is tried, over the line's
_PATIENT_WORK = 5e6  # who is ready for that much work also searches longer for a bound on the tail


@dataclass(frozen=True)
class Line:
    """One measure's integral along its line: delta is the real part of sum(exp(log_terms - z * epsilon))."""

    z: Complexes
    log_terms: Complexes
    orders: Floats
    log_chernoff: Floats  # log of the constant in delta(epsilon) <= constant * e^{-order * epsilon}
    period: float
    log_beyond: float  # log of e^{c epsilon} times what the rule leaves out above and below the last node
    log_blur: float  # log of e^{c epsilon} times the error from the transform: quadrature and rounding
    far_mass: float
    part: Whole | Jumps

    def blur(self, epsilon: float) -> float:
        """Error of delta(epsilon) from the transform: quadrature and rounding."""
        return math.exp(min(self.log_blur - self.z[0].real * epsilon, 600.0))

    def beyond(self, epsilon: float) -> float:
        """Error of delta(epsilon) from the nodes left out."""
        return math.exp(min(self.log_beyond - self.z[0].real * epsilon, 600.0))

    def alias(self, epsilon: float) -> float:
        """How far the untruncated rule can lie above delta(epsilon)."""
        c = self.z[0].real
        gap = np.abs(self.orders - c) * self.period
        with np.errstate(divide="ignore"):
            sums = self.log_chernoff - self.orders * epsilon - gap - np.log(-np.expm1(-gap))
        above, below = sums[self.orders > c], sums[self.orders < c]
        return sum(math.exp(min(float(side.min()) if len(side) else math.inf, 600.0)) for side in (above, below))


def log_chernoff(orders: Floats, log_moments: Floats) -> Floats:
    """log of the constant in delta <= constant e^{-order epsilon} (Canonne, Kamath, Steinke 2020, Prop. 12)."""
    safe = np.maximum(orders, 1e-300)
    return np.asarray(log_moments + orders * np.log(safe) - (orders + 1) * np.log1p(orders))


def line_of(
    part: Whole | Jumps, orders: Floats, constants: Floats, epsilon: float, *, digits: float, most_work: float
) -> Line | None:
    """Choose the line and its nodes for an answer near (epsilon, delta); None where it would be too much work.

    `constants` are the part's `log_chernoff` at the orders.
    """
    log_delta, finite = part.nodes.log_delta, np.isfinite(constants)
    grid, constants = np.append(0.0, orders[finite]), np.append(0.0, constants[finite])
    if len(grid) < 3:
        return None
    c, period = _abscissa(grid, constants, epsilon, log_delta, digits)
    log_moment = part.tilt_to(c)
    swell = log_moment - c * epsilon - log_delta
    if swell > _LARGEST_SWELL:
        return None
    # What is left out above a height is e^{-target} M(c) e^{-c epsilon} / (pi height) at most, and heights exceed c.
    target = max(digits + swell - math.log(c), 2.0)
    highest = 2 * math.pi * most_work / (period * len(part.nodes.u))
    tries = 10 if most_work > _PATIENT_WORK else 8
    reach = jumps_reach(part, target) if isinstance(part, Jumps) else whole_reach(part, target, highest, tries)
    if reach is None or reach[0] > highest:
        return None
    return _line(part, grid, constants, log_moment, period, *reach)


def likely_height(part: Whole, orders: Floats, constants: Floats, epsilon: float, digits: float) -> float | None:
    """About the height of the part's line for an answer near epsilon, if the tilted loss were normal."""
    finite = np.isfinite(constants)
    if finite.sum() < 2:
        return None
    grid, constants = np.append(0.0, orders[finite]), np.append(0.0, constants[finite])
    c, _ = _abscissa(grid, constants, epsilon, part.nodes.log_delta, digits)
    target = max(digits + part.tilt_to(c) - c * epsilon - part.nodes.log_delta - math.log(c), 2.0)
    return first_height(part, target)


def mirror_is_below(line: Line, epsilon: float, digits: float) -> bool:
    """Whether "add" surely has less than delta at epsilon, seen from a line of "remove"; False where it is not seen.

    By Chernoff's bound, or by the rule at the same order and period on the same nodes. Aliases only add to that rule,
    so its upper end needs no bound on them.
    """
    if not isinstance(line.part, Whole) or not line.part.nodes.has_twin:
        return False
    nodes = line.part.nodes.twin()
    part, c = Whole(nodes), line.part.order
    if c * float(nodes.loss.max()) > 600:  # its moment would overflow
        return False
    orders = c * _NEAR
    log_moments = part.log_moments(orders) + nodes.cropped_at(orders)
    if float((log_chernoff(orders, log_moments) - orders * epsilon).min()) < nodes.log_delta - 1e-6:
        return True
    log_moment = part.tilt_to(c)
    target = max(digits + log_moment - c * epsilon - nodes.log_delta - math.log(c), 2.0)
    reach = whole_reach(part, target, 2 * float(line.z[-1].imag), 3)
    if reach is None:
        return False
    total = Sum([_line(part, np.zeros(1), np.zeros(1), log_moment, line.period, *reach)])
    return total.value(epsilon)[0] + total.above(epsilon) <= math.exp(nodes.log_delta) * (1 - 1e-12)


def rough_epsilon(part: Whole, orders: Floats, constants: Floats, epsilon: float) -> float | None:
    """epsilon by a short rule without any bound, as a guess; None where its terms have not died out."""
    finite = np.isfinite(constants)
    grid, log_delta = np.append(0.0, orders[finite]), part.nodes.log_delta
    if len(grid) < 3:
        return None
    c, period = _abscissa(grid, np.append(0.0, constants[finite]), epsilon, log_delta, 12.0)
    log_moment = part.tilt_to(c)
    count = min(math.ceil(12 / math.sqrt(max(part.variance(), 1e-300)) * period / (2 * math.pi)), 500)
    heights: Floats = 2 * math.pi / period * np.arange(count + 2, dtype=np.float64)
    z: Complexes = np.asarray(c + 1j * heights, dtype=np.complex128)
    log_terms = part.log_along(heights) + (log_moment - math.log(period)) - np.log(z * (z + 1))
    log_terms[1:] += math.log(2)
    line = Line(z, log_terms, grid, grid, period, -math.inf, -math.inf, 0.0, part)
    total = Sum([line])
    found = total.solve(math.exp(log_delta), epsilon)
    last = math.exp(min(float(log_terms[-1].real) - c * found, 600.0))
    return found if found > 0 and last * count < 0.05 * math.exp(log_delta) else None


def _abscissa(grid: Floats, constants: Floats, epsilon: float, log_delta: float, digits: float) -> tuple[float, float]:
    """The order with the shortest period that keeps the aliases below e^-digits of delta, and that period."""
    swell = constants - grid * epsilon - log_delta
    need = np.maximum(swell + digits + 1, 0.0)
    near = int(np.argmin(swell[1:])) + 1  # the saddle point's neighbours are enough to choose from
    rows = slice(max(near - 16, 1), near + 8)
    distance = grid[None, :] - grid[rows, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        periods = need[None, :] / np.abs(distance)
    above = np.where(distance > 0, periods, math.inf).min(axis=1)
    below = np.where(distance < 0, periods, math.inf).min(axis=1)
    period, swell, grid = np.maximum(above, below), swell[rows], grid[rows]
    # Where the terms exceed delta much, rounding costs digits; that is worth more nodes.
    price = period * (1 + np.maximum(swell, 0.0) / 15 + np.maximum(swell - 5.0, 0.0) ** 2 / 20)
    best = int(np.argmin(price))
    return float(grid[best]), max(float(period[best]), 1e-3 / float(grid[best]))


def _line(
    part: Whole | Jumps, grid: Floats, constants: Floats, log_moment: float, period: float, height: float, tail: float
) -> Line:
    c, step = part.order, 2 * math.pi / period
    count = math.ceil(height / step)
    heights: Floats = step * np.arange(count + 1, dtype=np.float64)
    z: Complexes = np.asarray(c + 1j * heights, dtype=np.complex128)
    kernel = z * (z + 1)
    log_terms = part.log_along(heights) + (log_moment - math.log(period)) - np.log(kernel)
    log_terms[1:] += math.log(2)
    # Beyond the last node: 2/period * sum of 1/|z|^2 over n > count is at most 2 / (period * step^2 * count).
    log_beyond = log_moment + tail - math.log(math.pi * step * count)
    # Errors of the transform are bounded on the axis, where it is largest: the kernel alone makes the sum converge.
    blur = quadrature_error(part, height) + part.rounding(height) + UNIT * 8 * (1 + abs(log_moment))
    log_blur = log_moment + math.log(blur * 2 / period * float((1 / np.abs(kernel)).sum()))
    return Line(z, log_terms, grid, constants, period, log_beyond, log_blur, part.far_mass, part)


class Sum:
    """Several lines together, as one function of epsilon with a two-sided error."""

    def __init__(self, lines: Sequence[Line], extra: float = 0.0) -> None:
        self.lines, self.extra = lines, extra
        empty = [np.empty(0)]
        self._z = np.concatenate([line.z for line in lines] or empty)
        self._log_terms = np.concatenate([line.log_terms for line in lines] or empty)
        self._size = np.abs(self._z)
        self.slope = -math.inf  # of delta, near where `solve` ended
        self.far_mass = sum(line.far_mass for line in lines)
        self.largest_order = max((float(line.orders[-1]) for line in lines), default=0.0)

    def value(self, epsilon: float) -> tuple[float, float]:
        """The rule's delta and its derivative."""
        exponents = self._log_terms - self._z * epsilon
        if exponents.real.max(initial=-math.inf) > _LARGEST:
            return math.inf, -math.inf
        terms = np.exp(exponents)
        return float(np.add.reduce(terms.real)), -float(np.add.reduce((self._z * terms).real))

    def above(self, epsilon: float) -> float:
        """How far the true delta can lie above the rule's."""
        return self.either_side(epsilon) + self.far_mass

    def below(self, epsilon: float) -> float:
        """How far the true delta can lie below the rule's."""
        return self.either_side(epsilon) + self.alias(epsilon)

    def alias(self, epsilon: float) -> float:
        """How far the untruncated rules can lie above delta(epsilon)."""
        return sum(line.alias(epsilon) for line in self.lines)

    def either_side(self, epsilon: float) -> float:
        """Rounding, what was dropped, nodes left out, and errors of the transforms."""
        terms = np.exp(np.minimum((self._log_terms - self._z * epsilon).real, _LARGEST))
        # Rounding of the exponent z * epsilon and of the sum itself.
        rounding = UNIT * float(terms @ (len(terms) + 2 * abs(epsilon) * self._size))
        lines = sum(line.beyond(epsilon) + line.blur(epsilon) for line in self.lines)
        return rounding + self.extra + lines

    def solve(self, delta: float, guess: float) -> float:
        """epsilon at which the rule equals delta: Newton in log delta, kept inside a bracket."""
        low, high, epsilon = -math.inf, math.inf, guess
        for _ in range(80):
            value, slope = self.value(epsilon)
            self.slope = slope
            low, high = (epsilon, high) if value > delta else (low, epsilon)
            step = math.log(value / delta) * value / -slope if 0 < value < math.inf and slope < 0 else -math.inf
            target = epsilon + step
            if abs(step) <= 1e-8 * abs(epsilon):  # the steps' sizes square
                return target
            if not low < target < high:
                target = (low + high) / 2 if math.isfinite(low + high) else epsilon / 2 if low == -math.inf else 2 * low
            if abs(target - epsilon) <= 1e-14 * abs(epsilon) + 1e-300:
                break
            epsilon = target
        return epsilon
