"""Gaussian noise on real numbers."""

from __future__ import annotations

import math

from numpy.typing import ArrayLike

from hush import _check
from hush.errors import InvalidValue
from hush.events import Event, Gaussian, GaussianDP
from hush.mechanisms.calibration import gaussian_noise_for
from hush.mechanisms.charging import Account, charge
from hush.mechanisms.draws import Draws, Floats
from hush.mechanisms.real import add_gaussian, grid_of
from hush.mechanisms.values import finite_floats, plain_floats
from hush.privacy import Relation
from hush.rng import Rng


def gaussian(
    value: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    relation: Relation = "add_remove",
    account: Account | None = None,
    rng: Rng | None = None,
) -> float | Floats:
    """The value plus Gaussian noise, as much as (epsilon, delta) asks for or as `noise_multiplier` says.

    >>> from hush import Rng
    >>> total = gaussian([100.0, 20.0], sensitivity=1.0, epsilon=1.0, delta=1e-6, rng=Rng.from_seed(7))
    >>> total.shape
    (2,)

    Args:
        value: A number, or an array that is released as one.
        sensitivity: The most that the value moves between neighbours, for an array in the L2 norm.
        epsilon: With `delta`: the noise is the least that makes the release (epsilon, delta)-private.
        delta: See `epsilon`.
        noise_multiplier: Standard deviation over sensitivity, instead of the two.
        relation: Which neighbours the sensitivity is for.
        account: Charged before the noise is drawn: `Gaussian(noise_multiplier)`, under `replace_one` `GaussianDP`.
        rng: A seeded source, for tests only.

    | case | result |
    |---|---|
    | NaN, infinity, an empty array | refused |
    | both ways of saying how much noise, or neither | refused |
    | a value beyond 2^576 standard deviations | counts as that bound |
    | the number that comes out | a multiple of a public grid, 2^-24 to 2^-25 of the standard deviation |
    """
    values, sensitivity = finite_floats("value", value), _check.positive("sensitivity", sensitivity)
    multiplier = _noise_multiplier(epsilon, delta, noise_multiplier)
    stddev = _check.positive("the noise", math.nextafter(multiplier * sensitivity, math.inf))
    grid_of(stddev)
    charge(account, gaussian_event(multiplier, relation), relation)
    return plain_floats(add_gaussian(values, stddev, Draws(rng)), value)


def gaussian_event(noise_multiplier: float, relation: Relation) -> Event:
    """The event of Gaussian noise on a value whose sensitivity is stated for this relation.

    Under `replace_one`, `Gaussian` would be read as noise on one example's contribution, and counted twice.
    """
    if relation == "replace_one":
        return GaussianDP(math.nextafter(1 / noise_multiplier, math.inf))
    return Gaussian(noise_multiplier)


def _noise_multiplier(epsilon: float | None, delta: float | None, noise_multiplier: float | None) -> float:
    if noise_multiplier is not None and epsilon is None and delta is None:
        return _check.positive("noise_multiplier", noise_multiplier)
    if noise_multiplier is None and epsilon is not None and delta is not None:
        return gaussian_noise_for(epsilon, delta, 1.0)
    raise InvalidValue("give either epsilon and delta, or noise_multiplier; not both and not neither.")
