"""The exact privacy curve of composed randomized responses, which is the optimal composition theorem.

Randomized response with two answers dominates every (epsilon, 0)-DP mechanism, so its composition gives the best
statement that epsilons alone allow [Kairouz, Oh, Viswanath 2015, Thm. 3.3; Murtagh, Vadhan 2016 for unequal ones].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy

from hush.accounting.loss_moments import Array

LARGEST_SUPPORT = 200_000
_ROUNDING = 1e-10  # relative, on delta; tested against 50-digit sums


@dataclass(frozen=True)
class ResponseCurve:
    """Composed randomized responses: losses in falling order, and log-tails of P and Q down to each."""

    losses: Array
    log_tail: Array
    log_tail_other: Array

    def delta(self, epsilon: float) -> float:
        """The smallest delta at this epsilon, rounded up: P(S) - e^epsilon Q(S) over S = {loss > epsilon}."""
        last = int(numpy.searchsorted(-self.losses, -epsilon)) - 1
        if last < 0:
            return 0.0
        return min(1.0, max(self._delta_at(epsilon, last), 0.0) * (1 + _ROUNDING) + 1e-300)

    def _delta_at(self, epsilon: float, last: int) -> float:
        above, below = float(self.log_tail[last]), epsilon + float(self.log_tail_other[last])
        return -math.exp(above) * math.expm1(below - above)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon (0 or above) at this delta, rounded up."""
        target = delta * (1 - _ROUNDING) - 1e-300
        if target <= 0:
            return max(float(self.losses[0]), 0.0)
        if self.delta(0.0) <= delta:
            return 0.0
        # Between two losses delta is A - e^epsilon B, so the crossing is found exactly once its interval is known.
        low, high = 0, int(numpy.searchsorted(-self.losses, 0.0)) - 1
        while low < high:
            middle = (low + high) // 2
            next_loss = float(self.losses[middle + 1]) if middle + 1 < len(self.losses) else -math.inf
            if self._delta_at(next_loss, middle) >= target:
                high = middle
            else:
                low = middle + 1
        above = float(self.log_tail[low])
        crossing = above + math.log(-math.expm1(math.log(target) - above)) - float(self.log_tail_other[low])
        return max(0.0, min(crossing * (1 + 1e-14) + 1e-16, float(self.losses[0])))


def response_curve(epsilons: Array, counts: list[int]) -> tuple[ResponseCurve, bool]:
    """The curve for `counts[i]` mechanisms of `epsilons[i]` each, and whether epsilons had to be rounded up.

    With several different epsilons the support is a product; where it would pass `LARGEST_SUPPORT` points, the
    closest pair of epsilons is merged at the larger of the two until it fits. That is an upper bound.
    """
    groups = _merge_equal(zip(map(float, epsilons), counts, strict=True))
    rounded = False
    while math.prod(_window(count) for _, count in groups) > LARGEST_SUPPORT and len(groups) > 1:
        groups, rounded = _merge_closest(groups), True
    losses, log_mass, log_other = numpy.zeros(1), numpy.zeros(1), numpy.zeros(1)
    for epsilon, count in groups:
        more, mass, other = _binomial(epsilon, count)
        losses = numpy.add.outer(losses, more).ravel()
        log_mass = numpy.add.outer(log_mass, mass).ravel()
        log_other = numpy.add.outer(log_other, other).ravel()
    order = numpy.argsort(-losses, kind="stable")
    tails = (numpy.logaddexp.accumulate(values[order]) for values in (log_mass, log_other))
    return ResponseCurve(losses[order], *tails), rounded


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


def _window(count: int) -> int:
    """How many points of a binomial to keep: all, or 40 sqrt(count) around the mean (the rest is below e^-800)."""
    return min(count + 1, 2 * math.ceil(20 * math.sqrt(count)) + 3)


def _binomial(epsilon: float, count: int) -> tuple[Array, Array, Array]:
    """Losses and log-masses under P and Q of `count` responses.

    P lies with chance 1/(1 + e^epsilon). Masses come from the ratios of neighbours, summed from the mode and
    normalised, which keeps ten digits where log-gamma differences would not [Hoeffding 1963 for what is cut].
    """
    log_lie = -epsilon - math.log1p(math.exp(-epsilon))
    mean = count * math.exp(log_lie)
    half = _window(count) // 2
    first, last = (
        (0, count) if _window(count) == count + 1 else (max(0, int(mean) - half), min(count, int(mean) + half))
    )
    lies = numpy.arange(first, last + 1, dtype=float)
    ratios = numpy.log((count - lies[:-1]) / lies[1:]) - epsilon
    mode = min(max(int(mean) - first, 0), len(lies) - 1)
    log_mass = numpy.concatenate([-numpy.cumsum(ratios[:mode][::-1])[::-1], [0.0], numpy.cumsum(ratios[mode:])])
    log_mass -= math.log(float(numpy.sum(numpy.exp(log_mass))))
    losses = (count - 2 * lies) * epsilon
    return losses, log_mass, log_mass - losses
