"""How much noise a number of queries needs, how many queries fit a budget, and which threshold to use.

    >>> from hush import Budget
    >>> stddev = noise_for(Budget(epsilon=1.0, delta=1e-5), queries=100)
    >>> round(stddev, 4)
    52.7591

The noise and the number of queries follow from the budget alone. A threshold depends on how much the teachers agree,
which is private: it is tuned on votes that anybody may see, synthetic ones or votes of teachers on public data.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy
from numpy.typing import ArrayLike

from hush import _check, accounting
from hush.errors import InvalidValue, Unreachable
from hush.pate.aggregate import ConfidentGNMax, Floats, GNMax, LNMax, Noise
from hush.pate.consensus import log_answer_probability
from hush.pate.interactive import InteractiveGNMax
from hush.pate.spending import Prices, gaussian_price
from hush.pate.votes import Integers, VoteCounts
from hush.privacy import Budget
from hush.rng import Rng

_SHARES = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # thresholds tried, as shares of the teachers
_RATIOS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # threshold_stddev over stddev
_PARTS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05)  # of the queries that could be asked
_NODES, _POINTS = 24, 24
_MOST_QUERIES = 10**9
_LARGEST_NOISE = 1e12


def noise_for(
    budget: Budget,
    *,
    queries: int,
    answers: int | None = None,
    threshold_stddev: float | None = None,
    kind: Literal["gnmax", "lnmax"] = "gnmax",
    noise: Noise = "gaussian",
) -> float:
    """The least noise on the counts with which so many queries fit the budget; never over it.

    Args:
        budget: The most that may be spent.
        queries: How many are asked.
        answers: How many of them may be answered, all by default.
        threshold_stddev: The noise of the test, for `ConfidentGNMax`; every query pays for it.
        kind: "gnmax" gives a standard deviation, "lnmax" the scale of Laplace noise.
        noise: As for `GNMax`.

    Raises:
        Unreachable: The tests alone cost more than the budget.
    """
    queries = _check.whole("queries", queries)
    answers = queries if answers is None else _check.whole("answers", answers)
    if answers > queries:
        raise InvalidValue(f"answers must not exceed queries; got {answers} of {queries}.")
    _check.one_of("kind", kind, ("gnmax", "lnmax"))
    if kind == "lnmax" and threshold_stddev is not None:
        raise InvalidValue("LNMax has no test; leave threshold_stddev out.")
    test = (
        None
        if threshold_stddev is None
        else gaussian_price(1, _check.positive("threshold_stddev", threshold_stddev), noise)
    )

    def fits(value: float) -> bool:
        price = LNMax(value).prices.answer if kind == "lnmax" else gaussian_price(2, value, noise)
        event = Prices(test, price).of(queries, answers)
        return budget.allows(accounting.guarantee(event, delta=budget.delta, method="exact"))

    if not fits(_LARGEST_NOISE):
        raise Unreachable(
            f"no noise fits {queries} queries into epsilon {budget.epsilon:g} at delta {budget.delta:g}; "
            "tests need a larger threshold_stddev, and Gaussian noise a delta above 0."
        )
    return _least(fits, math.sqrt(queries))


def _least(fits: Callable[[float], bool], start: float) -> float:
    """The least value that fits, to 1e-12 of itself, from its upper side; what is above it fits too."""
    high = start
    while not fits(high):
        high *= 2
    low = high / 2
    while fits(low):
        low, high = low / 2, low
    while high > low * (1 + 1e-12):
        middle = math.sqrt(low * high)
        if not low < middle < high:
            break
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def queries_for(aggregator: LNMax | GNMax | ConfidentGNMax | InteractiveGNMax, budget: Budget) -> int:
    """How many queries fit the budget if all of them are answered.

    >>> queries_for(GNMax(stddev=40.0), Budget(epsilon=1.0, delta=1e-5))
    57
    """

    def fits(count: int) -> bool:
        event = aggregator.prices.of(count, count)
        return budget.allows(accounting.guarantee(event, delta=budget.delta, method="exact"))

    low, high = 0, 1
    while fits(high):
        low, high = high, high * 2
        if high > _MOST_QUERIES:
            raise Unreachable(f"more than {_MOST_QUERIES:.0e} queries fit this budget; use less noise.")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class ThresholdChoice:
    """The best aggregator found on public votes, and what it would do on votes like them."""

    aggregator: ConfidentGNMax
    queries: int
    expected_answered: float
    expected_correct: float


def tune_threshold(
    public_votes: VoteCounts,
    *,
    budget: Budget,
    queries: int,
    labels: ArrayLike | None = None,
    penalty: float = 1.0,
    shares: Sequence[float] = _SHARES,
    ratios: Sequence[float] = _RATIOS,
) -> ThresholdChoice:
    """Threshold and noises of a `ConfidentGNMax` for at most so many queries within the budget, tuned on public votes.

    **Never pass private votes.** What is chosen by them tells about them, and no account is charged here. The best
    choice has the largest expected number of right labels less `penalty` times that of wrong ones.

    Args:
        public_votes: Synthetic votes (`synthetic_votes`), or votes of teachers that saw public data only.
        budget: The most that may be spent on the private votes. The expected number of answers fits it; pass the same
            budget to `answer`, which holds it whatever happens.
        queries: How many could be asked; fewer are chosen where more noise would spoil the labels.
        labels: The right labels of the public queries; by default the votes' plurality.
        penalty: How bad a wrong label is against how good a right one is.
        shares: Thresholds to try, as shares of the number of teachers.
        ratios: Values of threshold_stddev / stddev to try.
    """
    queries, right = _check.whole("queries", queries), _right_labels(public_votes, labels)
    if not len(shares) or not len(ratios):
        raise InvalidValue("shares and ratios must not be empty.")
    budget_mu = _largest_mu(budget)
    chances = _Chances(public_votes, right, 1 / (max(ratios) * budget_mu), math.sqrt(3 * queries) / budget_mu)
    sizes = sorted({max(1, round(part * queries)) for part in _PARTS}, reverse=True)
    best: tuple[float, ThresholdChoice] | None = None
    for size, share, ratio in itertools.product(sizes, shares, ratios):
        choice = _choice(public_votes, chances, size, budget_mu, share, ratio)
        score = choice.expected_correct - penalty * (choice.expected_answered - choice.expected_correct)
        if best is None or score > best[0]:
            best = score, choice
    assert best is not None
    return best[1]


def _largest_mu(budget: Budget) -> float:
    if budget.delta == 0:
        raise InvalidValue("budget needs delta above 0 for Gaussian noise; got 0.")
    return accounting.GDPFilter(budget, relation="replace_one").mu


class _Chances:
    """The chance of the right label for each query, by the noise: computed at some points, a line between them."""

    def __init__(self, votes: VoteCounts, labels: Integers, low: float, high: float) -> None:
        self._points = numpy.geomspace(min(low, high / 2), high, _POINTS)
        self._values = numpy.stack([chance_of_label(votes, labels, float(point)) for point in self._points])

    def at(self, stddev: float) -> Floats:
        """The chances at this noise."""
        place = int(numpy.clip(numpy.searchsorted(self._points, stddev), 1, _POINTS - 1))
        low, high = self._points[place - 1], self._points[place]
        part = min(max((stddev - low) / (high - low), 0.0), 1.0)
        result: Floats = (1 - part) * self._values[place - 1] + part * self._values[place]
        return result


def _choice(
    votes: VoteCounts, chances: _Chances, queries: int, budget_mu: float, share: float, ratio: float
) -> ThresholdChoice:
    """The noise at which this threshold and ratio are expected to cost the budget, by a damped fixed-point search."""
    threshold, largest = share * votes.num_teachers, votes.counts.max(axis=1)
    passing, stddev = numpy.ones(len(votes)), math.sqrt(3 * queries) / budget_mu
    for _ in range(12):
        # mu^2 = queries / (ratio stddev)^2 + 2 answers / stddev^2
        needed = math.sqrt(queries * (1 / ratio**2 + 2 * float(passing.mean()))) / budget_mu
        stddev = math.sqrt(stddev * needed)
        passing = numpy.exp(log_answer_probability(largest, threshold, ratio * stddev))
    aggregator = ConfidentGNMax(threshold=threshold, threshold_stddev=ratio * stddev, stddev=stddev)
    correct = passing * chances.at(stddev)
    scale = queries / len(votes)
    return ThresholdChoice(aggregator, queries, scale * float(passing.sum()), scale * float(correct.sum()))


def chance_of_label(votes: VoteCounts, labels: Integers, stddev: float) -> Floats:
    """The probability that GNMax gives these labels: the integral of phi(z) times prod Phi(z + lead / stddev)."""
    from scipy import special

    nodes, weights = numpy.polynomial.hermite_e.hermegauss(_NODES)
    own = numpy.take_along_axis(votes.counts, labels[:, None], axis=1)
    leads = (own - votes.counts) / stddev
    numpy.put_along_axis(leads, labels[:, None], numpy.inf, axis=1)  # no contest with itself
    wins = special.ndtr(nodes + leads[:, :, None]).prod(axis=1)
    result: Floats = wins @ weights / math.sqrt(2 * math.pi)
    return result


def _right_labels(votes: VoteCounts, labels: ArrayLike | None) -> Integers:
    if not isinstance(votes, VoteCounts) or not len(votes):
        raise InvalidValue("public_votes must be VoteCounts with one query or more.")
    if labels is None:
        plurality: Integers = votes.counts.argmax(axis=1).astype(numpy.int64)
        return plurality
    array = numpy.asarray(labels)
    if array.shape != (len(votes),) or array.dtype.kind not in "iu":
        raise InvalidValue(f"labels must be {len(votes)} whole numbers, one for each public query.")
    if (array < 0).any() or (array >= votes.num_classes).any():
        raise InvalidValue(f"labels must lie in 0 .. {votes.num_classes - 1}.")
    return array.astype(numpy.int64)


def synthetic_votes(
    num_queries: int,
    *,
    num_classes: int,
    num_teachers: int,
    accuracy: float,
    spread: float = 4.0,
    rng: Rng | None = None,
) -> tuple[VoteCounts, Integers]:
    """Votes of made-up teachers, and the right labels: public, so that thresholds may be tuned on them.

    Each query has its own share of right votes, from a beta law with mean `accuracy`; the smaller `spread`, the more
    queries are either easy or hard. Wrong votes fall on the other classes evenly.
    """
    queries, classes = _check.whole("num_queries", num_queries), _check.whole("num_classes", num_classes, least=2)
    mean = _check.probability("accuracy", accuracy)
    stream = (Rng() if rng is None else rng).stream("synthetic votes")
    right = stream.integers(classes, size=queries)
    share = stream.beta(mean * spread, max(1 - mean, 1e-9) * _check.positive("spread", spread), size=queries)
    chances = numpy.repeat(((1 - share) / (classes - 1))[:, None], classes, axis=1)
    numpy.put_along_axis(chances, right[:, None], share[:, None], axis=1)
    counts = stream.multinomial(_check.whole("num_teachers", num_teachers), chances)
    return VoteCounts(counts, num_teachers), right.astype(numpy.int64)
