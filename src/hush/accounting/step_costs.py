"""The (epsilon, delta) of one step of an event, from the closed-form curve of the noise and the sampling lemma."""

from __future__ import annotations

import math

from hush.accounting import amplification, gdp, zcdp
from hush.accounting.sampled_base import as_replace_one, merged_poisson, refuse, refuse_nested_sampling
from hush.events import (
    ApproximateDP,
    Event,
    FixedSizeSampled,
    Gaussian,
    GaussianDP,
    Laplace,
    NotPrivate,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
    ZeroConcentratedDP,
    flat,
)
from hush.privacy import Relation


def needs_delta(event: Event) -> bool:
    """Whether a step has a finite epsilon only at a delta above 0 that is ours to choose."""
    match event:
        case Gaussian():
            return True
        case GaussianDP(value) | ZeroConcentratedDP(value):
            return value > 0
        case PoissonSampled(inner) | FixedSizeSampled(inner):
            return any(needs_delta(part) for part, _ in flat(inner))
    return False


def step_cost(event: Event, step_delta: float, relation: Relation, accountant: str) -> tuple[float, float]:
    """The (epsilon, delta) of one step; a step that `needs_delta` gets epsilon at `step_delta`, others keep their own.

    Under `replace_one` a Poisson sample is refused: the lemma holds there for a sample of fixed size.
    """
    match event:
        case PureDP(epsilon) | RandomizedResponse(epsilon):
            return epsilon, 0.0
        case ApproximateDP(epsilon, delta):
            return epsilon, delta
        case Laplace(scale):
            return (2.0 if relation == "replace_one" else 1.0) / scale, 0.0
        case NotPrivate():
            return math.inf, 0.0
        case ZeroConcentratedDP(rho):
            return zcdp.tight_epsilon(rho, step_delta), step_delta if rho > 0 else 0.0
        case Gaussian() | GaussianDP():
            mu = gdp.mu_of(event, relation) or 0.0
            return gdp.epsilon_of(step_delta, mu), step_delta if mu > 0 else 0.0
        case PoissonSampled():
            inner, sampling_prob = merged_poisson(event)
            if relation == "replace_one" and sampling_prob < 1:
                raise refuse(event, accountant, "under replace_one")
            return _sampled_cost(event, inner, sampling_prob, step_delta, relation, accountant)
        case FixedSizeSampled(inner, sample_size, num_examples):
            base = as_replace_one(inner, relation)
            return _sampled_cost(event, base, sample_size / num_examples, step_delta, "add_remove", accountant)
    raise refuse(event, accountant)


def _sampled_cost(
    event: Event, inner: Event, fraction: float, step_delta: float, relation: Relation, accountant: str
) -> tuple[float, float]:
    refuse_nested_sampling(event, inner, accountant)
    base_delta = step_delta / fraction
    if base_delta >= 1:
        return 0.0, fraction  # every mechanism is (0, 1)-DP
    epsilon, delta = _inner_cost(inner, base_delta, relation, accountant)
    if delta >= 1 or math.isinf(epsilon):
        return math.inf, 0.0
    epsilon, delta = amplification.poisson(epsilon, delta, fraction)
    return epsilon, min(delta, step_delta) if needs_delta(event) and _only_chosen_deltas(inner) else delta


def _only_chosen_deltas(inner: Event) -> bool:
    return not any(isinstance(part, ApproximateDP) for part, _ in flat(inner))


def _inner_cost(inner: Event, delta: float, relation: Relation, accountant: str) -> tuple[float, float]:
    """What is done to one sample, composed: Gaussian noise exactly, anything else by the sums."""
    mu = gdp.mu_of(inner, relation)
    if mu is not None:
        return gdp.epsilon_of(delta, mu), delta if mu > 0 else 0.0
    hungry = sum(count for part, count in flat(inner) if needs_delta(part))
    total_epsilon = total_delta = 0.0
    for part, count in flat(inner):
        epsilon, spent = step_cost(part, delta / max(hungry, 1), relation, accountant)
        total_epsilon, total_delta = total_epsilon + count * epsilon, total_delta + count * spent
    return total_epsilon, total_delta
