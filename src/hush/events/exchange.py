"""Events to and from Google's dp-accounting, which must be installed for these two functions only."""

from __future__ import annotations

import math
from typing import Any

from hush.errors import MissingExtra, UnsupportedEvent
from hush.events import kinds


def _library() -> Any:
    try:
        from dp_accounting import dp_event
    except ImportError:
        raise MissingExtra("dp-accounting is not installed; run: pip install 'hush[bench]'") from None
    return dp_event


def to_dp_accounting(event: kinds.Event) -> Any:
    """The same event in dp-accounting's words; one that it has no word for is refused by name."""
    theirs = _library()
    match event:
        case kinds.Gaussian(noise_multiplier) | kinds.MatrixGaussian(noise_multiplier):
            return theirs.GaussianDpEvent(noise_multiplier)
        case kinds.GaussianDP(mu):
            return theirs.GaussianDpEvent(1 / mu) if mu > 0 else theirs.NoOpDpEvent()
        case kinds.Laplace(scale):
            return theirs.LaplaceDpEvent(scale)
        case kinds.RandomizedResponse(epsilon, categories):
            return theirs.RandomizedResponseDpEvent(_uniform_chance(epsilon, categories), categories)
        case kinds.ZeroConcentratedDP(rho):
            return theirs.ZCDpEvent(rho)
        case kinds.NotPrivate():
            return theirs.NonPrivateDpEvent()
        case kinds.PoissonSampled(inner, sampling_prob):
            return theirs.PoissonSampledDpEvent(sampling_prob, to_dp_accounting(inner))
        case kinds.FixedSizeSampled(inner, sample_size, num_examples):
            return theirs.SampledWithoutReplacementDpEvent(num_examples, sample_size, to_dp_accounting(inner))
        case kinds.Repeated(inner, times):
            return theirs.SelfComposedDpEvent(to_dp_accounting(inner), times)
        case kinds.Composed(()):
            return theirs.NoOpDpEvent()
        case kinds.Composed(parts):
            return theirs.ComposedDpEvent([to_dp_accounting(part) for part in parts])
    raise UnsupportedEvent(f"dp-accounting has no event for {type(event).__name__}.")


def from_dp_accounting(event: Any) -> kinds.Event:
    """The same event in Hush's words; one that Hush has no word for is refused by name."""
    theirs = _library()
    match event:
        case theirs.NoOpDpEvent():
            return kinds.Composed()
        case theirs.GaussianDpEvent(noise_multiplier=noise_multiplier):
            return kinds.Gaussian(noise_multiplier)
        case theirs.LaplaceDpEvent(noise_multiplier=scale):
            return kinds.Laplace(scale)
        case theirs.RandomizedResponseDpEvent(noise_parameter=chance, num_buckets=categories):
            return kinds.RandomizedResponse(_response_epsilon(chance, categories), categories)
        case theirs.ZCDpEvent(rho=rho, xi=xi) if xi == 0:
            return kinds.ZeroConcentratedDP(rho)
        case theirs.NonPrivateDpEvent():
            return kinds.NotPrivate()
        case theirs.PoissonSampledDpEvent(sampling_probability=sampling_prob, event=inner):
            return kinds.PoissonSampled(from_dp_accounting(inner), sampling_prob)
        case theirs.SampledWithoutReplacementDpEvent(source_dataset_size=total, sample_size=size, event=inner):
            return kinds.FixedSizeSampled(from_dp_accounting(inner), size, total)
        case theirs.SelfComposedDpEvent(event=inner, count=count):
            return kinds.Repeated(from_dp_accounting(inner), count) if count else kinds.Composed()
        case theirs.ComposedDpEvent(events=parts):
            return kinds.Composed(*(from_dp_accounting(part) for part in parts))
    raise UnsupportedEvent(f"Hush has no event for {type(event).__name__}.")


def _uniform_chance(epsilon: float, categories: int) -> float:
    # Theirs answers uniformly at random with this chance and truly otherwise; the odds of truth are e^epsilon.
    return categories / (math.exp(epsilon) + categories - 1)


def _response_epsilon(chance: float, categories: int) -> float:
    if not 0 < chance < 1:
        raise UnsupportedEvent(f"randomized response needs a noise_parameter above 0 and below 1; got {chance!r}.")
    return math.log(categories / chance - categories + 1)
