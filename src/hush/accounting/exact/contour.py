"""delta(epsilon) as a contour integral, by the trapezoid rule, with every error bounded.

For a positive measure of losses with transform M(z) = E e^{zL}, and any c > 0 (Alghamdi et al. 2023),

    delta(epsilon) = 1/(2 pi i) * integral over Re z = c of M(z) e^{-z epsilon} / (z (z + 1)) dz.

The trapezoid rule with step h gives, by Poisson summation, exactly the sum over integers k of
delta(epsilon + k a) e^{k a c} with a = 2 pi / h: every term is positive, so the rule lies above, and the excess is
bounded by Chernoff's inequality at orders c' on either side of c.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hush.accounting.exact.decay import Reach, first_height, jumps_reach, reach_along, whole_reach
from hush.accounting.exact.logs import log_complex
from hush.accounting.exact.phases import Floats
from hush.accounting.exact.transforms import UNIT, Complexes, Jumps, Waves, Whole

_LOG_TWO = math.log(2)
_NO_ORDERS: Floats = np.zeros(1)
_MOST_ROUNDS = 30  # of Newton's method: more are only needed where rounding hides the answer
_SLIGHT = 1e-4  # an error below this share of delta is not what hides the truth
_LARGEST = 690.0  # exponents above this overflow
_LARGEST_SWELL = 34.0  # where the terms exceed delta by more than e^34, rounding leaves nothing of it
_HASTY_WORK = 2e5  # who is ready for no more leaves transforms that fall too slowly to another way
_PATIENT_WORK = 5e6  # who is ready for that much work also searches longer for a bound on the tail


class Rail(NamedTuple):
    """Evenly spaced nodes on a vertical line, and what does not depend on the measure."""

    z: Complexes
    period: float
    log_kernel: Complexes  # of the rule's terms without the transform
    kernel_sum: float  # of |1 / (z (z + 1))|


@dataclass(eq=False, slots=True)
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
    rail: Rail
    reach: Reach
    waves: Waves | None

    def blur(self, epsilon: float) -> float:
        """Error of delta(epsilon) from the transform: quadrature and rounding."""
        return math.exp(min(self.log_blur - self.z[0].real * epsilon, 600.0))

    def beyond(self, epsilon: float) -> float:
        """Error of delta(epsilon) from the nodes left out."""
        return math.exp(min(self.log_beyond - self.z[0].real * epsilon, 600.0))

    def alias(self, epsilon: float) -> float:
        """How far the untruncated rule can lie above delta(epsilon)."""
        gap = np.abs(self.orders - self.z[0].real) * self.period
        gap[here := int(np.argmin(gap))] = math.inf  # the line's own order
        sums = self.log_chernoff - self.orders * epsilon - gap - np.log(-np.expm1(-gap))
        sides = sums[:here], sums[here + 1 :]
        return sum(math.exp(min(float(side.min(initial=math.inf)), 600.0)) for side in sides)


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
    log_delta = part.nodes.log_delta
    grid, constants = from_zero(orders, constants)
    if len(grid) < 3:
        return None
    c, period = abscissa(grid, constants, epsilon, log_delta, digits)
    log_moment = part.tilt_to(c)
    swell = log_moment - c * epsilon - log_delta
    if swell > _LARGEST_SWELL:
        return None
    # What is left out above a height is e^{-target} M(c) e^{-c epsilon} / (pi height) at most, and heights exceed c.
    target = max(digits + swell - math.log(c), 2.0)
    highest = 2 * math.pi * most_work / (period * len(part.nodes.u))
    tries = 10 if most_work > _PATIENT_WORK else 8
    if isinstance(part, Jumps):
        reach = jumps_reach(part, target)
    else:
        reach = whole_reach(part, target, highest, tries, is_hasty=most_work <= _HASTY_WORK)
    if reach is None or reach[0] > highest:
        return None
    return _line(part, grid, constants, log_moment, period, reach)


def likely_height(part: Whole, orders: Floats, constants: Floats, epsilon: float, digits: float) -> float | None:
    """About the height of the part's line for an answer near epsilon, if the tilted loss were normal."""
    grid, constants = from_zero(orders, constants)
    if len(grid) < 3:
        return None
    c, _ = abscissa(grid, constants, epsilon, part.nodes.log_delta, digits)
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
    part, c = Whole(nodes), float(line.z[0].real)
    if c * float(nodes.loss.max()) > 600:  # its moment would overflow
        return False
    log_moment = part.tilt_to(c)
    constant = log_moment + nodes.cropped(c) + c * math.log(c) - (c + 1) * math.log1p(c)
    if constant - c * epsilon < nodes.log_delta - 1e-6:
        return True
    limit = math.exp(nodes.log_delta) * (1 - 1e-12)
    for total in _mirrors(line, part, log_moment, epsilon, digits):
        value, error = total.value(epsilon)[0], total.above(epsilon)
        if value + error <= limit:
            return True
        if error < _SLIGHT * limit:
            break
    return False


