"""How much Gaussian noise a budget asks for.

    >>> round(gaussian_noise_for(1.0, 1e-5, 1.0), 8)
    3.73063163

The analytic calibration is exact for every epsilon. The textbook formula is proven for epsilon up to 1 only, and false
from about 8 on; `classical_gaussian_noise_for` refuses it above 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy

from hush import _check
from hush.errors import InvalidValue

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_ERROR = 2e-13  # more than the relative error of delta; the noise is that of a delta smaller by it


def gaussian_noise_for(epsilon: float, delta: float, sensitivity: float) -> float:
    """The least standard deviation for which adding Gaussian noise is (epsilon, delta)-private, rounded up.

    `sensitivity` is in the L2 norm. [Balle, Wang 2018, Thm. 8 and Alg. 1]
    """
    epsilon, delta = _check.positive("epsilon", epsilon), positive_delta(delta)
    sensitivity = _check.positive("sensitivity", sensitivity)

    def excess(log_noise: float) -> float:
        return _log_delta(epsilon, math.exp(-log_noise)) + _ERROR - math.log(delta)

    result = sensitivity * math.exp(least_root(excess)) * (1 + 4e-15)
    return _check.positive("the noise for this sensitivity", result)


def classical_gaussian_noise_for(epsilon: float, delta: float, sensitivity: float) -> float:
    """The textbook's sensitivity * sqrt(2 ln(1.25/delta)) / epsilon, for comparison [Dwork, Roth 2014, Thm. A.1].

    >>> round(classical_gaussian_noise_for(1.0, 1e-5, 1.0), 4)
    4.8448
    """
    epsilon, delta = _check.positive("epsilon", epsilon), positive_delta(delta)
    if epsilon > 1:
        raise InvalidValue(
            f"the classical formula is proven for epsilon up to 1 and false from about 8 on; got {epsilon!r}. "
            "Use gaussian_noise_for, which is exact and smaller."
        )
    sensitivity = _check.positive("sensitivity", sensitivity)
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon * (1 + 1e-15)


def positive_delta(value: object) -> float:
    """A delta above 0 and below 1, as Gaussian noise needs it."""
    result = _check.delta(value)
    if result == 0:
        raise InvalidValue("delta must be above 0 for Gaussian noise; got 0. Use Laplace noise for delta 0.")
    return result


def least_root(excess: Callable[[float], float]) -> float:
    """Where a decreasing function gets to 0 or below, by bisection to the last bit; the upper end."""
    low = high = 0.0
    while excess(low) <= 0:
        low -= 1.0
    while excess(high) > 0:
        high += 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def _log_delta(epsilon: float, mu: float) -> float:
    """log delta of telling N(0, 1) from N(mu, 1), without cancellation.

    With t = epsilon/mu - mu/2 it is phi(t) (M(t) - M(t + mu)) for the Mills ratio M, since e^epsilon phi(t + mu) =
    phi(t). Where mu is small, M' = tM - 1 is integrated instead.
    """
    from scipy import special

    def mills(point: numpy.ndarray | float) -> numpy.ndarray | float:
        return math.sqrt(math.pi / 2) * special.erfcx(point / math.sqrt(2))  # type: ignore[no-any-return]

    t = (epsilon - mu * mu / 2) / mu
    log_density = -t * t / 2 - _LOG_SQRT_2PI
    if mu < 0.5:
        nodes, weights = numpy.polynomial.legendre.leggauss(16)
        points = t + mu * (nodes + 1) / 2
        return log_density + math.log(mu / 2 * float(weights @ (1 - points * mills(points))))
    if t < 0:
        second = math.exp(epsilon + float(special.log_ndtr(-t - mu)))
        return math.log(float(special.ndtr(-t)) - second)
    return log_density + math.log(float(mills(t)) - float(mills(t + mu)))
