"""Laplace noise on real numbers."""

from __future__ import annotations

import math

from numpy.typing import ArrayLike

from hush import _check
from hush.events import Event, Laplace, PureDP
from hush.mechanisms.charging import Account, charge
from hush.mechanisms.draws import Draws, Floats
from hush.mechanisms.real import add_laplace, grid_of
from hush.mechanisms.values import finite_floats, plain_floats
from hush.privacy import Relation
from hush.rng import Rng


def laplace(
    value: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float,
    relation: Relation = "add_remove",
    account: Account | None = None,
    rng: Rng | None = None,
) -> float | Floats:
    """The value plus Laplace noise of scale sensitivity / epsilon: epsilon-private [Dwork, Roth 2014, Thm. 3.6].

    >>> from hush import Rng
    >>> round(laplace(100.0, sensitivity=1.0, epsilon=0.5, rng=Rng.from_seed(7)), 2)
    103.4

    Args:
        value: A number, or an array that is released as one.
        sensitivity: The most that the value moves between neighbours, for an array in the L1 norm.
        epsilon: What the release costs.
        relation: Which neighbours the sensitivity is for.
        account: Charged before the noise is drawn: `Laplace(1 / epsilon)`, under `replace_one` `PureDP(epsilon)`.
        rng: A seeded source, for tests only.

    | case | result |
    |---|---|
    | NaN, infinity, an empty array | refused |
    | a value beyond 2^576 noise scales | counts as that bound |
    | the number that comes out | a multiple of a public grid, 2^-24 to 2^-25 of the noise's scale |
    """
    values, sensitivity = finite_floats("value", value), _check.positive("sensitivity", sensitivity)
    epsilon = _check.positive("epsilon", epsilon)
    scale = laplace_scale(sensitivity, epsilon)
    grid_of(scale)
    charge(account, laplace_event(epsilon, relation), relation)
    return plain_floats(add_laplace(values, scale, Draws(rng)), value)


def laplace_scale(sensitivity: float, epsilon: float) -> float:
    """sensitivity / epsilon, larger by 2^-48 of itself, which is more than any rounding on the way."""
    return _check.positive("sensitivity / epsilon", sensitivity / epsilon * (1 + 2.0**-48))


def laplace_event(epsilon: float, relation: Relation) -> Event:
    """The event of Laplace noise on a value whose sensitivity is stated for this relation."""
    # Under replace_one, Laplace(scale) would be read as noise on one example's contribution, and counted twice.
    if relation == "replace_one":
        return PureDP(epsilon)
    scale = 1 / epsilon
    return Laplace(scale if 1 / scale <= epsilon else math.nextafter(scale, math.inf))
