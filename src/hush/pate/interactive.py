"""Votes that the student takes part in: teachers answer where they disagree with it, else its own answer stands."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy
from numpy.typing import ArrayLike

from hush import _check
from hush.errors import InvalidValue
from hush.mechanisms.charging import Account
from hush.mechanisms.draws import Draws
from hush.pate.aggregate import NOISES, Answers, Booleans, Floats, Noise, add_noise, check_votes, noisiest, release
from hush.pate.spending import Cap, Prices, gaussian_price
from hush.pate.votes import Integers, VoteCounts
from hush.privacy import Budget
from hush.rng import Rng

_GRID = 2.0**20  # the student's share of the votes is a multiple of 1/_GRID: its difference to a count is then exact


@dataclass(frozen=True)
class InteractiveGNMax:
    """GNMax for the queries on which the teachers noisily disagree with the student [Papernot et al. 2018, Alg. 2].

    The test takes the largest of count - num_teachers * (the student's probability), over the classes, plus one
    Gaussian of `threshold_stddev`. One moved vote changes that number by 1 at most, because what the student says is
    public: it may depend on earlier answers and on no private data. Where the test fails, a student whose largest
    probability is above `confidence` is confirmed in its own label, which costs nothing beyond the test.
    """

    threshold: float
    threshold_stddev: float
    stddev: float
    confidence: float
    noise: Noise = "gaussian"

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", _check.number("threshold", self.threshold))
        object.__setattr__(self, "confidence", _check.probability("confidence", self.confidence))
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
        probabilities: ArrayLike,
        *,
        account: Account | None = None,
        rng: Rng | None = None,
        budget: Budget | Cap | None = None,
        delta: float | None = None,
    ) -> Answers:
        """Label the queries; `probabilities` are the student's, of shape (queries, classes).

        `answered` marks the labels that the teachers gave, `reinforced` those that are the student's own. The other
        arguments are those of `GNMax.answer`.
        """
        counts, draws = check_votes(votes).counts, Draws(rng)
        student = _check_probabilities(probabilities, votes)
        values = margins(votes, student, whole=self.noise == "discrete")
        passed = add_noise(values, self.threshold_stddev, self.noise, draws) >= self.threshold
        labels = noisiest(add_noise(counts, self.stddev, self.noise, draws), draws)
        answers = release(labels, passed, self.prices, account=account, budget=budget, delta=delta)
        return _reinforce(answers, student, self.confidence)


def margins(votes: VoteCounts, probabilities: Floats, *, whole: bool) -> Integers | Floats:
    """The largest of count - num_teachers * probability of each query: a count more or less changes it by 1 at most."""
    grid = 1.0 if whole else _GRID
    baseline = numpy.rint(votes.num_teachers * probabilities * grid) / grid
    largest: Floats = numpy.max(votes.counts - baseline, axis=1, initial=-float(votes.num_teachers))
    return largest


def _reinforce(answers: Answers, student: Floats, confidence: float) -> Answers:
    sure = student.max(axis=1, initial=0.0) > confidence
    reinforced: Booleans = answers.asked & ~answers.answered & sure
    own = student.argmax(axis=1) if student.size else answers.labels
    return replace(answers, labels=numpy.where(reinforced, own, answers.labels), reinforced=reinforced)


def _check_probabilities(probabilities: ArrayLike, votes: VoteCounts) -> Floats:
    student = numpy.asarray(probabilities, dtype=numpy.float64)
    if student.shape != votes.counts.shape:
        raise InvalidValue(
            f"probabilities must have the shape of the votes, {votes.counts.shape}; got {student.shape}."
        )
    if not (numpy.isfinite(student).all() and (student >= 0).all()):
        raise InvalidValue("probabilities must be finite and 0 or above.")
    if not numpy.allclose(student.sum(axis=1), 1.0, atol=1e-3):
        raise InvalidValue("probabilities must sum to 1 in each row; pass the student's softmax, not its logits.")
    return student
