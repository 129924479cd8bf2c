"""The exact privacy curve of composed randomized responses, which is the optimal composition theorem.

Randomized response with two answers dominates every (epsilon, 0)-DP mechanism, so its composition gives the best
statement that epsilons alone allow [Kairouz, Oh, Viswanath 2015, Thm. 3.3; Murtagh, Vadhan 2016 for unequal ones].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy

from hush.accounting.loss_moments import Array

LARGEST_SUPPORT = 200_000
_ROUNDING = 1e-10  # relative, on delta; tested against 50-digit sums
_ROUNDING_PER_DEVIATION = 1e-14  # the same, for each unit of sqrt(sum of count epsilon^2): exponents of that size round
_UNITS = 1e-15  # relative rounding of a product or a sum of two
_LARGEST_UNCENTRED = 1e4  # losses up to which exponents keep 12 digits
_BLOCK = 512
_BINS = 20_000  # of a grid for more lies than the largest support; moves epsilon by a relative 1e-5 or less, measured
_FINE_EPSILON, _FINE_GAP = 2e-3, 0.5  # per step and per bin, up to which four nodes per bin resolve the split


@dataclass(frozen=True)
class ResponseCurve:
    """The privacy curve of composed randomized responses, as sums of positive terms only.

    Losses fall and are counted from `centre`. `log_delta` is the logarithm of delta at each loss. Just below a loss
    delta falls in epsilon at the rate e^log_slope, which is e^loss Q(all losses down to it).
    """

    losses: Array
    log_delta: Array
    log_slope: Array
    centre: float
    rounding: float  # of the logarithm of delta

    def delta(self, epsilon: float) -> float:
        """The smallest delta at this epsilon, rounded up: P(S) - e^epsilon Q(S) over S = {loss > epsilon}."""
        place = epsilon - self.centre - _UNITS * abs(self.centre)
        last = int(numpy.searchsorted(-self.losses, -place)) - 1
        if last < 0:
            return 0.0
        further = -math.exp(float(self.log_slope[last])) * math.expm1(place - float(self.losses[last]))
        return min(1.0, (math.exp(float(self.log_delta[last])) + further) * _exp(self.rounding) + 1e-300)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon (0 or above) at this delta, rounded up."""
        target = delta * math.exp(-self.rounding) - 1e-300
        if target <= 0:
            return self._rounded_up(float(self.losses[0]))
        if self.delta(0.0) <= delta:
            return 0.0
        # Between two losses delta is a line in e^epsilon, so the crossing is found exactly once its interval is known.
        last = max(int(numpy.searchsorted(self.log_delta, math.log(target), side="right")) - 1, 0)
        missing = max(target - math.exp(float(self.log_delta[last])), 0.0) * math.exp(-float(self.log_slope[last]))
        place = float(self.losses[last]) + (math.log1p(-missing) if missing < 1 else -math.inf)
        return min(self._rounded_up(place, 1e-14), self._rounded_up(float(self.losses[0])))

    def _rounded_up(self, place: float, error: float = 0.0) -> float:
        """Return the epsilon at a place, 0 or above; sums from a centre that is not 0 have been rounded."""
        if self.centre:
            place += self.centre + 2 * _UNITS * abs(self.centre)
        return max(0.0, place * (1 + error) + (1e-16 if error else 0.0))


def _exp(exponent: float) -> float:
    return math.exp(min(exponent, 700.0))


def response_curve(epsilons: Array, counts: list[int]) -> tuple[ResponseCurve, bool]:
    """The curve for `counts[i]` mechanisms of `epsilons[i]` each, and whether epsilons had to be rounded up.

    With several different epsilons the support is a product; where it would pass `LARGEST_SUPPORT` points, the
    closest pair of epsilons is merged at the larger of the two until it fits. That is an upper bound. So is the grid
    of losses that stands for one epsilon with more losses than that, however many steps there are.
    """
    groups = _merge_equal(zip(map(float, epsilons), counts, strict=True))
    rounded = False
    while math.prod(_size(*group) for group in groups) > LARGEST_SUPPORT and len(groups) > 1:
        groups, rounded = _merge_closest(groups), True
    losses, log_mass, centre = numpy.zeros(1), numpy.zeros(1), 0.0
    for epsilon, count in groups:
        more, mass, middle = _binomial(epsilon, count)
        losses, centre = numpy.add.outer(losses, more).ravel(), centre + middle
        log_mass = numpy.add.outer(log_mass, mass).ravel()
    order = numpy.argsort(-losses, kind="stable")
    losses, log_mass = losses[order], log_mass[order]
    deviation = math.sqrt(math.fsum(count * epsilon * epsilon for epsilon, count in groups))
    log_slope = numpy.logaddexp.accumulate(log_mass - losses) + losses
    with numpy.errstate(divide="ignore"):  # equal losses: delta does not move between them
        rises = numpy.log(-numpy.expm1(numpy.diff(losses))) + log_slope[:-1]
    log_delta = numpy.logaddexp.accumulate(numpy.append(-numpy.inf, rises))
    rounding = _ROUNDING + _ROUNDING_PER_DEVIATION * deviation
    return ResponseCurve(losses, log_delta, log_slope, centre, rounding), rounded


