"""Zero-concentrated differential privacy: divergence of every order a at most rho * a; rho adds up.

    >>> round(classic_epsilon(rho=0.125, delta=1e-5), 11)
    2.52426295609
    >>> round(tight_epsilon(rho=0.125, delta=1e-5), 10)
    2.1657155452

Reference: Bun, Steinke 2016.
"""

from __future__ import annotations

import math

import numpy

from hush import _check
from hush.accounting.gdp import mu_of
from hush.accounting.rdp_orders import epsilons, log_deltas, minimise, total_variation
from hush.accounting.sampled_base import merged_poisson, refuse
from hush.events import (
    ApproximateDP,
    Event,
    Laplace,
    NotPrivate,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
    ZeroConcentratedDP,
    flat,
)
from hush.privacy import Guarantee, Relation, check_relation

_MARGIN = 1 + 1e-13


def rho_of(event: Event, relation: Relation) -> float:
    """The rho of a composition; infinite with a `NotPrivate` inside, refused for sampled events.

    Gaussian: mu^2/2 [Bun, Steinke 2016, Prop. 1.6]; pure epsilon: epsilon^2/2 [Prop. 1.4].
    """
    return sum(count * _elementary_rho(part, relation) for part, count in flat(event))


def _elementary_rho(part: Event, relation: Relation) -> float:
    mu = mu_of(part, relation)
    if mu is not None:
        return mu * mu / 2
    match part:
        case ZeroConcentratedDP(rho):
            return rho
        case PureDP(epsilon) | RandomizedResponse(epsilon):
            return epsilon * epsilon / 2
        case ApproximateDP(epsilon, delta) if delta == 0:
            return epsilon * epsilon / 2
        case Laplace(scale):
            rate = (2.0 if relation == "replace_one" else 1.0) / scale
            return rate * rate / 2
        case NotPrivate():
            return math.inf
        case PoissonSampled() if merged_poisson(part)[1] == 1:
            return rho_of(merged_poisson(part)[0], relation)
    raise refuse(part, "zcdp")


def classic_epsilon(rho: float, delta: float) -> float:
    """rho + 2 sqrt(rho log(1/delta)) [Bun, Steinke 2016, Prop. 1.3]."""
    rho, delta = _check.nonnegative("rho", rho), _check.delta(delta)
    if rho == 0:
        return 0.0
    return (rho + 2 * math.sqrt(-rho * math.log(delta))) * (1 + 1e-15) if delta > 0 else math.inf


def tight_epsilon(rho: float, delta: float) -> float:
    """The smallest epsilon over all orders by the improved conversion of Rényi divergences."""
    rho, delta = _check.nonnegative("rho", rho), _check.delta(delta)
    if rho == 0 or total_variation(rho) <= delta:  # the relative entropy is at most rho
        return 0.0
    if delta == 0:
        return math.inf
    log_delta = math.log(delta)

    def objective(excess: numpy.ndarray) -> numpy.ndarray:
        return epsilons(_MARGIN * rho * excess * (1 + excess), excess, log_delta)

    return max(minimise(objective, math.sqrt(-log_delta / rho))[1] * _MARGIN, 0.0)


def tight_delta(rho: float, epsilon: float) -> float:
    """The smallest delta over all orders by the improved conversion of Rényi divergences."""
    rho, epsilon = _check.nonnegative("rho", rho), _check.nonnegative("epsilon", epsilon)
    if rho == 0:
        return 0.0

    def objective(excess: numpy.ndarray) -> numpy.ndarray:
        return log_deltas(_MARGIN * rho * excess * (1 + excess), excess, epsilon)

    log_delta = minimise(objective, max(epsilon / (2 * rho), 0.01))[1]
    bound = total_variation(rho) * _MARGIN
    return max(min(1.0, bound, math.exp(min(log_delta + 1e-13 * (1 + abs(log_delta)), 0.0))), 5e-324)


def guarantee(event: Event, *, delta: float, relation: Relation) -> Guarantee:
    """The smallest epsilon that the total rho proves at this delta."""
    delta, relation = _check.delta(delta), check_relation(relation)
    rho = rho_of(event, relation) * _MARGIN
    notes: tuple[str, ...] = (f"rho = {rho:.9g}",)
    if math.isinf(rho):
        return Guarantee(epsilon=math.inf, delta=delta, relation=relation, method="zcdp", notes=notes)
    notes += (f"the classic conversion gives {classic_epsilon(rho, delta):.9g}",)
    return Guarantee(epsilon=tight_epsilon(rho, delta), delta=delta, relation=relation, method="zcdp", notes=notes)


def delta_guarantee(event: Event, *, epsilon: float, relation: Relation) -> Guarantee:
    """The smallest delta that the total rho proves at this epsilon."""
    epsilon, relation = _check.nonnegative("epsilon", epsilon), check_relation(relation)
    rho = rho_of(event, relation) * _MARGIN
    delta = 1.0 if math.isinf(rho) else tight_delta(rho, epsilon)
    return Guarantee(epsilon=epsilon, delta=delta, relation=relation, method="zcdp", notes=(f"rho = {rho:.9g}",))
