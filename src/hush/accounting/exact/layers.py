"""Which lines add up to delta: one for ordinary compositions, one per layer of loss sizes for heavy tails.

With B_k the part of the composition in which no single loss exceeds level k,

    everything = B_1 + (B_2 - B_1) + (B_3 - B_2) + ...

and each bracket is a positive measure whose transform falls quickly, since it has a loss of at least the lower level.
So rare large jumps, few steps and single steps are integrated as easily as a million small steps. The first part is
dropped where Chernoff's bound shows that many small losses cannot reach epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import ndtr

from hush.accounting.exact.contour import Line, Sum, likely_height, line_of, log_chernoff
from hush.accounting.exact.nodes import EDGE_DISTANCE, Nodes, TooManyNodes
from hush.accounting.exact.phases import Direction, Floats, Phases
from hush.accounting.exact.transforms import Cut, Jumps, Whole

_DIGITS = 19.0  # aliases and tails are kept below e^-19 of delta on an ordinary line
_NODE_DIGITS = 23.0  # and the quadrature of its transform below e^-23
_LAYER_DIGITS = 15.0
_SPAN = np.exp(np.linspace(-6.8, 1.4, 28))  # orders looked at, over the typical one
FLOOR = 0.75  # what is dropped near epsilon is negligible down to this share of it
_FORTY = np.linspace(0.0, 1.0, 40)
_MOST_NODES = 20_000  # of one layer, for each phase
_TYPICAL_SWELL = 3.0  # log of Chernoff's bound over delta
_RATIO = 7.0  # between the levels of two layers


class Ordinary:
    """The whole composition on one line."""

    def __init__(self, phases: Phases, direction: Direction, log_delta: float) -> None:
        self.phases, self.direction, self.log_delta = phases, direction, log_delta
        self.found: Line | None = None  # the last line on which an answer was looked for
        self.found_at = math.nan  # and the answer
        self.part = Whole(Nodes(phases, direction, log_delta, digits=_NODE_DIGITS))
        self.orders = _typical_order(phases, direction, log_delta) * _SPAN
        for _ in range(4):
            self.constants = log_chernoff(self.orders, self.part.log_moments(self.orders))
            if np.isfinite(self.constants[len(_SPAN) // 2]):
                break
            self.orders = self.orders * 1e-3

    def served(self, epsilon: float) -> bool:
        """Whether the line found had about this answer."""
        return abs(epsilon - self.found_at) <= 0.05 * epsilon

    def chernoff_epsilon(self) -> float:
        """About the Rényi bound on epsilon at delta; a first guess."""
        return float(((self.constants - self.log_delta) / self.orders).min())

    def saddle_epsilon(self) -> tuple[float, float]:
        """About epsilon at delta if Chernoff's bound is a few times too large, and the log moment at its order."""
        values = (self.constants - self.log_delta - _TYPICAL_SWELL) / self.orders
        best = int(np.argmin(values))
        order = float(self.orders[best])
        return float(values[best]), float(self.constants[best]) - _log_kernel(order)

    def swell(self, epsilon: float) -> float:
        """About how far the integrand exceeds delta on the real axis, where epsilon is the answer."""
        return self.chernoff_log_delta(epsilon) - self.log_delta

    def saddle(self, epsilon: float) -> float:
        """About the order at which Chernoff's bound is best."""
        return float(self.orders[np.argmin(self.constants - self.orders * epsilon)])

    def saddle_log_moment(self, epsilon: float) -> float:
        """The log moment at that order."""
        best = int(np.argmin(self.constants - self.orders * epsilon))
        return float(self.constants[best]) - _log_kernel(float(self.orders[best]))

    def chernoff_log_delta(self, epsilon: float) -> float:
        """About the Rényi bound on log delta at epsilon; a first guess."""
        return min(float((self.constants - self.orders * epsilon).min()), 0.0)

    def line(self, epsilon: float, most_work: float, digits: float = _DIGITS) -> Line | None:
        """The line for an answer near epsilon, as good as these nodes allow."""
        return line_of(self.part, self.orders, self.constants, epsilon, digits=digits, most_work=most_work)

    def sharpened(self, line: Line, epsilon: float, most_work: float) -> Line:
        """The line itself, or one on finer nodes where the loss turns too fast for these."""
        return _sharpened(line, self.orders, self.constants, epsilon, _DIGITS, most_work)


def _log_kernel(order: float) -> float:
    """What Chernoff's constant has beside the moment."""
    return order * math.log(order) - (order + 1) * math.log1p(order)


