"""How far the data-dependent cost of a vote can move when teachers change: local and smooth sensitivity.

The cost of GNMax at one order is a function of q, the bound on the miss probability: beta(q), which rises up to a
crossing q0 and is order / stddev^2 above. One moved vote takes q no further than to `low(q)` or `high(q)`, so the local
sensitivity is at most max(beta(high(q)) - beta(q), beta(q) - beta(low(q))), and the same bound after d more moved votes
follows the fastest way of q towards q0. That rests on two conditions, C5 and C6, which `conditions` checks for each
(stddev, classes, order).

References: Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson 2018, App. B; Nissim, Raskhodnikova, Smith 2007.
"""

from __future__ import annotations

import heapq
import math
from functools import lru_cache

import numpy
from numpy.typing import ArrayLike, NDArray
from scipy import special

from hush import _check
from hush.errors import InvalidValue
from hush.pate.consensus import check_orders, consensus_bound, has_bound, log_miss_probability, threshold_rdp

Floats = NDArray[numpy.float64]
_LOWEST = -10_000.0  # of log q, where the search for the crossing gives up
_CHECKED_DOWN_TO = -700.0  # of log q: the cost is below 1e-250 there
_CHECK_POINTS = 4000


@lru_cache(maxsize=1024)
def crossing_log_q(stddev: float, order: float) -> float:
    """log q0: below it the bound of Theorem 6 holds and is the lesser one, above it order / stddev^2 is used.

    >>> round(crossing_log_q(40.0, 14.0), 9)
    -3.402972417
    """
    stddev, order = _check.positive("stddev", stddev), float(check_orders(order))
    highest = min(-((1 + 1 / stddev) ** 2), -(((order - 0.99) / stddev) ** 2), -1 / stddev**2)

    def excess(log_q: float) -> float:
        return float(consensus_bound(numpy.array(log_q), stddev, numpy.array(order))) - order / stddev**2

    if excess(highest) < 0:
        return highest
    low = 2 * highest
    while excess(low) > 0:
        if low < _LOWEST:
            raise InvalidValue(
                f"the two bounds do not cross at stddev {stddev:g} and order {order:g}; use another order."
            )
        low *= 1.5
    from scipy.optimize import brentq

    return float(brentq(excess, low, highest, xtol=1e-13, rtol=1e-14))


def cost_at(log_q: ArrayLike, stddev: float, order: float) -> Floats:
    """beta(q): the cost of GNMax as the sensitivity analysis sees it; never below `gnmax_rdp`."""
    log_q = numpy.asarray(log_q, dtype=numpy.float64)
    below = numpy.minimum(log_q, crossing_log_q(stddev, order))
    bound = consensus_bound(below, stddev, numpy.array(order))
    result: Floats = numpy.where(log_q >= crossing_log_q(stddev, order), order / stddev**2, bound)
    return result


def moved_log_q(log_q: ArrayLike, stddev: float, num_classes: int, direction: int) -> Floats:
    """log of the least (-1) or the most (+1) that q can be after one moved vote.

    (m - 1) Phi(-z) = q gives z; every gap moves by 2 at most, so z by sqrt(2) / stddev [ibid., Prop. 11].
    """
    share = numpy.asarray(log_q, dtype=numpy.float64) - math.log(num_classes - 1)
    z = -special.ndtri_exp(numpy.minimum(share, -1e-16))
    moved = math.log(num_classes - 1) + special.log_ndtr(-(z - direction * math.sqrt(2) / stddev))
    result: Floats = numpy.minimum(moved, 0.0)
    return result


def plateau_log_q(stddev: float, num_classes: int, order: float) -> float:
    """log q1 = log low(q0): between q1 and q0 the local sensitivity is taken as that at q1, the largest there is."""
    return float(moved_log_q(crossing_log_q(stddev, order), stddev, num_classes, -1))


def sensitivity_at(log_q: ArrayLike, stddev: float, num_classes: int, order: float) -> Floats:
    """A bound on the local sensitivity of the cost where the miss probability is q [ibid., Alg. 3]."""
    crossing, plateau = crossing_log_q(stddev, order), plateau_log_q(stddev, num_classes, order)
    array = numpy.asarray(log_q, dtype=numpy.float64)
    here = numpy.where((array >= plateau) & (array <= crossing), plateau, array)
    cost = cost_at(here, stddev, order)
    up = cost_at(moved_log_q(here, stddev, num_classes, 1), stddev, order) - cost
    down = cost - cost_at(moved_log_q(here, stddev, num_classes, -1), stddev, order)
    result: Floats = numpy.maximum(up, down)
    return result


