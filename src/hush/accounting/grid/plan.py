"""Where to look and how finely: tilt, window and spacing for one composition. Nothing here affects correctness.

A coarse grid per release gives the composition's log moments K(c). The bound delta <= e^(K(c) - c epsilon) c^c /
(1+c)^(1+c) ([canonne20] Prop. 12, c = order - 1) is smallest near the saddle point, which is the tilt; Chernoff's
inequality gives the window; atoms decide which spacings are good.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy

from hush.accounting.grid import rounding
from hush.accounting.grid.curves import Array, Atoms, Curve
from hush.accounting.grid.directions import Direction
from hush.accounting.grid.sampled import Add, Mirrored, Remove

COARSE_CELLS = 400
OUTSIDE = math.log(1e-14)  # tilted mass that may fall outside the window
STEPS = numpy.array([0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.5, 7.0, 9.0, 12.0, 16.0, 24.0])
MOST_EXCESS = 10.0  # of the logarithm of the bound at another tilt; rounding errors grow by as much
WIDEST_SPACING = 300.0  # e^300 is a number
MOST_CELLS = 2**18


@dataclass(frozen=True)
class Coarse:
    """Losses and log masses of each release, on its own coarse grid, with the counts."""

    losses: tuple[Array, ...]
    log_masses: tuple[Array, ...]
    counts: tuple[int, ...]

    def log_moment(self, tilt: Array) -> Array:
        """K at several tilts."""
        total = numpy.zeros_like(tilt)
        for loss, log_mass, count in zip(self.losses, self.log_masses, self.counts, strict=True):
            exponent = tilt[:, None] * loss + log_mass
            peak = exponent.max(axis=1)
            total += count * (peak + numpy.log(numpy.exp(exponent - peak[:, None]).sum(axis=1)))
        return total

    def deviation(self, tilt: float) -> float:
        """Standard deviation of the tilted composition."""
        variance = 0.0
        for loss, log_mass, count in zip(self.losses, self.log_masses, self.counts, strict=True):
            exponent = tilt * loss + log_mass
            weight = numpy.exp(exponent - exponent.max())
            weight /= weight.sum()
            variance += count * float(weight @ numpy.square(loss - weight @ loss))
        return math.sqrt(variance)

    @property
    def farthest(self) -> float:
        """The distance of the mean loss from 0."""
        pairs = zip(self.losses, self.log_masses, self.counts, strict=True)
        return abs(math.fsum(count * float(numpy.exp(log_mass) @ loss) for loss, log_mass, count in pairs))

    @property
    def widest(self) -> float:
        """The largest range of one release's losses."""
        return max(float(loss.max() - loss.min()) for loss in self.losses)

    @property
    def narrowest(self) -> float:
        """The smallest range of one release's losses."""
        return min(float(loss.max() - loss.min()) for loss in self.losses)


@dataclass(frozen=True)
class Plan:
    """A tilt, the losses between `low` and `high`, and how far the tilt moves in Chernoff's inequality."""

    tilt: float
    low: float
    high: float
    step_up: float
    step_down: float
    log_delta: float


