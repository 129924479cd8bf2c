"""The data-dependent cost of each query, and how it moves with the votes. Everything here returns private numbers.

Noisy counts are rounded to a public grid before they are compared. So a count may win that was below by one step of the
grid, and the threshold sits half a step from where it was asked for; both are taken into account.
"""

from __future__ import annotations

import math

import numpy
from numpy.typing import NDArray

from hush.errors import InvalidValue
from hush.mechanisms.real import grid_of
from hush.pate.aggregate import Booleans, ConfidentGNMax, GNMax, LNMax
from hush.pate.consensus import (
    gnmax_rdp,
    lnmax_log_miss_probability,
    lnmax_rdp,
    log_miss_probability,
    threshold_rdp,
)
from hush.pate.interactive import InteractiveGNMax, margins
from hush.pate.smooth import conditions, cost_at, gnmax_local_sensitivity, threshold_local_sensitivity
from hush.pate.votes import VoteCounts

Floats = NDArray[numpy.float64]
Tested = ConfidentGNMax | InteractiveGNMax
Aggregator = LNMax | GNMax | Tested


def query_rdp(
    aggregator: Aggregator,
    votes: VoteCounts,
    asked: Booleans,
    answered: Booleans,
    orders: Floats,
    probabilities: Floats | None = None,
) -> Floats:
    """The Rényi cost of each query at each order, shape (queries, orders): what happened, not what was expected."""
    total = numpy.zeros((len(votes), len(orders)))
    if isinstance(aggregator, Tested):
        total[asked] += rdp_of_tests(aggregator, votes, asked, orders, probabilities)
    total[answered] += rdp_of_answers(aggregator, votes, answered, orders)
    return total


def rdp_of_tests(
    aggregator: Tested, votes: VoteCounts, asked: Booleans, orders: Floats, probabilities: Floats | None
) -> Floats:
    """The cost of the test of each query asked."""
    largest = _tested_values(aggregator, votes, probabilities)[asked]
    point = settled_threshold(aggregator.threshold, aggregator.threshold_stddev)
    return numpy.asarray(threshold_rdp(largest, point, aggregator.threshold_stddev, orders))


def rdp_of_answers(aggregator: Aggregator, votes: VoteCounts, answered: Booleans, orders: Floats) -> Floats:
    """The cost of the answer of each query answered."""
    counts = votes.counts if answered.all() else votes.counts[answered]
    if isinstance(aggregator, LNMax):
        log_q = lnmax_log_miss_probability(settled(counts, aggregator.scale), aggregator.scale)
        return numpy.asarray(lnmax_rdp(log_q, aggregator.scale, orders))
    log_q = log_miss_probability(settled(counts, aggregator.stddev), aggregator.stddev)
    return numpy.asarray(gnmax_rdp(log_q, aggregator.stddev, orders))


def _tested_values(aggregator: Tested, votes: VoteCounts, probabilities: Floats | None) -> Floats:
    if isinstance(aggregator, ConfidentGNMax):
        largest: Floats = votes.counts.max(axis=1, initial=0).astype(numpy.float64)
        return largest
    if probabilities is None or probabilities.shape != votes.counts.shape:
        raise InvalidValue("the cost of InteractiveGNMax needs the student's probabilities, as they were given to it.")
    return margins(votes, probabilities, whole=False).astype(numpy.float64)


def settled(counts: NDArray[numpy.int64], noise_scale: float) -> Floats:
    """Counts whose largest is lowered by one step of the noise's grid: the least lead that the rounded vote leaves."""
    result = counts.astype(numpy.float64)
    places = result.argmax(axis=-1)[..., None]
    lowered = numpy.take_along_axis(result, places, axis=-1) - grid_of(noise_scale)
    numpy.put_along_axis(result, places, numpy.maximum(lowered, 0.0), axis=-1)
    return result


def settled_threshold(threshold: float, stddev: float) -> float:
    """The threshold of the unrounded test that passes exactly when the rounded one does."""
    grid = grid_of(stddev)
    return (math.ceil(threshold / grid) - 0.5) * grid


def smoothable_rdp(
    aggregator: GNMax | ConfidentGNMax, votes: VoteCounts, asked: Booleans, answered: Booleans, order: float
) -> float:
    """The total cost at one order, as the sensitivity analysis sees it."""
    log_q = log_miss_probability(settled(votes.counts[answered], aggregator.stddev), aggregator.stddev)
    total = float(cost_at(log_q, aggregator.stddev, order).sum())
    if isinstance(aggregator, ConfidentGNMax):
        point = settled_threshold(aggregator.threshold, aggregator.threshold_stddev)
        largest = votes.counts.max(axis=1, initial=0)[asked]
        total += float(numpy.sum(threshold_rdp(largest, point, aggregator.threshold_stddev, order)))
    return total * (1 + 1e-9)


def local_sensitivity(
    aggregator: GNMax | ConfidentGNMax, votes: VoteCounts, asked: Booleans, answered: Booleans, order: float
) -> Floats:
    """A bound on the local sensitivity of that total, by how many teachers were changed before.

    A data set d teachers away has every row at most d moved votes away, so the curves of the rows are made rising
    before they are added.
    """
    _require_conditions(aggregator.stddev, votes.num_classes, order)
    total = numpy.zeros(votes.num_teachers)
    rows, times = numpy.unique(-numpy.sort(-votes.counts[answered], axis=1), axis=0, return_counts=True)
    for row, count in zip(settled(rows, aggregator.stddev), times.tolist(), strict=True):
        curve = gnmax_local_sensitivity(row, votes.num_teachers, aggregator.stddev, order)
        total += count * numpy.maximum.accumulate(curve)
    if isinstance(aggregator, ConfidentGNMax):
        point = settled_threshold(aggregator.threshold, aggregator.threshold_stddev)
        largest, times = numpy.unique(votes.counts.max(axis=1, initial=0)[asked], return_counts=True)
        for value, count in zip(largest.tolist(), times.tolist(), strict=True):
            arguments = value, votes.num_teachers, point, aggregator.threshold_stddev, order
            total += count * numpy.maximum.accumulate(threshold_local_sensitivity(*arguments))
    return total * (1 + 1e-9)


def _require_conditions(stddev: float, num_classes: int, order: float) -> None:
    if conditions(stddev, num_classes, order) != (True, True):
        raise InvalidValue(
            "smooth sensitivity needs conditions C5 and C6, which fail at "
            f"stddev {stddev:g}, {num_classes} classes and order {order:g}; use more noise or a lower order."
        )
