"""Curves, areas and rates of an attack against values that were computed elsewhere or by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta, binom

from hush.attacks import AttackResult
from hush.attacks.plots import draw_curves
from hush.attacks.rates import clopper_pearson
from hush.errors import InvalidValue


def result_of(inside: object, outside: object) -> AttackResult:
    inside, outside = np.asarray(inside, float), np.asarray(outside, float)
    members = np.concatenate([np.ones(len(inside), bool), np.zeros(len(outside), bool)])
    return AttackResult("test", np.concatenate([inside, outside]), members)


def test_area_on_the_hull_is_the_published_one() -> None:
    """Values of jax_privacy's tests, whose curves are hulls; plain areas counted by hand over all pairs."""
    small = result_of([0, 4, 6, 7], [1, 2, 3, 5])
    assert small.hull.area == pytest.approx(13 / 16, abs=1e-15)
    assert small.auc == pytest.approx(11 / 16, abs=1e-15)
    shifted = result_of(np.arange(100) + 9.5, np.arange(100))
    assert shifted.hull.area == pytest.approx(0.595, abs=1e-12)
    assert shifted.auc == pytest.approx(0.5905, abs=1e-12)
    assert shifted.tpr_at(0.01).value == pytest.approx(0.11)
    assert shifted.hull.at(0.01) == pytest.approx(0.11)


def test_rates_between_thresholds_are_interpolated_on_the_hull() -> None:
    result = result_of([1, 3], [0, 2])
    assert [result.hull.at(rate) for rate in (0, 0.25, 0.5, 0.75, 1)] == [0.5, 0.75, 1, 1, 1]
    assert [result.tpr_at(rate).value for rate in (0, 0.25, 0.5, 0.75, 1)] == [0.5, 0.5, 1, 1, 1]


def test_ties_count_half_and_are_never_split() -> None:
    result = result_of([1, 1, 2], [1, 1, 0])
    pairs = [(a > b) + 0.5 * (a == b) for a in (1, 1, 2) for b in (1, 1, 0)]
    assert result.auc == pytest.approx(np.mean(pairs))
    assert result.tpr_at(0.0).value == pytest.approx(1 / 3)
    assert result.tpr_at(0.5).value == pytest.approx(1 / 3)  # one false alarm would need a split of equal scores


def test_area_is_that_of_all_pairs_on_random_scores() -> None:
    stream = np.random.default_rng(0)
    inside, outside = stream.integers(0, 30, 60), stream.integers(0, 25, 80)
    greater = (inside[:, None] > outside) + 0.5 * (inside[:, None] == outside)
    assert result_of(inside, outside).auc == pytest.approx(greater.mean(), abs=1e-12)


def test_tpr_never_accuses_more_than_allowed_and_reads_no_member() -> None:
    stream = np.random.default_rng(1)
    inside, outside = stream.normal(1, 1, 500), stream.normal(0, 1, 1000)
    for rate in (0.0, 0.001, 0.01, 0.0999, 0.5):
        found = result_of(inside, outside).tpr_at(rate)
        threshold = np.sort(outside)[::-1][int(rate * 1000)]
        assert (outside > threshold).mean() <= rate
        assert found.count == (inside > threshold).sum()


@pytest.mark.parametrize(("count", "total"), [(0, 20), (20, 20), (3, 50), (90, 100)])
def test_intervals_are_those_of_the_binomial_tails(count: int, total: int) -> None:
    found = clopper_pearson(count, total, confidence=0.95)
    if count > 0:
        assert binom.sf(count - 1, total, found.low) == pytest.approx(0.025, rel=1e-6)
    if count < total:
        assert binom.cdf(count, total, found.high) == pytest.approx(0.025, rel=1e-6)
    assert found.low <= found.value <= found.high


def test_intervals_have_the_published_values() -> None:
    assert clopper_pearson(500, 500, confidence=0.99).low == pytest.approx(0.98945931, abs=5e-9)
    assert clopper_pearson(0, 500, confidence=0.99).high == pytest.approx(0.01054069, abs=5e-9)
    assert clopper_pearson(90, 100).low == pytest.approx(0.82377740, abs=5e-9)
    assert clopper_pearson(10, 100).high == pytest.approx(0.17622260, abs=5e-9)


def test_a_perfect_attack_is_above_any_small_epsilon_and_guessing_is_not() -> None:
    stream = np.random.default_rng(2)
    sure = result_of(stream.normal(8, 1, 2000), stream.normal(0, 1, 2000))
    assert sure.is_above(1.0, 1e-5)
    assert not sure.is_above(20.0, 1e-5)
    assert not result_of(stream.normal(0, 1, 2000), stream.normal(0, 1, 2000)).is_above(0.0, 0.0)


def test_both_directions_are_asked() -> None:
    """Non-members that are surely cleared leak as much as members that are surely found."""
    inside = np.zeros(2000)
    outside = np.concatenate([np.zeros(1000), -np.ones(1000)])
    result = result_of(inside, outside)
    tail = 0.05 / (4 * 4000)
    assert beta.ppf(tail, 1000, 1001) > np.e * beta.ppf(1 - tail, 2, 1999)  # what the rule must see
    assert result.is_above(1.0, 1e-5)
    assert result.tpr_at(0.001).value == 0  # and what TPR at small FPR does not show


@pytest.mark.parametrize(
    ("scores", "members", "words"),
    [
        ([1.0, np.nan], [True, False], "NaN"),
        ([1.0, 2.0], [True, True], "only one kind"),
        ([1.0, 2.0], [1, 0], "True or False"),
        ([1.0, 2.0, 3.0], [True, False], "True or False"),
    ],
)
def test_bad_scores_are_refused(scores: list[float], members: list[bool], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        AttackResult("test", scores, members)  # type: ignore[arg-type]


def test_one_lucky_member_is_no_contradiction() -> None:
    """The highest score of all is a member's half of the time: above delta at FPR 0, and no evidence at all."""
    result = result_of(np.append(np.zeros(999), 1.0), np.zeros(1000))
    assert result.tpr_at(0.0).value == 0.001
    assert not result.is_above(0.0, 1e-5)


def test_guessing_is_accused_no_more_often_than_stated() -> None:
    """200 attacks that guess: at most 5 % may be called above epsilon 0. 22 or more of 200 has a chance below 1e-3."""
    stream = np.random.default_rng(5)
    accused = sum(result_of(*stream.normal(0, 1, (2, 300))).is_above(0.0, 0.0) for _ in range(200))
    assert accused < 22


def test_infinite_scores_are_scores() -> None:
    assert result_of([np.inf, 0], [np.inf, 0]).auc == 0.5
    assert result_of([np.inf, 1], [0, -np.inf]).auc == 1


@pytest.mark.parametrize("ending", [".png", ".svg", ".html"])
def test_plots_are_written(tmp_path: Path, ending: str) -> None:
    stream = np.random.default_rng(3)
    result = result_of(stream.normal(1, 1, 300), stream.normal(0, 1, 300))
    place = tmp_path / f"curve{ending}"
    draw_curves({"one": result, "two": result}, place, limit=(1.0, 1e-5))
    assert place.stat().st_size > 5_000
    if ending == ".svg":
        assert "false positive rate" in place.read_text() or "<path" in place.read_text()


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"\.png"):
        result_of([1], [0]).plot(tmp_path / "curve.txt")
