"""Rényi bounds for noisy votes that fall as the teachers agree; `hush.pate.analysis` exports them and has the caveats.

`log_q` is the log of (a bound on) the probability that the noisy vote is not the teachers' plurality. Everything is in
logarithms, and in log1p and expm1 where a cost is far below 1.
"""

from __future__ import annotations

import math

import numpy
from numpy.typing import ArrayLike, NDArray
from scipy import special

from hush import _check
from hush.accounting.rdp_orders import classic_epsilons, epsilons
from hush.errors import InvalidValue
from hush.pate.votes import VoteCounts

Floats = NDArray[numpy.float64]
Booleans = NDArray[numpy.bool_]
PAPER_ORDERS: Floats = numpy.concatenate((numpy.arange(2.0, 100.5, 0.5), numpy.geomspace(100.0, 500.0, 100)))
"""The orders of the paper's experiments: 2 to 100 by halves, then 100 to 500 in even ratios."""
_LEAST_CLASSES = 2
_SMALLEST_CHANCE = 1e-280  # below it, sums of chances underflow and their logarithms are added instead


def log_miss_probability(counts: ArrayLike | VoteCounts, stddev: float) -> float | Floats:
    """log of the most that GNMax can miss the plurality with, for one row of counts or an array of rows.

    q <= sum over the other classes i of P(N(0, 2 stddev^2) >= gap to i), and at most 1 - 1/classes [Papernot et al.
    2018, Prop. 7].
    """
    gaps, stddev = _gaps(counts), _check.positive("stddev", stddev)
    terms = special.erfc(gaps / (2 * stddev))
    numpy.put_along_axis(terms, gaps.argmin(axis=-1)[..., None], 0.0, axis=-1)
    chances = numpy.asarray(terms.sum(axis=-1) / 2)
    if (chances > _SMALLEST_CHANCE).all():
        return _plain(numpy.minimum(numpy.log(chances), math.log1p(-1 / gaps.shape[-1])))
    return _log_sum_of_others(special.log_ndtr(-gaps / (math.sqrt(2) * stddev)), gaps)


def lnmax_log_miss_probability(counts: ArrayLike | VoteCounts, scale: float) -> float | Floats:
    """log of the most that LNMax can miss the plurality with.

    q <= sum over the other classes of (2 + gap/scale) / (4 exp(gap/scale)) [Papernot et al. 2017, Lemma 4].
    """
    gaps, scale = _gaps(counts), _check.positive("scale", scale)
    return _log_sum_of_others(numpy.log1p(gaps / (2 * scale)) - math.log(2) - gaps / scale, gaps)


def log_answer_probability(max_count: ArrayLike, threshold: float, stddev: float) -> float | Floats:
    """log of the chance that the largest count plus N(0, stddev^2) reaches the threshold."""
    values = _finite("max_count", max_count) - _check.number("threshold", threshold)
    return _plain(special.log_ndtr(values / _check.positive("stddev", stddev)))


def gnmax_rdp(log_q: ArrayLike, stddev: float, orders: ArrayLike) -> float | Floats:
    """The Rényi cost of a GNMax answer at each order; shape of `log_q`, then shape of `orders`.

    The lesser of order / stddev^2, which holds for all votes [Papernot et al. 2018, Prop. 8], and the bound of Theorem
    6 with the choice of Proposition 10, where its conditions hold.

    | case | result |
    |---|---|
    | q = 0 (`log_q` minus infinity) | 0 |
    | `log_q` above 0, `stddev` not above 0, an order not above 1 | refused |
    """
    logs, stddev, alphas = _check_log_q(log_q), _check.positive("stddev", stddev), check_orders(orders)
    column, row = logs.reshape(-1, 1), alphas.reshape(-1)
    result = consensus_bound(column, stddev, row)
    numpy.copyto(result, numpy.inf, where=~has_bound(column, stddev))
    numpy.fmin(result, row / stddev**2, out=result)
    return _plain(result.reshape(logs.shape + alphas.shape))