def _mirrors(line: Line, part: Whole, log_moment: float, epsilon: float, digits: float) -> Iterator[Sum]:
    """Rules of "add" for that test: by the paths and waves of "remove", then by its own paths."""
    if line.waves is not None and line.reach.moved is not None:
        reach = reach_along(part, line.reach.height, line.reach.moved)
        yield Sum([_on_rail(line.rail, part, part.twin_log_along(line.z.imag, line.waves), log_moment, reach)])
    target = max(digits + log_moment - line.z[0].real * epsilon - part.nodes.log_delta - math.log(part.order), 2.0)
    own = whole_reach(part, target, 2 * float(line.z[-1].imag), 3)
    if own is not None:
        yield Sum([_line(part, _NO_ORDERS, _NO_ORDERS, log_moment, line.period, own)])


def from_zero(orders: Floats, constants: Floats) -> tuple[Floats, Floats]:
    """Orders with finite constants, and order 0 with the constant 0 before them."""
    finite = np.isfinite(constants)
    if not finite.all():
        orders, constants = orders[finite], constants[finite]
    both = np.zeros((2, len(orders) + 1))
    both[0, 1:], both[1, 1:] = orders, constants
    return both[0], both[1]


def abscissa(grid: Floats, constants: Floats, epsilon: float, log_delta: float, digits: float) -> tuple[float, float]:
    """The order with the shortest period that keeps the aliases below e^-digits of delta, and that period."""
    swell = constants - grid * epsilon - log_delta
    need = np.maximum(swell + digits + 1, 1e-9)
    near = int(np.argmin(swell[1:])) + 1  # the saddle point's neighbours are enough to choose from
    rows = slice(max(near - 16, 1), near + 8)
    above, below = (np.minimum.reduce(need * side[rows], axis=1) for side in _inverse_distances(grid))
    period, swell, grid = np.maximum(above, below) / grid[1], swell[rows], grid[rows]
    # Where the terms exceed delta much, rounding costs digits; that is worth more nodes.
    price = period * (1 + np.maximum(swell, 0.0) / 15 + np.maximum(swell - 5.0, 0.0) ** 2 / 20)
    best = int(np.argmin(price))
    return float(grid[best]), max(float(period[best]), 1e-3 / float(grid[best]))


def _inverse_distances(grid: Floats) -> tuple[Floats, Floats]:
    """grid[1] / |grid[j] - grid[i]| for j above i, and for j below i; elsewhere very large."""
    count, log_ratio = len(grid) - 1, math.log(grid[2] / grid[1])
    if abs(math.log(grid[-1] / grid[1]) - (count - 1) * log_ratio) < 1e-6:
        return _geometric_distances(count, round(log_ratio, 9))
    return _unit_distances(grid / grid[1])


@lru_cache(maxsize=16)
def _geometric_distances(count: int, log_ratio: float) -> tuple[Floats, Floats]:
    return _unit_distances(np.append(0.0, np.exp(log_ratio * np.arange(count))))