def _sharpened(line: Line, orders: Floats, constants: Floats, epsilon: float, digits: float, most_work: float) -> Line:
    part = line.part
    assert isinstance(part, Whole)
    nodes, cut = part.nodes, part.cut
    if line.blur(epsilon) <= 5e-8 * math.exp(nodes.log_delta):
        return line
    fastest = max(float(line.z[-1].imag), 0.0 if cut is None else 10 / cut.softness)
    highest = math.inf if cut is None else cut.level + EDGE_DISTANCE * cut.softness
    if fastest <= nodes.fastest:  # these are such nodes already
        return line
    most_work *= max(1.0, len(nodes.times) / 8)  # many phases are many products, but each is small
    if not nodes.stretched_count(fastest, highest, -60 / part.order) * len(line.z) < most_work:
        return line
    finer = _finer(nodes, fastest, highest, -60 / part.order, nodes.digits, has_cut=cut is not None)
    if finer is None:
        return line
    sharper = Whole(finer, cut)
    if cut is not None:  # the coarse nodes' moments may miss the cut
        constants = log_chernoff(orders, sharper.log_moments(orders))
    found = line_of(sharper, orders, constants, epsilon, digits=digits, most_work=most_work)
    return line if found is None else found


def _finer(
    nodes: Nodes, fastest: float, highest: float, lowest: float, digits: float, *, has_cut: bool
) -> Nodes | None:
    """Nodes for the same phases that follow the loss at that height; None where they are too many."""
    try:
        return Nodes(
            nodes.phases,
            nodes.direction,
            nodes.log_delta,
            digits=digits,
            fastest=fastest,
            highest=highest,
            lowest=lowest,
            has_cut=has_cut,
        )
    except TooManyNodes:
        return None


def _typical_order(phases: Phases, direction: Direction, log_delta: float) -> float:
    apart, variance = (2.0 if direction == "replace" else 1.0), 0.0
    for prob, shift, times in phases.rows:
        square = (apart * shift) ** 2
        # Small steps: q^2 (e^{m^2} - 1); large ones: the loss is about m u where the example was sampled.
        small = (apart * prob) ** 2 * math.expm1(min(shift * shift, 60.0))
        variance += times * min(small, prob * square * (1 + square / 4))
    variance += phases.gaussian + sum(count * min(loss.largest, 1.0) ** 2 for loss, count in phases.bounded)
    return math.sqrt(-2 * log_delta / max(variance, 1e-290))


def layered(phases: Phases, direction: Direction, log_delta: float, epsilon: float, most_work: float) -> Sum | None:
    """The composition cut into layers, for an answer near epsilon; None where it would be too much work."""
    # A cut must leave nothing below zero loss: its softness is the level over this many standard deviations.
    sharpness = math.sqrt(2 * (_LAYER_DIGITS + 4 - log_delta + math.log(phases.steps)))
    plain = Nodes(phases, direction, log_delta, digits=_LAYER_DIGITS)
    try:
        return _layered(plain, sharpness, epsilon, most_work)
    except TooManyNodes:
        return None


def _layered(plain: Nodes, sharpness: float, epsilon: float, most_work: float) -> Sum | None:
    shallow = _negligible_level(plain, sharpness, epsilon, range(1, 6))
    if shallow is not None:
        return _stack(plain, sharpness, *shallow, epsilon, most_work)
    found = _stack(plain, sharpness, epsilon / 4, 0.0, epsilon, most_work)
    if found is not None:
        return found
    deep = _negligible_level(plain, sharpness, epsilon, range(6, 14))
    return None if deep is None else _stack(plain, sharpness, *deep, epsilon, most_work)


def _stack(
    plain: Nodes, sharpness: float, level: float, neglected: float, epsilon: float, most_work: float
) -> Sum | None:
    """The lines of all layers from this level up, and of what is below it unless that is neglected."""
    lines, extra = [], plain.far_mass + neglected + 2 * plain.phases.steps * float(ndtr(-sharpness))
    top, above = _top(plain, sharpness, level)
    extra += above
    for part in _parts(plain, sharpness, level, top, bottom=not neglected):
        reach = epsilon if isinstance(part, Whole) else max(epsilon, part.lower.level)
        lowest, highest = math.log(0.05 / reach), math.log(600 / epsilon)
        orders = np.exp(lowest + (highest - lowest) * _FORTY)
        constants = log_chernoff(orders, part.log_moments(orders))
        bound = float((constants - orders * FLOOR * epsilon).min())
        if isinstance(part, Jumps) and bound < plain.log_delta - _LAYER_DIGITS:
            extra += math.exp(bound)
            continue
        if isinstance(part, Whole):
            part, constants = _resolved(part, orders, constants, epsilon)
        line = line_of(part, orders, constants, epsilon, digits=_LAYER_DIGITS, most_work=most_work)
        if line is None:
            return None
        if isinstance(part, Whole):
            line = _sharpened(line, orders, constants, epsilon, _LAYER_DIGITS, most_work)
        lines.append(line)
    return Sum(lines, extra)


