"""Events to phases: what the contour method serves, for one relation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hush import events
from hush.accounting.exact.phases import Atoms, LaplaceLoss, Phases
from hush.privacy import Relation


@dataclass(frozen=True)
class Reading:
    """A composition split into what has a contour, what fails outright, and what another method must serve."""

    phases: Phases
    log_intact: float  # log of the chance that no approximate mechanism fails
    failing: int  # how many kinds of them there are, for the rounding of that sum
    is_private: bool
    is_served: bool
    smallest_prob: float  # of sampling; 1 where nothing is sampled
    kinds: frozenset[type[events.Event]]


def read(event: events.Event, relation: Relation) -> Reading:
    """The composition under this relation; `is_served` is False where a part has no known transform."""
    gaussian, log_intact, failing, private = 0.0, 0.0, 0, True
    sampled: dict[tuple[float, float], int] = {}
    bounded: list[tuple[Atoms | LaplaceLoss, int]] = []
    served, kinds = True, set()
    for part, times in events.flat(event):
        kinds.add(type(part))
        match part:
            case events.PoissonSampled(inner, prob) if prob < 1 and (found := _sampled_shift(inner, relation)):
                key = (prob, found)
                sampled[key] = sampled.get(key, 0) + times
            case events.NotPrivate():
                private = False
            case events.ApproximateDP(epsilon, delta):
                log_intact += times * math.log1p(-delta)
                failing += 1
                _add_atoms(bounded, _response(epsilon, 2), times)
            case events.PureDP(epsilon):
                _add_atoms(bounded, _response(epsilon, 2), times)
            case events.RandomizedResponse(epsilon, categories):
                _add_atoms(bounded, _response(epsilon, categories), times)
            case events.Laplace(scale):
                bounded.append((LaplaceLoss(scale / 2 if relation == "replace_one" else scale), times))
            case _ if (distance := _distance(part, relation)) is not None:
                gaussian += times * _square(distance)
            case _:
                served = False
    keys = np.array(list(sampled), dtype=float).reshape(-1, 2)
    counts = np.array(list(sampled.values()), dtype=float)
    phases = Phases(keys[:, 0], keys[:, 1], counts, gaussian, tuple(bounded))
    smallest_prob = min((prob for prob, _ in sampled), default=1.0)
    return Reading(phases, log_intact, failing, private, served, smallest_prob, frozenset(kinds))


def _square(distance: float) -> float:
    """Return the square, rounded up where it would underflow: a distance above 0 never costs nothing."""
    return min(max(distance, 1e-150), 1e100) ** 2 if distance > 0 else 0.0


def _distance(part: events.Event, relation: Relation) -> float | None:
    """mu of an unsampled Gaussian under the relation, or None."""
    match part:
        case events.Gaussian(noise_multiplier):
            return (2 if relation == "replace_one" else 1) / noise_multiplier
        case events.GaussianDP(mu):
            return mu
        case events.PoissonSampled(inner, prob) if prob == 1:
            return _distance(inner, relation)
    return None


def _sampled_shift(inner: events.Event, relation: Relation) -> float | None:
    """The distance from no contribution to one, for a sampled Gaussian.

    Under replace_one the dominating pair is one contribution against its opposite (Lebeda et al. 2024), which needs
    the mechanism to be additive: a bare GaussianDP does not say what happens when the example is absent.
    """
    match inner:
        case events.Gaussian(noise_multiplier):
            return 1 / noise_multiplier
        case events.GaussianDP(mu) if relation != "replace_one":
            return mu
    return None


def _response(epsilon: float, categories: int) -> Atoms:
    truth = 1 / (1 + (categories - 1) * math.exp(-epsilon))
    opposite = truth * math.exp(-epsilon)
    rest = max(1 - truth - opposite, 0.0) if categories > 2 else 0.0
    return Atoms(np.array([epsilon, -epsilon, 0.0]), np.array([truth, opposite, rest]))


def _add_atoms(bounded: list[tuple[Atoms | LaplaceLoss, int]], atoms: Atoms, times: int) -> None:
    if atoms.largest > 0:
        bounded.append((atoms, times))
