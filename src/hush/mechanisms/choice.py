"""Choosing one of several things by their utilities, and telling which one only."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy
from numpy.typing import ArrayLike

from hush import _check
from hush.errors import InvalidValue
from hush.events import PureDP
from hush.mechanisms import exact
from hush.mechanisms.charging import Account, charge
from hush.mechanisms.draws import Draws, Floats, Integers
from hush.mechanisms.values import finite_floats
from hush.privacy import Relation
from hush.rng import Rng

_MARGIN = 2.0**-40  # of the sum of all weights; more than the error of one of its parts


def exponential(
    utilities: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float,
    monotone: bool = False,
    relation: Relation = "add_remove",
    account: Account | None = None,
    rng: Rng | None = None,
) -> int:
    """An index, chosen with chance proportional to exp(epsilon * utility / (2 sensitivity)).

    [Dwork, Roth 2014, Thm. 3.10]. The chances are exact, whatever the size of the utilities.

    >>> from hush import Rng
    >>> exponential([3.0, 2.0, 0.0], sensitivity=1.0, epsilon=2.0, rng=Rng.from_seed(7))
    0

    Args:
        utilities: One number for each choice; which choices there are must be public.
        sensitivity: The most that any one utility moves between neighbours.
        epsilon: What the choice costs.
        monotone: All utilities move the same way between neighbours, as counts do when a record is added. The 2 is
            then dropped.
        relation: Which neighbours the sensitivity is for.
        account: Charged `PureDP(epsilon)` before the choice.
        rng: A seeded source, for tests only.
    """
    exponents, exponent_at, epsilon = _exponents(utilities, sensitivity, epsilon, monotone)
    charge(account, PureDP(epsilon), relation)
    return choose(exponents, exponent_at, None, Draws(rng))


def report_noisy_max(
    utilities: ArrayLike,
    *,
    sensitivity: float,
    epsilon: float,
    monotone: bool = False,
    relation: Relation = "add_remove",
    account: Account | None = None,
    rng: Rng | None = None,
) -> int:
    """The index of the largest utility after noise from the exponential distribution of mean 2 sensitivity / epsilon.

    Drawn as permute-and-flip, which has the same law [Ding, Kifer, Saghaian, Steinke, Wang, Xiao, Zhang 2021]: the
    choices are looked at in random order, and each is taken with chance exp(-epsilon * gap / (2 sensitivity)), the gap
    being its distance to the largest utility. It is epsilon-private and never worse than `exponential` [McKenna,
    Sheldon 2020]. The arguments are those of `exponential`; the noisy utilities themselves are not released.

    >>> from hush import Rng
    >>> report_noisy_max([3.0, 2.0, 0.0], sensitivity=1.0, epsilon=2.0, rng=Rng.from_seed(7))
    0
    """
    exponents, exponent_at, epsilon = _exponents(utilities, sensitivity, epsilon, monotone)
    charge(account, PureDP(epsilon), relation)
    draws = Draws(rng)
    order = draws.order(len(exponents))
    taken = draws.accept(exponents, exponent_at)  # the largest has gap 0 and is always taken
    return int(order[numpy.argmax(taken[order])])


def choose(exponents: Floats, exponent_at: Callable[[int], Fraction], counts: Integers | None, draws: Draws) -> int:
    """An index with chance proportional to count * e^-exponent, exactly.

    The least exponent must be 0. In floating point the exponents may be off by 2^-42 (1 + exponent).
    """
    weights = numpy.exp(-exponents) if counts is None else numpy.exp(-exponents) * counts
    ends = numpy.cumsum(weights)
    word = int(draws.words(1)[0])
    target = word / 2.0**64 * ends[-1]
    margin = ends[-1] * (_MARGIN + len(ends) * 2.0**-50)
    index = int(numpy.searchsorted(ends, target, side="right"))
    start = ends[index - 1] if index else -margin
    if index < len(ends) and start + margin < target < ends[index] - margin:
        return index
    multiplicities = [1] * len(ends) if counts is None else counts.tolist()
    return exact.choose_exactly(draws.uniform(word), multiplicities, [exponent_at(place) for place in range(len(ends))])


def _exponents(
    utilities: ArrayLike, sensitivity: float, epsilon: float, monotone: bool
) -> tuple[Floats, Callable[[int], Fraction], float]:
    """How far each utility is below the largest, times epsilon / (2 sensitivity): rounded, and exactly."""
    scores, sensitivity = finite_floats("utilities", utilities), _check.positive("sensitivity", sensitivity)
    epsilon = _check.positive("epsilon", epsilon)
    if scores.ndim != 1:
        raise InvalidValue(f"utilities must be in one row; got an array of shape {scores.shape}.")
    best, factor = float(scores.max()), 1 if monotone else 2
    rate = Fraction(epsilon) / (factor * Fraction(sensitivity))

    def exponent_at(place: int) -> Fraction:
        return rate * (Fraction(best) - Fraction(float(scores[place])))

    return _scaled_gaps(scores, best, rate), exponent_at, epsilon


def _scaled_gaps(scores: Floats, best: float, rate: Fraction) -> Floats:
    """Return rate * (best - score), to a few units in the last place; infinite where it is beyond every float.

    Significands and powers of 2 are multiplied apart. The rate alone may be no float, as for a denormal sensitivity,
    where it would be infinite and every smaller utility would have no chance at all.
    """
    with numpy.errstate(over="ignore"):
        gaps = best - scores  # a difference of floats never underflows
    is_too_large = numpy.isinf(gaps)  # only for numbers near 1e308, which can be halved without loss
    parts, powers = numpy.frexp(numpy.where(is_too_large, best / 2 - scores / 2, gaps))
    rate_power = rate.numerator.bit_length() - rate.denominator.bit_length()
    rate_part = float(rate / Fraction(2) ** rate_power)  # between 1/2 and 2
    with numpy.errstate(over="ignore", under="ignore"):
        result: Floats = numpy.ldexp(parts * rate_part, powers + is_too_large + rate_power)
    return result
