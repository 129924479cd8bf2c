"""Linkage: finding a person in ratings without names, from a few that are known (Narayanan, Shmatikov 2008).

The attacker knows a handful of somebody's ratings, roughly, and with rough dates. Each released record is scored by how
well it fits, films that few people rated counting more. The best one is named only if it stands out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hush import _check
from hush.attacks.rates import Rate, clopper_pearson
from hush.errors import InvalidValue
from hush.rng import Rng

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
NO_MATCH = -1


@dataclass(frozen=True, eq=False)
class Ratings:
    """One line for each rating: who (a whole number, 0 or above), what, how good, and on which day if that is known."""

    record: Whole = field(repr=False)
    item: Whole = field(repr=False)
    rating: Floats = field(repr=False)
    day: Floats | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, kind in (("record", np.int64), ("item", np.int64), ("rating", np.float64), ("day", np.float64)):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _column(name, value, kind, len(np.asarray(self.record))))
        if not len(self.record) or self.record.min() < 0:
            raise InvalidValue("ratings must have at least one line, and records are numbered from 0.")

    def __len__(self) -> int:
        return len(self.record)

    @property
    def records(self) -> Whole:
        """The different records, in rising order."""
        return np.unique(self.record)

    def of(self, chosen: npt.NDArray[Any]) -> Ratings:
        """Some of the lines."""
        day = None if self.day is None else self.day[chosen]
        return Ratings(self.record[chosen], self.item[chosen], self.rating[chosen], day)

    def without_days(self) -> Ratings:
        """The same, dates left out."""
        return Ratings(self.record, self.item, self.rating)


def _column(name: str, value: Any, kind: type, length: int) -> npt.NDArray[Any]:
    found = np.asarray(value)
    if found.shape != (length,) or found.dtype.kind not in "iuf" or not np.isfinite(found).all():
        raise InvalidValue(f"{name} must be {length} finite numbers in a row; got shape {found.shape}.")
    if kind is np.int64 and (found != np.floor(found)).any():
        raise InvalidValue(f"{name} must be whole numbers.")
    return found.astype(kind)


@dataclass(frozen=True, eq=False)
class Linkage:
    """For each person that the attacker asked about: the record that was named, or NO_MATCH (-1)."""

    people: Whole = field(repr=False)
    matches: Whole = field(repr=False)
    best: Whole = field(repr=False)  # the highest score, also where it did not stand out
    eccentricities: Floats = field(repr=False)

    def named(self, truth: Any) -> dict[str, Rate]:
        """How many were named rightly, wrongly or not at all. `truth`: each one's record, NO_MATCH if none."""
        right = np.asarray(truth)
        if right.shape != self.matches.shape:
            raise InvalidValue(f"truth must hold a record for each of {len(self.matches)} people; got {right.shape}.")
        silent = self.matches == NO_MATCH
        correct = ~silent & (self.matches == right)
        counts = {"correct": correct, "wrong": ~silent & ~correct, "no_match": silent}
        return {name: clopper_pearson(int(found.sum()), len(right)) for name, found in counts.items()}


