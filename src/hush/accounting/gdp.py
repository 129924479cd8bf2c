"""Gaussian differential privacy: the exact curve of the Gaussian mechanism, and its composition.

    >>> round(delta_of(epsilon=1.0, mu=1.0), 12)
    0.126936737507
    >>> round(analytic_noise(epsilon=1.0, delta=1e-5), 8)
    3.73063163

References: Dong, Roth, Su 2022 (GDP); Balle, Wang 2018 (the analytic Gaussian mechanism); Bu, Dong, Long, Su 2020
(the central limit theorem for sampled steps, which is an approximation and not a bound).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy
from scipy import special

from hush import _check
from hush.accounting.delta_search import bisect_root
from hush.errors import InvalidValue, UnsupportedEvent
from hush.events import Event, Gaussian, GaussianDP, NotPrivate, PoissonSampled, flat
from hush.privacy import Guarantee, Relation, check_relation

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_LARGEST_EXPONENT = 700.0
_MOST_STEPS = 10**300
_SMALL_MU = 1e-8


_ASYMPTOTIC_FROM = 20.0  # from here the series below is good to 1e-16 with twelve terms; 1 - s M(s) loses s^2 units
_ASYMPTOTIC_TERMS = 12
_INTEGRATE_UP_TO = 0.5  # mu, or mu over t, below which the difference of Mills ratios would cancel
_LARGEST_MU = 1e150  # from here mu^2 could overflow
SMALLEST_DELTA = 5e-324  # what a delta above 0 is at least reported as


def _mills(t: numpy.ndarray | float) -> numpy.ndarray | float:
    """The Mills ratio Phi(-t)/phi(t)."""
    return math.sqrt(math.pi / 2) * special.erfcx(t / math.sqrt(2))  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _gauss_legendre() -> tuple[numpy.ndarray, numpy.ndarray]:
    nodes, weights = numpy.polynomial.legendre.leggauss(16)
    return (nodes + 1) / 2, weights / 2


def _mills_fall(s: numpy.ndarray) -> numpy.ndarray:
    """Return -M'(s) = 1 - s M(s) of the Mills ratio M, to about 1e-13 for every s above -1."""
    far = numpy.maximum(s, _ASYMPTOTIC_FROM)
    square = 1 / (far * far)
    # 1/s^2 - 3/s^4 + 15/s^6 - ... [Abramowitz, Stegun 1964, 26.2.12], by Horner's rule.
    series = numpy.ones_like(far)
    for term in range(_ASYMPTOTIC_TERMS, 1, -1):
        series = 1 - (2 * term - 1) * square * series
    near = numpy.minimum(s, _ASYMPTOTIC_FROM)
    result: numpy.ndarray = numpy.where(s > _ASYMPTOTIC_FROM, square * series, 1 - near * _mills(near))
    return result


def log_delta_of(epsilon: float, mu: float) -> float:
    """Return log delta(epsilon) of telling N(0, 1) from N(mu, 1).

    The relative error of delta is below 1e-12 + 1e-14 mu wherever delta is above 1e-323. Further out only the
    logarithm itself has about 15 digits, and it is -inf where even that overflows.

    With t = epsilon/mu - mu/2, delta = Phi(-t) - e^epsilon Phi(-t - mu) [Balle, Wang 2018, Thm. 8], which is
    phi(t) (M(t) - M(t + mu)) for the Mills ratio M. Where that difference would cancel, M' = tM - 1 is integrated
    instead.
    """
    if mu == 0:
        return -math.inf
    t = (epsilon - mu * mu / 2) / mu if mu < _LARGEST_MU else epsilon / mu - mu / 2
    if t > _LARGEST_MU:
        return -math.inf
    log_density = -t * t / 2 - _LOG_SQRT_2PI
    if mu < _INTEGRATE_UP_TO * max(1.0, t):
        nodes, weights = _gauss_legendre()
        return log_density + math.log(mu) + math.log(float(weights @ _mills_fall(t + mu * nodes)))
    if t < -30:  # 1 - delta is below 1e-190
        return 0.0
    return log_density + math.log(float(_mills(t)) - float(_mills(t + mu)))


def _upper_log_delta(epsilon: float, mu: float) -> float:
    """log delta with the error of `log_delta_of` added, so that it is not below the truth."""
    return log_delta_of(epsilon, mu) + 1e-12 + 1e-14 * mu


