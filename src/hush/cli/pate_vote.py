"""The vote of `hush pate`: its noise, its number of queries and its price, all fixed before a private row is read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hush import _check
from hush.errors import InvalidValue, Unreachable
from hush.events import ApproximateDP
from hush.pate import ConfidentGNMax, GNMax, LNMax, ReleasePlan, noise_for, queries_for
from hush.pate.sanitise import plan_for
from hush.pate.smooth import conditions
from hush.privacy import Budget, Relation

MECHANISMS = ("gnmax", "confident", "lnmax")
_RELEASE_SHARE = 0.1  # of delta, for the release of a sanitised epsilon
_LEAST_ORDER = 1.5
Aggregator = GNMax | ConfidentGNMax | LNMax


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the user asked for; None where a default decides. The fields are the options of `hush pate`."""

    epsilon: float
    delta: float | None
    teachers: int
    relation: Relation = "add_remove"
    mechanism: str = "gnmax"
    queries: int | None = None
    stddev: float | None = None
    threshold: float | None = None
    threshold_stddev: float | None = None
    scale: float | None = None
    sanitise: float | None = None
    teacher: str = "kernel"
    student: str | None = None
    student_steps: int | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Release:
    """How the data-dependent epsilon will be released with noise, and what that costs beside the labels."""

    plan: ReleasePlan
    price: ApproximateDP


def settle_release(vote: Aggregator, price: Budget, rest: Budget, num_classes: int) -> Release:
    """A plan for this price, at about the order where the labels' budget is converted best."""
    if isinstance(vote, LNMax):
        raise InvalidValue("--sanitise is not possible with Laplace noise: use --mechanism gnmax or confident.")
    order = 1 + 2 * math.log(1 / rest.delta) / rest.epsilon
    while not _has_sensitivity(vote.stddev, num_classes, order):
        order = 1 + 0.8 * (order - 1)
        if order < _LEAST_ORDER:
            raise InvalidValue(
                f"--sanitise is not possible with so little noise, stddev {vote.stddev:g}: leave it out."
            )
    plan = plan_for(price.epsilon, delta=price.delta, order=order)
    return Release(plan, plan.event(price.delta))


def _has_sensitivity(stddev: float, num_classes: int, order: float) -> bool:
    """Whether the smooth sensitivity is known at this order."""
    try:
        return conditions(stddev, num_classes, order) == (True, True)
    except InvalidValue:
        return False


def split_budget(budget: Budget, sanitise: float | None) -> tuple[Budget, Budget | None]:
    """What the labels may cost, and what the release of a sanitised epsilon may: together no more than the budget."""
    if sanitise is None:
        return budget, None
    if not 0 < _check.number("--sanitise", sanitise) < budget.epsilon:
        raise InvalidValue(
            f"--sanitise takes a part of --epsilon, above 0 and below {budget.epsilon:g}; got {sanitise:g}."
        )
    price = Budget(epsilon=sanitise, delta=_RELEASE_SHARE * budget.delta)
    margin = 1 - 1e-6  # rounding
    return Budget(epsilon=margin * (budget.epsilon - sanitise), delta=margin * (budget.delta - price.delta)), price


def settle_vote(wishes: Wishes, budget: Budget, most: int) -> tuple[Aggregator, int]:
    """The aggregator and the number of queries. The defaults follow from the number of teachers, never from votes."""
    _check.one_of("--mechanism", wishes.mechanism, MECHANISMS)
    _check.whole("--teachers", wishes.teachers, least=2)
    wanted = None if wishes.queries is None else min(_check.whole("--queries", wishes.queries), most)
    if wishes.mechanism == "confident":
        vote = _confident(wishes)
        return vote, min(most, 4 * queries_for(vote, budget)) if wanted is None else wanted  # the budget ends the list
    if wishes.threshold is not None or wishes.threshold_stddev is not None:
        raise InvalidValue("--threshold and --threshold-stddev are for --mechanism confident.")
    always = _laplace(wishes, budget, wanted) if wishes.mechanism == "lnmax" else _gaussian(wishes, budget, wanted)
    fitting = queries_for(always, budget)
    if not fitting:
        raise Unreachable("not one query fits this budget with this noise; use more noise, or a larger epsilon.")
    return always, min(most, fitting if wanted is None else wanted)


def _confident(wishes: Wishes) -> ConfidentGNMax:
    return ConfidentGNMax(
        threshold=0.6 * wishes.teachers if wishes.threshold is None else wishes.threshold,
        threshold_stddev=0.6 * wishes.teachers if wishes.threshold_stddev is None else wishes.threshold_stddev,
        stddev=wishes.teachers / 5 if wishes.stddev is None else wishes.stddev,
    )


def _laplace(wishes: Wishes, budget: Budget, wanted: int | None) -> LNMax:
    if wishes.stddev is not None:
        raise InvalidValue("--stddev is for Gaussian noise; Laplace noise has a --scale.")
    return LNMax(wishes.scale or (20.0 if wanted is None else noise_for(budget, queries=wanted, kind="lnmax")))


def _gaussian(wishes: Wishes, budget: Budget, wanted: int | None) -> GNMax:
    if wishes.scale is not None:
        raise InvalidValue("--scale is for --mechanism lnmax; Gaussian noise has a --stddev.")
    if wishes.stddev is not None:
        return GNMax(wishes.stddev)
    return GNMax(wishes.teachers / 5 if wanted is None else noise_for(budget, queries=wanted))
