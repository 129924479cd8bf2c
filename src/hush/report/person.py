"""What a guarantee means for one person: the best that an attacker can do, by the exact curve of the event.

>>> from hush.events import Gaussian
>>> shown = for_one_person(Gaussian(noise_multiplier=1.0), epsilon=4.0, delta=1e-5, relation="add_remove")
>>> round(shown.best_guess, 6)                      # Phi(1/2), closed form
0.691462
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from hush import accounting
from hush.events import Event
from hush.privacy import Relation

Floats = NDArray[numpy.float64]
_POINTS = 40
_UP = 1 + 1e-12  # above the rounding of a few operations
OUTCOMES = (0.0001, 0.001, 0.01, 0.1, 0.5)


@dataclass(frozen=True, kw_only=True)
class DeltaCurve:
    """The smallest delta at each epsilon, as an interval that holds the truth."""

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    lowers: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class OnePerson:
    """The most that anybody can learn about one unit, who knows all others and sees everything released.

    Attributes:
        best_guess: The largest chance of guessing rightly whether the unit was in, by a fair coin.
        odds_factor: The odds that it was in grow by this factor at most, but for a chance of `odds_failure`.
        outcomes: (chance without the unit, largest chance with it) of whatever may happen because of the release.
        trade_off: (false positive rate, largest true positive rate) of any attack.
        curve: The deltas that all of this follows from.
    """

    best_guess: float
    odds_factor: float
    odds_failure: float
    outcomes: tuple[tuple[float, float], ...]
    trade_off: tuple[tuple[float, float], ...]
    curve: DeltaCurve


def for_one_person(event: Event, *, epsilon: float, delta: float, relation: Relation) -> OnePerson:
    """What the event's exact curve says; `epsilon` and `delta` are a guarantee of the same event."""
    curve = delta_curve(event, epsilon, relation)
    epsilons, deltas = numpy.array([*curve.epsilons, epsilon]), numpy.array([*curve.deltas, delta])
    rates = numpy.concatenate([[0.0], numpy.geomspace(1e-5, 1.0, 60)])
    found = most_true_positives(rates, epsilons, deltas)
    likely = most_true_positives(numpy.array(OUTCOMES), epsilons, deltas)
    return OnePerson(
        # delta(0) is the total variation between neighbours' outputs [Balle, Barthe, Gaboardi 2018, Theorem 1], and a
        # fair coin is guessed rightly with chance (1 + total variation) / 2 at most, by Neyman and Pearson's lemma.
        best_guess=min(1.0, (1 + curve.deltas[0]) / 2 * _UP),
        odds_factor=_odds_factor(epsilons, deltas, epsilon, 2 * delta),
        odds_failure=2 * delta,
        outcomes=tuple(zip(OUTCOMES, likely.tolist(), strict=True)),
        trade_off=tuple(zip(rates.tolist(), found.tolist(), strict=True)),
        curve=curve,
    )


def delta_curve(event: Event, epsilon: float, relation: Relation) -> DeltaCurve:
    """Deltas from epsilon 0 to beyond the guarantee's."""
    epsilons = numpy.linspace(0.0, 2 * epsilon if epsilon > 0 else 1.0, _POINTS + 1).tolist()
    answers = [accounting.delta(event, epsilon=value, relation=relation) for value in epsilons]
    return DeltaCurve(
        epsilons=tuple(epsilons),
        deltas=tuple(answer.delta for answer in answers),
        lowers=tuple(answer.delta_lower for answer in answers),
    )


def most_true_positives(rates: Floats, epsilons: Floats, deltas: Floats) -> Floats:
    """The largest true positive rate of any attack at these false positive rates, by all (epsilon, delta) together.

    Each pair bounds it twice [Kairouz, Oh, Viswanath 2015, Theorem 2.1]; the least of all bounds holds, and with more
    pairs it comes closer to the truth from above [Dong, Roth, Su 2022, Section 2.3].
    """
    grown = numpy.exp(epsilons)[:, None] * rates + deltas[:, None]
    kept = 1 - numpy.exp(-epsilons)[:, None] * (1 - deltas[:, None] - rates)
    best: Floats = numpy.minimum(1.0, numpy.minimum(grown, kept).min(axis=0) * _UP)
    return best


def _odds_factor(epsilons: Floats, deltas: Floats, epsilon: float, failure: float) -> float:
    """e^t for the least t, over the curve, with P(privacy loss > t) <= failure.

    (epsilon, delta) alone does not say that the loss is above epsilon with chance delta at most. But delta(e) is the
    mean of (1 - exp(e - loss))_+, so P(loss > t) <= delta(e) / (1 - exp(e - t)) for every e < t, and
    t = e - log(1 - delta(e) / failure) makes the right side the failure. With twice the delta as failure, t is never
    above epsilon + log 2.
    """
    if failure == 0:
        return math.exp(epsilon) * _UP
    below = deltas < failure
    exponents = epsilons[below] - numpy.log1p(-deltas[below] / failure)
    return float(numpy.exp(exponents.min())) * _UP
