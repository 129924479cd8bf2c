"""Noise on whole numbers: the discrete Laplace and the discrete Gaussian, with their exact laws."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy
from numpy.typing import ArrayLike

from hush import _check
from hush.errors import InvalidValue
from hush.events import PureDP, ZeroConcentratedDP
from hush.mechanisms.calibration import least_root, positive_delta
from hush.mechanisms.charging import Account, charge
from hush.mechanisms.draws import Draws, Integers, Line
from hush.mechanisms.laplace import laplace_scale
from hush.mechanisms.values import plain_integers, whole_numbers
from hush.privacy import Relation
from hush.rng import Rng

_LARGEST = 2.0**50  # of a scale: the noise must fit into 64 bits


def discrete_laplace(
    value: ArrayLike,
    *,
    sensitivity: float | None = None,
    epsilon: float | None = None,
    stddev: float | None = None,
    relation: Relation = "add_remove",
    account: Account | None = None,
    rng: Rng | None = None,
) -> int | Integers:
    """The value plus k with chance proportional to exp(-|k| / scale), scale = sensitivity / epsilon: epsilon-private.

    >>> from hush import Rng
    >>> discrete_laplace(100, sensitivity=1, epsilon=0.5, rng=Rng.from_seed(3))
    100

    Args:
        value: A whole number, or an array of them that is released as one.
        sensitivity: The most that the value moves between neighbours, for an array in the L1 norm.
        epsilon: What the release costs.
        stddev: The noise's standard deviation, instead of `epsilon`.
        relation: Which neighbours the sensitivity is for.
        account: Charged before the noise is drawn: `PureDP`. Whole numbers have the curve of a pure epsilon, which is
            above that of `Laplace` noise on real numbers.
        rng: A seeded source, for tests only.
    """
    values = whole_numbers("value", value)
    _one_way(stddev is not None, epsilon is not None, "epsilon", sensitivity, account)
    moved = None if sensitivity is None else _check.positive("sensitivity", sensitivity)
    if epsilon is not None and moved is not None:
        cost, scale = _check.positive("epsilon", epsilon), laplace_scale(moved, _check.positive("epsilon", epsilon))
    else:
        scale = _scale_of(_check.positive("stddev", stddev))
        cost = 0.0 if moved is None else math.nextafter(moved / scale, math.inf)
    check_size(scale)
    charge(account, PureDP(cost), relation)
    return plain_integers(values + laplace_integers(values.size, scale, Draws(rng)).reshape(values.shape), value)


def discrete_gaussian(
    value: ArrayLike,
    *,
    sensitivity: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    stddev: float | None = None,
    relation: Relation = "add_remove",
    account: Account | None = None,
    rng: Rng | None = None,
) -> int | Integers:
    """The value plus k with chance proportional to exp(-k^2 / (2 stddev^2)).

    >>> from hush import Rng
    >>> discrete_gaussian([100, 7], sensitivity=1, stddev=3.0, rng=Rng.from_seed(3))
    array([100,   8])

    Args:
        value: A whole number, or an array of them that is released as one.
        sensitivity: The most that the value moves between neighbours, for an array in the L2 norm.
        epsilon: With `delta`: `stddev` is the least for which the concentrated privacy below is (epsilon, delta).
        delta: See `epsilon`.
        stddev: The parameter of the law, instead of the two; from 1 on also its standard deviation, to six digits.
        relation: Which neighbours the sensitivity is for.
        account: Charged before the noise is drawn: `ZeroConcentratedDP(sensitivity^2 / (2 stddev^2))`
            [Canonne, Kamath, Steinke 2020, Thm. 4, summed over coordinates]. The curve of real Gaussian noise does
            not bound it.
        rng: A seeded source, for tests only.
    """
    values = whole_numbers("value", value)
    _one_way(stddev is not None, epsilon is not None and delta is not None, "epsilon and delta", sensitivity, account)
    if stddev is not None and (epsilon is not None or delta is not None):
        raise InvalidValue("give either epsilon and delta, or stddev; not both.")
    moved = None if sensitivity is None else _check.positive("sensitivity", sensitivity)
    if epsilon is not None and delta is not None and moved is not None:
        stddev = moved * concentrated_noise_for(epsilon, delta)
    stddev = check_size(_check.positive("stddev", stddev))
    cost = 0.0 if moved is None else (moved / stddev) ** 2 / 2 * (1 + 1e-15)
    charge(account, ZeroConcentratedDP(cost), relation)
    return plain_integers(values + gaussian_integers(values.size, stddev, Draws(rng)).reshape(values.shape), value)


def laplace_integers(count: int, scale: float, draws: Draws) -> Integers:
    """Independent draws of the discrete Laplace law.

    floor(scale * E) is geometric: it is k or more with chance exp(-k / scale). With a random sign it has the law, if
    one of the two zeros is drawn again [Canonne, Kamath, Steinke 2020, Alg. 2].
    """
    result, places = numpy.empty(count, numpy.int64), numpy.arange(count)
    while len(places):
        sizes = draws.floor_exponentials(Line(scale, numpy.ones(len(places), numpy.int64)))
        signs = draws.signs(len(places))
        good = (sizes > 0) | (signs > 0)
        result[places[good]] = (signs * sizes)[good]
        places = places[~good]
    return result


def gaussian_integers(count: int, stddev: float, draws: Draws) -> Integers:
    """Independent draws of the discrete Gaussian law, thinned from the discrete Laplace.

    [Canonne, Kamath, Steinke 2020, Alg. 3]: Y of scale t = floor(stddev) + 1 is kept with chance
    exp(-(|Y| - stddev^2 / t)^2 / (2 stddev^2)).
    """
    t, variance = math.floor(stddev) + 1, Fraction(stddev) ** 2
    centre = float(variance / t)
    result, places = numpy.empty(count, numpy.int64), numpy.arange(count)
    while len(places):
        found = laplace_integers(len(places), float(t), draws)
        exponents = 0.5 * ((numpy.abs(found) - centre) / stddev) ** 2

        def exponent_at(place: int, found: Integers = found) -> Fraction:
            return (abs(int(found[place])) - variance / t) ** 2 / (2 * variance)

        good = draws.accept(exponents, exponent_at)
        result[places[good]] = found[good]
        places = places[~good]
    return result


def concentrated_noise_for(epsilon: float, delta: float) -> float:
    """The least stddev / sensitivity whose concentrated privacy gives (epsilon, delta), rounded up.

    rho = 1 / (2 stddev^2), and delta = min over orders a > 1 of exp((a - 1)(a rho - epsilon)) / a (1 - 1/a)^(a - 1)
    [Canonne, Kamath, Steinke 2020, Prop. 12]. Any order gives a bound; the best is found closely enough.
    """
    epsilon, log_delta = _check.positive("epsilon", epsilon), math.log(positive_delta(delta))

    def excess(log_noise: float) -> float:
        rho = math.exp(-2 * log_noise) / 2
        centre = max((epsilon / rho - 1) / 2, 1e-3)  # the best order less 1, but for the last two terms
        excesses = centre * numpy.geomspace(0.25, 8.0, 2001)
        orders = 1 + excesses
        bounds = excesses * (orders * rho - epsilon) - numpy.log(orders) + excesses * numpy.log1p(-1 / orders)
        return float(bounds.min()) + 1e-12 - log_delta

    return math.exp(least_root(excess)) * (1 + 1e-14)


def _scale_of(stddev: float) -> float:
    """The scale at which 2a / (1 - a)^2, a = exp(-1 / scale), is stddev^2; both sides of the quadratic are positive."""
    variance = stddev * stddev
    root = math.sqrt(1 + 2 * variance)
    # a = (v + 1 - root) / v, and 1 / a = (v + 1 + root) / v
    return 1 / math.log1p((1 + root) / variance)


def check_size(scale: float) -> float:
    """The scale, if its draws are sure to fit into 64 bits."""
    if not scale <= _LARGEST:
        raise InvalidValue(f"the noise must be at most 2^50; it would be {scale!r}. Use a coarser unit.")
    return scale


def _one_way(by_stddev: bool, by_cost: bool, cost: str, sensitivity: float | None, account: Account | None) -> None:
    if by_stddev == by_cost:
        raise InvalidValue(f"give either {cost}, or stddev; not both and not neither.")
    if sensitivity is None and (by_cost or account is not None):
        raise InvalidValue("sensitivity must be given: the most that the value moves between neighbours.")
