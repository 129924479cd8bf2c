"""What a list of answers cost: one number to publish, one never to publish, and one made publishable by noise.

>>> from hush import Rng
>>> from hush.pate import GNMax, VoteCounts
>>> votes = VoteCounts([[240, 10, 0]] * 100, num_teachers=250)
>>> vote = GNMax(stddev=40.0)
>>> answers = vote.answer(votes, rng=Rng.from_seed(7))
>>> cost = cost_of(vote, votes, answers, delta=1e-5)
>>> cost.data_dependent
UnpublishableEpsilon(do not publish)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy
from numpy.typing import ArrayLike, NDArray

from hush import _check, accounting
from hush.accounting.rdp_orders import epsilons
from hush.errors import InvalidValue
from hush.events import ApproximateDP
from hush.mechanisms.charging import Account
from hush.mechanisms.draws import Draws
from hush.pate.aggregate import Answers, ConfidentGNMax, GNMax, LNMax, check_votes
from hush.pate.consensus import PAPER_ORDERS, best_epsilon, check_orders
from hush.pate.interactive import InteractiveGNMax
from hush.pate.private_costs import local_sensitivity, rdp_of_answers, rdp_of_tests, smoothable_rdp
from hush.pate.sanitise import ReleasePlan
from hush.pate.smooth import smooth_sensitivity
from hush.pate.votes import VoteCounts
from hush.privacy import Guarantee, Relation, round_up
from hush.rng import Rng

Floats = NDArray[numpy.float64]
Aggregator = LNMax | GNMax | ConfidentGNMax | InteractiveGNMax
_MOST_AT_ONCE = 512  # queries whose costs are in memory together: they stay in the cache


class UnpublishableEpsilon:
    """An epsilon computed from private votes. It is not a guarantee and cannot be used as a number by accident.

    It may guide the person who holds the data. Publishing it, or anything chosen by it, tells about the votes.
    """

    __slots__ = ("_value", "delta", "order")

    def __init__(self, value: float, *, delta: float, order: float) -> None:
        self._value, self.delta, self.order = float(value), delta, order

    def private_value(self) -> float:
        """The number, for the eyes of the data's holder only."""
        return self._value

    def __str__(self) -> str:
        return f"{round_up(self._value)} (do not publish: computed from private votes)"

    def __repr__(self) -> str:
        return "UnpublishableEpsilon(do not publish)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an unpublishable epsilon is not written to disk or sent elsewhere.")