def gnmax_local_sensitivity(counts: ArrayLike, num_teachers: int, stddev: float, order: float) -> Floats:
    """A bound on the local sensitivity of one answer's cost, by how many votes were moved before: 0 .. teachers - 1.

    Votes are moved so that q comes to the crossing fastest: between the two largest counts [ibid., Alg. 4 and 5].

    >>> gnmax_local_sensitivity([10, 0, 0], 10, 0.5, 1.5)[[2, 3]].round(6).tolist()
    [0.005907, 5.999813]
    """
    num_teachers, stddev = _check.whole("num_teachers", num_teachers), _check.positive("stddev", stddev)
    row = numpy.sort(numpy.array(counts, dtype=numpy.float64).reshape(-1))[::-1]
    crossing, plateau = crossing_log_q(stddev, order), plateau_log_q(stddev, len(row), order)
    result = numpy.full(num_teachers, float(sensitivity_at(plateau, stddev, len(row), order)))
    log_q = float(log_miss_probability(row, stddev))
    if plateau <= log_q <= crossing:
        return result
    path = _gathered(row, num_teachers) if log_q > crossing else _scattered(row, num_teachers)
    logs = numpy.atleast_1d(log_miss_probability(path, stddev))
    open_ended = logs > crossing if log_q > crossing else logs < plateau
    # The first state on the other side is still looked up; what cannot be reached keeps the plateau.
    last = len(logs) if open_ended.all() else int(numpy.argmin(open_ended)) + 1
    result[:last] = sensitivity_at(logs[:last], stddev, len(row), order)
    return result


def _scattered(row: Floats, num_teachers: int) -> Floats:
    """Rows after 0, 1, ... votes went from the largest count to the second, until they meet."""
    moves = numpy.arange(min(num_teachers, math.ceil((row[0] - row[1]) / 2) + 1))
    path = numpy.repeat(row[None, :], len(moves), axis=0)
    path[:, 0] -= moves
    path[:, 1] += moves
    return path


def _gathered(row: Floats, num_teachers: int) -> Floats:
    """Rows after 0, 1, ... votes went to the largest count, each from the largest of the others."""
    states, others, first = [row.tolist()], [-count for count in row[1:].tolist()], float(row[0])
    heapq.heapify(others)
    while len(states) < num_teachers and others[0] < 0:
        first += 1
        heapq.heapreplace(others, min(others[0] + 1, 0.0))
        states.append([first, *(-count for count in others)])
    return numpy.array(states)


def threshold_local_sensitivity(
    max_count: float, num_teachers: int, threshold: float, stddev: float, order: float
) -> Floats:
    """The local sensitivity of the threshold test's cost, by how far the largest count has moved: 0 .. teachers - 1."""
    num_teachers, order = _check.whole("num_teachers", num_teachers), float(check_orders(order))
    here = round(_check.nonnegative("max_count", max_count))
    if here > num_teachers:
        raise InvalidValue("max_count must not exceed num_teachers.")
    steps = _threshold_steps(num_teachers, _check.number("threshold", threshold), stddev, order)
    result = numpy.zeros(num_teachers)
    for way in (steps[here:], steps[here::-1]):
        reached = way[:num_teachers]
        result[: len(reached)] = numpy.maximum(result[: len(reached)], reached)
    result[max(here, num_teachers - here) :] = 0.0  # no count is that far away
    return result


@lru_cache(maxsize=256)
def _threshold_steps(num_teachers: int, threshold: float, stddev: float, order: float) -> Floats:
    """The larger of both steps of the cost, up and down, at each largest count 0 .. num_teachers."""
    costs = numpy.asarray(threshold_rdp(numpy.arange(num_teachers + 1), threshold, stddev, order))
    steps = numpy.abs(numpy.diff(costs))
    result: Floats = numpy.maximum(numpy.append(steps, 0.0), numpy.insert(steps, 0, 0.0))
    return result


@lru_cache(maxsize=1024)
def conditions(stddev: float, num_classes: int, order: float) -> tuple[bool, bool]:
    """Whether C5 and C6 hold: beta(q) rises up to q0, and beta(high(q)) - beta(q) rises up to q1 [ibid., App. B.4].

    Checked on 4000 points of log q down to -700, with differences; the published check looks for one minimum of a
    derivative. Neither is a proof between the points.

    >>> conditions(20.0, 10, 25.0), conditions(30.0, 10, 25.0)
    ((True, False), (True, True))
    """
    num_classes = _check.whole("num_classes", num_classes, least=2)
    crossing, plateau = crossing_log_q(stddev, order), plateau_log_q(stddev, num_classes, order)
    below = crossing - numpy.geomspace(1e-9, -_CHECKED_DOWN_TO, _CHECK_POINTS)
    valid = bool(has_bound(below, stddev).all() and (stddev * numpy.sqrt(-below) + 1 > order).all())
    rises = valid and _rises(cost_at(below[::-1], stddev, order))
    logs = (plateau - numpy.geomspace(1e-9, -_CHECKED_DOWN_TO, _CHECK_POINTS))[::-1]
    gains = cost_at(moved_log_q(logs, stddev, num_classes, 1), stddev, order) - cost_at(logs, stddev, order)
    return rises, rises and _rises(gains)


def _rises(values: Floats) -> bool:
    return bool((numpy.diff(values) >= -1e-10 * numpy.abs(values[1:])).all())


def smooth_sensitivity(local: Floats, smoothness: float) -> float:
    """max over d of e^(-smoothness d) local(d): it changes by a factor of e^smoothness at most between neighbours."""
    decay = numpy.exp(-_check.positive("smoothness", smoothness) * numpy.arange(len(local)))
    return float((decay * local).max(initial=0.0))
