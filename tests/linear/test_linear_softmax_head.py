"""The softmax head: its sums against a loop, its noise against the closed form, what one row can move."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.linalg import helmert
from scipy.stats import norm
from tests.features.releases import recorded

from hush import Budget, Ledger, Rng, events
from hush.errors import InvalidValue, Unreachable
from hush.gradients.noise import NoiseSource
from hush.linear import PrivateSoftmaxHead, RepeatedFitWarning, softmax_head, softmax_sums
from hush.linear.softmax_head import HeadPlan

BUDGET = Budget(epsilon=1.0, delta=1e-5)


def plan(**changes: object) -> HeadPlan:
    given = {"steps": 4, "clip_norm": 1.0, "learning_rate": 50.0, "spent": None, "relation": "add_remove", **changes}
    return HeadPlan.for_budget(BUDGET, **given)  # type: ignore[arg-type]


def loop_sum(rows: numpy.ndarray, labels: numpy.ndarray, weights: numpy.ndarray, clip_norm: float) -> numpy.ndarray:
    total = numpy.zeros_like(weights)
    for row, label in zip(rows, labels, strict=True):
        chances = numpy.exp(row @ weights)
        slope = chances / chances.sum() - (numpy.arange(weights.shape[1]) == label)
        gradient = numpy.outer(row, slope)
        total += gradient * min(1.0, clip_norm / numpy.linalg.norm(gradient))
    return total


def sums(rows: Any, labels: numpy.ndarray, weights: numpy.ndarray, clip_norm: float) -> numpy.ndarray:
    """(contrasts, columns), as the weights are."""
    contrasts = softmax_sums.contrasts_of(len(weights) + 1, rows.dtype)
    return softmax_sums.clipped_sums(softmax_sums.in_parts(rows, labels), weights[None], contrasts, [clip_norm])[0]


@pytest.mark.parametrize("clip_norm", [0.3, 1.0, math.inf])
@pytest.mark.parametrize("kind", ["dense", "read-only", "sparse"])
def test_sums_are_those_of_a_loop(clip_norm: float, kind: str) -> None:
    draws = numpy.random.default_rng(0)
    rows, labels, weights = draws.normal(size=(30, 5)), draws.integers(3, size=30), draws.normal(size=(2, 5))
    given = sparse.csr_array(rows) if kind == "sparse" else rows
    rows.flags.writeable = kind != "read-only"
    found = sums(given, labels, weights, clip_norm).T @ helmert(3)
    assert numpy.allclose(found, loop_sum(rows, labels, weights.T @ helmert(3), clip_norm), atol=1e-10)


@pytest.mark.parametrize("columns", [3_969, 9_216, 300_000])
def test_a_gradient_of_many_equal_columns_is_no_longer_than_the_clip_norm(columns: int) -> None:
    """Thousands of equal squares: a sum of them in float32 is too small, and the gradient would be too long."""
    rows = softmax_head.within_norm(numpy.full((1, columns), 0.1, dtype=numpy.float32), 1.0)
    assert numpy.linalg.norm(rows.astype(numpy.float64)) <= 1 + 2e-7
    weights = numpy.zeros((9, columns), dtype=numpy.float32)
    assert numpy.linalg.norm(sums(rows, numpy.array([0]), weights, 0.5)) <= 0.5 * (1 + 5e-7)


def test_a_gradient_of_many_classes_is_no_longer_than_the_clip_norm() -> None:
    draws = numpy.random.default_rng(0)
    rows = numpy.ones((1, 1), dtype=numpy.float32)
    weights = (3 * draws.normal(size=(4_999, 1))).astype(numpy.float32)
    assert numpy.linalg.norm(sums(rows, numpy.array([0]), weights, 0.5)) <= 0.5 * (1 + 5e-7)


def test_weights_that_grow_beyond_all_bounds_are_refused() -> None:
    with pytest.raises(InvalidValue, match="smaller learning_rate"):
        softmax_head.descend(
            numpy.eye(4, dtype=numpy.float32), numpy.arange(4), 4, [plan(learning_rate=1e38)], Rng.from_seed(0)
        )


def test_rows_in_any_order_of_memory_are_fitted(tmp_path: Path) -> None:
    x = numpy.repeat(numpy.eye(3, dtype=numpy.float32), 200, axis=0)
    y = numpy.repeat([0, 1, 2], 200)
    for rows, labels in ((x[::-1], y[::-1]), (numpy.asfortranarray(x), y), (x[:, ::-1], y)):
        head = PrivateSoftmaxHead(8.0, 1e-5, classes=[0, 1, 2], data_norm=1.0)
        assert head.fit(rows, labels, Ledger(tmp_path / "ledger.db").account("rows")).coef_.shape == (3, 3)


@pytest.mark.parametrize("charged", [True, False])
def test_wide_sparse_rows_are_never_written_out(charged: bool, tmp_path: Path) -> None:
    draws = numpy.random.default_rng(0)
    places = draws.integers(2**18, size=(1_100, 20))
    starts = numpy.arange(0, places.size + 1, 20)
    rows = sparse.csr_array((numpy.ones(places.size, numpy.float32), places.ravel(), starts), shape=(1_100, 2**18))
    head = PrivateSoftmaxHead(1.0, 1e-5, classes=[0, 1], data_norm=5.0, steps=2)
    account = Ledger(tmp_path / "ledger.db").account("rows") if charged else None
    tracemalloc.start()
    head.fit(rows, draws.integers(2, size=1_100), account)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6  # written out, the first thousand rows alone are 2 GB


@pytest.mark.parametrize("classes", [{0, 1, 2}, [[0, 1], [2, 3]], 3])
def test_classes_are_a_list(classes: object) -> None:
    head = PrivateSoftmaxHead(1.0, 1e-5, classes=classes, data_norm=1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="classes must be a list"):
        head.fit(numpy.eye(3), [0, 1, 2])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 1e6]))
def test_one_row_moves_a_sum_by_the_clip_norm_at_most(seed: int, scale: float) -> None:
    draws = numpy.random.default_rng(seed)
    weights = draws.normal(size=(2, 4)) * 10
    rows = softmax_head.within_norm(draws.standard_cauchy(size=(9, 4)) * scale, 1.0)
    labels = draws.integers(3, size=9)
    both = [sums(rows[:k], labels[:k], weights, 0.7) for k in (8, 9)]
    assert numpy.linalg.norm(both[1] - both[0]) <= 0.7 * (1 + 1e-6)
    assert (softmax_sums.lengths_of(rows) <= 1 + 1e-6).all()


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("spent", [None, events.Repeated(events.Gaussian(20.0), 2)])
def test_head_and_features_cost_the_budget_by_the_closed_form(relation: str, spent: events.Event | None) -> None:
    """All Gaussian: mu^2 adds up [dong22, Cor. 3.3]; replace_one doubles mu."""
    found = plan(relation=relation, spent=spent)
    inverse = found.steps / found.noise_multiplier**2 + (0 if spent is None else 2 / 20.0**2)
    if found.count is not None:
        inverse += 1 / found.count.noise_multiplier**2
    mu = math.sqrt(inverse) * (2 if relation == "replace_one" else 1)
    delta = norm.cdf(-1 / mu + mu / 2) - math.exp(1) * norm.cdf(-1 / mu - mu / 2)
    assert 0.9999e-5 < delta <= 1e-5


def without_noise(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Standard deviations that noise would have had; the sums are left as they are."""
    asked: list[float] = []
    monkeypatch.setattr(NoiseSource, "add", lambda self, gradients, stddev: asked.append(stddev) or gradients)
    return asked


