"""What transformers release of private rows: how far one row can move it, the noise, the charge."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array, vstack
from scipy.sparse.linalg import norm
from tests.features.releases import recorded

from hush import Ledger, Rng, accounting, events
from hush.errors import BudgetExceeded, InvalidValue
from hush.features import PrivateColumnWeights, PrivatePCA, PrivateScaler, WhitenedPatches, evened
from hush.features.dead_leaves import dead_leaves
from hush.features.private_transformer import unit_rows

SMALL = {"num_filters": 6, "patch_size": 3, "cells": 2}


def pictures(count: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed)) * scale


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 1e3]), place=st.integers(0, 12))
def test_one_picture_moves_the_second_moments_by_the_sensitivity_at_most(seed: int, scale: float, place: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evened, "_PICTURES", 20)  # what follows the release does not matter here
        releases = recorded(patch)
        before = pictures(12, seed)
        one = pictures(1, seed + 1, scale)
        WhitenedPatches(**SMALL).fit(before)
        WhitenedPatches(**SMALL).fit(torch.cat([before[:place], one, before[place:]]))
    first, second = releases.values
    assert numpy.linalg.norm(first - second) <= releases.sensitivities[0]
    assert numpy.linalg.norm(first - second) > 0.01 * releases.sensitivities[0] or scale < 1


def test_the_bound_on_a_picture_is_nearly_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    releases = recorded(monkeypatch)
    stripes = torch.zeros(1, 1, 8, 8)
    stripes[..., ::3] = 1e4  # all patches that are looked at are equal, and their contrast is large
    WhitenedPatches(**SMALL).fit(pictures(3, 0))
    WhitenedPatches(**SMALL).fit(torch.cat([pictures(3, 0), stripes]))
    assert numpy.linalg.norm(releases.values[1] - releases.values[0]) > 0.99


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 1e6]))
def test_one_row_moves_both_sums_of_the_scaler_by_the_sensitivity_at_most(seed: int, scale: float) -> None:
    draws = numpy.random.default_rng(seed)
    rows, one = draws.normal(size=(10, 5)), draws.standard_cauchy(size=(1, 5)) * scale
    with pytest.MonkeyPatch.context() as patch:
        releases = recorded(patch)
        model = PrivateScaler().fit(rows)
        PrivateScaler().fit(numpy.vstack([rows, one]))
        # The second sum is taken around a mean that is public by then: the same one for both neighbours.
        squares = [_squares(part, model.mean_) for part in (rows, numpy.vstack([rows, one]))]
    first = numpy.linalg.norm(releases.values[2] - releases.values[0])
    assert first <= releases.sensitivities[0]
    assert numpy.linalg.norm(squares[1] - squares[0]) <= releases.sensitivities[1]
    assert numpy.allclose(squares[0], releases.values[1], atol=1e-5)


def _squares(rows: numpy.ndarray, mean: numpy.ndarray) -> numpy.ndarray:
    total = numpy.zeros(rows.shape[1])
    for row in rows:
        square = (row / numpy.linalg.norm(row) - mean) ** 2
        total += square * min(1.0, 2 / numpy.sqrt(len(row)) / numpy.linalg.norm(square))
    return total


@pytest.mark.parametrize("kind", ["patches", "scaler"])
def test_the_noise_is_that_of_the_event(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    releases = recorded(monkeypatch)
    if kind == "patches":
        model = WhitenedPatches(**SMALL, noise_multiplier=7.0).fit(pictures(4, 0))
        assert model.event_ == events.Gaussian(7.0)
    else:
        model = PrivateScaler(7.0).fit(numpy.eye(4))
        assert model.event_ == events.Repeated(events.Gaussian(7.0), 2)
    assert releases.noises == [7.0] * (1 if kind == "patches" else 2)


def test_a_scaler_that_only_centres_releases_one_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    releases = recorded(monkeypatch)
    rows = numpy.random.default_rng(0).normal(1, [1, 5, 9], size=(200, 3))
    model = PrivateScaler(7.0, with_std=False).fit(rows)
    assert model.event_ == events.Gaussian(7.0)
    assert releases.noises == [7.0]
    unit = rows / numpy.linalg.norm(rows, axis=1, keepdims=True)
    centred = unit - unit.mean(axis=0)
    wanted = centred / numpy.linalg.norm(centred, axis=1, keepdims=True)
    assert numpy.allclose(model.transform(rows), wanted, atol=1e-5)


def test_noise_is_added_with_the_right_spread() -> None:
    """2 x 4 sums of 8 columns; the chance of a false alarm is below 1e-6 (a chi-square of 64 degrees)."""
    rows = numpy.random.default_rng(0).normal(size=(50, 8))
    exact = (rows / numpy.linalg.norm(rows, axis=1, keepdims=True)).sum(axis=0)
    found = []
    for seed in range(8):
        model = PrivateScaler(20.0, random_state=seed).fit(rows)
        found.append((model.mean_ * model.num_rows_ - exact) / (20.0 * numpy.hypot(1, 0.1)))
    total = float(numpy.square(found).sum())
    assert 20 < total < 150


@pytest.mark.parametrize("kind", ["patches", "scaler"])
def test_the_account_pays_first_and_a_poor_one_stops_the_fit(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    releases = recorded(monkeypatch)
    make = (lambda: WhitenedPatches(**SMALL)) if kind == "patches" else PrivateScaler
    rows = pictures(4, 0) if kind == "patches" else numpy.eye(4)
    account = Ledger(tmp_path / "ledger.db").account("pictures")
    event = make().fit(rows, account=account).event_
    assert account.spent(delta=1e-5).epsilon == pytest.approx(accounting.guarantee(event, delta=1e-5).epsilon)
    done = len(releases.values)

    class Poor:
        def charge(self, event: events.Event) -> None:
            raise BudgetExceeded("nothing is left.")

    with pytest.raises(BudgetExceeded):
        make().fit(rows, account=Poor())
    assert len(releases.values) == done


def test_mirror_images_have_the_same_features() -> None:
    x = pictures(3, 1)
    model = WhitenedPatches(**SMALL, random_state=0).fit(x)
    assert numpy.allclose(model.transform(x), model.transform(x.flip(-1)), atol=1e-5)
    plain = WhitenedPatches(**SMALL, mirror=False, random_state=0).fit(x)
    assert not numpy.allclose(plain.transform(x), plain.transform(x.flip(-1)), atol=1e-2)


@pytest.mark.parametrize("contrast", [0.0, 0.4])
def test_the_features_are_those_of_one_patch_after_another(contrast: float) -> None:
    x = pictures(2, 3)
    model = WhitenedPatches(**SMALL, mirror=False, threshold=0.1, contrast=contrast, random_state=0).fit(x)
    whitening, filters = model.whitening_.numpy(), model.filters_.numpy()
    answers = numpy.zeros((2, 6, 6, 6))
    for row, down, across in numpy.ndindex(2, 6, 6):
        patch = x[row, 0, down : down + 3, across : across + 3].numpy().ravel()
        patch = patch - patch.mean()
        white, length = patch @ whitening, numpy.linalg.norm(patch)
        answers[row, :, down, across] = filters @ (white / numpy.linalg.norm(white)) * length / (length + contrast)
    signs = numpy.stack([numpy.maximum(answers - 0.1, 0), numpy.maximum(-answers - 0.1, 0)], axis=1)
    hills = numpy.exp(-0.5 * ((numpy.arange(6) - numpy.array([[1.0], [4.0]])) / 1.5) ** 2)
    hills /= hills.sum(axis=1, keepdims=True)
    cells = numpy.einsum("nsfij,ai,bj->nsfab", signs, hills, hills)
    found = next(model._all(x))
    assert numpy.allclose(found.flatten(1), numpy.sqrt(cells).reshape(2, -1), atol=1e-5)
    mixed = numpy.einsum("af,nac->nfc", model.mixing_.numpy(), found.numpy())
    assert numpy.allclose(model.transform(x), mixed.reshape(2, -1), atol=1e-5)


def test_mixing_evens_out_the_answers_to_pictures_of_nothing() -> None:
    model = WhitenedPatches(12, patch_size=3, cells=2, mirror=False, random_state=0).fit(pictures(200, 5))
    nothing = dead_leaves(1_000, 8, 1, 1)
    before = torch.cat(list(model._all(nothing)))
    before = before / before.norm(dim=(1, 2), keepdim=True)
    spreads = []
    for answers in (before, torch.einsum("af,nac->nfc", model.mixing_, before)):
        rows = (answers - answers.mean(dim=(0, 2), keepdim=True)).transpose(1, 2).flatten(0, 1)
        values = torch.linalg.eigvalsh(rows.T @ rows)
        spreads.append(float(values[-1] / values[len(values) // 2]))
    assert spreads[1] < spreads[0] / 4


def test_the_first_directions_may_be_kept_alone() -> None:
    x = pictures(4, 1)
    whole, few = (WhitenedPatches(**SMALL, num_directions=n, random_state=0).fit(x) for n in (None, 2))
    assert whole.transform(x).shape == (4, 6 * 4)
    assert numpy.allclose(few.transform(x), whole.transform(x)[:, : 2 * 4], atol=1e-6)


def test_whitening_makes_patches_white() -> None:
    x = pictures(500, 4)
    model = WhitenedPatches(**SMALL, ridge=0.05, noise_multiplier=0.01, random_state=0).fit(x)
    white = model._patches(x, 3).transpose(1, 2).flatten(0, 1) @ model.whitening_
    moments = (white.T @ white / len(white)).numpy()
    values = numpy.linalg.eigvalsh(moments)
    assert values[-1] / values[1] < 1.5  # the first one belongs to the mean, which was taken off


def test_filters_come_from_public_numbers_alone() -> None:
    models = [WhitenedPatches(**SMALL, random_state=0).fit(pictures(4, seed)) for seed in (1, 1)]
    assert torch.equal(models[0].filters_, models[1].filters_)
    fresh = WhitenedPatches(**SMALL).fit(pictures(4, 1))
    assert fresh.randomness_ == Rng.from_entropy().label


def test_bad_rows_are_refused_in_one_line() -> None:
    with pytest.raises(InvalidValue, match="pixels a side"):
        WhitenedPatches().fit(torch.zeros(2, 1, 4, 4))
    with pytest.raises(InvalidValue, match="finite"):
        WhitenedPatches(**SMALL).fit(torch.full((2, 1, 8, 8), torch.nan))
    with pytest.raises(InvalidValue, match="noise_multiplier"):
        PrivateScaler(0.0).fit(numpy.eye(3))
    with pytest.raises(InvalidValue, match="at least one row"):
        PrivateScaler().fit(numpy.empty((0, 3)))
    model = WhitenedPatches(**SMALL).fit(pictures(3, 0))
    with pytest.raises(InvalidValue, match="as in fit"):
        model.transform(torch.zeros(1, 3, 8, 8))


def test_directions_are_those_of_the_exact_matrix_where_the_noise_is_small() -> None:
    rows = numpy.random.default_rng(0).normal(size=(2_000, 5)) * [5, 4, 3, 2, 1]
    model = PrivatePCA(2, noise_multiplier=0.1, random_state=0).fit(rows)
    unit = rows / numpy.linalg.norm(rows, axis=1, keepdims=True)
    values, vectors = numpy.linalg.eigh(unit.T @ unit)
    wanted = vectors[:, numpy.argsort(values)[::-1][:2]].T
    assert numpy.allclose(numpy.abs(model.components_ @ wanted.T), numpy.eye(2), atol=0.02)
    assert (numpy.linalg.norm(model.transform(rows), axis=1) <= 1 + 1e-5).all()


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 1e6]))
def test_one_row_moves_the_matrix_of_directions_by_the_sensitivity_at_most(seed: int, scale: float) -> None:
    draws = numpy.random.default_rng(seed)
    rows, one = draws.normal(size=(10, 4)), draws.standard_cauchy(size=(1, 4)) * scale
    with pytest.MonkeyPatch.context() as patch:
        releases = recorded(patch)
        for some in (rows, numpy.vstack([rows, one])):
            PrivatePCA(2, noise_multiplier=3.0).fit(some)
    moved = numpy.linalg.norm(releases.values[1] - releases.values[0])
    assert 0.99 < moved <= releases.sensitivities[0]


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 1e6]), words=st.integers(1, 60))
def test_one_row_moves_the_sums_of_columns_by_the_sensitivity_at_most(seed: int, scale: float, words: int) -> None:
    draws = numpy.random.default_rng(seed)
    rows = random_array((10, 60), density=0.2, rng=draws, format="csr")
    one = csr_array(numpy.where(numpy.arange(60) < words, scale * draws.random(60), 0.0)[None])
    with pytest.MonkeyPatch.context() as patch:
        releases = recorded(patch)
        for some in (rows, vstack([rows, one])):
            PrivateColumnWeights().fit(some)
    moved = numpy.linalg.norm(releases.values[1] - releases.values[0])
    assert moved <= releases.sensitivities[0]
    assert moved > 0.99 * releases.sensitivities[0] or words > 40


def test_column_weights_are_inverse_roots_where_the_noise_is_small_and_equal_below_it() -> None:
    rows = csr_array(numpy.tile([[1.0, 1.0, 0.0] + [0.0] * 100, [1.0, 0.0, 1.0] + [0.0] * 100], (5_000, 1)))
    model = PrivateColumnWeights(1.0, random_state=0).fit(rows)
    share = 0.1 / numpy.sqrt(0.5)  # squares (1/2, 1/2) are shortened to the length 1/10
    wanted = 1 / numpy.sqrt([5_000 * share, 2_500 * share, 2_500 * share])
    assert numpy.allclose(model.scale_[:3], wanted, rtol=0.01)
    alike = numpy.isclose(model.scale_[3:], 1 / numpy.sqrt(0.1))  # nothing is there, and noise has this spread
    assert 0.7 < alike.mean() < 0.95  # 84 of 100 normal numbers are below 1
    assert model.scale_.max() == pytest.approx(1 / numpy.sqrt(0.1))
    assert numpy.allclose(norm(model.transform(rows), axis=1), 1, atol=1e-5)
    assert model.event_ == events.Gaussian(1.0)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("columns", [9_216, 300_000])
def test_rows_of_many_equal_columns_are_not_too_long(columns: int, order: str) -> None:
    """Thousands of equal squares: a sum of them in float32 is too small, and the row would be too long."""
    rows = numpy.full((2, columns), 0.1, dtype=numpy.float32, order=order)  # type: ignore[call-overload]
    assert (numpy.linalg.norm(unit_rows(rows).astype(numpy.float64), axis=1) <= 1 + 2e-7).all()


@pytest.mark.parametrize(
    "model",
    [PrivateScaler(), PrivatePCA(1, noise_multiplier=5.0), PrivateColumnWeights(), WhitenedPatches(**SMALL)],
    ids=lambda one: type(one).__name__,
)
def test_bad_rows_are_refused_before_anything_is_charged(model: Any, tmp_path: Path) -> None:
    given = pictures(4, 0) if isinstance(model, WhitenedPatches) else torch.rand(4, 3)
    account = Ledger(tmp_path / "ledger.db").account("rows", cap=None)
    for wrong in (math.nan, math.inf):
        rows = given.clone()
        rows[1] = wrong
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            model.fit(rows.numpy(), account=account)
    assert account.event == events.Composed()
    assert model.event() == model.fit(given.numpy()).event_
    with pytest.raises(InvalidValue, match="as in fit"):
        model.transform(given.numpy()[..., :-1])


def test_a_threshold_that_is_no_number_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    account = Ledger(tmp_path / "ledger.db").account("rows", cap=None)
    with pytest.raises(InvalidValue, match="threshold"):
        WhitenedPatches(**SMALL, threshold=math.nan).fit(pictures(4, 0), account=account)
    assert account.event == events.Composed()
