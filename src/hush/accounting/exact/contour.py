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

from hush.accounting.exact.decay import jumps_reach, quadrature_error, whole_reach
from hush.accounting.exact.phases import Floats
from hush.accounting.exact.transforms import UNIT, Complexes, Jumps, Whole


@dataclass(frozen=True)
class Line:
    """One measure's integral along its line: delta is the real part of sum(exp(log_terms - z * epsilon))."""

    z: Complexes
    log_terms: Complexes
    orders: Floats
    log_chernoff: Floats  # log of the constant in delta(epsilon) <= constant * e^{-order * epsilon}
    period: float
    log_beyond: float  # log of e^{c epsilon} times what the rule leaves out above and below the last node
    relative: float  # error of each term over its modulus: rounding
    log_blur: float  # log of e^{c epsilon} times the error from the quadrature of the transform
    far_mass: float

    def blur(self, epsilon: float) -> float:
        """Error of delta(epsilon) from the quadrature of the transform."""
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
    part: Whole | Jumps, orders: Floats, epsilon: float, log_delta: float, *, digits: float, most_work: float
) -> Line | None:
    """Choose the line and its nodes for an answer near (epsilon, delta); None where it would be too much work."""
    grid = np.append(0.0, orders)
    moments = np.append(0.0, part.log_moments(orders))
    finite = np.isfinite(moments)
    grid, constants = grid[finite], log_chernoff(grid[finite], moments[finite])
    c, period = _abscissa(grid, constants, epsilon, log_delta, digits)
    log_moment = part.tilt_to(c)
    swell = log_moment - c * epsilon - math.log(c * (c + 1)) - log_delta
    target = max(digits + swell, 2.0)
    reach = jumps_reach(part, target) if isinstance(part, Jumps) else whole_reach(part, target)
    if reach is None or reach[0] * period * len(part.nodes.u) > 2 * math.pi * most_work:
        return None
    return _line(part, grid, constants, log_moment, period, *reach)


def _abscissa(
    grid: Floats, constants: Floats, epsilon: float, log_delta: float, digits: float
) -> tuple[float, float]:
    """The order with the shortest period that keeps the aliases below e^-digits of delta, and that period."""
    swell = constants - grid * epsilon - log_delta
    need = np.maximum(swell + digits + 1, 0.0)
    distance = grid[None, :] - grid[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        periods = need[None, :] / np.abs(distance)
    above = np.where(distance > 0, periods, math.inf).min(axis=1)
    below = np.where(distance < 0, periods, math.inf).min(axis=1)
    period = np.maximum(above, below)
    price = period * (1 + np.maximum(swell, 0.0) / 15)
    price[0] = math.inf
    best = int(np.argmin(price))
    return float(grid[best]), max(float(period[best]), 1e-3 / float(grid[best]))


def _line(
    part: Whole | Jumps, grid: Floats, constants: Floats, log_moment: float, period: float, height: float, tail: float
) -> Line:
    c, step = part.order, 2 * math.pi / period
    count = math.ceil(height / step)
    z = c + 1j * step * np.arange(count + 1)
    kernel = z * (z + 1)
    log_terms = part.log_along(z.imag) + (log_moment - math.log(period)) - np.log(kernel)
    log_terms[1:] += math.log(2)
    # Beyond the last node: 2/period * sum of 1/|z|^2 over n > count is at most 2 / (period * step^2 * count).
    log_beyond = log_moment + tail - math.log(math.pi * step * count)
    blur = max(quadrature_error(part, height), 1e-300)
    log_blur = log_moment + math.log(blur * 2 / period * float((1 / np.abs(kernel)).sum()))
    relative = part.rounding(height) + UNIT * 4 * (count + abs(log_moment))
    return Line(z, log_terms, grid, constants, period, log_beyond, relative, log_blur, part.far_mass)


class Sum:
    """Several lines together, as one function of epsilon with a two-sided error."""

    def __init__(self, lines: Sequence[Line], extra: float = 0.0) -> None:
        self.lines, self.extra = lines, extra
        self._z = np.concatenate([line.z for line in lines])
        self._log_terms = np.concatenate([line.log_terms for line in lines])
        self._relative = np.concatenate([np.full(len(line.z), line.relative) for line in lines])

    def value(self, epsilon: float) -> tuple[float, float]:
        """The rule's delta and its derivative."""
        terms = np.exp(self._log_terms - self._z * epsilon)
        return float(terms.real.sum()), float(-(self._z * terms).real.sum())

    def error(self, epsilon: float) -> tuple[float, float]:
        """How far the true delta can lie below and above the rule's."""
        terms = np.abs(np.exp(self._log_terms - self._z * epsilon))
        both = float((terms * (self._relative + UNIT * np.abs(self._z) * abs(epsilon) * 2)).sum()) + self.extra
        alias = far = 0.0
        for line in self.lines:
            both += line.beyond(epsilon) + line.blur(epsilon)
            alias += line.alias(epsilon)
            far += line.far_mass
        return both + alias, both + far

    def solve(self, delta: float, guess: float) -> float:
        """epsilon at which the rule equals delta: Newton in log delta, kept inside a bracket."""
        low, high, epsilon = -math.inf, math.inf, guess
        for _ in range(80):
            value, slope = self.value(epsilon)
            low, high = (epsilon, high) if value > delta else (low, epsilon)
            step = math.log(value / delta) * value / -slope if value > 0 and slope < 0 else -math.inf
            target = epsilon + step
            if not low < target < high:
                target = (low + high) / 2 if math.isfinite(low + high) else epsilon / 2 if low == -math.inf else 2 * low
            if abs(target - epsilon) <= 1e-14 * abs(epsilon) + 1e-300:
                return target
            epsilon = target
        return epsilon
