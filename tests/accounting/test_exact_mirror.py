"""The short cuts of the exact accountant: "add" seen from a line of "remove", and guesses without bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hush import accounting
from hush.accounting.exact import report, search
from hush.accounting.exact.contour import mirror_is_below
from hush.accounting.exact.phases import Phases
from hush.events import ApproximateDP, Composed, Event, FixedSizeSampled, Gaussian, PoissonSampled, PureDP, Repeated
from hush.privacy import Relation

# sampling_prob, noise_multiplier, steps of each phase; the square of the unsampled Gaussians' distance; delta
COMPOSITIONS = [
    ([(0.01, 4.0, 10_000)], 0.0, 1e-5),
    ([(0.3, 20.0, 400)], 0.0, 1e-9),
    ([(1e-4, 1.0, 1_000_000)], 0.0, 1e-6),
    ([(0.01, 4.0, 2_000), (0.02, 2.0, 500), (0.05, 8.0, 5_000)], 0.0, 1e-5),
    ([(0.02, 10.0, 20_000)], 0.25, 1e-12),
]


def phases_of(rows: list[tuple[float, float, int]], gaussian: float) -> Phases:
    prob, noise, steps = np.array(rows, dtype=float).T
    return Phases(prob, 1 / noise, steps, gaussian)


@pytest.mark.parametrize(("rows", "gaussian", "delta"), COMPOSITIONS)
def test_add_seen_from_remove_agrees_with_add_integrated_by_itself(
    rows: list[tuple[float, float, int]], gaussian: float, delta: float
) -> None:
    phases = phases_of(rows, gaussian)
    with np.errstate(all="ignore"):
        (_, remove), line = search.epsilon_interval(phases, "remove", delta)
        (low, high), _ = search.epsilon_interval(phases, "add", delta)
        assert line is not None
        assert low <= high < remove * (1 + 1e-6)
        assert not mirror_is_below(line, low * (1 - 1e-9), 7.0)
        assert mirror_is_below(line, remove, 7.0)
        # Where remove's nodes, paths and waves serve, they see more than the three digits of a short rule.
        if line.reach.moved is not None and line.waves is not None:
            assert mirror_is_below(line, high * (1 + 1e-6), 7.0)


def sampled(sampling_prob: float, noise_multiplier: float, steps: int) -> Event:
    return Repeated(PoissonSampled(Gaussian(noise_multiplier), sampling_prob), steps)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("event", [sampled(0.01, 4.0, 10_000), sampled(0.001, 0.8, 100_000), sampled(0.2, 1.0, 500)])
def test_a_guess_lies_near_the_interval(event: Event, relation: Relation) -> None:
    found = accounting.guarantee(event, delta=1e-6, relation=relation)
    for near in (found.epsilon, 1.05 * found.epsilon):
        guessed = report.guess(event, delta=1e-6, relation=relation, near=near)
        assert guessed == pytest.approx(found.epsilon, rel=1e-4)


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(1.0),
        PureDP(1.0),
        FixedSizeSampled(Gaussian(1.0), 10, 1000),
        Composed(sampled(0.01, 1.0, 10), ApproximateDP(0.1, 1e-7)),
        sampled(0.01, 1e-3, 10),
    ],
)
def test_there_is_no_guess_where_no_short_rule_serves(event: Event) -> None:
    assert math.isnan(report.guess(event, delta=1e-6, relation="add_remove", near=1.0))


def test_there_is_no_guess_at_delta_0() -> None:
    assert math.isnan(report.guess(sampled(0.01, 1.0, 10), delta=0.0, relation="add_remove", near=1.0))
