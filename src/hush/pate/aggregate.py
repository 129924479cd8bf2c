"""Noisy votes: labels for public examples from the counts of the teachers' votes.

    >>> from hush import Rng
    >>> votes = VoteCounts([[240, 10, 0], [5, 5, 240]], num_teachers=250)
    >>> answers = GNMax(stddev=40.0).answer(votes, rng=Rng.from_seed(7))
    >>> answers.labels.tolist(), round(answers.guarantee(delta=1e-5).epsilon, 4)
    ([0, 2], 0.16)

One person changes one teacher, and one teacher moves one vote from a class to another, whether the person is added,
removed or replaced. So two counts change by 1, in opposite directions, and the largest count changes by 1 at most. The
events are stated for that change (`GaussianDP`, `PureDP`, `ZeroConcentratedDP`), hence the same under every relation.

References: Papernot, Abadi, Erlingsson, Goodfellow, Talwar 2017 (LNMax); Papernot, Song, Mironov, Raghunathan, Talwar,
Erlingsson 2018 (GNMax, Confident-GNMax).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy
from numpy.typing import NDArray

from hush import _check, accounting
from hush.errors import InvalidValue
from hush.events import Event, PureDP, Repeated
from hush.mechanisms.charging import Account
from hush.mechanisms.discrete import gaussian_integers
from hush.mechanisms.draws import Draws
from hush.mechanisms.real import add_gaussian, add_laplace
from hush.pate.spending import Cap, Prices, bound_of, cap_for, filtered, gaussian_price, pay
from hush.pate.votes import Integers, VoteCounts
from hush.privacy import Budget, Guarantee, Relation
from hush.rng import Rng

Noise = Literal["gaussian", "discrete"]
NOISES = ("gaussian", "discrete")
Booleans = NDArray[numpy.bool_]
Floats = NDArray[numpy.float64]
ABSTAINED = -1


@dataclass(frozen=True, eq=False)
class Answers:
    """What left the vote: labels, -1 where there is none.

    `asked` is False for queries that the budget no longer reached: they cost nothing. `answered` is False for those and
    for queries on which the vote abstained. `event` is what happened and was charged, abstentions included.

    `bound` is what is proven about it. How often a vote abstains depends on the votes, so the cost of what happened is
    itself a result and no promise. A promise is the cap that was fixed before: the budget (then kept in `promise`), or
    else that every query might have been answered. Where no query can abstain, `bound` and `event` are the same.
    """

    labels: Integers
    answered: Booleans
    asked: Booleans
    event: Event
    bound: Event
    delta: float | None = None
    promise: Budget | None = None
    reinforced: Booleans | None = None

    @property
    def stopped(self) -> bool:
        """Whether the budget ended before the list did."""
        return not bool(self.asked.all())

    def guarantee(self, *, delta: float | None = None, relation: Relation = "add_remove") -> Guarantee:
        """The epsilon that may be published; at the delta that was given with the question unless another is named."""
        delta = self.delta if delta is None else delta
        if delta is None:
            raise InvalidValue("guarantee() needs a delta, well below 1/num_examples: guarantee(delta=1e-5).")
        if self.promise is not None and delta >= self.promise.delta:
            return filtered(self.promise, delta, relation)
        return accounting.guarantee(self.bound, delta=delta, relation=relation, method="exact")

    def __repr__(self) -> str:
        counted = f"queries={len(self.labels)}, asked={self.asked.sum()}, answered={self.answered.sum()}"
        return f"Answers({counted})"


@dataclass(frozen=True)
class LNMax:
    """The class with the most votes after Laplace noise of this `scale` on each count.

    Two counts move by 1, each under its own noise, so one answer costs two releases of 1/scale. Their sum 2/scale is
    what delta 0 sees [Papernot et al. 2017, Sec. 2.1]; above delta 0 two halves compose to less than their sum.
    """

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _check.positive("scale", self.scale))

    @property
    def prices(self) -> Prices:
        """What one query costs."""
        return Prices(None, Repeated(PureDP(math.nextafter(1 / self.scale, math.inf)), times=2))

    def answer(
        self,
        votes: VoteCounts,
        *,
        account: Account | None = None,
        rng: Rng | None = None,
        budget: Budget | Cap | None = None,
        delta: float | None = None,
    ) -> Answers:
        """Label every query that the budget reaches; see `GNMax.answer` for the arguments."""
        draws = Draws(rng)
        labels = noisiest(add_laplace(check_votes(votes).counts.astype(float), self.scale, draws), draws)
        passed = numpy.ones(len(votes), numpy.bool_)
        return release(labels, passed, self.prices, account=account, budget=budget, delta=delta)


@dataclass(frozen=True)
class GNMax:
    """The class with the most votes after Gaussian noise of this `stddev` on each count.

    Two counts move by 1, which is sqrt(2) in the L2 norm: an answer is GaussianDP(sqrt(2) / stddev) [Papernot et al.
    2018, Prop. 8, and its exact form]. The noise is real-valued and rounded to a public grid afterwards, so its event
    holds without a floating-point gap. With `noise="discrete"` it is the discrete Gaussian on whole numbers, which has
    the same concentrated bound, rho = 1 / stddev^2, and no exact Gaussian curve: the same noise then costs a little
    more on paper [Canonne, Kamath, Steinke 2020, Thm. 4].
    """

    stddev: float
    noise: Noise = "gaussian"

    def __post_init__(self) -> None:
        object.__setattr__(self, "stddev", _check.positive("stddev", self.stddev))
        _check.one_of("noise", self.noise, NOISES)

    @property
    def prices(self) -> Prices:
        """What one query costs."""
        return Prices(None, gaussian_price(2, self.stddev, self.noise))

    def answer(
        self,
        votes: VoteCounts,
        *,
        account: Account | None = None,
        rng: Rng | None = None,
        budget: Budget | Cap | None = None,
        delta: float | None = None,
    ) -> Answers:
        """Label every query that the budget reaches. Ties are broken at random.

        Args:
            votes: The counts, a row for each query.
            account: Charged with what happened, before anything is returned; where its cap ends, the list ends.
            rng: A seeded source, for tests only.
            budget: The most that this list may spend. A `GDPFilter` or `RenyiFilter` in its place goes on counting
                from list to list, which a `Budget` does not.
            delta: At which `guarantee()` states the cost; by default the budget's.

        Raises:
            BudgetExceeded: Another process spent the account's last while this one was about to; nothing is returned.
        """
        draws = Draws(rng)
        labels = noisiest(add_noise(check_votes(votes).counts, self.stddev, self.noise, draws), draws)
        passed = numpy.ones(len(votes), numpy.bool_)
        return release(labels, passed, self.prices, account=account, budget=budget, delta=delta)


@dataclass(frozen=True)
class ConfidentGNMax:
    """GNMax for the queries whose largest count, plus one Gaussian of `threshold_stddev`, reaches `threshold`.

    The test is one number with sensitivity 1 and is paid for by every query asked, answered or not. (One Gaussian on
    each count inside the maximum would be another test, with another cost.) [Papernot et al. 2018, Alg. 1]
    """

    threshold: float
    threshold_stddev: float
    stddev: float
    noise: Noise = "gaussian"

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", _check.number("threshold", self.threshold))
        for name in ("threshold_stddev", "stddev"):
            object.__setattr__(self, name, _check.positive(name, getattr(self, name)))
        _check.one_of("noise", self.noise, NOISES)

    @property
    def prices(self) -> Prices:
        """What one query costs."""
        test = gaussian_price(1, self.threshold_stddev, self.noise)
        return Prices(test, gaussian_price(2, self.stddev, self.noise))

    def answer(
        self,
        votes: VoteCounts,
        *,
        account: Account | None = None,
        rng: Rng | None = None,
        budget: Budget | Cap | None = None,
        delta: float | None = None,
    ) -> Answers:
        """Label the queries that pass the test, as far as the budget reaches; see `GNMax.answer` for the arguments."""
        draws, counts = Draws(rng), check_votes(votes).counts
        passed = add_noise(counts.max(axis=1), self.threshold_stddev, self.noise, draws) >= self.threshold
        labels = noisiest(add_noise(counts, self.stddev, self.noise, draws), draws)
        return release(labels, passed, self.prices, account=account, budget=budget, delta=delta)


def add_noise(values: Integers | Floats, stddev: float, noise: Noise, draws: Draws) -> Integers | Floats:
    """Values plus noise, rounded to a public grid: whole numbers if the noise is discrete."""
    if not values.size:
        return values
    if noise == "discrete":
        whole = values.astype(numpy.int64)
        return whole + gaussian_integers(whole.size, stddev, draws).reshape(whole.shape)
    return add_gaussian(values.astype(numpy.float64), stddev, draws)


def noisiest(noisy: Integers | Floats, draws: Draws) -> Integers:
    """The place of the largest number of each row; among equal ones a random place, never the first by rule."""
    if not noisy.size:
        return numpy.empty(len(noisy), numpy.int64)
    is_largest = noisy == noisy.max(axis=1, keepdims=True)
    lots = (draws.words(noisy.size) >> numpy.uint64(1)).astype(numpy.int64).reshape(noisy.shape)
    places: Integers = numpy.where(is_largest, lots, -1).argmax(axis=1).astype(numpy.int64)
    return places


def release(
    labels: Integers,
    passed: Booleans,
    prices: Prices,
    *,
    account: Account | None,
    budget: Budget | Cap | None,
    delta: float | None,
) -> Answers:
    """Pay, then let out the labels that were paid for."""
    delta = budget.delta if delta is None and isinstance(budget, Budget) else delta
    delta = None if delta is None else _check.delta(delta)
    cap = cap_for(budget, prices)
    number = pay(passed, prices, cap=cap, account=account)
    asked = numpy.arange(len(labels)) < number
    answered = asked & passed
    event = prices.of(number, int(numpy.count_nonzero(answered)))
    held_by = cap if cap is not None or number == len(labels) else account
    fixed = prices.test is None or not number  # then the cost does not depend on the votes
    bound, promise = (event, None) if fixed else bound_of(held_by, prices, len(labels))
    return Answers(numpy.where(answered, labels, ABSTAINED), answered, asked, event, bound, delta, promise)


def check_votes(votes: object) -> VoteCounts:
    """The votes, if they are VoteCounts: a bare array may be a table of labels."""
    if not isinstance(votes, VoteCounts):
        raise InvalidValue(f"votes must be VoteCounts(counts, num_teachers); got {type(votes).__name__}.")
    return votes