def _merge_equal(pairs: zip[tuple[float, int]]) -> list[tuple[float, int]]:
    merged: dict[float, int] = {}
    for epsilon, count in pairs:
        if epsilon > 0 and count > 0:
            merged[epsilon] = merged.get(epsilon, 0) + count
    return sorted(merged.items())


def _merge_closest(groups: list[tuple[float, int]]) -> list[tuple[float, int]]:
    costs = [(upper - lower) * count for (lower, count), (upper, _) in pairwise(groups)]
    place = costs.index(min(costs))
    joint = (groups[place + 1][0], groups[place][1] + groups[place + 1][1])
    return [*groups[:place], joint, *groups[place + 2 :]]


def _window(epsilon: float, count: int) -> tuple[int, int]:
    """Return the first and last number of lies to keep: all, or so many around the mean that the rest is below e^-800.

    Hoeffding [1963, Thm. 1] asks for 20 sqrt(count) on either side, Bernstein's inequality, which is narrower where
    lies are rare, for 40 sqrt(mean) + 1100. The mean is counted from count / 2 in whole numbers, because its rounding
    error as a float would exceed its standard deviation from 1e32 steps on.
    """
    middle = int(count * math.tanh(epsilon / 2) / 2)
    mean = count * math.exp(-_log_odds(epsilon))
    centre = count // 2 - middle if epsilon < 1 else int(mean)
    half = math.ceil(min(20 * math.sqrt(count), 40 * math.sqrt(mean) + 1100)) + 1
    return max(0, centre - half), min(count, centre + half)


def _log_odds(epsilon: float) -> float:
    """Return -log of the chance of a lie, 1 / (1 + e^epsilon)."""
    return epsilon + math.log1p(math.exp(-epsilon))


def _size(epsilon: float, count: int) -> int:
    """Return the number of points that `_binomial` gives."""
    first, last = _window(epsilon, count)
    points = last - first + 1
    return points if points <= LARGEST_SUPPORT else _BINS + 1


def _binomial(epsilon: float, count: int) -> tuple[Array, Array, float]:
    """Return losses less a centre, log-masses under P, and the centre, of `count` responses.

    P lies with chance 1/(1 + e^epsilon). Masses come from the ratios of neighbours, summed from the mode and
    normalised, which keeps ten digits where log-gamma differences would not.
    """
    first, last = _window(epsilon, count)
    if last - first + 1 > LARGEST_SUPPORT:
        return _binned_binomial(epsilon, count, first, last)
    offsets = numpy.arange(last - first + 1, dtype=float)
    lies, truths_more = first + offsets, float(count - 2 * first) - 2 * offsets
    log_mass = _from_mode(numpy.log((lies[:-1] + truths_more[:-1]) / lies[1:]) - epsilon)
    log_mass -= math.log(float(numpy.sum(numpy.exp(log_mass))))
    centre = _centre(epsilon, count, first, last)
    return (truths_more - centre) * epsilon, log_mass, centre * epsilon


