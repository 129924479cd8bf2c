"""From events to curves: which pair of distributions dominates an event under a relation, in both directions.

| event | add_remove, zero_out | replace_one |
|---|---|---|
| Gaussian(s), Laplace(b) | one unit apart: mu = 1/s, top loss 1/b | two units apart |
| GaussianDP, RandomizedResponse, PureDP, ApproximateDP, NotPrivate | as declared | as declared |
| PoissonSampled | `Remove` and `Add` of the base | Gaussian, Laplace: +1 against -1; others refused |
| FixedSizeSampled | add_remove: `Remove` and `Add`; zero_out: as replace_one | `Mirrored` |

Fixed-size sampling always rests on the base's replace_one pair: without the example another one takes its place, so
add_remove compares (1-g)Q + gP with Q, Q the base on a sample without the example and P on one where it replaced
another. PureDP, ApproximateDP and GaussianDP hold under the relation in use; where that is not replace_one, replacing
is two steps, and they are taken for groups of two.
"""

from __future__ import annotations

import math

from hush import events
from hush.accounting.grid.curves import Atoms, Curve, Normal, TwoSidedExponential, response
from hush.accounting.grid.sampled import Add, Mirrored, Remove, ReplaceLaplace, ReplaceNormal
from hush.errors import UnsupportedEvent
from hush.privacy import Relation

Direction = tuple[tuple[Curve, int], ...]

LARGEST_LOSS = 600.0  # e^LARGEST_LOSS is a number; beyond it a release is as good as not private


def directions(event: events.Event, relation: Relation) -> tuple[Direction, ...]:
    """The composition's curves with their counts, once per direction; one direction where both are the same."""
    both: tuple[dict[Curve, int], dict[Curve, int]] = ({}, {})
    for part, count in events.flat(event):
        for counts, curve in zip(both, _pair(part, relation), strict=True):
            counts[curve] = counts.get(curve, 0) + count
    remove, add = (_merged(counts) for counts in both)
    return (remove,) if remove == add else (remove, add)


def _merged(counts: dict[Curve, int]) -> Direction:
    # Gaussian pairs compose to one with the root of the summed squares [dong22, Cor. 3.3]; a loss of 0 adds nothing.
    square = math.fsum(count * curve.mu**2 for curve, count in counts.items() if isinstance(curve, Normal))
    rest = [(curve, count) for curve, count in counts.items() if not isinstance(curve, Normal)]
    kept = [(curve, count) for curve, count in rest if curve != response(0.0)]
    return ((Normal(math.sqrt(square)), 1), *kept) if square > 0 else tuple(kept)


def _pair(event: events.Event, relation: Relation) -> tuple[Curve, Curve]:
    match event:
        case events.PoissonSampled(events.PoissonSampled(inner, first), second) if relation != "replace_one":
            return _pair(events.PoissonSampled(inner, first * second), relation)
        case events.PoissonSampled(inner, sampling_prob) if sampling_prob < 1:
            return _poisson(inner, sampling_prob, relation)
        case events.PoissonSampled(inner, _):
            curve = _base(inner, relation)
        case events.FixedSizeSampled(inner, sample_size, num_examples):
            return _fixed_size(inner, sample_size / num_examples, relation)
        case _:
            curve = _base(event, relation)
    return curve, curve


def _poisson(inner: events.Event, sampling_prob: float, relation: Relation) -> tuple[Curve, Curve]:
    if relation != "replace_one":
        base = _sampled_base(inner, relation)
        return Remove(base, sampling_prob), Add(base, sampling_prob)
    curve: Curve
    match inner:
        case events.Gaussian(noise_multiplier):
            curve = Mirrored(ReplaceNormal(noise_multiplier, sampling_prob))
        case events.Laplace():
            curve = Mirrored(ReplaceLaplace(_sampled_base(inner, "add_remove"), sampling_prob))
        case _:
            raise UnsupportedEvent(
                f"the grid accountant bounds PoissonSampled under replace_one for Gaussian and Laplace only; got "
                f"{type(inner).__name__}; use add_remove, or FixedSizeSampled."
            )
    return curve, curve


def _fixed_size(inner: events.Event, share: float, relation: Relation) -> tuple[Curve, Curve]:
    base = _sampled_base(inner if relation == "replace_one" else _in_twos(inner), "replace_one")
    if share == 1:
        return base, base
    if relation == "add_remove":
        return Remove(base, share), Add(base, share)
    curve = Mirrored(Remove(base, share))
    return curve, curve


def _in_twos(event: events.Event) -> events.Event:
    match event:
        case events.PureDP(epsilon):
            return events.PureDP(2 * epsilon)
        case events.GaussianDP(mu):
            return events.GaussianDP(2 * mu)
        case events.ApproximateDP(epsilon, delta):
            total = delta * (1 + math.exp(min(epsilon, LARGEST_LOSS))) * (1 + 1e-15)
            return events.ApproximateDP(2 * epsilon, total) if total < 1 else events.NotPrivate()
    return event


def _sampled_base(event: events.Event, relation: Relation) -> Curve:
    curve = _base(event, relation)
    largest = curve.mu * (curve.mu / 2 + 8) if isinstance(curve, Normal) else curve.top
    if largest > LARGEST_LOSS:
        raise UnsupportedEvent(
            f"the grid accountant bounds a sampled event with losses up to {LARGEST_LOSS:g}; {event!r} has "
            f"{largest:.6g}; use more noise, or declare it NotPrivate."
        )
    return curve


def _base(event: events.Event, relation: Relation) -> Curve:
    units = 2 if relation == "replace_one" else 1
    match event:
        case events.Gaussian(noise_multiplier):
            return Normal(units / noise_multiplier)
        case events.GaussianDP(mu):
            return Normal(mu) if mu > 0 else response(0.0)
        case events.Laplace(scale):
            return TwoSidedExponential(units / scale)
        case events.RandomizedResponse(epsilon, categories):
            return response(epsilon, categories)
        case events.PureDP(epsilon):
            return response(epsilon)
        case events.ApproximateDP(epsilon, delta):
            return response(epsilon, infinite_mass=delta)
        case events.NotPrivate():
            return Atoms((), (), infinite_mass=1.0)
    raise UnsupportedEvent(f"the grid accountant cannot bound {type(event).__name__} here; got {event!r}.")
