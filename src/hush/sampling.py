"""Which examples take part in a step, and what that choice means for the step's event.

>>> from hush import events
>>> from hush.rng import Rng
>>> sampling = Poisson(sampling_prob=0.01)
>>> index = sampling.draw(60_000, step=0, stream=Rng.from_seed(7).stream("sampling"))
>>> 450 < len(index) < 750
True
>>> sampling.event(events.Gaussian(noise_multiplier=1.0))
PoissonSampled(event=Gaussian(noise_multiplier=1.0), sampling_prob=0.01)

A sampler and its event are one object, so a shuffled loader cannot be accounted as Poisson. Draws are numpy arrays of
row numbers in ascending order; an empty one is a step like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy
from numpy.typing import NDArray

from hush import _check
from hush.errors import InvalidValue
from hush.events import ApproximateDP, Composed, Event, PoissonSampled

Index: TypeAlias = NDArray[numpy.int64]
_SKIPS_BELOW = 0.2  # under this probability, drawing the gaps is quicker than drawing every example
_TAIL_MARGIN = 1e-9  # relative; the incomplete beta function is good to about 1e-13


@dataclass(frozen=True)
class Poisson:
    """Each example joins independently with chance `sampling_prob`."""

    sampling_prob: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampling_prob", _check.probability("sampling_prob", self.sampling_prob))

    def draw(self, num_examples: int, *, step: int, stream: numpy.random.Generator) -> Index:
        """The rows that join."""
        del step
        return bernoulli_rows(num_examples, self.sampling_prob, stream)

    def event(self, release: Event) -> Event:
        """What one step does, if `release` is done to the drawn rows."""
        return PoissonSampled(release, self.sampling_prob)


@dataclass(frozen=True)
class TruncatedPoisson:
    """Poisson, but a batch over `max_batch_size` keeps a uniform choice of that many rows.

    `num_examples` is public and no data set may be larger. See docs/theory/truncated-poisson.md for the cost: the step
    is a Poisson step unless the *other* examples fill the batch by themselves, and that chance is added as delta.
    """

    sampling_prob: float
    max_batch_size: int
    num_examples: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampling_prob", _check.probability("sampling_prob", self.sampling_prob))
        object.__setattr__(self, "max_batch_size", _check.whole("max_batch_size", self.max_batch_size))
        object.__setattr__(self, "num_examples", _check.whole("num_examples", self.num_examples))

    def draw(self, num_examples: int, *, step: int, stream: numpy.random.Generator) -> Index:
        """The rows that join, at most `max_batch_size`."""
        del step
        if num_examples > self.num_examples:
            raise InvalidValue(f"the plan is for at most {self.num_examples} examples; the data set has more.")
        rows = bernoulli_rows(num_examples, self.sampling_prob, stream)
        if len(rows) <= self.max_batch_size:
            return rows
        return numpy.sort(stream.choice(rows, self.max_batch_size, replace=False, shuffle=False))

    @property
    def failure(self) -> float:
        """The chance, rounded up, that the other examples alone fill a batch."""
        return filling_chance(self.num_examples - 1, self.sampling_prob, self.max_batch_size)

    def event(self, release: Event) -> Event:
        """What one step does, if `release` is done to the drawn rows."""
        sampled = PoissonSampled(release, self.sampling_prob)
        failure = self.failure
        if failure >= 1:
            raise InvalidValue(
                f"max_batch_size must be one that {self.num_examples} examples with sampling_prob {self.sampling_prob} "
                f"do not always fill; got {self.max_batch_size}. Use `max_batch_size_for`."
            )
        return sampled if failure == 0 else Composed(sampled, ApproximateDP(epsilon=0.0, delta=failure))


@dataclass(frozen=True)
class FullBatch:
    """Every example, every step."""

    def draw(self, num_examples: int, *, step: int, stream: numpy.random.Generator) -> Index:
        """All rows."""
        del step, stream
        return numpy.arange(num_examples)

    def event(self, release: Event) -> Event:
        """What one step does: the release itself, there is nothing to amplify."""
        return release


@dataclass(frozen=True)
class OrderedPasses:
    """No sampling: rows in their order, `rows_per_step` at a time, again from the start after each pass.

    The place of an example is fixed by its row number, so it takes part once in every pass of `steps_per_pass` steps.
    `num_examples` is public and no data set may be larger.
    """

    rows_per_step: int
    num_examples: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows_per_step", _check.whole("rows_per_step", self.rows_per_step))
        object.__setattr__(self, "num_examples", _check.whole("num_examples", self.num_examples))

    @property
    def steps_per_pass(self) -> int:
        """Steps between two uses of the same example."""
        return -(-self.num_examples // self.rows_per_step)

    def participations(self, steps: int) -> int:
        """How often an example takes part in this many steps, at most."""
        return -(-steps // self.steps_per_pass)

    def draw(self, num_examples: int, *, step: int, stream: numpy.random.Generator) -> Index:
        """The rows whose turn it is at this step, counted from 0."""
        del stream
        if num_examples > self.num_examples:
            raise InvalidValue(f"the plan is for at most {self.num_examples} examples; the data set has more.")
        start = (step % self.steps_per_pass) * self.rows_per_step
        return numpy.arange(min(start, num_examples), min(start + self.rows_per_step, num_examples))


Sampling: TypeAlias = Poisson | TruncatedPoisson | FullBatch | OrderedPasses


def draws(
    sampling: Sampling, num_examples: int, *, steps: int, stream: numpy.random.Generator, first: int = 0
) -> Iterator[Index]:
    """The rows of each step from `first` up to `steps`."""
    for step in range(first, steps):
        yield sampling.draw(num_examples, step=step, stream=stream)


def bernoulli_rows(num_examples: int, probability: float, stream: numpy.random.Generator) -> Index:
    """The rows out of `num_examples` that win, each independently with this probability.

    Where wins are rare their gaps are drawn, which are geometric and independent; otherwise one number per row. Both
    are exact but for the rounding of doubles (below 1e-15 in the probability).
    """
    if probability >= 1:
        return numpy.arange(num_examples)
    if probability >= _SKIPS_BELOW:
        return numpy.flatnonzero(stream.random(num_examples) < probability)
    expected = num_examples * probability
    size = int(expected + 6 * math.sqrt(expected)) + 8  # enough gaps in one go, nearly always
    places: Index = numpy.empty(0, dtype=numpy.int64)
    last = -1
    while last < num_examples:
        gaps = numpy.minimum(stream.geometric(probability, size), num_examples + 1)  # no overflow in the sum
        places = numpy.concatenate([places, last + numpy.cumsum(gaps)])
        last = int(places[-1])
    return places[: numpy.searchsorted(places, num_examples)]


def filling_chance(num_examples: int, sampling_prob: float, max_batch_size: int) -> float:
    """P(Binomial(num_examples, sampling_prob) >= max_batch_size), rounded up.

    >>> filling_chance(2, 0.5, 2)
    0.25000000025
    """
    if max_batch_size > num_examples:
        return 0.0
    from scipy.special import betainc

    # P(X >= k) = I_p(k, n - k + 1), the regularised incomplete beta function.
    chance = float(betainc(max_batch_size, num_examples - max_batch_size + 1, sampling_prob))
    return min(1.0, max(chance, 1e-300) * (1 + _TAIL_MARGIN))


def max_batch_size_for(num_examples: int, sampling_prob: float, *, failure: float) -> int:
    """The smallest cap on a batch that other examples fill with a chance of at most `failure`.

    >>> max_batch_size_for(60_000, 0.01, failure=1e-12)
    780
    """
    low, high = 0, num_examples  # `high` is never filled by the other num_examples - 1
    while high - low > 1:
        middle = (low + high) // 2
        fine = filling_chance(num_examples - 1, sampling_prob, middle) <= failure
        low, high = (low, middle) if fine else (middle, high)
    return high
