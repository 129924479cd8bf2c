"""The log-moments of every event: (order - 1) times its Rényi divergence, summed over a composition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy

from hush.accounting import amplification, gdp, renyi_generic, renyi_pairs
from hush.accounting.loss_moments import Array, Moment, log_moment
from hush.accounting.sampled_base import as_replace_one, merged_poisson, only_gaussian, refuse, refuse_nested_sampling
from hush.events import (
    ApproximateDP,
    Event,
    FixedSizeSampled,
    Laplace,
    NotPrivate,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
    ZeroConcentratedDP,
    flat,
)
from hush.privacy import Relation

Direction = Literal["remove", "add"]
Parts = list[tuple[Event, int]]
_MOMENT: dict[Direction, Moment] = {"remove": "forward", "add": "backward"}


def log_moments(event: Event, excess: Array, relation: Relation, direction: Direction) -> Array:
    """(order - 1) times the divergence of each order 1 + excess, in one direction of the relation."""
    return total(list(flat(event)), excess, relation, direction)


def total(parts: Parts, excess: Array, relation: Relation, direction: Direction) -> Array:
    """The log-moments of a composition given as (event, how often) pairs."""
    result: Array = numpy.zeros(len(excess))
    for part, count in parts:
        result = result + count * _elementary(part, excess, relation, direction)
    return result


def directions_of(parts: Parts, relation: Relation) -> Sequence[Direction]:
    """Both directions where they can differ: a sampled pair is not its own mirror image."""
    sampled = any(isinstance(part, PoissonSampled | FixedSizeSampled) for part, _ in parts)
    return ("remove", "add") if sampled and relation != "replace_one" else ("remove",)


def _elementary(event: Event, excess: Array, relation: Relation, direction: Direction) -> Array:
    mu = gdp.mu_of(event, relation)
    if mu is not None:
        return renyi_pairs.gaussian(mu, 1.0, excess, "forward")
    match event:
        case NotPrivate():
            return numpy.full(len(excess), numpy.inf)
        case Laplace(scale):
            return renyi_pairs.laplace((2.0 if relation == "replace_one" else 1.0) / scale, excess)
        case RandomizedResponse() | PureDP():
            return log_moment(*_response(event), excess, "forward")
        case ApproximateDP(epsilon, delta):
            return _elementary(PureDP(epsilon) if delta == 0 else NotPrivate(), excess, relation, direction)
        case ZeroConcentratedDP(rho):
            zero_concentrated: Array = rho * excess * (1 + excess)
            return zero_concentrated
        case PoissonSampled():
            return _poisson(event, excess, relation, direction)
        case FixedSizeSampled():
            return _fixed_size(event, excess, relation, direction)
    raise refuse(event, "rdp")


def _response(event: RandomizedResponse | PureDP) -> tuple[Array, Array]:
    categories = event.categories if isinstance(event, RandomizedResponse) else 2
    return renyi_pairs.response_pair(event.epsilon, categories)


def _poisson(event: PoissonSampled, excess: Array, relation: Relation, direction: Direction) -> Array:
    inner, sampling_prob = merged_poisson(event)
    if sampling_prob == 1:
        return log_moments(inner, excess, relation, direction)
    refuse_nested_sampling(event, inner, "rdp")
    if relation == "replace_one":
        mu = gdp.mu_of(inner, "add_remove")
        if mu is None or not only_gaussian(inner):
            raise refuse(event, "rdp", "of anything but Gaussian noise under replace_one")
        return renyi_pairs.gaussian_replaced(mu, sampling_prob, excess)
    exact = _sampled_pair(inner, sampling_prob, excess, _MOMENT[direction])
    if exact is not None:
        return exact
    base = partial(log_moments, inner, relation=relation, direction=direction)
    return renyi_generic.poisson(base, sampling_prob, excess)


def _fixed_size(event: FixedSizeSampled, excess: Array, relation: Relation, direction: Direction) -> Array:
    refuse_nested_sampling(event, event.event, "rdp")
    inner, fraction = as_replace_one(event.event, relation), event.sample_size / event.num_examples
    if fraction == 1:
        return log_moments(inner, excess, "add_remove", direction)
    moment: Moment = _MOMENT[direction] if relation == "add_remove" else "folded"
    exact = _sampled_pair(inner, fraction, excess, moment)
    if exact is not None:
        return exact
    base = partial(log_moments, inner, relation="add_remove", direction=direction)
    return renyi_generic.fixed_size(base, largest_loss(inner, "add_remove"), fraction, excess)


def _sampled_pair(inner: Event, sampling_prob: float, excess: Array, moment: Moment) -> Array | None:
    """The log-moments of the sampled pair where the inner event's own pair is known, read under add/remove."""
    mu = gdp.mu_of(inner, "add_remove")
    if mu is not None:
        return renyi_pairs.gaussian(mu, sampling_prob, excess, moment)
    parts = list(flat(inner))
    if len(parts) != 1 or parts[0][1] != 1:
        return None
    match parts[0][0]:
        case Laplace(scale):
            weights, losses = renyi_pairs.laplace_pair(1 / scale, upper_half=moment == "folded")
        case RandomizedResponse() | PureDP() as response:
            weights, losses = _response(response)
        case _:
            return None
    return log_moment(weights, renyi_pairs.sampled_losses(losses, sampling_prob), excess, moment)


