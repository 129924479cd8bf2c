"""Basic, advanced and optimal composition of events.

    >>> from hush.events import PureDP, Repeated
    >>> spent = advanced_guarantee(Repeated(PureDP(0.1), times=100), delta=1e-5, relation="add_remove")
    >>> round(spent.epsilon, 5), spent.notes
    (5.29811, ('tanh form',))

Each step is costed as (epsilon, delta) by `hush.accounting.step_costs`; where a step's delta is ours to choose, delta
is split between the steps and the theorem's slack by a one-dimensional search. Any split is proven, so the search can
only cost tightness. The theorems themselves are in `hush.accounting.composition_theorems` and can be called from here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy

from hush import _check
from hush.accounting.composition_theorems import (
    advanced,
    advanced_epsilon,
    basic,
    kairouz,
    kairouz_middle_term,
    optimal,
    optimal_delta,
    published_strong_composition,
    spare_delta,
    strong_composition,
    sum_up,
)
from hush.accounting.delta_search import smallest_delta
from hush.accounting.loss_moments import Array
from hush.accounting.rdp_orders import minimise
from hush.accounting.response_curve import response_curve
from hush.accounting.step_costs import needs_delta, step_cost
from hush.events import Event, flat
from hush.privacy import Guarantee, Relation, check_relation

__all__ = [
    "advanced",
    "advanced_delta_guarantee",
    "advanced_guarantee",
    "basic",
    "basic_delta_guarantee",
    "basic_guarantee",
    "kairouz",
    "optimal",
    "optimal_delta",
    "optimal_delta_guarantee",
    "optimal_guarantee",
    "published_strong_composition",
    "strong_composition",
]

_SHARE = 1 - 1e-12  # of the spare delta, so that the sum of the shares is not above it after rounding
_ROUNDED_NOTE = "some epsilons were rounded up to a common one, to keep the exact sum small"


@dataclass(frozen=True)
class _Steps:
    """The steps of an event under a relation, to be costed at a delta per step."""

    parts: tuple[tuple[Event, int], ...]
    relation: Relation
    accountant: str

    @property
    def hungry(self) -> int:
        """How many steps need a delta of our choosing."""
        return sum(count for part, count in self.parts if needs_delta(part))

    @property
    def counts(self) -> Array:
        return numpy.array([count for _, count in self.parts], dtype=float)

    def costs(self, step_delta: float) -> tuple[Array, Array]:
        """Epsilon and delta of each part's single step."""
        pairs = [step_cost(part, step_delta, self.relation, self.accountant) for part, _ in self.parts]
        return numpy.array([epsilon for epsilon, _ in pairs]), numpy.array([delta for _, delta in pairs])

    def own_delta(self) -> float:
        """The sum of the deltas that are part of the events."""
        _, deltas = self.costs(0.0)
        return float(numpy.sum(self.counts * deltas))


Theorem = Callable[[_Steps, Array, Array, float], tuple[float, tuple[str, ...]]]  # costs, total delta -> epsilon


def _sum_theorem(steps: _Steps, epsilons: Array, deltas: Array, delta: float) -> tuple[float, tuple[str, ...]]:
    if float(numpy.sum(steps.counts * deltas)) > delta * (1 + 1e-14):
        return math.inf, ()
    return sum_up(epsilons, steps.counts), ()


def _advanced_theorem(steps: _Steps, epsilons: Array, deltas: Array, delta: float) -> tuple[float, tuple[str, ...]]:
    slack = delta * (1 - 1e-14) - float(numpy.sum(steps.counts * deltas))
    best = _sum_theorem(steps, epsilons, deltas, delta)[0], ("plain sum",)
    if slack <= 0 or math.isinf(best[0]):
        return best
    candidates = (
        (advanced_epsilon(epsilons, steps.counts, slack, "original"), ("original form",)),
        (advanced_epsilon(epsilons, steps.counts, slack, "tanh"), ("tanh form",)),
        (kairouz_middle_term(epsilons, steps.counts, slack), ("closed form of Kairouz, Oh, Viswanath",)),
    )
    return min(best, *candidates)


def _optimal_theorem(steps: _Steps, epsilons: Array, deltas: Array, delta: float) -> tuple[float, tuple[str, ...]]:
    slack = spare_delta(delta, float(numpy.sum(steps.counts * numpy.log1p(-deltas))))
    if slack < 0 or not numpy.all(numpy.isfinite(epsilons)):
        return math.inf, ()
    curve, rounded = response_curve(epsilons, [count for _, count in steps.parts])
    return curve.epsilon(slack), (_ROUNDED_NOTE,) if rounded else ()


def _epsilon(steps: _Steps, delta: float, theorem: Theorem, finest: float) -> tuple[float, tuple[str, ...]]:
    """The best epsilon at this delta, over the splits of delta between the steps and the slack."""
    if not steps.parts:
        return 0.0, ()
    spare = delta - steps.own_delta()
    hungry = steps.hungry
    if spare < -1e-14 * delta or (hungry and spare <= 0):
        return math.inf, ()
    if not hungry:
        # A sampled step may be taken as (0, sampling_prob)-DP where delta has room for that; else it needs no delta.
        return min(theorem(steps, *steps.costs(share), delta) for share in (0.0, max(spare, 0.0) * _SHARE))
    if theorem is _sum_theorem:
        return theorem(steps, *steps.costs(spare * _SHARE / hungry), delta)

    def at(odds: float) -> tuple[float, tuple[str, ...]]:
        return theorem(steps, *steps.costs(spare * _SHARE * odds / (1 + odds) / hungry), delta)

    odds, _ = minimise(lambda points: numpy.array([at(float(point))[0] for point in points]), 1.0, finest=finest)
    whole = _sum_theorem(steps, *steps.costs(spare * _SHARE / hungry), delta)[0]
    return min(at(odds), (whole, ("plain sum",)))