def _top(plain: Nodes, sharpness: float, level: float) -> tuple[float, float]:
    """The lowest level above which all losses together are negligible, and a bound on what they add to delta."""
    highest = max(float(plain.loss.max()), level)  # the losses of rare samples may underflow to 0
    levels = level * _RATIO ** np.arange(1, max(math.ceil(math.log(highest / level, _RATIO)), 1) + 1)
    # A loss in (x_j, x_{j+1}] passes the soft cut with the weight at x_{j+1} at most; x in units of the level.
    places = np.linspace(0.0, 1.5, 241)
    weight = np.append(ndtr((places[1:] - 1) * sharpness), 1.0)
    for cut in levels:
        masses = np.exp(plain.log_mass_above(cut * places))
        bound = float(masses[0] * weight[0] + masses[1:] @ np.diff(weight)) + float(plain.times.sum()) * float(
            ndtr(-sharpness)
        )
        if bound < math.exp(plain.log_delta - _LAYER_DIGITS):
            return float(cut), bound
    return math.inf, 0.0


def _resolved(part: Whole, orders: Floats, constants: Floats, epsilon: float) -> tuple[Whole, Floats]:
    """The part below a cut on nodes that resolve it, for the height that its line will likely have; or as it is."""
    nodes, cut = part.nodes, part.cut
    assert cut is not None
    likely = likely_height(part, orders, constants, epsilon, _LAYER_DIGITS)
    if likely is None:
        return part, constants
    fastest, highest = max(1.3 * likely, 10 / cut.softness), cut.level + EDGE_DISTANCE * cut.softness
    if not nodes.stretched_count(fastest, highest, -60 / part.order) < _MOST_NODES * len(nodes.times):
        return part, constants
    finer = _finer(nodes, fastest, highest, -60 / part.order, _LAYER_DIGITS, has_cut=True)
    if finer is None:
        return part, constants
    sharper = Whole(finer, cut)
    return sharper, log_chernoff(orders, sharper.log_moments(orders))


def _parts(plain: Nodes, sharpness: float, level: float, top: float, *, bottom: bool) -> Iterator[Whole | Jumps]:
    """The part below the first level where it counts, then layer upon layer up to the top."""
    if bottom:
        yield Whole(plain, Cut(level, level / sharpness))
    highest = float(plain.loss.max())
    while level < min(top, highest) * (1 - 1e-9):
        upper = Cut(_RATIO * level, _RATIO * level / sharpness) if _RATIO * level < highest else None
        lower = Cut(level, level / sharpness)
        yield Jumps(_resolving(plain, lower, upper), lower, upper)
        level *= _RATIO


def _negligible_level(nodes: Nodes, sharpness: float, epsilon: float, depths: range) -> tuple[float, float] | None:
    """The highest of these levels below which all losses together are negligible at epsilon, and the bound on them."""
    grid = np.exp(np.linspace(-1.0, 7.0, 24))
    for depth in depths:
        cut = Cut(epsilon * 0.6**depth, epsilon * 0.6**depth / sharpness)
        orders = grid / (2 * cut.level)
        moments = Whole(nodes, cut).log_moments(orders)
        likely = float((log_chernoff(orders, moments) - orders * FLOOR * epsilon).min())
        if likely < nodes.log_delta - _LAYER_DIGITS:
            bound = _bound_below(nodes, cut, orders, epsilon)
            if bound < nodes.log_delta - _LAYER_DIGITS + 1:
                return cut.level, math.exp(max(bound, -700.0))
    return None


def _bound_below(plain: Nodes, cut: Cut, orders: Floats, epsilon: float) -> float:
    """log of Chernoff's bound for all losses below the cut, on nodes that resolve it."""
    nodes = _resolving(plain, cut, cut)
    moments = Whole(nodes, cut).log_moments(orders) + 2 * nodes.cropped_at(orders)
    return float((log_chernoff(orders, moments) - orders * FLOOR * epsilon).min())


def _resolving(plain: Nodes, lower: Cut, upper: Cut | None) -> Nodes:
    """Nodes for the same phases on which both cuts are smooth."""
    fastest = 1.05 * math.sqrt(2 * _LAYER_DIGITS) / lower.softness
    highest = math.inf if upper is None else upper.level + EDGE_DISTANCE * upper.softness
    if not plain.stretched_count(fastest, highest, -30 * lower.level) < _MOST_NODES * len(plain.times):
        raise TooManyNodes
    return Nodes(
        plain.phases,
        plain.direction,
        plain.log_delta,
        digits=_LAYER_DIGITS,
        fastest=fastest,
        highest=highest,
        lowest=-30 * lower.level,
        has_cut=True,
    )
