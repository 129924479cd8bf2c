"""The exact accountant against epsilons of 16 and more digits, found by other means: benchmarks/accounting/truth.py."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

from hush import accounting, events
from hush.privacy import Guarantee

VECTORS = json.loads((Path(__file__).parents[1] / "reference" / "exact_truth.json").read_text())["vectors"]
NAMES = [row["name"] for row in VECTORS]
USUAL_WIDTH, LARGEST_WIDTH, EXCEPTIONS = 1e-6, 1e-3, 0.01


def event_of(row: dict) -> events.Event:
    phases = [
        events.Repeated(events.PoissonSampled(events.Gaussian(noise), prob), steps)
        for prob, noise, steps in row["phases"]
    ]
    return events.Composed(*phases)


@cache
def answer_to(index: int) -> Guarantee:
    row = VECTORS[index]
    return accounting.guarantee(event_of(row), delta=row["delta"], relation=row["relation"], method="exact")


def holds(low: float, truth: Fraction, high: float) -> bool:
    return Fraction(low) <= truth <= Fraction(high)


def test_there_are_enough_vectors_of_each_kind():
    ways = [row["way"] for row in VECTORS]
    assert len(VECTORS) >= 100
    assert ways.count("real space") >= 25
    assert {row["relation"] for row in VECTORS} == {"add_remove", "replace_one"}
    assert max(len(row["phases"]) for row in VECTORS) >= 5
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("index", range(len(VECTORS)), ids=NAMES)
def test_the_interval_holds_the_truth(index):
    found, truth = answer_to(index), Fraction(VECTORS[index]["epsilon"])
    assert holds(found.epsilon_lower, truth, found.epsilon), (VECTORS[index], found)
    assert found.epsilon - found.epsilon_lower <= LARGEST_WIDTH * found.epsilon


def test_nearly_all_intervals_are_narrow():
    found = [answer_to(index) for index in range(len(VECTORS))]
    wide = [name for name, one in zip(NAMES, found, strict=True) if one.gap > USUAL_WIDTH * one.epsilon]
    assert len(wide) <= EXCEPTIONS * len(VECTORS), wide


# An epsilon of 0 stands for every larger delta as well.
WITH_DELTA = [pytest.param(row, id=row["name"]) for row in VECTORS if float(row["epsilon"]) > 0]


@pytest.mark.parametrize("row", WITH_DELTA)
def test_delta_at_the_true_epsilon_is_delta(row):
    """The true epsilon rounded to a double moves delta by far less than one part in 1e12."""
    found = accounting.delta(event_of(row), epsilon=float(row["epsilon"]), relation=row["relation"])
    assert found.delta_lower * (1 - 1e-12) <= row["delta"] <= found.delta * (1 + 1e-12), found
    assert found.epsilon == found.epsilon_lower == float(row["epsilon"])


def test_most_intervals_for_delta_are_narrow():
    gaps = []
    for row in VECTORS[::2]:
        if float(row["epsilon"]) > 0:
            found = accounting.delta(event_of(row), epsilon=float(row["epsilon"]), relation=row["relation"])
            gaps.append((found.delta - found.delta_lower) / found.delta)
    assert sorted(gaps)[int(0.9 * len(gaps))] < 1e-4, gaps