def test_noise_is_made_for_the_clip_norm_and_for_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    releases, asked = recorded(monkeypatch), without_noise(monkeypatch)
    found = plan(clip_norm=0.5)
    softmax_head.descend(numpy.eye(3), numpy.arange(3), 3, [found], Rng.from_seed(0))
    assert found.count is not None
    assert (releases.noises, releases.sensitivities) == ([found.count.noise_multiplier], [1.0])
    assert len(asked) == found.steps
    assert all(0.5 <= stddev / found.noise_multiplier < 0.5001 for stddev in asked)
    assert found.event == events.Composed(
        found.count.event, events.Repeated(events.Gaussian(found.noise_multiplier), found.steps)
    )


@pytest.mark.parametrize("classes", [2, 5])
def test_noise_is_isotropic_in_what_sums_to_zero_over_the_classes(classes: int) -> None:
    """Of one step without rows' help: every difference of two classes has twice the variance of one contrast."""
    columns, found = 40_000, plan(steps=1, learning_rate=1.0, relation="replace_one")
    rows = sparse.csr_array((1, columns), dtype=numpy.float64)
    weights = softmax_head.descend(rows, numpy.array([0]), classes, [found], Rng.from_seed(0))[0]
    assert numpy.abs(weights.sum(axis=1)).max() < 1e-9 * numpy.abs(weights).max()
    pace = softmax_head._shape(0, 1) * (1 - softmax_head.MOMENTUM)
    noise = weights / (pace * found.noise_multiplier)
    wanted = numpy.eye(classes) - 1 / classes
    assert numpy.allclose(noise.T @ noise / columns, wanted, atol=6 * math.sqrt(2 / columns))  # six standard errors


