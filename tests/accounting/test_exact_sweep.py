"""The whole promised range at random: no exception, narrow intervals, and the loss grid never disagrees."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hush import accounting, events
from hush.accounting import grid
from hush.privacy import Relation


def drawn(rng: np.random.Generator) -> tuple[events.Event, float, Relation]:
    count = 1 if rng.random() < 0.4 else int(rng.integers(1, 6))
    phases = []
    for _ in range(count):
        prob = 1.0 if rng.random() < 0.05 else float(10 ** rng.uniform(-5, 0))
        step = events.PoissonSampled(events.Gaussian(float(10 ** rng.uniform(math.log10(0.3), 2))), prob)
        phases.append(events.Repeated(step, round(10 ** rng.uniform(0, 6))))
    relations: tuple[Relation, ...] = ("add_remove", "replace_one")
    return events.Composed(*phases), float(10 ** rng.uniform(-30, -3)), relations[int(rng.integers(2))]


def widths(seed: int, count: int, with_grid: int) -> list[float]:
    rng = np.random.default_rng(seed)
    found = []
    for index in range(count):
        event, delta, relation = drawn(rng)
        answer = accounting.guarantee(event, delta=delta, relation=relation)
        found.append(answer.gap / answer.epsilon if answer.epsilon else 0.0)
        if index < with_grid:
            low, high = grid.epsilon_interval(event, delta=delta, relation=relation)
            assert max(low, answer.epsilon_lower) <= min(high, answer.epsilon), (event, delta, relation)
    return found


def test_a_hundred_settings() -> None:
    found = widths(seed=1, count=100, with_grid=25)
    assert max(found) <= 1e-3
    assert sorted(found)[98] <= 1e-6


@pytest.mark.slow
def test_two_thousand_settings() -> None:
    found = widths(seed=2, count=2_000, with_grid=300)
    assert max(found) <= 1e-3
    assert np.mean(np.array(found) <= 1e-6) >= 0.99
