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

from hush.accounting.exact.contour import Line, Sum, line_of, log_chernoff
from hush.accounting.exact.nodes import Nodes
from hush.accounting.exact.phases import Direction, Floats, Phases
from hush.accounting.exact.transforms import Cut, Jumps, Whole

DIGITS = 27.0  # errors are kept below e^-27 of delta on an ordinary line
_LAYER_DIGITS = 23.0
_SPAN = np.exp(np.linspace(-7.0, 1.4, 34))  # orders looked at, over the typical one
_RATIO = 3.0  # between the levels of two layers


class Ordinary:
    """The whole composition on one line."""

    def __init__(self, phases: Phases, direction: Direction, log_delta: float) -> None:
        self.phases, self.direction, self.log_delta = phases, direction, log_delta
        self.part = Whole(Nodes(phases, direction, log_delta, digits=DIGITS))
        self.orders = _typical_order(phases, direction, log_delta) * _SPAN
        self.constants = log_chernoff(self.orders, self.part.log_moments(self.orders))

    def chernoff_epsilon(self) -> float:
        """About the Rényi bound on epsilon at delta; a first guess."""
        return float(((self.constants - self.log_delta) / self.orders).min())

    def chernoff_log_delta(self, epsilon: float) -> float:
        """About the Rényi bound on log delta at epsilon; a first guess."""
        return min(float((self.constants - self.orders * epsilon).min()), 0.0)

    def line(self, epsilon: float, most_work: float) -> Line | None:
        """The line for an answer near epsilon, with finer nodes where the loss turns too fast for these."""
        line = line_of(self.part, self.orders, epsilon, self.log_delta, digits=DIGITS, most_work=most_work)
        if line is None or line.blur(epsilon) <= 1e-10 * math.exp(self.log_delta):
            return line
        finer = Whole(self._finer(float(line.z[-1].imag), float(line.z[0].real)))
        found = line_of(finer, self.orders, epsilon, self.log_delta, digits=DIGITS, most_work=most_work)
        return line if found is None else found

    def _finer(self, fastest: float, order: float) -> Nodes:
        # Adding: losses below -60/order weigh less than e^-60 on the line.
        highest = 60 / order if self.direction == "add" else math.inf
        return Nodes(
            self.phases, self.direction, self.log_delta, digits=DIGITS, fastest=fastest, highest=highest
        )


def _typical_order(phases: Phases, direction: Direction, log_delta: float) -> float:
    factor = 4 if direction == "replace" else 1
    variance = factor * float(phases.times @ (phases.sampling_prob**2 * np.expm1(np.minimum(phases.shift**2, 60.0))))
    variance += phases.gaussian + sum(count * min(loss.largest, 1.0) ** 2 for loss, count in phases.bounded)
    return math.sqrt(-2 * log_delta / variance)


def layered(phases: Phases, direction: Direction, log_delta: float, epsilon: float, most_work: float) -> Sum | None:
    """The composition cut into layers, for an answer near epsilon; None where it would be too much work."""
    # A cut must leave nothing below zero loss: its softness is the level over this many standard deviations.
    sharpness = math.sqrt(2 * (_LAYER_DIGITS + 4 - log_delta + math.log(phases.steps)))
    plain = Nodes(phases, direction, log_delta, digits=_LAYER_DIGITS)
    orders = np.exp(np.linspace(-3.0, 6.5, 48)) / epsilon
    level, neglected = _first_level(plain, sharpness, log_delta, epsilon)
    lines, extra = [], plain.far_mass + neglected + 2 * phases.steps * float(ndtr(-sharpness))
    for part in _parts(plain, sharpness, level, bottom=not neglected):
        bound = float(_finite(log_chernoff(orders, part.log_moments(orders)) - orders * epsilon).min())
        if bound < log_delta - _LAYER_DIGITS:
            extra += math.exp(bound)
            continue
        line = line_of(part, orders, epsilon, log_delta, digits=_LAYER_DIGITS, most_work=most_work)
        if line is None:
            return None
        lines.append(line)
    return Sum(lines, extra)


def _parts(plain: Nodes, sharpness: float, level: float, *, bottom: bool) -> Iterator[Whole | Jumps]:
    """The part below the first level where it counts, then layer upon layer up to the largest loss."""
    if bottom:
        yield Whole(plain, Cut(level, level / sharpness))
    top = float(plain.loss.max())
    while level < top:
        upper = Cut(_RATIO * level, _RATIO * level / sharpness) if _RATIO * level < top else None
        yield _jumps(plain.phases, plain.direction, plain.log_delta, Cut(level, level / sharpness), upper)
        level *= _RATIO


def _jumps(phases: Phases, direction: Direction, log_delta: float, lower: Cut, upper: Cut | None) -> Jumps:
    fastest = 1.05 * math.sqrt(2 * _LAYER_DIGITS) / lower.softness
    highest = math.inf if upper is None else upper.level + 10 * upper.softness
    nodes = Nodes(phases, direction, log_delta, digits=_LAYER_DIGITS, fastest=fastest, highest=highest)
    return Jumps(nodes, lower, upper)


def _first_level(nodes: Nodes, sharpness: float, log_delta: float, epsilon: float) -> tuple[float, float]:
    """The highest level below which all losses together are negligible at epsilon, and the bound that shows it.

    Where there is none, a level at which the part below has an ordinary line of its own, and 0.
    """
    grid = np.exp(np.linspace(-1.0, 7.0, 40))
    level = epsilon
    for _ in range(5):
        level *= 0.6
        orders = grid / (2 * level)
        moments = Whole(nodes, Cut(level, level / sharpness)).log_moments(orders)
        bound = float(_finite(log_chernoff(orders, moments) - orders * epsilon).min())
        if bound < log_delta - _LAYER_DIGITS:
            return level, math.exp(max(bound, -700.0))
    return epsilon / 4, 0.0


def _finite(values: Floats) -> Floats:
    return values[np.isfinite(values)]