def coarse(direction: Direction, log_delta: float) -> Coarse:
    """Coarse masses of every release of the composition, finest near both ends and around atoms."""
    losses, log_masses, counts = [], [], []
    for curve, count in direction:
        where = rounding.span(curve, log_delta)
        width = max(where.top - where.bottom, 1e-9 * abs(where.top), 1e-12)
        ends = numpy.geomspace(1e-6, 0.5, COARSE_CELLS // 4) * width
        around = numpy.array([atom + sign * 1e-9 * width for atom in curve.atoms for sign in (-1, 1)])
        edges = numpy.concatenate([where.bottom + ends, where.top - ends, around, [where.bottom, where.top]])
        edges = numpy.unique(numpy.append(edges, numpy.linspace(where.bottom, where.top, COARSE_CELLS // 2)))
        above = curve.finite(edges) + curve.slope(edges)
        mass = numpy.concatenate([[1 - curve.infinite_mass - above[0]], above[:-1] - above[1:], above[-1:]])
        middle = numpy.concatenate([edges[:1], (edges[:-1] + edges[1:]) / 2, edges[-1:]])
        kept = mass > 0
        losses.append(middle[kept])
        log_masses.append(numpy.log(mass[kept]))
        counts.append(count)
    return Coarse(tuple(losses), tuple(log_masses), tuple(counts))


def for_delta(grid: Coarse, log_delta: float) -> tuple[float, float]:
    """The tilt for a question at this delta, and a first epsilon."""

    def epsilons(tilt: Array) -> Array:
        return (grid.log_moment(tilt) + _log_weight(tilt) - log_delta) / tilt

    tilt, value = _smallest(grid, epsilons)
    return (tilt, value) if value > 0 else (for_epsilon(grid, 0.0)[0], 0.0)


def for_epsilon(grid: Coarse, epsilon: float) -> tuple[float, float]:
    """The tilt for a question at this epsilon, and a first log delta."""

    def log_deltas(tilt: Array) -> Array:
        return grid.log_moment(tilt) + _log_weight(tilt) - tilt * epsilon

    return _smallest(grid, log_deltas)


def _log_weight(tilt: Array) -> Array:
    return tilt * numpy.log(tilt) - (1 + tilt) * numpy.log1p(tilt)


def _smallest(grid: Coarse, function: Callable[[Array], Array]) -> tuple[float, float]:
    deviation = max(grid.deviation(0.0), 1e-12)
    lowest = 0.02 / (deviation + grid.farthest)
    tilts = numpy.geomspace(lowest, max(80 / deviation, 60 / max(grid.narrowest, 1e-9)), 64)
    for _ in range(2):
        values = function(tilts)
        best = int(numpy.argmin(values))
        result = float(tilts[best]), float(values[best])
        tilts = numpy.linspace(tilts[max(best - 1, 0)], tilts[min(best + 1, len(tilts) - 1)], 16)
    return result


def window(grid: Coarse, tilt: float, epsilon: float, log_delta: float) -> Plan:
    """The tilt, of some up to the best, that needs the fewest losses; heavy tails want less than the best."""
    plans = [_window(grid, tilt * share, epsilon, log_delta) for share in (1.0, 0.7, 0.5, 0.35, 0.2)]
    tilts = numpy.array([plan.tilt for plan in plans])
    worth = grid.log_moment(tilts) + _log_weight(tilts) - tilts * epsilon
    good = [plan for plan, value in zip(plans, worth, strict=True) if value <= worth[0] + MOST_EXCESS]
    return min(good, key=lambda plan: (plan.high - plan.low) * (1 + 0.1 * (plan.tilt < tilt)))


def _window(grid: Coarse, tilt: float, epsilon: float, log_delta: float) -> Plan:
    # In units of the whole sum's spread, and of one release's largest jump.
    steps = numpy.concatenate([STEPS / max(grid.deviation(tilt), 1e-9), STEPS / max(grid.widest, 1e-9)])
    here = grid.log_moment(numpy.array([tilt]))
    ups = (grid.log_moment(tilt + steps) - here - OUTSIDE) / steps
    downs = (OUTSIDE - grid.log_moment(tilt - steps) + here) / steps
    top = math.fsum(count * float(loss.max()) for loss, count in zip(grid.losses, grid.counts, strict=True))
    bottom = math.fsum(count * float(loss.min()) for loss, count in zip(grid.losses, grid.counts, strict=True))
    spread = 0.05 * abs(float(ups.min()) - float(downs.max()))
    high = min(max(float(ups.min()), epsilon + spread), top)
    low = min(max(min(float(downs.max()), epsilon - spread), bottom), epsilon)
    up, down = int(numpy.argmin(ups)), int(numpy.argmax(downs))
    return Plan(tilt, low, high, float(steps[up]), float(steps[down]), log_delta)


def spacing(direction: Direction, plan: Plan, size: int) -> tuple[float, bool]:
    """A spacing that fits the window into `size` points, with atoms on the grid; and whether it is exact as it is."""
    width = max(plan.high - plan.low, 1e-6 * max(abs(plan.high), abs(plan.low)), 1e-12)
    coarsest = min(width / (size - 4), WIDEST_SPACING)
    distances = sorted({_top_atom(curve) - atom for curve, _ in direction for atom in curve.atoms} - {0.0})
    if distances and all(_is_discrete(curve) for curve, _ in direction):
        exact = _common_measure(numpy.array(distances))
        if exact >= coarsest:
            return exact / math.ceil(exact / WIDEST_SPACING), True
    long = numpy.array([distance for distance in distances if distance >= coarsest])
    if not long.size:
        return coarsest, False
    fewest = math.ceil(long[-1] / coarsest)
    counts = numpy.arange(fewest, fewest + min(max(8, fewest // 4), 4096))
    best = int(numpy.argmin(_misfit(long, long[-1] / counts).max(axis=1)))
    return float(long[-1] / counts[best]), False


def _top_atom(curve: Curve) -> float:
    return curve.top if math.isfinite(curve.top) else max(curve.atoms, default=0.0)


def _misfit(distances: Array, spacings: Array) -> Array:
    ratio = distances[None, :] / spacings[:, None]
    return numpy.abs(ratio - numpy.round(ratio))


def _common_measure(distances: Array) -> float:
    spacings = distances[0] / numpy.arange(1, 513)
    fits = numpy.flatnonzero(_misfit(distances, spacings).max(axis=1) < 1e-10)
    return float(spacings[fits[0]]) if fits.size else 0.0


def _is_discrete(curve: Curve) -> bool:
    if isinstance(curve, Remove | Add):
        return _is_discrete(curve.base)
    return _is_discrete(curve.half) if isinstance(curve, Mirrored) else isinstance(curve, Atoms)