def largest_loss(event: Event, relation: Relation) -> float:
    """The largest possible privacy loss, so the epsilon at delta 0; infinite where it has no bound."""
    total = 0.0
    for part, count in flat(event):
        match part:
            case PureDP(epsilon) | RandomizedResponse(epsilon):
                loss = epsilon
            case ApproximateDP(epsilon, delta):
                loss = epsilon if delta == 0 else math.inf
            case Laplace(scale):
                loss = (2.0 if relation == "replace_one" else 1.0) / scale
            case PoissonSampled(inner, sampling_prob):
                loss = amplification.poisson(largest_loss(inner, relation), 0.0, sampling_prob)[0]
            case FixedSizeSampled(inner, size, total_examples):
                base = largest_loss(as_replace_one(inner, relation), "add_remove")
                loss = amplification.fixed_size(base, 0.0, size, total_examples)[0]
            case _:
                loss = 0.0 if _costs_nothing(part) else math.inf
        total += count * loss
    return total


def _costs_nothing(event: Event) -> bool:
    return any(getattr(event, name, None) == 0 for name in ("mu", "rho"))


def without_failures(event: Event, relation: Relation) -> tuple[Parts, float]:
    """The event with each `ApproximateDP` made pure, and the chance that any of their deltas strikes.

    An (epsilon, delta)-DP pair is a mixture of a pure pair and, with weight delta, anything [Kairouz, Oh, Viswanath
    2015, proof of Thm. 3.4]; so a composition is pure but for a weight of 1 - product of (1 - delta).
    """
    parts: Parts = []
    log_whole = 0.0
    for part, count in flat(event):
        claim = _approximate(part, relation)
        if claim is None:
            parts.append((part, count))
        else:
            parts.append((PureDP(claim.epsilon), count))
            log_whole += count * math.log1p(-claim.delta)
    return parts, -math.expm1(log_whole) * (1 + 1e-14)


def _approximate(part: Event, relation: Relation) -> ApproximateDP | None:
    match part:
        case ApproximateDP():
            return part
        case PoissonSampled():
            inner, sampling_prob = merged_poisson(part)
            if not isinstance(inner, ApproximateDP):
                return None
            if relation == "replace_one" and sampling_prob < 1:
                raise refuse(part, "rdp", "of anything but Gaussian noise under replace_one")
            return ApproximateDP(*amplification.poisson(inner.epsilon, inner.delta, sampling_prob))
        case FixedSizeSampled(ApproximateDP() as inner, sample_size, num_examples):
            base = as_replace_one(inner, relation)
            assert isinstance(base, ApproximateDP)
            return ApproximateDP(*amplification.fixed_size(base.epsilon, base.delta, sample_size, num_examples))
    return None
