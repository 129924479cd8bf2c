"""Moments of a privacy loss, without cancellation however small or large they are.

A pair of distributions (P, Q) is given by the weights of Q at some points and the loss log(P/Q) there. With
u = P/Q and order a = 1 + excess, three moments matter:

    forward    E_Q[u^a]                                      the Rényi divergence of P from Q
    backward   E_Q[u^(1-a)]                                  the Rényi divergence of Q from P
    folded     1 + E_Q[u^a + u^(1-a) - u - 1; u > 1]         see `hush.accounting.renyi_pairs`

Each is 1 plus a sum of terms that are all positive, because E_Q[u] = 1:
    u^a - 1 - a(u - 1)           = u g(excess * loss) + excess * u g(-loss)
    u^(1-a) - 1 + (a - 1)(u - 1) = g(-excess * loss) + excess * g(loss),    g(x) = e^x - 1 - x,
so a moment of 1 + 1e-20 keeps its digits. Moments beyond e^30 are summed as logarithms.
"""

from __future__ import annotations

from typing import Literal

import numpy
from numpy.typing import NDArray

Array = NDArray[numpy.float64]
Moment = Literal["forward", "backward", "folded"]

_LARGE = 30.0  # the logarithm of a term from which "1 +" no longer matters to double precision
_SERIES_BELOW = 0.1
_SERIES_TERMS = 11


def expm1_minus(x: Array) -> Array:
    """e^x - 1 - x, to full relative precision also near 0.

    >>> float(expm1_minus(numpy.array(1e-9)))
    5.000000001666667e-19
    """
    small = numpy.clip(x, -_SERIES_BELOW, _SERIES_BELOW)
    series = numpy.ones_like(small)
    for term in range(_SERIES_TERMS, 2, -1):
        series = 1 + small * series / term
    with numpy.errstate(over="ignore"):
        direct = numpy.expm1(x) - x
    result: Array = numpy.where(numpy.abs(x) < _SERIES_BELOW, small * small / 2 * series, direct)
    return result


def _weighted(log_weight: Array, x: Array) -> Array:
    """e^log_weight * (e^x - 1 - x), also where e^x alone would overflow."""
    weight = numpy.exp(log_weight)
    far = numpy.exp(log_weight + numpy.maximum(x, _LARGE)) - weight * (1 + x)
    result: Array = numpy.where(x > _LARGE, far, weight * expm1_minus(numpy.minimum(x, _LARGE)))
    return result


def log_moment(log_weights: Array, losses: Array, excess: Array, moment: Moment) -> Array:
    """The logarithm of the moment, one for each order 1 + excess; weights and losses are one-dimensional."""
    if moment == "folded":
        log_weights, losses = log_weights[losses > 0], losses[losses > 0]
    exponents = _exponents(log_weights, losses, excess, moment)
    highest = numpy.max(exponents, axis=1, initial=-numpy.inf)
    result = numpy.empty(len(excess))
    large = highest > _LARGE
    result[large] = _large_moment(exponents[large], highest[large], moment)
    result[~large] = numpy.log1p(_small_moment(log_weights, losses, excess[~large], moment))
    return result


def _exponents(log_weights: Array, losses: Array, excess: Array, moment: Moment) -> Array:
    if moment == "backward":
        result: Array = log_weights - excess[:, None] * losses
    else:
        result = log_weights + losses + excess[:, None] * losses
    return result


def _large_moment(exponents: Array, highest: Array, moment: Moment) -> Array:
    total: Array = highest + numpy.log(numpy.sum(numpy.exp(exponents - highest[:, None]), axis=1))
    # Folded: u^(1-a) - u - 1 < 0 where u > 1, so 1 + E_Q[u^a; u > 1] is an upper bound, here within e^-30.
    return numpy.logaddexp(total, 0.0) if moment == "folded" else total


def _small_moment(log_weights: Array, losses: Array, excess: Array, moment: Moment) -> Array:
    """The moment minus 1."""
    column = excess[:, None]
    result: Array = numpy.zeros((len(excess), len(losses)))
    if moment != "backward":
        tilted = log_weights + losses
        result = result + _weighted(tilted, column * losses) + column * _weighted(tilted, -losses)
    if moment != "forward":
        result = result + _weighted(log_weights, -column * losses) + column * _weighted(log_weights, losses)
    total: Array = numpy.sum(result, axis=1)
    return total
