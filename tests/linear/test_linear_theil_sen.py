"""Private Theil-Sen: exact laws on tiny data, over all matchings."""

from __future__ import annotations

import itertools

import numpy
import pytest

from hush.linear.rows import box
from hush.linear.theil_sen import PLACES, heights_at, median_utilities

BOUNDS = box("y_bounds", (0.0, 1.0), 1)
CANDIDATES = numpy.linspace(0, 1, 41)
PLACES_OF_UNIT = numpy.array(PLACES)


def law(points: list[tuple[float, float]], epsilon: float, sensitivity: float = 1.0) -> numpy.ndarray:
    """The exact joint law of both heights, with one uniformly random matching."""
    x, y = numpy.array(points).T
    half = len(points) // 2
    total = numpy.zeros((len(CANDIDATES), len(CANDIDATES)))
    orders = list(itertools.permutations(range(len(points))))
    for order in orders:
        flat = numpy.array(order[: 2 * half], dtype=int).reshape(-1, 2)
        laws = []
        for values in heights_at(x, y, flat[:, 0], flat[:, 1], PLACES_OF_UNIT, BOUNDS):
            weights = numpy.exp(epsilon / 2 * median_utilities(values, CANDIDATES) / (2 * sensitivity))
            laws.append(weights / weights.sum())
        total += numpy.outer(*laws)
    return total / len(orders)


def largest_ratio(epsilon: float, sensitivity: float = 1.0) -> float:
    rng = numpy.random.default_rng(0)
    found = []
    level = [(place, 0.0) for place in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)]
    pairs = [(level, [*level[:-1], (1.0, 1.0)]), (level, level[:-1]), ([*level[:-1], (1.0, 1.0)], level[:-1])]
    for size in (2, 3, 4, 5):
        for _ in range(4):
            points = [tuple(rng.choice([0.0, 0.2, 0.5, 1.0], 2)) for _ in range(size)]
            pairs += [(points, points[:-1]), (points, [*points[:-1], tuple(rng.choice([0.0, 0.3, 1.0], 2))])]
    for one, other in pairs:
        ratio = numpy.log(law(one, epsilon, sensitivity) / law(other, epsilon, sensitivity))
        found.append(abs(ratio).max())
    return max(found)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_exact_laws_on_neighbours_differ_by_at_most_epsilon(epsilon: float) -> None:
    assert 0.25 * epsilon < largest_ratio(epsilon) <= epsilon


def test_a_quarter_of_the_sensitivity_would_be_caught() -> None:
    assert largest_ratio(1.0, sensitivity=1 / 4) > 1.0


def test_utilities_move_by_one_for_a_replaced_value_and_by_half_for_a_new_one() -> None:
    rng = numpy.random.default_rng(1)
    replaced, added = [], []
    for _ in range(200):
        values = rng.choice(CANDIDATES, 7)
        other = values.copy()
        other[0] = rng.choice(CANDIDATES)
        start = median_utilities(values, CANDIDATES)
        replaced.append(abs(start - median_utilities(other, CANDIDATES)).max())
        added.append(abs(start - median_utilities(values[1:], CANDIDATES)).max())
    assert max(replaced) == 1.0
    assert max(added) == 0.5
