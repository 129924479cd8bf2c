"""Randomized response: every answer is made private before it leaves the person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy

from hush import _check
from hush.errors import InvalidValue
from hush.events import RandomizedResponse
from hush.mechanisms import exact
from hush.mechanisms.charging import Account
from hush.mechanisms.draws import Draws, Floats, Integers
from hush.mechanisms.values import row_of
from hush.rng import Rng

MOST_CATEGORIES = 2**62  # the sum of two places must stay below 2^63
MOST_ESTIMATED = 2**26  # categories of one estimate, whose arrays then take about 2 GB


class _RandomizedResponse:
    """`randomized_response(...)` and `randomized_response.estimate(...)`."""

    def __call__(
        self,
        values: Any,
        *,
        epsilon: float,
        categories: int | Sequence[Any],
        account: Account | None = None,
        rng: Rng | None = None,
    ) -> Any:
        """Each answer kept with odds e^epsilon against every other one, and else replaced by one of the others.

        >>> from hush import Rng
        >>> randomized_response(["yes", "no", "no"], epsilon=1.0, categories=["no", "yes"], rng=Rng.from_seed(7))
        ['yes', 'no', 'yes']

        Args:
            values: One answer, or one answer from each person in a row.
            epsilon: What an answer costs its person.
            categories: How many answers there are (they are 0, 1, ...), at most 2^62, or a list of them.
            account: Charged `RandomizedResponse` once, since each person gives one answer. How many answered is
                taken as public.
            rng: A seeded source, for tests only.

        Returns:
            What `values` was: one answer, a list or an array.
        """
        epsilon, labels = _check.positive("epsilon", epsilon), _labels(categories)
        single = not isinstance(values, list | tuple | range) and not getattr(values, "shape", ())
        places = _places([values] if single else values, labels)
        if account is not None:
            account.charge(RandomizedResponse(epsilon, len(labels)))
        answers = _respond(places, epsilon, len(labels), Draws(rng))
        if single:
            return labels[int(answers[0])]
        if isinstance(labels, range):  # label and place are the same, and there may be too many to list
            return answers
        if isinstance(values, numpy.ndarray):
            return numpy.asarray(labels)[answers]
        return [labels[place] for place in answers.tolist()]

    def estimate(self, responses: Any, *, epsilon: float, categories: int | Sequence[Any]) -> Floats:
        """The frequency of each category among the true answers, without bias.

        With keep and lie the chances of an answer from a person who has it and from one who has not, a share f
        shows up as f keep + (1 - f) lie. The estimate may lie outside [0, 1]; cutting it there would add a bias.

        >>> randomized_response.estimate([0] * 5 + [1] * 3, epsilon=math.log(3), categories=2)
        array([0.75, 0.25])
        """
        epsilon, labels = _check.positive("epsilon", epsilon), _labels(categories)
        if len(labels) > MOST_ESTIMATED:
            raise InvalidValue(
                f"categories must be at most 2^26 for an estimate, which lists them all; got {len(labels)}. "
                "Count the responses of the categories that matter instead."
            )
        counts = numpy.bincount(_places(responses, labels), minlength=len(labels))
        other = math.exp(-epsilon)  # odds of a lie; both chances have the denominator 1 + (k - 1) e^-epsilon
        total = 1 + (len(labels) - 1) * other
        result: Floats = (counts / counts.sum() * total - other) / -math.expm1(-epsilon)
        return result


randomized_response = _RandomizedResponse()


def _respond(places: Integers, epsilon: float, categories: int, draws: Draws) -> Integers:
    chance = 1 / (1 + (categories - 1) * math.exp(-epsilon))

    def interval(context: Context) -> exact.Interval:
        ends = exact.exp_of_fraction(Fraction(epsilon), context)
        totals = [context.add(Decimal(1), context.multiply(Decimal(categories - 1), end)) for end in reversed(ends)]
        low, high = (context.divide(Decimal(1), total) for total in totals)
        return exact.widened(low, context)[0], exact.widened(high, context)[1]

    kept = draws.flip(len(places), chance, interval)
    steps = draws.below(categories - 1, len(places)) + 1 if categories > 2 else 1
    return numpy.where(kept, places, (places + steps) % categories)


def _labels(categories: int | Sequence[Any]) -> Sequence[Any]:
    if isinstance(categories, str) or not isinstance(categories, Sequence | numpy.ndarray):
        count = _check.whole("categories", categories, least=2)
        if count > MOST_CATEGORIES:
            raise InvalidValue(f"categories must be at most 2^62; got {count:.6g}.")
        return range(count)
    labels = row_of("categories", categories)
    if len(labels) < 2 or len(set(labels)) != len(labels):
        raise InvalidValue(f"categories must be two or more different answers; got {labels!r}.")
    return labels


def _places(values: Any, labels: Sequence[Any]) -> Integers:
    """The place of each answer among the categories; an answer that is none of them is refused."""
    if isinstance(labels, range) and isinstance(values, numpy.ndarray) and values.dtype.kind in "iu" and values.size:
        inside = values.ndim == 1 and int(values.min()) >= 0 and int(values.max()) < len(labels)
        if inside:  # the quick way for long rows
            return values.astype(numpy.int64)
    row = row_of("answers", values)
    if not row:
        raise InvalidValue("answers must not be empty.")
    try:
        if isinstance(labels, range):  # without a table of all labels, of which there may be 2^62
            found = [_place_in(labels, value) for value in row]
        else:
            index = {label: place for place, label in enumerate(labels)}
            found = [index[value] for value in row]
    except KeyError:
        raise InvalidValue(f"every answer must be one of the {len(labels)} categories; at least one is not.") from None
    return numpy.array(found, dtype=numpy.int64)


def _place_in(labels: range, value: Any) -> int:
    """Return the place of a number in 0, 1, ...; what is equal to none of them is a `KeyError`, as in a table."""
    try:
        place = int(value)
    except (TypeError, ValueError, OverflowError):
        raise KeyError from None
    if place not in labels or place != value:
        raise KeyError
    return place