def has_bound(log_q: Floats, stddev: float) -> Booleans:
    """Where the conditions of Theorem 6 that do not involve the order hold, for the choice of Proposition 10."""
    mu2 = stddev * numpy.sqrt(-log_q)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        eps2 = mu2 / stddev**2
        # q <= exp((mu2 - 1) eps2) / (mu1 / (mu1 - 1) * mu2 / (mu2 - 1))^mu2, and mu1 = mu2 + 1
        enough = log_q <= (mu2 - 1) * eps2 - mu2 * (numpy.log1p(1 / mu2) - numpy.log1p(-1 / mu2))
    result: Booleans = numpy.isneginf(log_q) | ((mu2 > 1) & enough & (-log_q > eps2))
    return result


def consensus_bound(log_q: Floats, stddev: float, orders: Floats) -> Floats:
    """The bound of Theorem 6 with mu2 = stddev sqrt(log 1/q) and mu1 = mu2 + 1; infinite where mu1 <= order.

    D_a <= log((1 - q) A^(a-1) + q B^(a-1)) / (a - 1), A = (1 - q) / (1 - (q e^eps2)^(1 - 1/mu2)), B = e^eps1 /
    q^(1/(mu1 - 1)), eps1 = mu1 / stddev^2, eps2 = mu2 / stddev^2 [Papernot et al. 2018, Thm. 6, Prop. 10]. `has_bound`
    must hold.
    """
    mu2, moments = stddev * numpy.sqrt(-log_q), orders - 1
    with numpy.errstate(over="ignore", invalid="ignore", divide="ignore"):
        log_hit = numpy.log1p(-numpy.exp(log_q))
        log_a = log_hit - numpy.log1p(-numpy.exp((log_q + mu2 / stddev**2) * (1 - 1 / mu2)))
        log_b = (mu2 + 1) / stddev**2 - log_q / mu2
        # log1p of (1 - q) A^(a-1) - 1 + q B^(a-1), which may be tiny; in place, for speed
        bound: Floats = numpy.asarray(moments * log_a)
        bound += log_hit
        numpy.expm1(bound, out=bound)
        other: Floats = numpy.asarray(moments * log_b)
        other += log_q
        bound += numpy.exp(other, out=other)
        numpy.log1p(bound, out=bound)
        bound /= moments
    numpy.maximum(bound, 0.0, out=bound)
    numpy.copyto(bound, numpy.inf, where=mu2 + 1 <= orders)
    numpy.copyto(bound, 0.0, where=numpy.isneginf(log_q))
    return bound


def threshold_rdp(max_count: ArrayLike, threshold: float, stddev: float, orders: ArrayLike) -> float | Floats:
    """The Rényi cost of testing the largest count plus N(0, stddev^2) against the threshold.

    The test has two outcomes and sensitivity 1, so Theorem 6 applies with q the chance of the rarer one and with
    sqrt(2) stddev in place of stddev; never above order / (2 stddev^2) [Papernot et al. 2018, App. A].
    """
    values = _finite("max_count", max_count) - _check.number("threshold", threshold)
    rarer = special.log_ndtr(-numpy.abs(values) / _check.positive("stddev", stddev))
    return gnmax_rdp(rarer, math.sqrt(2) * stddev, orders)