@dataclass(frozen=True)
class PateCost:
    """Three answers to what a list of votes cost.

    `data_independent` holds whatever the votes were and may be published as it is. `data_dependent` is smaller where
    the teachers agreed, and private. `sanitised` is the data-dependent one released with noise, the release's own cost
    included; it holds for the data set at hand and its neighbours.
    """

    data_independent: Guarantee
    data_dependent: UnpublishableEpsilon | None
    sanitised: Guarantee | None = None

    def __str__(self) -> str:
        delta = f"at delta {self.data_independent.delta:.3g}"
        dependent = "no bound for this noise" if self.data_dependent is None else str(self.data_dependent)
        sanitised = "not released" if self.sanitised is None else f"{round_up(self.sanitised.epsilon)} (publishable)"
        return "\n".join(
            (
                f"epsilon {delta}, {self.data_independent.relation.replace('_', ' ')}",
                f"  data-independent  {round_up(self.data_independent.epsilon)} (publishable)",
                f"  data-dependent    {dependent}",
                f"  sanitised         {sanitised}",
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values of what may be published."""
        sanitised = None if self.sanitised is None else self.sanitised.to_dict()
        return {"data_independent": self.data_independent.to_dict(), "sanitised": sanitised}


def cost_of(
    aggregator: Aggregator,
    votes: VoteCounts,
    answers: Answers,
    *,
    delta: float | None = None,
    relation: Relation = "add_remove",
    orders: ArrayLike = PAPER_ORDERS,
    probabilities: ArrayLike | None = None,
    release: ReleasePlan | None = None,
    release_delta: float | None = None,
    account: Account | None = None,
    rng: Rng | None = None,
) -> PateCost:
    """What these answers of this aggregator on these votes cost.

    Args:
        aggregator: The one that gave the answers.
        votes: The votes that it was given.
        answers: What it returned.
        delta: By default the one that was given with the question.
        relation: Which data sets are neighbours; the numbers do not depend on it.
        orders: Rényi orders of the data-dependent bound.
        probabilities: The student's, for `InteractiveGNMax`.
        release: How to release the data-dependent cost at one order; without it nothing is sanitised.
        release_delta: At which the release's price is stated and charged, by default `delta`. Where one cap holds for
            answers and release, give it a part of the cap's delta.
        account: Charged for that release, before it; the answers themselves were charged when they were given.
        rng: A seeded source for the release's noise, for tests only.
    """
    if len(answers.labels) != len(check_votes(votes)):
        raise InvalidValue(f"answers must belong to the votes; got {len(answers.labels)} for {len(votes)} queries.")
    if answers.event != aggregator.prices.of(int(answers.asked.sum()), int(answers.answered.sum())):
        raise InvalidValue(
            f"answers must come from this aggregator; {type(aggregator).__name__} charges something else."
        )
    independent = answers.guarantee(delta=delta, relation=relation)
    dependent = _unpublishable(aggregator, votes, answers, independent, orders, probabilities)
    if release is None:
        return PateCost(independent, dependent)
    event = release.event(independent.delta if release_delta is None else release_delta)
    sanitised = _sanitised(aggregator, votes, answers, independent, release, event, account, rng)
    note = (
        f"of the labels alone; a published sanitised epsilon costs ({round_up(event.epsilon)}, {event.delta:.3g}) more"
    )
    return PateCost(replace(independent, notes=(*independent.notes, note)), dependent, sanitised)


def rdp_total(
    aggregator: Aggregator,
    votes: VoteCounts,
    answers: Answers,
    orders: ArrayLike,
    probabilities: ArrayLike | None = None,
) -> Floats:
    """The data-dependent Rényi cost of all that happened, at each order. Private: do not publish."""
    alphas = check_orders(orders).reshape(-1)
    total = numpy.zeros(len(alphas))
    student = None if probabilities is None else numpy.asarray(probabilities, dtype=numpy.float64)
    for start in range(0, len(votes), _MOST_AT_ONCE):
        part = slice(start, start + _MOST_AT_ONCE)
        share = None if student is None else student[part]
        if isinstance(aggregator, ConfidentGNMax | InteractiveGNMax):
            total += rdp_of_tests(aggregator, votes[part], answers.asked[part], alphas, share).sum(axis=0)
        total += rdp_of_answers(aggregator, votes[part], answers.answered[part], alphas).sum(axis=0)
    return total


def _unpublishable(
    aggregator: Aggregator,
    votes: VoteCounts,
    answers: Answers,
    independent: Guarantee,
    orders: ArrayLike,
    probabilities: ArrayLike | None,
) -> UnpublishableEpsilon | None:
    if getattr(aggregator, "noise", "gaussian") != "gaussian" or not independent.delta:
        return None
    total = rdp_total(aggregator, votes, answers, orders, probabilities)
    value, order = best_epsilon(total, orders, delta=independent.delta)
    happened = accounting.guarantee(answers.event, delta=independent.delta, relation=independent.relation)
    return UnpublishableEpsilon(min(value, happened.epsilon), delta=independent.delta, order=order)


def _sanitised(
    aggregator: Aggregator,
    votes: VoteCounts,
    answers: Answers,
    independent: Guarantee,
    release: ReleasePlan,
    price: ApproximateDP,
    account: Account | None,
    rng: Rng | None,
) -> Guarantee:
    if not isinstance(aggregator, GNMax | ConfidentGNMax) or aggregator.noise != "gaussian":
        raise InvalidValue("only GNMax and ConfidentGNMax with Gaussian noise have a sanitised cost.")
    order, masks = release.order, (answers.asked, answers.answered)
    cost = smoothable_rdp(aggregator, votes, *masks, order)
    local = local_sensitivity(aggregator, votes, *masks, order)
    if account is not None:
        account.charge(price)
    noisy = release.release(cost, smooth_sensitivity(local, release.smoothness), Draws(rng))
    total = numpy.array([(noisy + release.rdp(order)) * (order - 1)]) * (1 + 1e-12)
    epsilon = float(
        epsilons(total, numpy.array([order - 1]), float(numpy.log(_check.probability("delta", independent.delta))))[0]
    )
    notes = (
        "data-dependent: holds for this data set and its neighbours",
        f"too small with probability {release.failure_prob:.3g} at most",
        f"order {order:g}; the release itself is {round_up(release.rdp(order))} of its Rényi cost",
    )
    return Guarantee(
        epsilon=max(epsilon, 0.0),
        delta=independent.delta,
        relation=independent.relation,
        method="sanitised",
        notes=notes,
    )
