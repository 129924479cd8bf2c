"""Sampling bounds for an event of which only the Rényi curve is known, at whole orders.

Between whole orders the log-moment, (order - 1) times the divergence, is convex, so the straight line between two
bounds is a bound. Orders above `LARGEST_ORDER` get infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy
from scipy import special

from hush.accounting.loss_moments import Array

LARGEST_ORDER = 2048
_ROUNDING = 1 + 1e-11  # covers the rounding of the log-gamma function up to the largest order
LogMoments = Callable[[Array], Array]  # excess orders -> (order - 1) * divergence


def poisson(base: LogMoments, sampling_prob: float, excess: Array) -> Array:
    """Poisson sampling under add/remove [Zhu, Wang 2019, Thm. 5].

    e^((a-1) r(a)) <= (1-q)^(a-1) (aq - q + 1) + C(a,2) q^2 (1-q)^(a-2) e^(r(2))
                      + 3 sum over l = 3..a of C(a,l) (1-q)^(a-l) q^l e^((l-1) r(l)).
    """
    log_q, log_rest = math.log(sampling_prob), math.log1p(-sampling_prob)

    def whole(order: int, moments: Array) -> float:
        k = numpy.arange(2, order + 1, dtype=float)
        terms = _log_binomial(order, k) + k * log_q + (order - k) * log_rest + moments[: order - 1]
        terms[1:] += math.log(3)
        first = (order - 1) * log_rest + math.log1p((order - 1) * sampling_prob)
        rest = float(special.logsumexp(terms))
        if rest > 30:
            return float(numpy.logaddexp(first, rest)) * _ROUNDING
        return math.log1p(math.expm1(first) + math.exp(rest)) * _ROUNDING + 4e-16 * (1 + order * sampling_prob)

    return _at_real_orders(whole, base, excess)


def fixed_size(base: LogMoments, largest_loss: float, fraction: float, excess: Array) -> Array:
    """Sampling without replacement [Wang, Balle, Kasiviswanathan 2019, Thm. 9]; `base` is for `replace_one`.

    e^((a-1) r(a)) <= 1 + g^2 C(a,2) min(4 (e^(r(2)) - 1), e^(r(2)) min(2, (e^(r(inf)) - 1)^2))
                      + sum over j = 3..a of g^j C(a,j) e^((j-1) r(j)) min(2, (e^(r(inf)) - 1)^j).
    """
    log_gain = math.log(math.expm1(largest_loss)) if 0 < largest_loss < 700 else math.inf
    if largest_loss == 0:
        return numpy.zeros(len(excess))

    def whole(order: int, moments: Array) -> float:
        j = numpy.arange(2, order + 1, dtype=float)
        caps = numpy.minimum(math.log(2), j * log_gain)
        terms = _log_binomial(order, j) + j * math.log(fraction) + moments[: order - 1]
        small = 4 * math.expm1(min(moments[0], 600.0))  # where the minimum below is the first, it is far below e^600
        second = min(math.log(small) if small > 0 else -math.inf, moments[0] + caps[0])
        terms += caps
        terms[0] = _log_binomial(order, j[:1])[0] + 2 * math.log(fraction) + second
        largest = float(special.logsumexp(terms))
        total = float(numpy.logaddexp(0, largest)) if largest > 30 else math.log1p(math.exp(largest))
        return total * _ROUNDING

    return _at_real_orders(whole, base, excess)


def _log_binomial(order: int, k: Array) -> Array:
    result: Array = special.gammaln(order + 1) - special.gammaln(k + 1) - special.gammaln(order - k + 1)
    return result


def _at_real_orders(whole: Callable[[int, Array], float], base: LogMoments, excess: Array) -> Array:
    """The line through the bounds at the whole orders on either side; at order 1 the log-moment is 0."""
    result = numpy.full(len(excess), numpy.inf)
    inside = numpy.flatnonzero(excess <= LARGEST_ORDER - 1)
    if not len(inside):
        return result
    floors = numpy.floor(excess[inside]).astype(int)
    moments = base(numpy.arange(1, int(floors.max()) + 2, dtype=float))
    known = {order: whole(order, moments) for order in {*(floors + 1), *(floors + 2)} if order > 1}
    known[1] = 0.0
    share = excess[inside] - floors
    low = numpy.array([known[floor + 1] for floor in floors])
    high = numpy.array([known[floor + 2] for floor in floors])
    result[inside] = numpy.where(share > 0, (1 - share) * low + share * numpy.where(share > 0, high, 0.0), low)
    return result
