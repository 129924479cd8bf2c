"""Rényi differential privacy: the divergence of every real order, and the best conversion over all of them.

    >>> from hush.events import Gaussian, PoissonSampled, Repeated
    >>> step = PoissonSampled(Gaussian(noise_multiplier=4.0), sampling_prob=0.01)
    >>> guarantee(Repeated(step, times=10_000), delta=1e-5, relation="add_remove").epsilon < 1.03549
    True

Orders are searched continuously from 1 + 1e-6 to 1e8 and none is dropped. References: Mironov 2017; Mironov, Talwar,
Zhang 2019 (sampled Gaussian); Zhu, Wang 2019 and Wang, Balle, Kasiviswanathan 2019 (sampling in general).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

import numpy

from hush import _check
from hush.accounting.loss_moments import Array
from hush.accounting.rdp_orders import epsilons, log_deltas, minimise, total_variation
from hush.accounting.renyi_curve import Direction, Parts, directions_of, largest_loss, total, without_failures
from hush.errors import InvalidValue
from hush.events import Composed, Event, Repeated, flat
from hush.privacy import Guarantee, Relation, check_relation

_MARGIN = 1 + 1e-11  # above the quadrature's relative error, which tests compare with 40-digit values
_FIRST_GUESS_AT_MOST = 64.0  # large orders need many nodes: come to them from below


def curve(event: Event, orders: Iterable[float], relation: Relation) -> Array:
    """The Rényi divergence of each order (above 1), the larger of both directions.

    >>> from hush.events import Gaussian
    >>> curve(Gaussian(noise_multiplier=2.0), [2.0, 8.0], "add_remove")
    array([0.25, 1.  ])
    """
    array = numpy.atleast_1d(numpy.asarray(orders, dtype=float))
    if array.ndim != 1 or not numpy.all((array > 1) & numpy.isfinite(array)):
        raise InvalidValue(f"orders must be finite numbers above 1; got {orders!r}.")
    parts, excess, relation = list(flat(event)), array - 1, check_relation(relation)
    totals = [total(parts, excess, relation, direction) for direction in directions_of(parts, relation)]
    result: Array = numpy.maximum.reduce(totals) / excess
    return result


def guarantee(event: Event, *, delta: float, relation: Relation) -> Guarantee:
    """The smallest epsilon that Rényi divergences prove at this delta.

    | case | epsilon |
    |---|---|
    | nothing was done | 0 |
    | delta 0 | the largest privacy loss, infinite for Gaussian noise |
    | delta below what `ApproximateDP` events need, or `NotPrivate` | infinity |
    """
    delta, relation = _check.delta(delta), check_relation(relation)
    parts, failure = without_failures(event, relation)
    spare = (delta - failure) / (1 - failure) * (1 - 1e-14) if failure < 1 else -1.0
    epsilon, notes = _best_epsilon(parts, spare, relation) if spare >= 0 else (math.inf, ())
    return Guarantee(epsilon=epsilon, delta=delta, relation=relation, method="rdp", notes=notes)


def _best_epsilon(parts: Parts, delta: float, relation: Relation) -> tuple[float, tuple[str, ...]]:
    if not parts:
        return 0.0, ()
    pure = largest_loss(_composed(parts), relation) * (1 + 1e-14)
    if delta == 0 or pure == 0:
        total(parts, numpy.ones(1), relation, "remove")  # refuses what is not supported, also at delta 0
        return pure, ("the largest privacy loss",)
    if total_variation(_divergence_near_one(parts, relation)) <= delta:
        return 0.0, ("the total variation is below delta",)
    log_delta = math.log(delta)
    start = math.sqrt(-log_delta / _slope(parts, relation)) if delta < 1 else 1.0
    excess, notes = _best_order(parts, relation, start, partial(epsilons, log_delta=log_delta))
    value = float(epsilons(_worst(parts, numpy.array([excess]), relation), numpy.array([excess]), log_delta)[0])
    epsilon = max(value + 1e-14 * abs(value), 0.0)
    return (pure, ("the largest privacy loss",)) if pure <= epsilon else (epsilon, notes)


def delta_guarantee(event: Event, *, epsilon: float, relation: Relation) -> Guarantee:
    """The smallest delta that Rényi divergences prove at this epsilon."""
    epsilon, relation = _check.nonnegative("epsilon", epsilon), check_relation(relation)
    parts, failure = without_failures(event, relation)
    inner, notes = _best_delta(parts, epsilon, relation)
    delta = min(1.0, failure + (1 - failure) * inner)
    return Guarantee(epsilon=epsilon, delta=delta, relation=relation, method="rdp", notes=notes)


def _best_delta(parts: Parts, epsilon: float, relation: Relation) -> tuple[float, tuple[str, ...]]:
    near_one = _divergence_near_one(parts, relation) if parts else 0.0
    if not parts or largest_loss(_composed(parts), relation) * (1 + 1e-14) <= epsilon:
        return 0.0, ("the largest privacy loss is not above epsilon",)
    if math.isinf(near_one):
        return 1.0, ()
    start = max(epsilon / (2 * _slope(parts, relation)), 0.01)
    excess, notes = _best_order(parts, relation, start, partial(log_deltas, epsilon=epsilon))
    value = float(log_deltas(_worst(parts, numpy.array([excess]), relation), numpy.array([excess]), epsilon)[0])
    delta = math.exp(min(value + 1e-13 * (1 + abs(value)), 0.0))
    bound = total_variation(near_one) * (1 + 1e-14)
    return (bound, ("the total variation",)) if bound <= delta else (max(delta, 5e-324), notes)


def _composed(parts: Parts) -> Event:
    return Composed(*(Repeated(part, count) for part, count in parts))


def _worst(parts: Parts, excess: Array, relation: Relation) -> Array:
    """The log-moments of the worse direction, rounded up."""
    totals = [total(parts, excess, relation, direction) for direction in directions_of(parts, relation)]
    result: Array = numpy.maximum.reduce(totals) * _MARGIN
    return result


def _divergence_near_one(parts: Parts, relation: Relation) -> float:
    near_one = numpy.array([1e-4])
    return float(_worst(parts, near_one, relation)[0] / near_one[0])


def _slope(parts: Parts, relation: Relation) -> float:
    """Divergence over order at order 1.5: what rho would be if the curve were a line. A guess for the search."""
    value = float(_worst(parts, numpy.array([0.5]), relation)[0]) / 0.75
    return min(max(value, 1e-300), 1e300)


def _best_order(
    parts: Parts, relation: Relation, start: float, conversion: Callable[[Array, Array], Array]
) -> tuple[float, tuple[str, ...]]:
    """The best order less 1, and notes that name it and the direction that is worse there."""
    directions, start = directions_of(parts, relation), min(start, _FIRST_GUESS_AT_MOST)

    def one_direction(excess: Array) -> Array:
        return conversion(total(parts, excess, relation, "remove"), excess)

    def both_directions(excess: Array) -> Array:
        return conversion(_worst(parts, excess, relation), excess)

    excess, _ = minimise(one_direction, start)
    worse = _worse_direction(parts, excess, relation)
    if worse != "remove":
        excess, _ = minimise(both_directions, start)
        worse = _worse_direction(parts, excess, relation)
    return excess, (f"order {1 + excess:.6g}", *((f"direction {worse}",) if len(directions) > 1 else ()))


def _worse_direction(parts: Parts, excess: float, relation: Relation) -> Direction:
    here = numpy.array([excess])
    return max(directions_of(parts, relation), key=lambda direction: float(total(parts, here, relation, direction)[0]))