def link_records(
    auxiliary: Ratings,
    released: Ratings,
    *,
    rating_scale: float = 1.5,
    day_scale: float = 30.0,
    eccentricity: float = 1.5,
) -> Linkage:
    """Name the released record of each person in `auxiliary`, or say that none stands out.

    Args:
        auxiliary: What the attacker knows: some ratings of each person, possibly wrong.
        released: The records without names.
        rating_scale: How far a rating may be off before it counts little, in stars.
        day_scale: The same for dates, in days. Dates count only where both sides have them.
        eccentricity: How many standard deviations of all scores the best must be above the second.

    >>> released = Ratings([0, 0, 1, 1, 2, 2], [10, 11, 10, 12, 10, 13], [5, 1, 4, 2, 1, 3])
    >>> link_records(Ratings([0, 0], [10, 12], [4, 2]), released, eccentricity=1.0).matches.tolist()
    [1]
    """
    scales = (_check.positive("rating_scale", rating_scale), _check.positive("day_scale", day_scale))
    limit = _check.nonnegative("eccentricity", eccentricity)
    records = released.records
    if len(records) < 2:
        raise InvalidValue("linkage compares the best record with the second: release at least two.")
    scores = link_scores(auxiliary, released, rating_scale=scales[0], day_scale=scales[1])
    order = np.argsort(scores, axis=1)
    rows = np.arange(len(scores))
    first, second = (scores[rows, order[:, place]] for place in (-1, -2))
    spread = scores.std(axis=1)
    # [narayanan08], Scoreboard-RH: accept if (max - max2) / (standard deviation of the scores) is above the limit.
    stands_out = np.divide(first - second, spread, out=np.zeros_like(first), where=spread > 0)
    best = records[order[:, -1]]
    return Linkage(auxiliary.records, np.where(stands_out > limit, best, NO_MATCH), best, stands_out)


def link_scores(auxiliary: Ratings, released: Ratings, *, rating_scale: float = 1.5, day_scale: float = 30.0) -> Floats:
    """(people, records): the sum over known films of weight x (nearness of the rating + nearness of the date).

    Scoreboard-RH of the paper; an item that n records hold weighs 1 / log n, at most 1 / log 2.
    """
    people, records = auxiliary.records, released.records
    scores = np.zeros((len(people), len(records)))
    order = np.argsort(released.item, kind="stable")
    items, column = released.item[order], np.searchsorted(records, released.record)[order]
    rating, day = released.rating[order], None if released.day is None else released.day[order]
    starts, ends = (np.searchsorted(items, auxiliary.item, side=side) for side in ("left", "right"))
    rows = np.searchsorted(people, auxiliary.record)
    for line, (row, start, end) in enumerate(zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True)):
        if start == end:
            continue
        nearness = np.exp(-np.abs(rating[start:end] - auxiliary.rating[line]) / rating_scale)
        if day is not None and auxiliary.day is not None:
            nearness += np.exp(-np.abs(day[start:end] - auxiliary.day[line]) / day_scale)
        holders = len(np.unique(column[start:end]))
        np.add.at(scores[row], column[start:end], nearness / np.log(max(2, holders)))
    return scores


def known_ratings(
    ratings: Ratings,
    *,
    count: int,
    wrong: int = 0,
    rating_error: float = 0.0,
    day_error: float = 0.0,
    rng: Rng | None = None,
) -> Ratings:
    """What an attacker might know of each record: `count` of its ratings, of which `wrong` are of other films.

    Ratings are off by at most `rating_error` stars and dates by at most `day_error` days, uniformly. Records with fewer
    than `count` ratings are left out.
    """
    count, wrong = _check.whole("count", count), _check.whole("wrong", wrong, least=0)
    if wrong > count:
        raise InvalidValue(f"wrong must be at most count, {count}; got {wrong}.")
    stream = (rng or Rng.from_entropy()).stream("known ratings")
    shuffled = stream.permutation(len(ratings))
    by_record = shuffled[np.argsort(ratings.record[shuffled], kind="stable")]
    _, first, sizes = np.unique(ratings.record[by_record], return_index=True, return_counts=True)
    chosen = np.concatenate(
        [by_record[start : start + count] for start, size in zip(first, sizes, strict=True) if size >= count]
        or [np.empty(0, np.int64)]
    )
    if not len(chosen):
        raise InvalidValue(f"no record has {count} ratings.")
    item, place = ratings.item[chosen].copy(), np.arange(len(chosen)) % count
    item[place < wrong] = stream.choice(np.unique(ratings.item), int((place < wrong).sum()))
    rating = ratings.rating[chosen] + rating_error * stream.uniform(-1, 1, len(chosen))
    day = None if ratings.day is None else ratings.day[chosen] + day_error * stream.uniform(-1, 1, len(chosen))
    return Ratings(ratings.record[chosen], item, rating, day)