def test_plans_side_by_side_do_as_they_do_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(monkeypatch)
    without_noise(monkeypatch)
    draws = numpy.random.default_rng(1)
    rows, labels = draws.normal(size=(40, 6)), draws.integers(4, size=40)
    plans = [plan(), plan(clip_norm=0.2, learning_rate=9.0)]
    both = softmax_head.descend(rows, labels, 4, plans, Rng.from_seed(0))
    for one, weights in zip(plans, both, strict=True):
        assert numpy.allclose(softmax_head.descend(rows, labels, 4, [one], Rng.from_seed(0))[0], weights)


def blobs(count: int, dtype: type = numpy.float32) -> tuple[numpy.ndarray, numpy.ndarray]:
    draws = numpy.random.default_rng(2)
    labels = draws.integers(3, size=count)
    rows = numpy.eye(8)[labels] + 0.3 * draws.normal(size=(count, 8))
    return (rows / numpy.linalg.norm(rows, axis=1, keepdims=True)).astype(dtype), labels


@pytest.mark.parametrize("kind", ["float32", "float64", "sparse"])
def test_it_learns_within_its_budget(kind: str) -> None:
    rows, labels = blobs(6_000, numpy.float64 if kind == "float64" else numpy.float32)
    given = sparse.csr_array(rows) if kind == "sparse" else rows
    head = PrivateSoftmaxHead(1.0, 1e-5, classes=[0, 1, 2], data_norm=1.0, random_state=0).fit(given, labels)
    assert head.score(given, labels) > 0.95
    assert head.guarantee_.epsilon <= 1.0
    assert numpy.allclose(head.predict_proba(given[:5]).sum(axis=1), 1, atol=1e-5)


def test_features_that_were_paid_for_are_in_the_guarantee_and_not_charged_again(tmp_path: object) -> None:
    rows, labels = blobs(500)
    account = Ledger(f"{tmp_path}/ledger.db").account("rows", cap=BUDGET)
    spent = events.Gaussian(10.0)
    account.charge(spent)
    head = PrivateSoftmaxHead(1.0, 1e-5, classes=[0, 1, 2], data_norm=1.0, spent=spent).fit(rows, labels, account)
    assert head.guarantee_.epsilon == pytest.approx(account.spent(delta=1e-5).epsilon, rel=1e-6)
    assert 0.999 < head.guarantee_.epsilon <= 1.0


def test_twins_have_no_noise_say_so_and_are_stable() -> None:
    rows, labels = blobs(600)
    twin = plan(steps=80, learning_rate=1e6).without_privacy(rows)
    assert twin.event == events.NotPrivate()
    one, other = (softmax_head.descend(rows, labels, 3, [twin], Rng.from_seed(seed))[0] for seed in (0, 1))
    assert (one == other).all()
    logits = rows @ one
    losses = numpy.log(numpy.exp(logits).sum(axis=1)) - logits[numpy.arange(600), labels]
    assert losses.mean() < 0.2  # a rate that is too large ends far above log 3


def test_what_is_missing_is_named() -> None:
    rows, labels = blobs(20)
    full = {"epsilon": 1.0, "delta": 1e-5, "classes": [0, 1, 2], "data_norm": 1.0}
    for name, message in [
        ("epsilon", "epsilon"),
        ("delta", "delta"),
        ("classes", "classes"),
        ("data_norm", "data_norm"),
    ]:
        with pytest.raises(InvalidValue, match=message):
            PrivateSoftmaxHead(**{**full, name: None}).fit(rows, labels)
    with pytest.raises(InvalidValue, match="not in classes"):
        PrivateSoftmaxHead(**{**full, "classes": [0, 1]}).fit(rows, labels)
    with pytest.raises(Unreachable, match="leaves nothing"):
        PrivateSoftmaxHead(**full, spent=events.Gaussian(0.5)).fit(rows, labels)
    with pytest.raises(ValueError, match="NaN"):
        PrivateSoftmaxHead(**full).fit(numpy.full_like(rows, numpy.nan), labels)


def test_a_second_fit_on_the_same_rows_warns() -> None:
    rows, labels = blobs(200)
    head = PrivateSoftmaxHead(1.0, 1e-5, classes=[0, 1, 2], data_norm=1.0, steps=2)
    head.fit(rows, labels)
    with pytest.warns(RepeatedFitWarning):
        head.fit(rows, labels)