def delta_of(epsilon: float, mu: float) -> float:
    """The smallest delta of a mu-GDP mechanism at this epsilon (0 or above)."""
    epsilon, mu = _check.nonnegative("epsilon", epsilon), _check.nonnegative("mu", mu)
    return math.exp(min(log_delta_of(epsilon, mu), 0.0))


def epsilon_of(delta: float, mu: float) -> float:
    """The smallest epsilon of a mu-GDP mechanism at this delta, rounded up; infinite at delta 0 unless mu is 0.

    >>> round(epsilon_of(delta=1e-5, mu=0.5), 11)
    1.99309140442
    """
    delta, mu = _check.delta(delta), _check.nonnegative("mu", mu)
    if mu == 0:
        return 0.0
    if delta == 0:
        return math.inf
    log_delta = math.log(delta)
    if _upper_log_delta(0.0, mu) <= log_delta:
        return 0.0
    if mu > _LARGEST_MU:  # epsilon is about mu^2 / 2, above 1e299
        return math.inf
    # delta(epsilon) < Phi(-t), so t is at most the normal quantile of delta.
    upper = mu * max(mu / 2 - float(special.ndtri(delta)), 0.0) * (1 + 1e-9) + mu * mu * 1e-9
    while _upper_log_delta(upper, mu) > log_delta:
        upper *= 2  # near delta 1 and for a large mu the margin of `_upper_log_delta` asks for more
        if math.isinf(upper):
            return math.inf
    return bisect_root(lambda epsilon: _upper_log_delta(epsilon, mu) - log_delta, 0.0, upper)


def analytic_noise(epsilon: float, delta: float) -> float:
    """The smallest noise multiplier for which the Gaussian mechanism is (epsilon, delta)-DP, rounded up.

    [Balle, Wang 2018, Alg. 1], solved for mu = 1 / noise_multiplier, in which delta increases.
    """
    epsilon, delta = _check.nonnegative("epsilon", epsilon), _check.delta(delta)
    if delta == 0:
        raise InvalidValue("delta must be above 0 for Gaussian noise; got 0. Use Laplace noise for delta 0.")

    def excess(log_noise: float) -> float:
        return _upper_log_delta(epsilon, math.exp(-log_noise)) - math.log(delta)

    log_noise = bisect_root(excess, *_bracket(excess))
    if log_noise > _LARGEST_EXPONENT:
        raise InvalidValue(
            f"delta must be at least 1e-300 where epsilon is so small; got epsilon {epsilon!r}, delta {delta!r}."
        )
    return math.exp(log_noise) * (1 + 4e-15)


def _bracket(excess: Callable[[float], float]) -> tuple[float, float]:
    """Two points around the root of a decreasing function."""
    low = high = 0.0
    while excess(low) <= 0:
        low -= 1.0
    while excess(high) > 0:
        high += 1.0
    return low, high


def compose(*mus: float) -> float:
    """The mu of a composition of mu-GDP mechanisms: the root of the sum of squares [Dong et al. 2022, Cor. 3.3]."""
    return math.hypot(*(_check.nonnegative("mu", mu) for mu in mus)) * (1 + 4e-16 * max(len(mus), 1))


def mu_of(event: Event, relation: Relation) -> float | None:
    """The exact mu of a composition of Gaussian events without sampling; None where another event is inside.

    Replacing one example moves a sum by twice its contribution, so `replace_one` doubles a Gaussian's mu.
    """
    total = 0.0
    for part, count in flat(event):
        match part:
            case Gaussian(noise_multiplier):
                mu = (2.0 if relation == "replace_one" else 1.0) / noise_multiplier
            case GaussianDP(mu):
                pass
            case PoissonSampled(inner, sampling_prob) if sampling_prob == 1:
                inner_mu = mu_of(inner, relation)
                if inner_mu is None:
                    return None
                mu = inner_mu
            case _:
                return None
        total = math.hypot(total, _root(count) * mu)  # mu^2 itself may underflow, which would claim perfect privacy
    return total


def _root(count: int) -> float:
    """Return the square root of a number of steps, infinite where that is beyond every float."""
    return math.sqrt(count) if count <= _MOST_STEPS else math.inf


