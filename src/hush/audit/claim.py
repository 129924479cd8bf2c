"""From right guesses to evidence against a claimed event.

Whoever sees everything that a private training releases, and guesses whether one example was in by a fair coin, is
right with chance (1 + delta(0)) / 2 at most, where delta(0) is the event's delta at epsilon 0: the total variation
between two neighbours' outputs. So a right-guess rate above that refutes the event, and the event with less noise that
just allows the rate gives epsilon.

>>> from hush.events import Gaussian, Repeated
>>> event = Repeated(Gaussian(noise_multiplier=4.0), times=16)
>>> round(promised_rate(event, "add_remove"), 6)  # mu = sqrt(16) / 4, and Phi(mu / 2)
0.691462
"""

from __future__ import annotations

import math
from functools import lru_cache

from scipy import special

from hush import accounting
from hush.accounting.gdp import epsilon_of, mu_of
from hush.audit.counts import ROUND_DOWN, positive_delta
from hush.errors import UnsupportedEvent
from hush.events import Composed, Event, Gaussian, PoissonSampled, Repeated
from hush.privacy import Evidence, Relation

_MOST = 8.0  # noise is sought down to an eighth and up to 8 times of what was claimed; a power of 2
UNEXPLAINED = "no noise explains so many right guesses: something else than the noise is not as claimed"


@lru_cache(maxsize=256)
def promised_rate(event: Event, relation: Relation) -> float:
    """The largest chance, rounded up, of guessing one example's fair coin from what the event releases."""
    return min(1.0, (1 + accounting.delta(event, epsilon=0.0, relation=relation).delta) / 2)


def evidence_from_rate(
    rate: float, event: Event, *, delta: float, relation: Relation, significance: float, method: str
) -> Evidence:
    """Epsilon at `delta` of the claimed event with the most noise that still allows a right-guess rate of `rate`.

    `rate` is a lower end, right but for chance `significance`. What is claimed about sampling and steps is taken as
    true; the noise is what is measured.
    """
    delta = positive_delta(delta)
    notes: tuple[str, ...] = ()
    if rate <= 0.5:
        epsilon = 0.0
    elif mu_of(event, relation) is not None:
        epsilon = epsilon_of(delta, 2 * float(special.ndtri(rate))) * ROUND_DOWN  # TV of mu-GDP is 2 Phi(mu / 2) - 1
    else:
        factor = _refuted_factor(rate, event, relation)
        notes = (UNEXPLAINED,) if factor == 1 / _MOST else ()
        epsilon = 0.0 if math.isinf(factor) else _epsilon(with_noise(event, factor), delta, relation)
    return Evidence(
        epsilon_at_least=epsilon,
        delta=delta,
        significance=significance,
        method=method,
        relation=relation,
        notes=notes,
    )


def with_noise(event: Event, factor: float) -> Event:
    """The event with the noise of every Gaussian inside multiplied.

    >>> with_noise(Repeated(Gaussian(noise_multiplier=4.0), times=16), 0.5)
    Repeated(event=Gaussian(noise_multiplier=2.0), times=16)
    """
    match event:
        case Gaussian(noise_multiplier):
            return Gaussian(noise_multiplier * factor)
        case Repeated(inner, times):
            return Repeated(with_noise(inner, factor), times)
        case PoissonSampled(inner, sampling_prob):
            return PoissonSampled(with_noise(inner, factor), sampling_prob)
        case Composed(parts):
            return Composed(*(with_noise(part, factor) for part in parts))
    if any(isinstance(part, Gaussian) for part in event.parts()):
        raise UnsupportedEvent(f"an audit has no noise to measure in {type(event).__name__}.")
    return event


def _refuted_factor(rate: float, event: Event, relation: Relation) -> float:
    """A factor on the noise, close to the smallest, at which the promised rate is below `rate`; infinity for none."""

    def refuted(factor: float) -> bool:
        return promised_rate(with_noise(event, factor), relation) < rate

    high = 1.0
    if refuted(high):
        while refuted(high / 2):
            high /= 2
            if high <= 1 / _MOST:
                return 1 / _MOST
    else:
        while not refuted(high := high * 2):
            if high >= _MOST:
                return math.inf
    low = high / 2
    while high / low > 1.001:  # not closer than an audit can see; the upper end is the safe one
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return high


def _epsilon(event: Event, delta: float, relation: Relation) -> float:
    found = accounting.guarantee(event, delta=delta, relation=relation)
    return found.epsilon_lower or found.epsilon * ROUND_DOWN
