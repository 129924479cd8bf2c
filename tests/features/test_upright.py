"""Upright pictures against the moments that they should have."""

from __future__ import annotations

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hush.errors import InvalidValue
from hush.features import Upright

SIDE = 61


def blob(tall: float, wide: float, lean: float, down: float = 0.0, across: float = 0.0) -> NDArray[numpy.float64]:
    """A hill of light of this height and width (standard deviations in half sides) that leans, off the middle."""
    y, x = numpy.meshgrid(numpy.linspace(-1, 1, SIDE), numpy.linspace(-1, 1, SIDE), indexing="ij")
    y, x = y - down, x - across
    return numpy.exp(-0.5 * ((y / tall) ** 2 + ((x - lean * y) / wide) ** 2))


def moments(picture: NDArray[numpy.float64]) -> dict[str, float]:
    """By the definition, pixel by pixel."""
    places = numpy.linspace(-1, 1, SIDE)
    total = picture.sum()
    down = sum(place * picture[row].sum() for row, place in enumerate(places)) / total
    across = sum(place * picture[:, column].sum() for column, place in enumerate(places)) / total
    y, x = numpy.meshgrid(places - down, places - across, indexing="ij")
    return {
        "down": down,
        "across": across,
        "tall": float(numpy.sqrt((picture * y * y).sum() / total)),
        "wide": float(numpy.sqrt((picture * x * x).sum() / total)),
        "mixed": (picture * x * y).sum() / total,
    }


@given(
    tall=st.floats(0.2, 0.26),
    wide=st.floats(0.1, 0.16),
    lean=st.floats(-0.5, 0.5),
    down=st.floats(-0.1, 0.1),
    across=st.floats(-0.1, 0.1),
    share=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_shapes_stand_upright_in_the_middle_at_their_size(
    tall: float, wide: float, lean: float, down: float, across: float, share: float
) -> None:
    picture = blob(tall, wide, lean, down, across)
    chosen = Upright(0.24, 0.14, height_share=share, width_share=share)
    found = moments(chosen.fit_transform(picture[None, None])[0, 0].astype(numpy.float64))
    assert abs(found["mixed"]) < 1e-3
    assert abs(found["down"]) < 0.01
    assert abs(found["across"]) < 0.01
    assert found["tall"] == pytest.approx(tall ** (1 - share) * 0.24**share, rel=0.03)
    assert found["wide"] == pytest.approx(wide ** (1 - share) * 0.14**share, rel=0.03)


def test_each_picture_is_looked_at_alone() -> None:
    draws = torch.Generator().manual_seed(0)
    pictures = torch.rand(1_203, 2, 9, 7, generator=draws)
    together = Upright().transform(pictures)
    for row in (0, 999, 1_000, 1_202):
        assert numpy.allclose(Upright().transform(pictures[row : row + 1])[0], together[row], atol=1e-6)
    others = pictures.clone()
    others[1:] = 0
    assert numpy.allclose(Upright().transform(others)[0], together[0], atol=1e-6)


def test_an_empty_picture_stays_empty_and_a_dark_one_counts_as_empty() -> None:
    nothing = torch.zeros(1, 1, 8, 8)
    assert not Upright().transform(nothing).any()
    dark = Upright(height_share=0.0, width_share=0.0).transform(nothing - 1)
    assert numpy.allclose(dark, -1)


def test_a_pixel_is_not_spread_over_the_picture() -> None:
    point = torch.zeros(1, 1, 28, 28)
    point[0, 0, 3, 20] = 1.0
    found = Upright().transform(point)
    assert numpy.isfinite(found).all()
    assert (found > 0).sum() <= 16  # four by four at most: a pixel and its soft edge, 1 / 0.6 times as large


@pytest.mark.parametrize(
    ("settings", "pictures", "words"),
    [
        ({}, torch.zeros(3, 8, 8), "rows, channels, height, width"),
        ({}, torch.zeros(0, 1, 8, 8), "rows, channels, height, width"),
        ({}, torch.full((1, 1, 8, 8), float("nan")), "finite"),
        ({"height": 0.0}, torch.zeros(1, 1, 8, 8), "height"),
        ({"width_share": -1.0}, torch.zeros(1, 1, 8, 8), "width_share"),
    ],
)
def test_bad_input_is_named(settings: dict[str, float], pictures: torch.Tensor, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        Upright(**settings).fit(pictures)
