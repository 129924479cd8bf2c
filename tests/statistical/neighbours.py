"""A lower bound on epsilon from outputs on two neighbouring inputs, for tests of privacy by sampling."""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from scipy import stats

MOST_EVENTS = 40


def largest_log_ratio(
    outputs_a: Sequence[Any], outputs_b: Sequence[Any], significance: float, delta: float = 0.0
) -> float:
    """The largest log((P(S) - delta) / Q(S)) that the samples prove, over sets S of outputs and both directions.

    `outputs_a` and `outputs_b` are independent outputs of one mechanism on two neighbours. The first half of each
    chooses the sets (half-lines for numbers, single values and unions of them for the rest); the second half counts,
    and Clopper and Pearson's bounds, shared among all sets, are used on both counts. If the mechanism is
    (epsilon, delta)-private, the result exceeds epsilon with a chance of at most `significance`. Numbers may be of any
    kind; arrays must be made into one number or into something hashable first. 0 if nothing is proven.
    """
    halves = [(outputs[: len(outputs) // 2], outputs[len(outputs) // 2 :]) for outputs in (outputs_a, outputs_b)]
    (choose_a, count_a), (choose_b, count_b) = halves
    if _is_numeric(outputs_a) and _is_numeric(outputs_b):
        pairs = _half_lines(np.asarray(choose_a, float), np.asarray(choose_b, float), *map(_floats, (count_a, count_b)))
    else:
        pairs = _value_sets(list(choose_a), list(choose_b), list(count_a), list(count_b))
    each = significance / (4 * len(pairs))  # two directions, two bounds each
    sizes = len(count_a), len(count_b)
    found = [_log_ratio(hits, sizes, each, delta) for hits in pairs]
    found += [_log_ratio(hits[::-1], sizes[::-1], each, delta) for hits in pairs]
    return max(0.0, *found)


def _floats(values: Sequence[Any]) -> np.ndarray:
    return np.asarray(values, dtype=float)


def _is_numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, numbers.Real) for value in values)


def _half_lines(
    choose_a: np.ndarray, choose_b: np.ndarray, count_a: np.ndarray, count_b: np.ndarray
) -> list[tuple[int, int]]:
    """Counts in x <= t and in x > t, for thresholds t between quantiles; and in single values where they repeat."""
    pool = np.concatenate([choose_a, choose_b])
    thresholds = np.unique(np.quantile(pool, np.linspace(0, 1, MOST_EVENTS + 2), method="lower"))[: MOST_EVENTS + 1]
    pairs = []
    for threshold in thresholds:
        below = int(np.sum(count_a <= threshold)), int(np.sum(count_b <= threshold))
        pairs += [below, (len(count_a) - below[0], len(count_b) - below[1])]
    values, repeats = np.unique(pool, return_counts=True)
    common = values[np.argsort(-repeats, kind="stable")[:MOST_EVENTS]] if len(values) < len(pool) / 2 else values[:0]
    pairs += [(int(np.sum(count_a == value)), int(np.sum(count_b == value))) for value in common]
    return pairs


def _value_sets(
    choose_a: list[Hashable], choose_b: list[Hashable], count_a: list[Hashable], count_b: list[Hashable]
) -> list[tuple[int, int]]:
    """Counts of the commonest values, and of the sets of values that were likelier on either side."""
    tally = {value: [0, 0] for value in [*choose_a, *choose_b]}
    for side, chosen in enumerate((choose_a, choose_b)):
        for value in chosen:
            tally[value][side] += 1
    ranked = sorted(tally, key=lambda value: -sum(tally[value]))[:MOST_EVENTS]
    sets = [{value} for value in ranked]
    for factor in (1.0, 1.5, 2.0, 3.0):
        sets.append({value for value, (one, two) in tally.items() if one > factor * two})
        sets.append({value for value, (one, two) in tally.items() if two > factor * one})
    return [(sum(value in chosen for value in count_a), sum(value in chosen for value in count_b)) for chosen in sets]


def _log_ratio(hits: tuple[int, int], sizes: tuple[int, int], each: float, delta: float) -> float:
    low = stats.beta.ppf(each, hits[0], sizes[0] - hits[0] + 1) if hits[0] else 0.0
    high = stats.beta.isf(each, hits[1] + 1, sizes[1] - hits[1]) if hits[1] < sizes[1] else 1.0
    return math.log((low - delta) / high) if low > delta else -math.inf
