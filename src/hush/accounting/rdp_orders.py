"""From Rényi divergences to (epsilon, delta), and the search for the best order.

At order a = 1 + excess with divergence r [Canonne, Kamath, Steinke 2020, Prop. 12 (v4); Balle et al. 2020, Thm. 21]:
    epsilon = r + log(1 - 1/a) - (log delta + log a) / (a - 1),
    delta   = e^((a-1)(r - epsilon)) (1 - 1/a)^(a-1) / a.
At a fixed epsilon, log delta is convex in a, because (a-1) r is and (a-1) log(a-1) - a log a is. So both have a
single valley in a, and a local search finds its floor. Any order gives a proven bound, so the search can only cost
tightness, never safety.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy

from hush.accounting.loss_moments import Array

SMALLEST_EXCESS, LARGEST_EXCESS = 1e-6, 1e8
_HALF_WIDTH = 8
_ZOOM = 8.0


def epsilons(log_moments: Array, excess: Array, log_delta: float) -> Array:
    """The epsilon that each order proves; may be below 0, which means 0."""
    order = 1 + excess
    result: Array = (log_moments - log_delta - numpy.log(order)) / excess + numpy.log(excess / order)
    return result


def classic_epsilons(log_moments: Array, excess: Array, log_delta: float) -> Array:
    """The epsilon of each order by the first conversion [Mironov 2017, Prop. 3]; never below the improved one."""
    result: Array = (log_moments - log_delta) / excess
    return result


def log_deltas(log_moments: Array, excess: Array, epsilon: float) -> Array:
    """The logarithm of the delta that each order proves."""
    order = 1 + excess
    result: Array = log_moments - excess * epsilon + excess * numpy.log(excess / order) - numpy.log(order)
    return result


def total_variation(divergence: float) -> float:
    """An upper bound on delta at every epsilon, from a divergence of any order above 1.

    The divergence is at least the relative entropy, which bounds the total variation [Pinsker; Bretagnolle, Huber
    1979].
    """
    if math.isinf(divergence):
        return 1.0
    return min(math.sqrt(divergence / 2), math.sqrt(-math.expm1(-divergence)))


def minimise(objective: Callable[[Array], Array], start: float, *, finest: float = 2e-6) -> tuple[float, float]:
    """The place and value of the least value of a function with one valley, on a logarithmic scale.

    Seventeen points at a time: slide while the best one is at an end, then zoom in until they are `finest` apart.

    >>> place, value = minimise(lambda x: x + 4 / x, start=100.0)
    >>> round(place, 5), round(value, 9)
    (2.0, 4.0)
    """
    low, high = math.log(SMALLEST_EXCESS), math.log(LARGEST_EXCESS)
    centre, step = min(max(math.log(start), low), high), 0.25
    best = (math.exp(centre), math.inf)
    for _ in range(100):
        points = numpy.clip(centre + step * numpy.arange(-_HALF_WIDTH, _HALF_WIDTH + 1), low, high)
        values = numpy.nan_to_num(objective(numpy.exp(points)), nan=numpy.inf, posinf=numpy.inf)
        index = int(numpy.argmin(values))
        if values[index] < best[1]:
            best = (math.exp(points[index]), float(values[index]))
        at_end = index in (0, 2 * _HALF_WIDTH) and low < points[index] < high
        centre = float(points[index])  # where all are infinite this is the lowest: the valley is further down
        if not at_end:
            step /= _ZOOM
        if step < finest:
            break
    return best
