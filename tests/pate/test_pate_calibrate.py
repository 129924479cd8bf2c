"""Calibration: never over the budget, never far below it; thresholds from public votes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hush import Budget, Rng, accounting
from hush.accounting import gdp
from hush.errors import InvalidValue, Unreachable
from hush.pate import ConfidentGNMax, GNMax, LNMax, VoteCounts, noise_for, queries_for, tune_threshold
from hush.pate.calibrate import chance_of_label, synthetic_votes

BUDGET = Budget(epsilon=1.0, delta=1e-5)


@pytest.mark.parametrize("queries", [1, 100, 100_000])
def test_gaussian_noise_is_the_closed_form(queries: int) -> None:
    expected = math.sqrt(2 * queries) * gdp.analytic_noise(1.0, 1e-5)
    assert noise_for(BUDGET, queries=queries) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("options", "make"),
    [
        ({"queries": 100}, GNMax),
        ({"queries": 100, "noise": "discrete"}, lambda value: GNMax(value, noise="discrete")),
        ({"queries": 20, "kind": "lnmax"}, LNMax),
        ({"queries": 640, "answers": 286, "threshold_stddev": 400.0}, lambda value: ConfidentGNMax(1.0, 400.0, value)),
    ],
)
def test_the_least_noise_that_fits(options, make) -> None:
    noise = noise_for(BUDGET, **options)
    queries, answers = options["queries"], options.get("answers", options["queries"])
    for factor, fits in ((1.0, True), (0.9999, False)):
        event = make(noise * factor).prices.of(queries, answers)
        assert BUDGET.allows(accounting.guarantee(event, delta=1e-5)) is fits


def test_a_pure_budget_gives_laplace_noise_only() -> None:
    assert noise_for(Budget(1.0, 0.0), queries=10, kind="lnmax") == pytest.approx(20.0, rel=1e-9)
    with pytest.raises(Unreachable):
        noise_for(Budget(1.0, 0.0), queries=10)


def test_tests_that_alone_exceed_the_budget_are_named() -> None:
    with pytest.raises(Unreachable, match="threshold_stddev"):
        noise_for(BUDGET, queries=1000, threshold_stddev=10.0)


def test_bad_questions_are_refused() -> None:
    for options in ({"queries": 0}, {"queries": 3, "answers": 4}, {"queries": 3, "kind": "median"}):
        with pytest.raises(InvalidValue):
            noise_for(BUDGET, **options)
    with pytest.raises(InvalidValue, match="LNMax"):
        noise_for(BUDGET, queries=3, kind="lnmax", threshold_stddev=10.0)


@pytest.mark.parametrize("aggregator", [GNMax(40.0), ConfidentGNMax(200, 150, 40), LNMax(20.0), GNMax(0.1)], ids=str)
def test_as_many_queries_as_fit(aggregator) -> None:
    most = queries_for(aggregator, BUDGET)
    for count, fits in ((most, True), (most + 1, False)):
        event = aggregator.prices.of(count, count)
        assert BUDGET.allows(accounting.guarantee(event, delta=1e-5)) is fits
    shares = VoteCounts(np.full((most + 2, 2), 5), 10)
    if aggregator.prices.test is None:
        assert aggregator.answer(shares, budget=BUDGET).asked.sum() == most


def test_the_chance_of_a_label_is_what_sampling_gives() -> None:
    """200,000 votes a row: six standard deviations, false alarm 1e-8."""
    rows, labels = np.array([[60, 40, 0], [50, 50, 0], [20, 70, 10]]), np.array([0, 1, 0])
    chances = chance_of_label(VoteCounts(rows, 100), labels, 25.0)
    for row, label, chance in zip(rows, labels, chances, strict=True):
        votes = VoteCounts(np.repeat(row[None, :], 200_000, axis=0), 100)
        found = (GNMax(25.0).answer(votes, rng=Rng.from_seed(1)).labels == label).mean()
        assert found == pytest.approx(chance, abs=6 * math.sqrt(chance * (1 - chance) / 200_000) + 1e-6)


def test_a_tuned_threshold_does_as_expected_within_the_budget() -> None:
    votes, labels = synthetic_votes(1200, num_classes=10, num_teachers=250, accuracy=0.8, rng=Rng.from_seed(1))
    public, private = votes[:600], votes[600:]
    choice = tune_threshold(public, budget=BUDGET, queries=400, labels=labels[:600])
    answers = choice.aggregator.answer(private[: choice.queries], budget=BUDGET, rng=Rng.from_seed(2))
    assert BUDGET.allows(answers.guarantee())
    assert answers.answered.sum() == pytest.approx(choice.expected_answered, rel=0.25)
    right = (answers.labels == labels[600 : 600 + choice.queries])[answers.answered].sum()
    assert right == pytest.approx(choice.expected_correct, rel=0.25)
    plain = noise_for(BUDGET, queries=400)
    chances = chance_of_label(public, labels[:600], plain)
    assert 2 * choice.expected_correct - choice.expected_answered > 400 * (2 * chances.mean() - 1)


def test_a_wrong_label_that_costs_more_makes_the_vote_choosier() -> None:
    votes, labels = synthetic_votes(300, num_classes=5, num_teachers=200, accuracy=0.6, rng=Rng.from_seed(1))
    accuracy = []
    for penalty in (0.5, 8.0):
        choice = tune_threshold(votes, budget=BUDGET, queries=200, labels=labels, penalty=penalty)
        accuracy.append(choice.expected_correct / choice.expected_answered)
    assert accuracy[1] > accuracy[0]


def test_tuning_needs_public_votes_by_that_name() -> None:
    with pytest.raises(InvalidValue, match="public_votes"):
        tune_threshold(np.array([[3, 1]]), budget=BUDGET, queries=5)
    with pytest.raises(InvalidValue, match="labels"):
        tune_threshold(VoteCounts([[3, 1]], 4), budget=BUDGET, queries=5, labels=[7])


def test_synthetic_teachers_are_as_good_as_asked() -> None:
    votes, labels = synthetic_votes(4000, num_classes=4, num_teachers=100, accuracy=0.7, rng=Rng.from_seed(3))
    right = votes.counts[np.arange(4000), labels].mean() / 100
    assert right == pytest.approx(0.7, abs=0.03)
