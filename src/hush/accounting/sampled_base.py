"""What lies under a sampled event, stated for the relation that the sampling theorem needs."""

from __future__ import annotations

import math

from hush.errors import UnsupportedEvent
from hush.events import (
    ApproximateDP,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    GaussianDP,
    Laplace,
    PoissonSampled,
    PureDP,
    Repeated,
    ZeroConcentratedDP,
    flat,
)
from hush.privacy import Relation


def merged_poisson(event: PoissonSampled) -> tuple[Event, float]:
    """The innermost event and the joint sampling probability: a Poisson sample of a Poisson sample is one."""
    inner: Event = event.event
    sampling_prob = event.sampling_prob
    while isinstance(inner, PoissonSampled):
        sampling_prob *= inner.sampling_prob
        inner = inner.event
    return inner, sampling_prob


def refuse(event: Event, accountant: str, why: str = "") -> UnsupportedEvent:
    """The error for an event that an accountant cannot bound."""
    reason = f" {why}" if why else ""
    return UnsupportedEvent(f"{accountant} cannot bound {type(event).__name__}{reason}; try method='exact'.")


def refuse_nested_sampling(outer: Event, inner: Event, accountant: str) -> None:
    """Raise where a sampled event lies inside another in a way that no theorem here covers."""
    for part, _ in flat(inner):
        if isinstance(part, PoissonSampled | FixedSizeSampled):
            raise refuse(outer, accountant, f"of {type(part).__name__}")


def only_gaussian(event: Event) -> bool:
    """Whether an event is a composition of `Gaussian` events alone, whose sensitivity is known for every relation."""
    return all(isinstance(part, Gaussian) for part, _ in flat(event))


def as_replace_one(event: Event, relation: Relation) -> Event:
    """The event as it holds when one example of the sample is replaced, whatever the relation in use.

    A fixed-size sample with one example more has another one less, so its inner event sees a replacement. Laplace
    noise is over one example's contribution, which a replacement can move twice. A claim such as `PureDP` that
    holds for adding or removing holds for a replacement as a group of two [Dwork, Roth 2014, Thm. 2.2].
    The result is to be read under "add_remove": its doubling is done here, once.
    """
    claimed_for_replacement = relation == "replace_one"
    match event:
        case Laplace(scale):
            return Laplace(scale / 2)
        case Repeated(inner, times):
            return Repeated(as_replace_one(inner, relation), times)
        case Composed(parts):
            return Composed(*(as_replace_one(part, relation) for part in parts))
        case Gaussian(noise_multiplier):
            return GaussianDP(2 / noise_multiplier)
        case PureDP(epsilon) if not claimed_for_replacement:
            return PureDP(2 * epsilon)
        case GaussianDP(mu) if not claimed_for_replacement:
            return GaussianDP(2 * mu)
        case ZeroConcentratedDP(rho) if not claimed_for_replacement:
            return ZeroConcentratedDP(4 * rho)
        case ApproximateDP(epsilon, delta) if not claimed_for_replacement:
            doubled = delta * (1 + math.exp(min(epsilon, 700.0)))
            if doubled >= 1:
                raise refuse(event, "sampling without replacement", "whose delta for a group of two reaches 1")
            return ApproximateDP(2 * epsilon, doubled)
    return event
