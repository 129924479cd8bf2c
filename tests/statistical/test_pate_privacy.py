"""Votes by sampling: what neighbouring counts give can be told apart no better than is claimed, and half the noise can.

Every test has a fixed seed and states the chance that a right program fails it for a seed chosen at random.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from neighbours import largest_log_ratio
from scipy import stats

from hush import Rng
from hush.pate import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, VoteCounts

SAMPLES = 60_000
SIGNIFICANCE = 1e-6
DELTA = 1e-3


def labels(aggregator, counts: tuple[int, ...], seed: int) -> list[int]:
    """Independent answers on one row of counts."""
    votes = VoteCounts(np.repeat(np.array([counts]), SAMPLES, axis=0), sum(counts))
    return aggregator.answer(votes, rng=Rng.from_seed(seed)).labels.tolist()


def proven(aggregator, delta: float) -> float:
    """The largest epsilon that answers on two neighbouring rows prove."""
    pairs = [((7, 3), (6, 4)), ((6, 4), (5, 5)), ((6, 2, 2), (5, 3, 2))]
    return max(
        largest_log_ratio(labels(aggregator, one, 1), labels(aggregator, other, 2), SIGNIFICANCE / 3, delta)
        for one, other in pairs
    )


def claimed(aggregator, delta: float) -> float:
    votes = VoteCounts([[6, 4]], 10)
    return aggregator.answer(votes, delta=delta).guarantee().epsilon


CASES = [
    (LNMax(2.0), LNMax(1.0), 0.0),
    (GNMax(2.0), GNMax(1.0), DELTA),
    (GNMax(2.0, noise="discrete"), GNMax(1.0, noise="discrete"), DELTA),
    (ConfidentGNMax(8.0, 2.0, 4.0), ConfidentGNMax(8.0, 1.0, 2.0), DELTA),
    (ConfidentGNMax(8.0, 2.0, 4.0, "discrete"), ConfidentGNMax(8.0, 1.0, 2.0, "discrete"), DELTA),
]


@pytest.mark.parametrize(("aggregator", "halved", "delta"), CASES, ids=lambda case: str(case))
def test_neighbours_look_alike(aggregator, halved, delta: float) -> None:
    """False alarm 1e-6 each."""
    assert proven(aggregator, delta) <= claimed(aggregator, delta)


@pytest.mark.parametrize(("aggregator", "halved", "delta"), CASES, ids=lambda case: str(case))
def test_half_the_noise_would_be_seen(aggregator, halved, delta: float) -> None:
    assert proven(halved, delta) > claimed(aggregator, delta)


def test_the_test_adds_one_gaussian_to_the_maximum() -> None:
    """P(answer) is .447 at these votes; with a Gaussian on each count it would be .789. False alarm 1e-9."""
    counts = (180, 50, 20, 0, 0, 0, 0, 0, 0, 0)
    found = np.mean(np.array(labels(ConfidentGNMax(200, 150, 40), counts, 3)) >= 0)
    chance = float(stats.norm.sf(20 / 150))
    assert found == pytest.approx(chance, abs=6.2 * math.sqrt(chance * (1 - chance) / SAMPLES))


def test_the_student_sets_the_test_of_interactive_votes() -> None:
    """max(count - teachers * probability) is 180 - 125 = 55 here. False alarm 1e-9."""
    votes = VoteCounts(np.repeat([[180, 70]], SAMPLES, axis=0), 250)
    aggregator = InteractiveGNMax(100.0, 60.0, 40.0, confidence=0.99)
    answers = aggregator.answer(votes, np.full((SAMPLES, 2), 0.5), rng=Rng.from_seed(4))
    chance = float(stats.norm.sf(45 / 60))
    assert answers.answered.mean() == pytest.approx(chance, abs=6.2 * math.sqrt(chance * (1 - chance) / SAMPLES))


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
def test_labels_have_the_law_of_the_noisy_maximum(noise) -> None:
    """P(first) = Phi(gap / (sqrt(2) stddev)) for two classes; the discrete law is within 1e-3. False alarm 1e-9."""
    found = np.mean(np.array(labels(GNMax(20.0, noise=noise), (60, 40), 5)) == 0)
    chance = float(stats.norm.cdf(20 / (math.sqrt(2) * 20)))
    assert found == pytest.approx(chance, abs=1e-3 + 6.2 * math.sqrt(chance * (1 - chance) / SAMPLES))
