"""One sampled Gaussian step alone, and unsampled Gaussians together: closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable

from hush.accounting import gdp
from hush.accounting.delta_search import bisect_root
from hush.accounting.exact.phases import Phases
from hush.privacy import Relation

Interval = tuple[float, float]
_HALF_ROOT = math.sqrt(1 / 8)  # 2 ndtr(x / 2) - 1 = erf(x / sqrt 8)
_MARGIN = 2e-12  # relative error of the closed form of log delta, generously


def curve_of(phases: Phases, relation: Relation) -> Callable[[float], float] | None:
    """log delta as a function of epsilon >= 0, if this composition has a closed form.

    For one sampled step, removing is never cheaper than adding: with P = N(mu, 1), Q = N(0, 1), a = e^epsilon - 1 and
    q = sampling_prob, delta_remove = q H_x(P||Q) at x = 1 + a/q, and delta_add = (q - a(1-q)) H_y(Q||P) with y >= x,
    since (1+a) q^2 - (a+q)(q + aq - a) = a^2 (1-q) >= 0.
    """
    if phases.bounded:
        return None
    if not len(phases.times):
        mu = math.sqrt(phases.gaussian)
        return lambda epsilon: gdp.log_delta_of(epsilon, mu)
    if phases.steps > 1 or phases.gaussian or relation == "replace_one":
        return None
    prob, shift = float(phases.sampling_prob[0]), float(phases.shift[0])

    def log_delta(epsilon: float) -> float:
        # log(1 + (e^epsilon - 1)/q), [balle18] Theorem 2; both forms are exact where they are used.
        if epsilon < 30:
            inner = math.log1p(math.expm1(epsilon) / prob)
        else:
            inner = epsilon - math.log(prob) + math.log1p(-(1 - prob) * math.exp(-epsilon))
        return math.log(prob) + gdp.log_delta_of(inner, shift)

    return log_delta


def delta_at(curve: Callable[[float], float], epsilon: float) -> Interval:
    """The interval for delta at epsilon."""
    log_delta = curve(epsilon)
    if log_delta == -math.inf:
        return 0.0, 0.0
    slack = _MARGIN * (1 + abs(log_delta))
    return math.exp(log_delta - slack), min(math.exp(log_delta + slack), 1.0)


def epsilon_at(curve: Callable[[float], float], delta: float) -> Interval:
    """The interval for epsilon at delta: bracket, then bisection and secant in log delta."""
    target = math.log(delta)
    slack = _MARGIN * (1 + abs(target))
    if curve(0.0) <= target - slack:
        return 0.0, 0.0
    low, high = 0.0, 1.0
    while curve(high) > target:
        low, high = high, 4 * high
    root = bisect_root(lambda epsilon: curve(epsilon) - target, low, high)
    width = 1e-13 * root + 1e-300
    below, above = max(root - width, 0.0), root + width
    while below > 0 and curve(below) - slack < target:
        below, width = max(root - width, 0.0), 2 * width
    width = 1e-13 * root + 1e-300
    while curve(above) + slack > target:
        above, width = root + width, 2 * width
    return below, above


def total_variation(phases: Phases, apart: float) -> float:
    """An upper bound on delta(0): the sum of the steps' total variation distances (no bounded losses).

    `apart` is the distance of a sampled step's two ends over its shift.
    """
    steps = sum(times * prob * math.erf(apart * shift * _HALF_ROOT) for prob, shift, times in phases.rows)
    return steps + math.erf(math.sqrt(phases.gaussian) * _HALF_ROOT)
