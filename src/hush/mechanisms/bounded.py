"""Counts, sums, means and quantiles of a row of numbers, one for each record.

Bounds are arguments, never read from the data, and a number outside counts as the bound it passed. Sums are made of
whole multiples of a public unit, so that their sensitivity is the exact one: sums of floating-point numbers depend on
the order of the records and can move further [Casacuberta, Shoemate, Vadhan, Wagaman 2022].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy
from numpy.typing import ArrayLike

from hush import _check
from hush.errors import InvalidValue
from hush.events import Composed, PureDP
from hush.mechanisms.charging import Account, charge
from hush.mechanisms.choice import choose
from hush.mechanisms.discrete import check_size, laplace_integers
from hush.mechanisms.draws import Draws, Floats, Integers, Line
from hush.mechanisms.laplace import laplace_event, laplace_scale
from hush.mechanisms.values import limits, records, row_relation
from hush.privacy import Relation
from hush.rng import Rng

_UNIT_BITS = 32  # the larger bound is 2^32 to 2^33 units; fewer where epsilon is small
_LEAST_BITS = 8
_MOST_CANDIDATES = 1 << 40
_CHUNK = 1 << 26  # so many records are added in 64 bits


def count(
    values: ArrayLike,
    *,
    epsilon: float,
    relation: Relation = "add_remove",
    account: Account | None = None,
    rng: Rng | None = None,
) -> int:
    """How many entries there are that are not False, plus discrete Laplace noise: of booleans, how many are true.

    >>> from hush import Rng
    >>> count([True, False, True, True], epsilon=1.0, rng=Rng.from_seed(3))
    3

    Charged `PureDP(epsilon)`. A record moves it by 1 under both relations.
    """
    epsilon, relation = _check.positive("epsilon", epsilon), row_relation(relation)
    true = _count(values)
    charge(account, PureDP(epsilon), relation)
    return _noisy_count(true, epsilon, Draws(rng))


def sum(
    values: ArrayLike,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    relation: Relation = "add_remove",
    account: Account | None = None,
    rng: Rng | None = None,
) -> float:
    """The sum of the values, each held within the bounds, plus Laplace noise.

    >>> from hush import Rng
    >>> round(sum([20.0, 30.0, 41.0], bounds=(0.0, 40.0), epsilon=1.0, rng=Rng.from_seed(3)), 1)
    77.1

    A record moves it by max(|low|, |high|) under `add_remove`, by high - low under `replace_one`. Charged as `laplace`.
    """
    row, (low, high) = records("values", values), limits(bounds)
    epsilon, relation = _check.positive("epsilon", epsilon), row_relation(relation)
    centre = 0.0 if relation == "add_remove" else _middle(low, high)
    charge(account, laplace_event(epsilon, relation), relation)
    return _noisy_total(row, centre, low, high, epsilon, relation, Draws(rng)) + centre * len(row)


def mean(
    values: ArrayLike,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    relation: Relation = "add_remove",
    account: Account | None = None,
    rng: Rng | None = None,
) -> float:
    """The mean of the values, each held within the bounds; the answer is held there too.

    >>> from hush import Rng
    >>> ages = [31.0, 45.0, 52.0, 38.0] * 250
    >>> round(mean(ages, bounds=(18.0, 100.0), epsilon=1.0, rng=Rng.from_seed(3)), 1)
    41.5

    | relation | what is done | charged |
    |---|---|---|
    | `add_remove` | half of epsilon on the sum of distances to the middle, half on the number of records | both parts |
    | `replace_one` | the number of records is public; noise (high - low) / (epsilon * number) | `PureDP(epsilon)` |
    """
    row, (low, high) = records("values", values), limits(bounds)
    epsilon, relation = _check.positive("epsilon", epsilon), row_relation(relation)
    centre, half = _middle(low, high), epsilon / 2
    if relation == "replace_one":
        if not len(row):
            raise InvalidValue("values must not be empty: under replace_one their number is public, and it is 0.")
        charge(account, laplace_event(epsilon, relation), relation)
        average = _noisy_total(row, centre, low, high, epsilon, relation, Draws(rng)) / len(row)
    else:
        charge(account, Composed(laplace_event(half, relation), PureDP(half)), relation)
        draws = Draws(rng)
        total = _noisy_total(row, centre, low, high, half, relation, draws)
        average = total / max(1, _noisy_count(len(row), half, draws))
    return min(max(centre + average, low), high)


def quantile(
    values: ArrayLike,
    level: float,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    candidates: int = 1 << 16,
    relation: Relation = "add_remove",
    account: Account | None = None,
    rng: Rng | None = None,
) -> float:
    """A number that about a share `level` of the values is below, by the exponential mechanism [Smith 2011, Alg. 2].

    >>> from hush import Rng
    >>> ages = [31.0, 45.0, 52.0, 38.0] * 250
    >>> round(quantile(ages, 0.9, bounds=(18.0, 100.0), epsilon=1.0, rng=Rng.from_seed(3)), 1)
    52.0

    The `candidates` are evenly spaced from low to high, and each value counts as the one next to it. With a values
    below a candidate and b at or below it, its utility is minus the distance from level * n to the interval [a, b]:
    one of many equal values is as good as its ranks are many. Adding a record moves it by max(level, 1 - level) at
    most, replacing one by 1. Charged `PureDP(epsilon)`.
    """
    row, (low, high) = records("values", values), limits(bounds)
    epsilon, relation = _check.positive("epsilon", epsilon), row_relation(relation)
    level = _check.number("level", level, wanted="a number from 0 to 1")
    if not 0 <= level <= 1:
        raise InvalidValue(f"level must be from 0 to 1; got {level!r}.")
    last = _check.whole("candidates", candidates, least=2) - 1
    if last >= _MOST_CANDIDATES:
        raise InvalidValue(f"candidates must be at most 2^40; got {candidates}.")
    charge(account, PureDP(epsilon), relation)
    share = (numpy.clip(row, low, high) - low) / (high - low)
    place = _candidate(numpy.rint(share * last).astype(numpy.int64), last, level, epsilon, relation, Draws(rng))
    return min(low + (high - low) * (place / last), high)


def _middle(low: float, high: float) -> float:
    return low + (high - low) / 2


def _count(values: ArrayLike) -> int:
    """Record by record: the kind that an array of all of them would get depends on each of them."""
    if isinstance(values, numpy.ndarray) and values.ndim == 1 and values.dtype.kind != "O":
        return int(numpy.count_nonzero(values)) if values.dtype.kind == "b" else len(values)
    row = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(row, str | bytes) or not isinstance(row, Sequence):
        raise InvalidValue("values must be in one row, one for each record.")
    return len([value for value in row if not isinstance(value, bool | numpy.bool_) or value])


def _noisy_count(true: int, epsilon: float, draws: Draws) -> int:
    return true + int(laplace_integers(1, laplace_scale(1.0, epsilon), draws)[0])


def _noisy_total(
    row: Floats, centre: float, low: float, high: float, epsilon: float, relation: Relation, draws: Draws
) -> float:
    """The sum of value - centre, in whole units, plus Laplace noise rounded to whole units; back in plain numbers."""
    bits = max(_LEAST_BITS, _UNIT_BITS + min(0, math.frexp(epsilon)[1]))
    unit_exponent = math.frexp(max(abs(low - centre), abs(high - centre)))[1] - 1 - bits

    def units(numbers: Floats) -> Integers:  # one record at a time and never decreasing, so within the bounds' units
        return numpy.rint(numpy.ldexp(numbers - centre, -unit_exponent)).astype(numpy.int64)

    least, most = (int(end) for end in units(numpy.array([low, high])))
    moved = most - least if relation == "replace_one" else max(abs(least), abs(most))
    scale = check_size(laplace_scale(moved, epsilon))
    whole = units(numpy.clip(row, low, high))
    total = 0
    for start in range(0, len(whole), _CHUNK):
        total += int(whole[start : start + _CHUNK].sum())
    noise = int(draws.floor_exponentials(Line(scale, draws.signs(1), None, 0.5))[0])
    return math.ldexp(float(total + noise), unit_exponent)


def _candidate(places: Integers, last: int, level: float, epsilon: float, relation: Relation, draws: Draws) -> int:
    """The place of the chosen candidate: first a segment of candidates with one utility, then one inside it."""
    starts, sizes, below, upto = _segments(places, last)
    target = Fraction(level) * len(places)
    floor, rest = math.floor(target), target - math.floor(target)
    # Distance from the target to [below, upto]; whole parts are taken off exactly.
    distances = numpy.maximum(0.0, numpy.maximum((below - floor) - float(rest), float(rest) - (upto - floor)))
    moved = Fraction(1) if relation == "replace_one" else max(Fraction(level), 1 - Fraction(level))
    rate = Fraction(epsilon) / (2 * moved)

    def exponent_at(segment: int) -> Fraction:
        return rate * max(Fraction(0), int(below[segment]) - target, target - int(upto[segment]))

    segment = choose(distances * float(rate), exponent_at, sizes, draws)
    return int(starts[segment]) + int(draws.below(int(sizes[segment]), 1)[0])


def _segments(places: Integers, last: int) -> tuple[Integers, Integers, Integers, Integers]:
    """Runs of candidates: gap, value, gap, value, ..., gap. Start, size, values below, values at or below."""
    found, repeats = numpy.unique(places, return_counts=True)
    starts = numpy.zeros(2 * len(found) + 1, numpy.int64)
    starts[1::2], starts[2::2] = found, found + 1
    sizes = numpy.diff(numpy.append(starts, last + 1))
    upto = numpy.zeros_like(starts)
    upto[1::2] = upto[2::2] = numpy.cumsum(repeats)
    below = upto.copy()
    below[1::2] -= repeats
    return starts, sizes, below, upto