def lnmax_rdp(log_q: ArrayLike, scale: float, orders: ArrayLike) -> float | Floats:
    """The Rényi cost of an LNMax answer at each order, by the moments of 2017; shape of `log_q`, then of `orders`.

    With e = 2/scale and moment l = order - 1, the least of e^2 l (l + 1) / 2, e l, and, if q <= 1 / (e^e + 1),
    log((1 - q) ((1 - q) / (1 - e^e q))^l + q e^(e l)), each over l [Papernot et al. 2017, Thm. 2 and 3].
    """
    logs, alphas = _check_log_q(log_q), check_orders(orders)
    epsilon = 2 / _check.positive("scale", scale)
    log_q, moments = logs.reshape(-1, 1), alphas.reshape(-1) - 1
    free = numpy.minimum(epsilon**2 * (moments + 1) / 2, epsilon)
    with numpy.errstate(invalid="ignore", divide="ignore", over="ignore"):
        log_hits = (moments + 1) * numpy.log1p(-numpy.exp(log_q)) - moments * numpy.log1p(-numpy.exp(epsilon + log_q))
        bound = numpy.log1p(numpy.expm1(log_hits) + numpy.exp(log_q + epsilon * moments)) / moments
    allowed = log_q <= -numpy.logaddexp(epsilon, 0.0)
    result = numpy.fmin(free, numpy.where(allowed, numpy.maximum(bound, 0.0), numpy.inf))
    return _plain(result.reshape(logs.shape + alphas.shape))


def best_epsilon(rdp: ArrayLike, orders: ArrayLike, *, delta: float, classic: bool = False) -> tuple[float, float]:
    """The least epsilon over the orders at this delta, and its order; `classic` uses the conversion of the papers.

    >>> best_epsilon([0.02, 0.1], [2.0, 10.0], delta=1e-5, classic=True)
    (1.37..., 10.0)
    """
    totals, alphas = _finite("rdp", rdp).reshape(-1), check_orders(orders).reshape(-1)
    if totals.shape != alphas.shape:
        raise InvalidValue(f"rdp and orders must have one shape; got {totals.shape} and {alphas.shape}.")
    if not _check.delta(delta):
        raise InvalidValue("delta must be above 0: Rényi costs of Gaussian noise have no epsilon at delta 0.")
    convert = classic_epsilons if classic else epsilons
    values = convert(totals * (alphas - 1), alphas - 1, math.log(delta))
    place = int(numpy.argmin(values))
    return max(float(values[place]), 0.0), float(alphas[place])


def check_orders(orders: ArrayLike) -> Floats:
    """Orders as an array, each finite and above 1."""
    alphas = _finite("orders", orders)
    if not alphas.size or not (alphas > 1).all():
        raise InvalidValue("orders must be one or more numbers above 1.")
    return alphas


def _gaps(counts: ArrayLike | VoteCounts) -> Floats:
    """How far each count is below the largest of its row."""
    array = _finite("counts", counts.counts if isinstance(counts, VoteCounts) else counts)
    if array.ndim < 1 or array.shape[-1] < _LEAST_CLASSES:
        raise InvalidValue(f"counts must have two classes or more in the last axis; got shape {array.shape}.")
    if (array < 0).any():
        raise InvalidValue("counts must be 0 or above.")
    gaps: Floats = array.max(axis=-1, keepdims=True) - array
    return gaps


def _log_sum_of_others(logs: Floats, gaps: Floats) -> float | Floats:
    """log of the sum over all classes but one with gap 0, at most log(1 - 1/classes)."""
    numpy.put_along_axis(logs, gaps.argmin(axis=-1)[..., None], -numpy.inf, axis=-1)
    largest = logs.max(axis=-1, keepdims=True)
    total = largest[..., 0] + numpy.log(numpy.exp(logs - largest).sum(axis=-1))
    return _plain(numpy.minimum(total, math.log1p(-1 / logs.shape[-1])))


def _check_log_q(log_q: ArrayLike) -> Floats:
    array = numpy.asarray(log_q, dtype=numpy.float64)
    if numpy.isnan(array).any() or (array > 0).any():
        raise InvalidValue("log_q must be the log of a probability: 0 or below.")
    return array


def _finite(name: str, values: ArrayLike) -> Floats:
    try:
        array = numpy.array(values, dtype=numpy.float64)
    except (TypeError, ValueError):
        raise InvalidValue(f"{name} must be a number or an array of numbers; got {type(values).__name__}.") from None
    if not numpy.isfinite(array).all():
        raise InvalidValue(f"{name} must be finite.")
    return array


def _plain(values: Floats) -> float | Floats:
    return float(values) if numpy.ndim(values) == 0 else values
