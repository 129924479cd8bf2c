"""The numbers that can be looked for, each on a line of whole places, and where on it a cost should lie.

A place is a batch size, a number of examples or of steps, or a noise multiplier of six digits: what is shown is what
was checked. By the central limit theorem (Bu et al. 2020) a training costs about as much as one Gaussian release at
distance mu, mu^2 = sampling_prob^2 steps (e^(1/noise_multiplier^2) - 1). This only says where to look.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hush.accounting.calibrate import MOST_STEPS
from hush.errors import Unreachable
from hush.planner.question import MOST_EXAMPLES, Question

_LEAST_NOISE, _MOST_NOISE = 0.05, 1e9
_MANTISSAS = 900_000  # numbers of six digits in a decade
_MOST_EXPONENT = 600.0


@dataclass(frozen=True)
class Axis:
    """Places from 0, the cheapest, to `last`; `start` is about where the question stands."""

    safe: int  # the number at place 0
    costly: int  # and the one at the last place
    at_number: Callable[[int], Question]
    number_of: Callable[[float], float]  # from mu^2
    start_number: float

    @property
    def last(self) -> int:
        """The most costly place."""
        return abs(self.costly - self.safe)

    @property
    def start(self) -> int:
        """The place to look at first."""
        return self._place(self.start_number)

    def at(self, place: int) -> Question:
        """The training at a place."""
        return self.at_number(self._number(place))

    def inside(self, log_mu: float) -> int:
        """The place next to this distance, on its cheap side."""
        try:
            return self._place(self.number_of(math.exp(2 * log_mu)))
        except (OverflowError, ZeroDivisionError):
            return self.last if log_mu > 0 else 0

    def between(self, low: int, high: int) -> int:
        """A place about half way, by the ratio of the numbers where they are far apart."""
        one, other = sorted((self._number(low), self._number(high)))
        if 0 < 4 * one < other:
            return self._place(math.sqrt(one) * math.sqrt(other))
        return (low + high) // 2

    def _number(self, place: int) -> int:
        return self.safe + place if self.costly > self.safe else self.safe - place

    def _place(self, number: float) -> int:
        steps = number - self.safe if self.costly > self.safe else self.safe - number
        return math.floor(min(max(steps, 0), self.last))


class Distance(NamedTuple):
    """log mu of a training: the sum of what sampling, steps and noise give."""

    prob: float
    steps: float
    noise: float

    @classmethod
    def of(cls, asked: Question) -> Distance:
        """By the central limit theorem."""
        noise = _log_rise(asked.noise_multiplier) / 2
        return cls(math.log(asked.sampling_prob), math.log(asked.steps) / 2, noise)

    @staticmethod
    def noise_slope(noise: float) -> float:
        """The growth of the noise's part with log noise."""
        square = min(noise**-2, _MOST_EXPONENT)
        return square / math.expm1(-square)


def _log_rise(noise: float) -> float:
    """log(e^(1/noise^2) - 1)."""
    return math.log(math.expm1(min(noise**-2, _MOST_EXPONENT)))


def axis_of(asked: Question) -> Axis:
    """The line on which the unknown of the question lies."""
    return _AXES[asked.find](asked)


def _noise(asked: Question) -> Axis:
    flat = asked.sampling_prob**2 * asked.steps

    def at(place: int) -> Question:
        return replace(asked, noise_multiplier=_noise_at(place))

    def place_of(mu_squared: float) -> float:
        return _noise_place(1 / math.sqrt(math.log1p(mu_squared / flat)))

    ends = math.ceil(_noise_place(_MOST_NOISE)), math.ceil(_noise_place(_LEAST_NOISE))
    return Axis(*ends, at, place_of, _noise_place(asked.noise_multiplier))


def _noise_at(place: int) -> float:
    decade, rest = divmod(place, _MANTISSAS)
    return float(f"{rest + 100_000}e{decade}")


def _noise_place(noise: float) -> float:
    decade = math.floor(math.log10(noise)) - 5
    mantissa = noise / 10.0**decade
    if round(mantissa, 4) == round(mantissa):  # one of the numbers itself, but for rounding
        mantissa = round(mantissa)
    return decade * _MANTISSAS + mantissa - 100_000


def _epochs(asked: Question) -> Axis:
    prob = asked.sampling_prob
    one = prob**2 * math.exp(_log_rise(asked.noise_multiplier))

    def at(steps: int) -> Question:
        return replace(asked, epochs=steps * prob)

    return Axis(1, MOST_STEPS, at, lambda mu_squared: mu_squared / one, min(asked.steps, MOST_STEPS))


def _batch(asked: Question) -> Axis:
    """At a fixed number of epochs a larger batch means fewer steps and still costs more."""
    least = max(1, math.ceil(asked.epochs * asked.num_examples / MOST_STEPS))
    if least > asked.num_examples:
        raise Unreachable(f"{asked.epochs:g} epochs are more than {MOST_STEPS:.0e} steps at every batch size.")
    one = asked.epochs / asked.num_examples * math.exp(_log_rise(asked.noise_multiplier))
    at = _changing(asked, "expected_batch_size")
    return Axis(least, asked.num_examples, at, lambda mu_squared: mu_squared / one, asked.expected_batch_size)


def _examples(asked: Question) -> Axis:
    """At a fixed number of epochs a larger data set means more steps and still costs less."""
    most = min(MOST_EXAMPLES, int(MOST_STEPS * asked.expected_batch_size / asked.epochs))
    if most < asked.expected_batch_size:
        raise Unreachable(f"{asked.epochs:g} epochs are more than {MOST_STEPS:.0e} steps on every data set.")
    one = asked.epochs * asked.expected_batch_size * math.exp(_log_rise(asked.noise_multiplier))
    at = _changing(asked, "num_examples")
    return Axis(most, asked.expected_batch_size, at, lambda mu_squared: one / mu_squared, asked.num_examples)


def _changing(asked: Question, field: str) -> Callable[[int], Question]:
    def at(place: int) -> Question:
        change: dict[str, Any] = {field: place}
        return replace(asked, **change)

    return at


_AXES: dict[str, Callable[[Question], Axis]] = {
    "noise_multiplier": _noise,
    "epochs": _epochs,
    "expected_batch_size": _batch,
    "num_examples": _examples,
}
