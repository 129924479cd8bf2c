"""Releasing a data-dependent cost: noise scaled by its smooth sensitivity, and what that release costs itself.

The cost f of a list of answers at one order is private. Released is f + S stddev (Z + shift), where Z is normal, S is
the smooth sensitivity and `shift` puts the number above f but for a stated chance. All parameters are fixed before
anybody sees the votes, or tuned on public ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy
from scipy import special

from hush import _check
from hush.accounting.rdp_orders import epsilons
from hush.errors import InvalidValue, Unreachable
from hush.events import ApproximateDP
from hush.mechanisms.draws import Draws, Line

_GRID = 2.0**-20  # the released number is a multiple of it, whatever the votes are
_LEAST_SENSITIVITY = 2.0**-30  # a smooth sensitivity stays one when it is lifted to a constant
_ORDERS_TRIED = 200


@dataclass(frozen=True)
class ReleasePlan:
    """How a data-dependent cost will be released; fixed before the votes are seen.

    Args:
        order: The one Rényi order whose cost is released.
        smoothness: How fast the smooth sensitivity may change from neighbour to neighbour; below 1 / (2 order).
        release_stddev: The noise's standard deviation over the smooth sensitivity.
        failure_prob: The chance that the released number is below the true cost.
    """

    order: float
    smoothness: float
    release_stddev: float
    failure_prob: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("order", "smoothness", "release_stddev"):
            object.__setattr__(self, name, _check.positive(name, getattr(self, name)))
        if not 0 < _check.number("failure_prob", self.failure_prob) <= 0.5:
            raise InvalidValue(f"failure_prob must be above 0 and at most 0.5; got {self.failure_prob!r}.")
        self.rdp(self.order)

    @property
    def shift(self) -> float:
        """How far the number is lifted, in standard deviations of its noise."""
        return float(-special.ndtri(self.failure_prob))

    def rdp(self, order: float) -> float:
        """The Rényi cost of the release itself."""
        return release_rdp(self.smoothness, self.release_stddev, order, shift=self.shift)

    def event(self, delta: float) -> ApproximateDP:
        """The release as a ledger takes it down, at the best order for this delta."""
        delta = _check.probability("delta", delta)
        largest = -1 / math.expm1(-2 * self.smoothness)
        orders = 1 + (largest - 1) * numpy.linspace(0, 1, _ORDERS_TRIED + 2)[1:-1]
        costs = numpy.array([self.rdp(float(order)) for order in orders])
        best = float(epsilons(costs * (orders - 1), orders - 1, math.log(delta)).min())
        return ApproximateDP(max(best, 0.0) * (1 + 1e-12), delta)

    def release(self, cost: float, smooth_sensitivity: float, draws: Draws) -> float:
        """The cost with its noise, rounded up to a public grid; 0 at least."""
        spread = self.release_stddev * max(smooth_sensitivity, _LEAST_SENSITIVITY) / _GRID
        centre = cost / _GRID + self.shift * spread
        whole = math.floor(centre)
        line = Line(spread, draws.signs(1), numpy.array([centre - whole]))
        return max(0.0, (whole + int(draws.floor_normals(line)[0]) + 1) * _GRID)


def plan_for(epsilon: float, *, delta: float, order: float, failure_prob: float = 1e-6) -> ReleasePlan:
    """A plan for this order whose release costs (epsilon, delta) at most; no votes are needed for it.

    Half of what neighbours differ by comes from the noise's centre (1 / release_stddev), half from its lift
    (shift * smoothness). Both are made as large as the price allows.

    >>> plan = plan_for(0.2, delta=1e-6, order=12.0)
    >>> 0.19 < plan.event(1e-6).epsilon <= 0.2
    True
    """
    epsilon, order = _check.positive("epsilon", epsilon), _check.positive("order", order)

    def plan(part: float) -> ReleasePlan:
        smoothness = part / float(-special.ndtri(failure_prob))
        return ReleasePlan(order, smoothness, 1 / part, failure_prob)

    low, high = 0.0, float(-special.ndtri(failure_prob)) * math.log1p(1 / (order - 1)) / 2 * (1 - 1e-9)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if plan(middle).event(delta).epsilon <= epsilon else (low, middle)
    if not low:
        raise Unreachable(f"no release fits epsilon {epsilon:g} at delta {delta:g}; pay more for it.")
    return plan(low)


def release_rdp(smoothness: float, release_stddev: float, order: float, *, shift: float = 0.0) -> float:
    """The Rényi divergence of releasing f + S stddev (Z + shift) on neighbours, in the worst case.

    Between neighbours S changes by a factor r of e^-b to e^b, and f by the lesser S at most. The two releases are
    normal laws with standard deviations s S and s r S whose means are (min(1, r) + shift s |1 - r|) S apart at most.
    Their divergence is a (min(1, r) / s + shift |1 - r|)^2 / (2 v) + (a log r - log(v) / 2) / (a - 1), with
    v = 1 + a (r^2 - 1) [Gil, Alajaji, Linder 2013]. Below r = 1 it falls with r; above, each term is at most its value
    at the better end.

    >>> round(release_rdp(0.02, 10.0, 8.0), 6), round(published_release_rdp(0.02, 10.0, 8.0), 6)
    (0.060027, 0.133669)
    """
    b, s = _check.positive("smoothness", smoothness), _check.positive("release_stddev", release_stddev)
    a, k = _check.positive("order", order), _check.number("shift", shift)
    v = 1 + a * math.expm1(-2 * b)
    if a <= 1 or v <= 0:
        raise InvalidValue(
            f"order must be above 1 and below {-1 / math.expm1(-2 * b):.4g} at smoothness {b:g}; got {a:g}."
        )
    shrunk = a * (math.exp(-b) / s - k * math.expm1(-b)) ** 2 / (2 * v) + (-a * b - math.log(v) / 2) / (a - 1)
    grown = a * (1 / s + k * math.expm1(b)) ** 2 / 2 + (a * b - math.log1p(a * math.expm1(2 * b)) / 2) / (a - 1)
    return max(shrunk, grown) * (1 + 1e-12)


def published_release_rdp(smoothness: float, release_stddev: float, order: float) -> float:
    """The cost as printed in [Papernot et al. 2018, Thm. 23], for comparison only: **not a bound**.

    Its first term does not grow as 2 order smoothness comes near 1. At order 14, smoothness 0.0329 and stddev 11.59 it
    gives 0.244 where the divergence of two neighbours can be 0.500.
    """
    b, s, a = smoothness, release_stddev, order
    return a * math.exp(2 * b) / s**2 + (-0.5 * math.log1p(-2 * a * b) + a * b) / (a - 1)