def _guarantee(event: Event, *, delta: float, relation: Relation, method: str) -> Guarantee:
    delta, relation = _check.delta(delta), check_relation(relation)
    theorem, finest = _THEOREMS[method]
    steps = _Steps(tuple(flat(event)), relation, method)
    epsilon, notes = _epsilon(steps, delta, theorem, finest)
    return Guarantee(epsilon=epsilon, delta=delta, relation=relation, method=method, notes=notes)


def _delta_guarantee(event: Event, *, epsilon: float, relation: Relation, method: str) -> Guarantee:
    epsilon, relation = _check.nonnegative("epsilon", epsilon), check_relation(relation)
    steps = _Steps(tuple(flat(event)), relation, method)
    delta = smallest_delta(lambda value: _epsilon(steps, value, _sum_theorem, 1.0)[0], epsilon)
    delta_at = _DELTAS.get(method)
    if delta_at is not None and steps.parts:
        delta = min(delta, _best_delta(partial(delta_at, steps, epsilon), hungry=bool(steps.hungry)))
    return Guarantee(epsilon=epsilon, delta=delta, relation=relation, method=method)


def _best_delta(delta_at: Callable[[float], float], *, hungry: bool) -> float:
    """The least total delta over the delta of a step, which is searched as z = -log(step delta)."""
    if not hungry:
        return delta_at(0.0)

    def at(z: float) -> float:
        return delta_at(math.exp(-max(min(z, 690.0), 1e-3)))

    return minimise(lambda points: numpy.array([at(float(point)) for point in points]), 20.0, finest=1e-4)[1]


def _advanced_delta_at(steps: _Steps, epsilon: float, step_delta: float) -> float:
    """The forms of `_advanced_theorem` solved for the slack."""
    epsilons, deltas = steps.costs(step_delta)
    spent = float(numpy.sum(steps.counts * deltas))
    squares = float(numpy.sum(steps.counts * epsilons**2))
    room = epsilon - float(numpy.sum(steps.counts * epsilons * numpy.tanh(epsilons / 2))) * (1 + 1e-13)
    if not (math.isfinite(squares) and room > 0 and squares > 0):
        return 1.0 if squares > 0 else min(1.0, spent * (1 + 1e-13))
    exponent = room * room / (2 * squares) * (1 - 1e-12)
    slack = math.exp(-min(exponent, 700.0))
    if 1.01 < exponent < 700:  # the second form: E + root / slack = e^exponent
        slack = min(slack, math.sqrt(squares) / (math.exp(exponent) - math.e) * (1 + 1e-12))
    return min(1.0, (spent + slack) * (1 + 1e-12))


def _optimal_delta_at(steps: _Steps, epsilon: float, step_delta: float) -> float:
    epsilons, deltas = steps.costs(step_delta)
    if not numpy.all(numpy.isfinite(epsilons)):
        return 1.0
    curve, _ = response_curve(epsilons, [count for _, count in steps.parts])
    inner = curve.delta(epsilon)
    log_whole = float(numpy.sum(steps.counts * numpy.log1p(-deltas)))
    return min(1.0, -math.expm1(log_whole + math.log1p(-inner)) * (1 + 1e-13)) if inner < 1 else 1.0


_DELTAS: dict[str, Callable[[_Steps, float, float], float]] = {
    "advanced": _advanced_delta_at,
    "optimal": _optimal_delta_at,
}
_THEOREMS: dict[str, tuple[Theorem, float]] = {
    "basic": (_sum_theorem, 1.0),
    "advanced": (_advanced_theorem, 1e-5),
    "optimal": (_optimal_theorem, 1e-2),
}


def basic_guarantee(event: Event, *, delta: float, relation: Relation) -> Guarantee:
    """The smallest epsilon that basic composition proves at this delta."""
    return _guarantee(event, delta=delta, relation=relation, method="basic")


def basic_delta_guarantee(event: Event, *, epsilon: float, relation: Relation) -> Guarantee:
    """The smallest delta that basic composition proves at this epsilon."""
    return _delta_guarantee(event, epsilon=epsilon, relation=relation, method="basic")


def advanced_guarantee(event: Event, *, delta: float, relation: Relation) -> Guarantee:
    """The smallest epsilon that advanced composition proves at this delta; the notes say which form gave it."""
    return _guarantee(event, delta=delta, relation=relation, method="advanced")


def advanced_delta_guarantee(event: Event, *, epsilon: float, relation: Relation) -> Guarantee:
    """The smallest delta that advanced composition proves at this epsilon."""
    return _delta_guarantee(event, epsilon=epsilon, relation=relation, method="advanced")


def optimal_guarantee(event: Event, *, delta: float, relation: Relation) -> Guarantee:
    """The smallest epsilon that the steps' (epsilon, delta) allow at this delta [Kairouz, Oh, Viswanath 2015]."""
    return _guarantee(event, delta=delta, relation=relation, method="optimal")


def optimal_delta_guarantee(event: Event, *, epsilon: float, relation: Relation) -> Guarantee:
    """The smallest delta that the steps' (epsilon, delta) allow at this epsilon."""
    return _delta_guarantee(event, epsilon=epsilon, relation=relation, method="optimal")