def _unit_distances(grid: Floats) -> tuple[Floats, Floats]:
    distance = grid - grid[:, None]
    inverse = 1 / np.where(distance == 0, 1.0, distance)
    return np.where(distance > 0, inverse, 1e150), np.where(distance < 0, -inverse, 1e150)


def _line(part: Whole | Jumps, grid: Floats, constants: Floats, log_moment: float, period: float, reach: Reach) -> Line:
    c, step = part.order, 2 * math.pi / period
    count = math.ceil(reach.height / step)
    heights: Floats = step * np.arange(count + 1, dtype=np.float64)
    z: Complexes = np.asarray(c + 1j * heights, dtype=np.complex128)
    kernel = z * (z + 1)
    log_kernel: Complexes = np.asarray(-math.log(period) - log_complex(kernel))
    log_kernel[1:] += _LOG_TWO
    rail = Rail(z, period, log_kernel, float(np.add.reduce(1 / np.abs(kernel))))
    line = _on_rail(rail, part, part.log_along(heights), log_moment, reach)
    line.orders, line.log_chernoff = grid, constants
    line.waves = part.kept_waves if isinstance(part, Whole) else None
    return line


def _on_rail(rail: Rail, part: Whole | Jumps, along: Complexes, log_moment: float, reach: Reach) -> Line:
    """The line whose transform along the rail is given, with its errors, but for aliases."""
    # Beyond the last node: 2/period * sum of 1/|z|^2 over n > count is at most 2 / (period * step^2 * count).
    log_beyond = log_moment + reach.tail - math.log(math.pi * float(rail.z[-1].imag))
    # Errors of the transform are bounded on the axis, where it is largest: the kernel alone makes the sum converge.
    blur = reach.error + part.rounding(reach.height) + UNIT * 8 * (1 + abs(log_moment))
    log_blur = log_moment + math.log(blur * 2 / rail.period * rail.kernel_sum)
    z, log_terms, none = rail.z, along + rail.log_kernel + log_moment, _NO_ORDERS
    far_mass = part.far_mass
    return Line(z, log_terms, none, none, rail.period, log_beyond, log_blur, far_mass, part, rail, reach, None)


class Sum:
    """Several lines together, as one function of epsilon with a two-sided error."""

    def __init__(self, lines: Sequence[Line], extra: float = 0.0) -> None:
        self.lines, self.extra = lines, extra
        if len(lines) == 1:
            self._z, self._log_terms = lines[0].z, lines[0].log_terms
        else:
            empty = [np.empty(0, dtype=np.complex128)]
            self._z = np.concatenate([line.z for line in lines] or empty)
            self._log_terms = np.concatenate([line.log_terms for line in lines] or empty)
        self._size = np.abs(self._z)
        self.slope = -math.inf  # of delta, near where `solve` ended
        self.far_mass = sum(line.far_mass for line in lines)
        self.largest_order = max((float(line.orders[-1]) for line in lines), default=0.0)

    def value(self, epsilon: float) -> tuple[float, float]:
        """The rule's delta and its derivative."""
        terms = np.exp(self._log_terms - self._z * epsilon)
        value = float(np.add.reduce(terms.real))
        # Where a term overflows the sum is infinite or not a number.
        return (value, -float((self._z @ terms).real)) if math.isfinite(value) else (math.inf, -math.inf)

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
        terms = np.exp(np.minimum(self._log_terms.real - self._z.real * epsilon, _LARGEST))
        # Rounding of the exponent z * epsilon and of the sum itself.
        rounding = UNIT * float(terms @ (len(terms) + 2 * abs(epsilon) * self._size))
        lines = sum(line.beyond(epsilon) + line.blur(epsilon) for line in self.lines)
        return rounding + self.extra + lines

    def solve(self, delta: float, guess: float) -> float:
        """epsilon at which the rule equals delta: Newton in log delta, kept inside a bracket."""
        low, high, epsilon = -math.inf, math.inf, guess
        for _ in range(_MOST_ROUNDS):
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