def _supported_mu(event: Event, relation: Relation) -> float:
    for part, _ in flat(event):
        if isinstance(part, NotPrivate):
            return math.inf
        if mu_of(part, relation) is None:
            raise UnsupportedEvent(
                f"gdp composes Gaussian events without sampling; it cannot bound {type(part).__name__}; "
                "try method='exact' or method='rdp'."
            )
    return mu_of(event, relation) or 0.0


def guarantee(event: Event, *, delta: float, relation: Relation) -> Guarantee:
    """The epsilon of a composition of Gaussian events without sampling; exact, rounded up."""
    delta, relation = _check.delta(delta), check_relation(relation)
    mu = _supported_mu(event, relation)
    epsilon = math.inf if math.isinf(mu) else epsilon_of(delta, mu * (1 + 1e-14))
    return Guarantee(epsilon=epsilon, delta=delta, relation=relation, method="gdp", notes=(f"mu = {mu:.9g}",))


def delta_guarantee(event: Event, *, epsilon: float, relation: Relation) -> Guarantee:
    """The delta of a composition of Gaussian events without sampling; exact, rounded up."""
    epsilon, relation = _check.nonnegative("epsilon", epsilon), check_relation(relation)
    mu = _supported_mu(event, relation)
    delta = 1.0 if math.isinf(mu) else _rounded_up_delta(epsilon, mu)
    return Guarantee(epsilon=epsilon, delta=delta, relation=relation, method="gdp", notes=(f"mu = {mu:.9g}",))


def _rounded_up_delta(epsilon: float, mu: float) -> float:
    """Return an upper bound on delta that is 0 only where mu is."""
    least = SMALLEST_DELTA if mu > 0 else 0.0
    return max(math.exp(min(_upper_log_delta(epsilon, mu * (1 + 1e-14)), 0.0)), least)


def clt_mu(event: Event, relation: Relation) -> float:
    """The mu that the central limit theorem suggests; sampled steps add their squares [Bu et al. 2020, Cor. 1].

    >>> from hush.events import Repeated
    >>> step = PoissonSampled(Gaussian(noise_multiplier=4.0), sampling_prob=0.01)
    >>> round(clt_mu(Repeated(step, times=10_000), "add_remove"), 12)
    0.253957592755
    """
    total = 0.0
    for part, count in flat(event):
        total = math.hypot(total, _root(count) * _clt_step(part, relation))
    return total


def _clt_step(part: Event, relation: Relation) -> float:
    mu = mu_of(part, relation)
    if mu is not None:
        return mu  # no sampling: exact, no limit theorem needed
    if isinstance(part, NotPrivate):
        return math.inf
    if isinstance(part, PoissonSampled) and relation != "replace_one":
        base = mu_of(part.event, relation)
        if base is not None:
            if base < _SMALL_MU:  # e^(base^2) - 1 is base^2 to full precision, and must not underflow
                return part.sampling_prob * base
            square = math.expm1(base * base) if base * base < _LARGEST_EXPONENT else math.inf
            return part.sampling_prob * math.sqrt(square)
    names = " of ".join(type(event).__name__ for event in (part, *part.parts()))
    raise UnsupportedEvent(f"gdp_clt has no formula for {names} under {relation}; try method='exact' or method='rdp'.")


_CLT_NOTE = "from the central limit theorem: an approximation that can be too small, not a bound"


def clt_guarantee(event: Event, *, delta: float, relation: Relation) -> Guarantee:
    """The epsilon that the central limit theorem suggests. Not a bound: `proven` is False."""
    delta, relation = _check.delta(delta), check_relation(relation)
    mu = clt_mu(event, relation)
    epsilon = math.inf if math.isinf(mu) else epsilon_of(delta, mu)
    notes = (_CLT_NOTE, f"mu = {mu:.9g}")
    return Guarantee(epsilon=epsilon, delta=delta, relation=relation, method="gdp_clt", proven=False, notes=notes)


def clt_delta_guarantee(event: Event, *, epsilon: float, relation: Relation) -> Guarantee:
    """The delta that the central limit theorem suggests. Not a bound: `proven` is False."""
    epsilon, relation = _check.nonnegative("epsilon", epsilon), check_relation(relation)
    mu = clt_mu(event, relation)
    delta = 1.0 if math.isinf(mu) else min(1.0, delta_of(epsilon, mu))
    notes = (_CLT_NOTE, f"mu = {mu:.9g}")
    return Guarantee(epsilon=epsilon, delta=delta, relation=relation, method="gdp_clt", proven=False, notes=notes)
