"""Histograms: how many records fall into each bin."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy
from numpy.typing import ArrayLike

from hush import _check
from hush.errors import InvalidValue
from hush.events import ApproximateDP, PureDP
from hush.mechanisms.calibration import positive_delta
from hush.mechanisms.charging import Account, charge
from hush.mechanisms.discrete import laplace_integers
from hush.mechanisms.draws import Draws, Integers
from hush.mechanisms.laplace import laplace_scale
from hush.mechanisms.real import add_laplace
from hush.mechanisms.values import records, row_of, row_relation
from hush.privacy import Relation
from hush.rng import Rng


def histogram(
    values: ArrayLike | Sequence[Any],
    *,
    epsilon: float,
    bins: Sequence[Any] | None = None,
    edges: ArrayLike | None = None,
    delta: float | None = None,
    relation: Relation = "add_remove",
    account: Account | None = None,
    rng: Rng | None = None,
) -> Integers | dict[Any, int]:
    """How many values fall into each bin, each record having one value.

    >>> from hush import Rng
    >>> histogram(["tea"] * 40 + ["coffee"] * 70, bins=["coffee", "tea", "water"], epsilon=1.0, rng=Rng.from_seed(7))
    array([67, 39,  0])

    Args:
        values: One value for each record, in a row.
        epsilon: What the histogram costs.
        bins: The categories, known without the data. Values of other categories are left out.
        edges: Instead of `bins`, for numbers: bin i holds edges[i] <= x < edges[i + 1], the last one its upper edge
            too. Values outside are left out.
        delta: Only without `bins` and `edges`: the categories then come from the data, and one is shown if its noisy
            count reaches `stability_threshold`. They are text, numbers (True and 1.0 are shown as 1), None or tuples.
        relation: `add_remove` moves one count by 1, `replace_one` two counts.
        account: Charged before the noise is drawn: `PureDP(epsilon)`, for unknown bins `ApproximateDP(epsilon, delta)`.
        rng: A seeded source, for tests only.

    Returns:
        For known bins the noisy counts in their order; they may be negative. For unknown bins a dictionary from
        categories, in sorted order, to noisy counts.
    """
    epsilon, relation = _check.positive("epsilon", epsilon), row_relation(relation)
    if (bins is not None) + (edges is not None) + (delta is not None) != 1:
        raise InvalidValue("give one of bins, edges (both known without the data) and delta (bins from the data).")
    if delta is not None:
        return _unknown(
            Counter(map(_plain_key, row_of("values", values))), epsilon, positive_delta(delta), relation, account, rng
        )
    counts = _counts(values, bins) if bins is not None else _counts_between(values, edges)
    charge(account, PureDP(epsilon), relation)
    return counts + laplace_integers(len(counts), laplace_scale(_moved(relation), epsilon), Draws(rng))


def stability_threshold(epsilon: float, delta: float, relation: Relation = "add_remove") -> float:
    """From which noisy count on a category is shown that only the data named, rounded up.

    A category with one record gets there with a chance of delta: 1 + scale * ln(1 / (2 delta)), scale being 1 / epsilon
    (2 / epsilon under `replace_one`) [Korolova, Kenthapadi, Mishra, Ntoulas 2009; Bun, Nissim, Stemmer 2019].

    >>> round(stability_threshold(1.0, 1e-5), 7)
    11.8197783
    """
    scale = laplace_scale(_moved(row_relation(relation)), _check.positive("epsilon", epsilon))
    return 1 + max(0.0, -scale * math.log(2 * positive_delta(delta))) * (1 + 1e-14)


def _unknown(
    tally: Counter[Any], epsilon: float, delta: float, relation: Relation, account: Account | None, rng: Rng | None
) -> dict[Any, int]:
    threshold, scale = stability_threshold(epsilon, delta, relation), laplace_scale(_moved(relation), epsilon)
    charge(account, ApproximateDP(epsilon, delta), relation)
    counts = numpy.array(list(tally.values()), dtype=numpy.float64)
    noisy = add_laplace(counts, scale, Draws(rng), down=True)  # downwards: what reaches the threshold truly did
    shown = {key: round(count) for key, count in zip(tally, noisy.tolist(), strict=True) if count >= threshold}
    return {key: shown[key] for key in sorted(shown, key=_rank)}


def _moved(relation: Relation) -> int:
    return 2 if relation == "replace_one" else 1


def _plain_key(value: Any) -> Any:
    """The one form in which a category is shown.

    1, 1.0 and True are equal, and a table would show the form that came first: a record, then, that tells on itself.
    """
    match value:
        case bool() | int() | numpy.integer() | numpy.bool_():
            return int(value)
        case float() | numpy.floating() if not math.isnan(value):
            return int(value) if math.isfinite(value) and value == int(value) else float(value)
        case str():
            return str.__str__(value)
        case bytes():
            return bytes(value)
        case None:
            return None
        case tuple():
            return tuple(map(_plain_key, value))
    raise InvalidValue(f"categories from the data must be text, numbers, None or tuples; got {type(value).__name__}.")


def _rank(key: Any) -> tuple[int, Any]:
    """An order of plain keys that depends on the keys alone, not on that of the records."""
    match key:
        case None:
            return 0, 0
        case int() | float():
            return 1, key
        case str():
            return 2, key
        case bytes():
            return 3, key
        case _:
            return 4, tuple(map(_rank, key))


def _tally(values: ArrayLike | Sequence[Any]) -> Counter[Any]:
    return Counter(row_of("values", values))


def _counts(values: ArrayLike | Sequence[Any], bins: Sequence[Any]) -> Integers:
    labels = row_of("bins", bins)
    if not labels or len(set(labels)) != len(labels):
        raise InvalidValue(f"bins must be one or more different categories; got {labels!r}.")
    tally = _tally(values)
    return numpy.array([tally[label] for label in labels], dtype=numpy.int64)


def _counts_between(values: ArrayLike | Sequence[Any], edges: ArrayLike | None) -> Integers:
    borders = numpy.asarray(edges, dtype=numpy.float64)
    if borders.ndim != 1 or len(borders) < 2 or not (numpy.diff(borders) > 0).all():
        raise InvalidValue("edges must be two or more numbers in increasing order.")
    found, _ = numpy.histogram(records("values", values), bins=borders)
    return found.astype(numpy.int64)
