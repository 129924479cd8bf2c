"""Log-moments of the pairs of distributions that dominate an event: (order - 1) times the Rényi divergence.

Sampling with chance q turns a pair (P, Q) into (1-q)Q + qP against Q: "remove" is the forward moment of that
pair and "add" its backward one [Zhu, Dong, Wang 2022, Thm. 11]. For Gaussian and Laplace noise "remove" is never
the smaller one [Mironov, Talwar, Zhang 2019, Thm. 5]; both are computed all the same.

A sample of fixed size under `replace_one` or `zero_out` has, for epsilon >= 0, a privacy curve of at most
C(epsilon), the curve of that same pair, in both orders of the neighbours [Balle, Barthe, Gaboardi 2018, Thm. 11],
(P, Q) being the base's pair for `replace_one`. Since u^a = 1 + a(u-1) + a(a-1) * integral of t^(a-2) (u-t)_+ over
t > 1 (and of (t-u)_+ over t < 1, which the other order bounds), the moment of order a is at most
    1 + a(a-1) * integral over t > 1 of (t^(a-2) + t^(-a-1)) C(log t) dt = 1 + E_Q[u^a + u^(1-a) - u - 1; u > 1],
the "folded" moment. Under `add_remove` the pair itself is there, in both directions.

Gaussian integrals use the trapezoid rule. On the line x + iy the integrand grows by e^(y^2/2) for positive powers
of u = 1 - q + q e^(mu x - mu^2/2) and in addition by cos(mu y / 2)^(1-a) for negative ones, so the relative error
is about e^(y^2/2 - 2 pi y / step), for every |y| < pi/mu where u has no zero. The step makes that e^-45.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy
from numpy.typing import NDArray

from hush.accounting.loss_moments import Array, Moment, expm1_minus, log_moment

_REACH = 13.0  # e^(-13^2/2) is about 2e-37
_DIGITS = 45.0
_MOST_NODES = 60_000
_PANEL_NODES = 16


def sampled_losses(losses: Array, sampling_prob: float) -> Array:
    """log(1 - q + q e^loss), to full relative precision near 0."""
    if sampling_prob == 1:
        return losses
    far = numpy.logaddexp(math.log1p(-sampling_prob), math.log(sampling_prob) + losses)
    near = numpy.log1p(sampling_prob * numpy.expm1(numpy.minimum(losses, 30.0)))
    result: Array = numpy.where(losses > 30.0, far, near)
    return result


# Gaussian noise ------------------------------------------------------------------------------------------------


def gaussian(mu: float, sampling_prob: float, excess: Array, moment: Moment) -> Array:
    """Log-moments of a sampled Gaussian pair N(mu, 1) against N(0, 1), for each order 1 + excess."""
    if sampling_prob == 1 or mu == 0:
        whole: Array = excess * (1 + excess) * (mu * mu / 2)
        return whole

    def moments(part: Array) -> Array:
        top = float(part[-1])
        if _needs_too_many_nodes(mu, top, moment):
            if moment == "backward":  # never above the other direction [Mironov, Talwar, Zhang 2019, Thm. 5]
                return gaussian(mu, sampling_prob, part, "forward")
            return _convex_bound(mu, sampling_prob * (2 if moment == "folded" else 1), part)
        points, log_weights = _panels(mu, top) if moment == "folded" else _trapezoid(*_range(mu, top, moment))
        losses = sampled_losses(mu * points - mu * mu / 2, sampling_prob)
        keep = _matters(log_weights, losses, top, moment)
        return log_moment(log_weights[keep], losses[keep], part, moment)

    return _in_groups(moments, excess)


def gaussian_replaced(mu: float, sampling_prob: float, excess: Array) -> Array:
    """Log-moments of (1-q)N(0) + qN(+mu) against (1-q)N(0) + qN(-mu), which is its own mirror image.

    This pair dominates a Poisson sample under `replace_one` [Lebeda, Regehr, Kamath, Steinke 2024].
    """

    if mu == 0:
        return numpy.zeros(len(excess))

    def moments(part: Array) -> Array:
        top = float(part[-1])
        low, high, step = -_REACH - mu, (2 * top + 1) * mu + _REACH, _step(mu, power_below=top)
        if high - low > _MOST_NODES * step:
            return _convex_bound(2 * mu, sampling_prob, part)
        points, base = _trapezoid(low, high, step)
        upper = sampled_losses(mu * points - mu * mu / 2, sampling_prob)
        lower = sampled_losses(-mu * points - mu * mu / 2, sampling_prob)
        keep = _matters(base + lower, upper - lower, top, "forward")  # a large order needs nodes only at both ends
        return log_moment((base + lower)[keep], (upper - lower)[keep], part, "forward")

    return _in_groups(moments, excess)


def _in_groups(moments: Callable[[Array], Array], excess: Array) -> Array:
    """Orders of like size share their nodes."""
    result = numpy.empty(len(excess))
    group = numpy.floor(numpy.log(excess) / 2)
    for label in numpy.unique(group):
        members = numpy.flatnonzero(group == label)
        members = members[numpy.argsort(excess[members])]
        result[members] = moments(excess[members])
    return result


def _convex_bound(mu: float, weight: float, excess: Array) -> Array:
    """log(1 + weight (e^K - 1)) for the whole pair's log-moment K, where the integral would need too many nodes.

    A moment is convex in the mixture, so it is at most (1 - q) + q e^K; a folded one is at most the sum of both
    directions less 1, hence twice the weight.
    """
    whole = gaussian(mu, 1.0, excess, "forward")
    near = numpy.log1p(weight * numpy.expm1(numpy.minimum(whole, 30.0)))
    result: Array = numpy.where(whole > 30.0, numpy.logaddexp(0.0, whole + math.log(weight)), near)
    return result


def _step(mu: float, power_below: float) -> float:
    """The trapezoid step; `power_below` is the largest power of u in the denominator."""
    y = min(math.sqrt(2 * _DIGITS / (1 + power_below * mu * mu / 4)), (0.5 if power_below else 0.9) * math.pi / mu)
    growth = y * y / 2 - power_below * math.log(math.cos(mu * y / 2)) if power_below else y * y / 2
    return 2 * math.pi * y / (_DIGITS + growth)


def _range(mu: float, top: float, moment: Moment) -> tuple[float, float, float]:
    """Lower end, upper end and step of the trapezoid rule."""
    if moment == "forward":
        return -_REACH, (1 + top) * mu + _REACH, _step(mu, 0.0)
    return -top * mu - _REACH, mu + _REACH, _step(mu, top)


def _needs_too_many_nodes(mu: float, top: float, moment: Moment) -> bool:
    """Return whether the integral is left to `_convex_bound`; for a large mu the step itself underflows to 0."""
    if moment == "folded":
        return ((1 + top) * mu + _REACH) * _PANEL_NODES > _MOST_NODES * _panel_width(mu, top)
    low, high, step = _range(mu, top, moment)
    return high - low > _MOST_NODES * step


def _trapezoid(low: float, high: float, step: float) -> tuple[Array, Array]:
    points = numpy.arange(low, high + step, step)
    return points, -points * points / 2 - 0.5 * math.log(2 * math.pi) + math.log(step)


def _panel_width(mu: float, top: float) -> float:
    return 1.5 / math.sqrt(1 + (1 + top) * mu * mu / 4)


def _panels(mu: float, top: float) -> tuple[Array, Array]:
    """Gauss-Legendre panels over x > mu/2, where u > 1."""
    width = _panel_width(mu, top)
    edges = numpy.arange(mu / 2, (1 + top) * mu + _REACH + width, width)
    nodes, weights = numpy.polynomial.legendre.leggauss(_PANEL_NODES)
    points = (edges[:, None] + width * (nodes + 1) / 2).ravel()
    log_weights = numpy.tile(numpy.log(weights * width / 2), len(edges))
    return points, log_weights - points * points / 2 - 0.5 * math.log(2 * math.pi)


def _matters(log_weights: Array, losses: Array, top: float, moment: Moment) -> NDArray[numpy.bool_]:
    """Which nodes carry more than e^-85, for the largest order and so for all smaller ones."""
    powers = (-top, 0.0, 1.0) if moment == "backward" else (1 + top, 0.0, 1.0)  # of u, in the terms of the moment
    heaviest = numpy.maximum.reduce([log_weights + power * losses for power in powers])
    result: NDArray[numpy.bool_] = heaviest > -85.0
    return result


# Laplace noise, randomized response ---------------------------------------------------------------------------


def laplace(rate: float, excess: Array) -> Array:
    """Log-moments of Laplace noise; `rate` is the sensitivity over the scale [Mironov 2017, Prop. 6]."""
    order = 1 + excess
    odds = 2 * order - 1
    up, down = rate * excess, -rate * order
    far = numpy.logaddexp(numpy.log(order / odds) + up, numpy.log(excess / odds) + down)
    near = (order * expm1_minus(numpy.minimum(up, 30.0)) + excess * expm1_minus(down)) / odds
    result: Array = numpy.where(up > 30.0, far, numpy.log1p(near))
    return result


@lru_cache(maxsize=1)
def _double_exponential() -> tuple[Array, Array]:
    """Nodes and log-weights on (0, 1) that resolve a peak at either end [Takahasi, Mori 1974]."""
    t = numpy.arange(-208, 209) / 64
    s = math.pi / 2 * numpy.sinh(t)
    nodes = 1 / (1 + numpy.exp(-2 * s))
    log_weights = numpy.log(math.pi / 4 * numpy.cosh(t) / 64) - 2 * numpy.logaddexp(s, -s) + 2 * math.log(2)
    return nodes, log_weights


def laplace_pair(rate: float, *, upper_half: bool = False) -> tuple[Array, Array]:
    """Log-weights and losses of Laplace noise at distance 1, scale 1/rate; only losses above 0 on request."""
    nodes, log_weights = _double_exponential()
    points = (1 + nodes) / 2 if upper_half else nodes
    inside = log_weights + math.log(rate / 2) - rate * points - (math.log(2) if upper_half else 0.0)
    losses = rate * (2 * points - 1)
    atoms = [(-math.log(2) - rate, rate)] + ([] if upper_half else [(-math.log(2), -rate)])
    return (
        numpy.concatenate([inside, [weight for weight, _ in atoms]]),
        numpy.concatenate([losses, [loss for _, loss in atoms]]),
    )


def response_pair(epsilon: float, categories: int = 2) -> tuple[Array, Array]:
    """Log-weights and losses of randomized response; two categories dominate every (epsilon, 0)-DP mechanism.

    [Kairouz, Oh, Viswanath 2015, Thm. 3.4 and its proof] for the second statement.
    """
    log_true = -math.log1p((categories - 1) * math.exp(-epsilon))
    log_weights, losses = [log_true - epsilon, log_true], [epsilon, -epsilon]
    if categories > 2:
        log_weights.append(log_true - epsilon + math.log(categories - 2))
        losses.append(0.0)
    return numpy.array(log_weights), numpy.array(losses)