def _centre(epsilon: float, count: int, first: int, last: int) -> int:
    """Return the number of true answers less lies to count losses from.

    It is 0 unless the losses are so large that their differences would lose digits.
    """
    return 0 if count * epsilon < _LARGEST_UNCENTRED else count - 2 * ((first + last) // 2)


def _from_mode(steps: Array) -> Array:
    """Return the running sum of the steps, less its largest value; it rises and then falls."""
    mode = int(numpy.searchsorted(-steps, 0.0))
    before, after = -_running_sum(steps[:mode][::-1])[::-1], _running_sum(steps[mode:])
    return numpy.concatenate([before, [0.0], after])


def _running_sum(values: Array) -> Array:
    """Return the cumulated sums, block by block.

    One long sum rounds at every step to the digits of its value, and the errors of steps that are nearly equal add up
    to 1e-8; blocks leave 1e-11.
    """
    padded = numpy.zeros(-(-len(values) // _BLOCK) * _BLOCK)
    padded[: len(values)] = values
    inside = numpy.cumsum(padded.reshape(-1, _BLOCK), axis=1)
    before = numpy.cumsum(inside[:, -1]) - inside[:, -1]
    return numpy.asarray((inside + before[:, None]).ravel()[: len(values)])


def _binned_binomial(epsilon: float, count: int, first: int, last: int) -> tuple[Array, Array, float]:
    """Return losses less a centre, log-masses and the centre of a pair on a grid that dominates `count` responses.

    Every loss between two points of the grid is split between them so that its mass under P and under Q stays the
    same. The privacy curve as a function of e^epsilon is then replaced by its chords, which lie above it
    [Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, Sec. 4, "connect the dots"]. Where lies are too coarse for
    that, all of it goes to the larger loss.
    """
    nodes, weights = _legendre()
    width = -(-(last - first + 1) // _BINS)  # lies per bin
    # Places count from first - 1/2, so that the lies of one bin lie evenly inside it.
    edges = float(width) * numpy.arange(_BINS + 1)
    density = _smoothed_masses(epsilon, count, first, (edges[:-1, None] + width * nodes).ravel())
    log_ratio, slope, mass = (values.reshape(_BINS, -1) for values in density)
    mass = mass * weights
    gap = 2 * width * epsilon  # between two losses of the grid
    if epsilon <= _FINE_EPSILON and gap <= _FINE_GAP:
        share = numpy.expm1((nodes - 1) * gap) / math.expm1(-gap)  # of the larger loss
        change = 2 * epsilon * numpy.exp((nodes - 1) * gap) / math.expm1(-gap)  # its derivative by the place
        bend = 2 * epsilon * change
    else:
        share, change, bend = numpy.ones_like(nodes), numpy.zeros_like(nodes), numpy.zeros_like(nodes)
    # Midpoint rule: a sum over whole numbers is the integral of f - f''/24, here of f = mass * share and of f = mass.
    correction = mass * (1 - (slope + log_ratio**2) / 24)
    upper = correction * share - mass * (2 * log_ratio * change + bend) / 24
    points = numpy.zeros(_BINS + 1)
    points[:-1] += numpy.sum(upper, axis=1)
    points[1:] += numpy.sum(correction - upper, axis=1)
    centre = _centre(epsilon, count, first, last)
    losses: Array = numpy.asarray((float(count - 2 * first + 1 - centre) - 2 * edges) * epsilon, dtype=float)
    kept = points > 0
    log_mass = numpy.log(points[kept]) - math.log(float(numpy.sum(correction)))
    return losses[kept], log_mass, centre * epsilon


def _smoothed_masses(epsilon: float, count: int, first: int, places: Array) -> tuple[Array, Array, Array]:
    """Return the derivative of the log-mass, its second derivative, and the mass over its largest value, at places.

    The log-mass g has g(x + 1) - g(x) = log((count - x) / (x + 1)) - epsilon, which is h(x + 1/2) for the h below;
    so g' = h - h''/24, again by the midpoint rule. Both rules leave out fourth derivatives, together below 1e-10 of
    the mass for the 2.5e7 steps and more that are binned.
    """
    lies = (first - 0.5) + places
    truths_more = float(count - 2 * first + 1) - 2 * places  # true answers less lies, without cancellation

    def ratio(lies: Array, more: Array) -> Array:
        # log of (count - lies + 1/2) / (lies + 1/2); the first form keeps its digits near 0, the second near 1.
        balance = more / (count + 1.0)
        near = 2 * numpy.arctanh(numpy.clip(balance, -0.5, 0.5))
        return numpy.where(numpy.abs(balance) < 0.5, near, numpy.log((lies + more + 0.5) / (lies + 0.5))) - epsilon

    gaps = numpy.diff(places)
    reach = gaps / (2 * math.sqrt(3))  # two Gauss points between neighbours
    rises = numpy.zeros(len(gaps))
    for side in (-1, 1):
        moved = gaps / 2 + side * reach
        rises += gaps / 2 * ratio(lies[:-1] + moved, truths_more[:-1] - 2 * moved)
    log_ratio = ratio(lies, truths_more)
    slope = -(count + 1.0) / (lies + truths_more + 0.5) / (lies + 0.5)
    mass = numpy.exp(_from_mode(rises) - (slope - slope[0]) / 24)
    return log_ratio, slope, mass


@lru_cache(maxsize=1)
def _legendre() -> tuple[Array, Array]:
    nodes, weights = numpy.polynomial.legendre.leggauss(4)
    return (nodes + 1) / 2, weights / 2
