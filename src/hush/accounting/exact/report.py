"""The exact accountant as one of the methods: intervals to guarantees."""

from __future__ import annotations

import math

import numpy as np

from hush import events
from hush.accounting.exact.answer import delta_interval, epsilon_interval, likely_epsilon
from hush.accounting.exact.reading import Reading, read
from hush.accounting.exact.rough import Rough
from hush.events import Event
from hush.privacy import Guarantee, Relation


def guarantee(event: Event, *, delta: float, relation: Relation) -> Guarantee:
    """The interval for epsilon at delta."""
    reading = read(event, relation)
    if events.ZeroConcentratedDP in reading.kinds:
        return _between(event, relation, delta=delta)
    with np.errstate(all="ignore"):  # what overflows is not finite, and no end of an interval rests on it
        (low, high), way = epsilon_interval(event, delta=delta, relation=relation, reading=reading)
    if low < high == math.inf:  # nothing found above: the Rényi bound may still be finite
        high, way = _renyi_epsilon(event, delta, relation), f"{way}; upper end by Rényi divergences"
    return Guarantee(
        epsilon=high,
        epsilon_lower=low,
        delta=delta,
        delta_lower=delta,
        relation=relation,
        method="exact",
        notes=_notes(reading, way),
    )


def rough(event: Event, *, delta: float, relation: Relation, near: float | None = None) -> Rough | None:
    """About epsilon at delta, if it lies near there, and how it grows with noise, sampling and steps. No bound at all.

    Without a place it is right to a percent or so. None where that is not quickly seen.
    """
    with np.errstate(all="ignore"):
        return likely_epsilon(event, delta=delta, relation=relation, near=near)


def guess(event: Event, *, delta: float, relation: Relation, near: float) -> float:
    """The same epsilon alone; NaN where there is none."""
    found = rough(event, delta=delta, relation=relation, near=near)
    return math.nan if found is None else found.epsilon


def delta_guarantee(event: Event, *, epsilon: float, relation: Relation, least: float = 0.0) -> Guarantee:
    """The interval for delta at epsilon; what is below `least` is not told apart, and reported as at most that."""
    reading = read(event, relation)
    if events.ZeroConcentratedDP in reading.kinds:
        return _between(event, relation, epsilon=epsilon)
    with np.errstate(all="ignore"):
        (low, high), way = delta_interval(event, epsilon=epsilon, relation=relation, reading=reading, least=least)
    if least > 0 and high <= least:
        low, high, way = 0.0, least, f"{way}; less than {least:g} is not told apart"
    return Guarantee(
        epsilon=epsilon,
        epsilon_lower=epsilon,
        delta=high,
        delta_lower=low,
        relation=relation,
        method="exact",
        notes=_notes(reading, way),
    )


def _renyi_epsilon(event: Event, delta: float, relation: Relation) -> float:
    from hush.accounting import rdp

    try:
        with np.errstate(all="ignore"):
            return rdp.guarantee(event, delta=delta, relation=relation).epsilon
    except (ArithmeticError, MemoryError, ValueError):  # not supported, or out of range: nothing is known
        return math.inf


def _notes(reading: Reading, way: str) -> tuple[str, ...]:
    notes = [f"by {way}"]
    if events.FixedSizeSampled in reading.kinds:
        notes.append(
            "fixed-size sampling: composed from the best proven dominating pair (Balle, Barthe, Gaboardi 2018; "
            "Zhu, Dong, Wang 2022), so the interval holds that bound, and the mechanism itself may cost less"
        )
    return tuple(notes)


def _between(event: Event, relation: Relation, **question: float) -> Guarantee:
    """Concentrated privacy is a promise on Rényi divergences: above by those, below by the Gaussian that attains it."""
    from hush.accounting import rdp

    parts = [events.Repeated(_as_gaussian(part), times) for part, times in events.flat(event)]
    least = events.Composed(*parts)
    note = "zero-concentrated: the upper end is the Rényi bound, the lower end the Gaussian mechanism with that rho"
    if "delta" in question:
        upper = rdp.guarantee(event, delta=question["delta"], relation=relation)
        lower = guarantee(least, delta=question["delta"], relation=relation)
    else:
        upper = rdp.delta_guarantee(event, epsilon=question["epsilon"], relation=relation)
        lower = delta_guarantee(least, epsilon=question["epsilon"], relation=relation)
    return Guarantee(
        epsilon=upper.epsilon,
        epsilon_lower=min(lower.epsilon_lower, upper.epsilon),
        delta=upper.delta,
        delta_lower=min(lower.delta_lower, upper.delta),
        relation=relation,
        method="exact",
        notes=(note,),
    )


def _as_gaussian(part: Event) -> Event:
    return events.GaussianDP(math.sqrt(2 * part.rho)) if isinstance(part, events.ZeroConcentratedDP) else part
