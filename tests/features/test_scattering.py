"""Scattering against a slow computation in space, pixel by pixel."""

from __future__ import annotations

import itertools
import math

import numpy
import pytest
import torch

from hush.errors import InvalidValue
from hush.features import Scattering, evened, scattering
from hush.features.dead_leaves import dead_leaves


def wave(side: int, scale: int, turn: int, directions: int) -> numpy.ndarray:
    """A Morlet wavelet on a circle of `side` pixels, by its formula [Bruna, Mallat 2013, section 2]."""
    width, frequency, slant = 0.8 * 2**scale, 0.75 * math.pi / 2**scale, 4 / directions
    angle = (int(directions - directions / 2 - 1) - turn) * math.pi / directions
    hill = numpy.zeros((side, side))
    result = numpy.zeros((side, side), dtype=complex)
    for down, across in itertools.product(range(-2 * side, 3 * side), repeat=2):
        along = down * math.cos(angle) + across * math.sin(angle)
        beside = across * math.cos(angle) - down * math.sin(angle)
        height = math.exp(-(along**2 + (slant * beside) ** 2) / (2 * width**2)) / (2 * math.pi * width**2 / slant)
        hill[down % side, across % side] += height
        result[down % side, across % side] += height * numpy.exp(1j * frequency * along)
    return result - result.sum() / hill.sum() * hill


def blur(side: int, scales: int) -> numpy.ndarray:
    width = 0.8 * 2 ** (scales - 1)
    result = numpy.zeros((side, side))
    for down, across in itertools.product(range(-2 * side, 3 * side), repeat=2):
        height = math.exp(-(down**2 + across**2) / (2 * width**2)) / (2 * math.pi * width**2)
        result[down % side, across % side] += height
    return result


def convolved(picture: numpy.ndarray, kernel: numpy.ndarray) -> numpy.ndarray:
    """On a circle, by summing shifted copies."""
    side = len(picture)
    places = itertools.product(range(side), repeat=2)
    return sum(kernel[place] * numpy.roll(picture, place, axis=(0, 1)) for place in places)


def coarse(maps: numpy.ndarray) -> numpy.ndarray:
    """Every second pixel; of a kernel four times as high, so that sums stay what they are."""
    return maps[::2, ::2]


def test_the_coefficients_are_those_of_the_definition() -> None:
    """Answers of the larger wavelets are kept at every second pixel, before they are averaged, as in Kymatio."""
    directions = 2
    picture = numpy.random.default_rng(0).random((8, 8))
    padded = numpy.pad(picture, 4, mode="reflect")
    small, large = ([wave(16, scale, turn, directions) for turn in range(directions)] for scale in (0, 1))
    low = blur(16, 2)
    first = [abs(convolved(padded, one)) for one in small]
    second = [coarse(abs(convolved(one, other))) for one in first for other in large]
    coarser = [coarse(abs(convolved(padded, one))) for one in large]
    fine = [convolved(one, low)[4:12:4, 4:12:4] for one in (padded, *first)]
    rest = [convolved(one, 4 * coarse(low))[2:6:2, 2:6:2] for one in (*second, *coarser)]
    wanted = numpy.stack([*fine, *rest]).ravel()
    found = Scattering(2, directions=directions, root=False).transform(picture[None, None])[0]
    assert numpy.abs(found - wanted).max() < 1e-5


def by_whole_spectra(pictures: torch.Tensor, scales: int, directions: int) -> torch.Tensor:
    """Each map on its own by full Fourier transforms; pixels are dropped and averages taken afterwards."""
    window = 2**scales
    more = [window * (size // window + 2) - size for size in pictures.shape[2:]]
    pads = [more[1] // 2, more[1] - more[1] // 2, more[0] // 2, more[0] - more[0] // 2]
    padded = torch.nn.functional.pad(pictures, pads, mode="reflect").to(torch.float64)
    sides = padded.shape[2:]
    wavelets = [scattering._wavelets(*sides, scale, directions).to(torch.float64) for scale in range(scales)]
    hill = torch.fft.fft2(scattering._hill(*sides, 0.8 * 2 ** (scales - 1), 0.0, 0.0, 1.0).to(torch.complex128)).real

    def filtered(maps: torch.Tensor, kernel: torch.Tensor, finer: int, coarser: int) -> torch.Tensor:
        """Maps that are already `finer` times coarse, filtered, then `coarser` times coarser still."""
        small = finer**2 * torch.fft.ifft2(kernel)[::finer, ::finer]
        return torch.fft.ifft2(torch.fft.fft2(maps) * torch.fft.fft2(small))[..., ::coarser, ::coarser]

    down, across = (size // window for size in pictures.shape[2:])

    def average(maps: torch.Tensor, finer: int) -> torch.Tensor:
        return filtered(maps, hill, finer, window // finer).real[..., 1 : down + 1, 1 : across + 1]

    found = [average(padded, 1)]
    for one in range(scales):
        first = [filtered(padded, kernel, 1, 2**one).abs() for kernel in wavelets[one]]
        found += [average(maps, 2**one) for maps in first]
        for other in range(one + 1, scales):
            times = 2 ** (other - one)
            second = [filtered(maps, kernel, 2**one, times).abs() for maps in first for kernel in wavelets[other]]
            found += [average(maps, 2**other) for maps in second]
    return torch.stack(found, dim=2)


@pytest.mark.parametrize("scales", [1, 2, 3])
@pytest.mark.parametrize("shape", [(3, 2, 32, 32), (17, 1, 28, 28), (2, 1, 32, 24)])
def test_the_quick_form_has_the_numbers_of_the_plain_one(shape: tuple[int, ...], scales: int) -> None:
    pictures = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    plain = by_whole_spectra(pictures, scales, 4).flatten(1).numpy()
    found = Scattering(scales, directions=4, root=False).transform(pictures)
    assert found.shape == plain.shape
    assert numpy.abs(found - plain).max() < 2e-6


@pytest.mark.parametrize("mix", [False, True])
def test_a_picture_is_looked_at_alone(mix: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evened, "_PICTURES", 50)
    pictures = torch.rand(5, 2, 16, 16)
    model = Scattering(mix=mix).fit(pictures)
    assert numpy.allclose(model.transform(pictures)[3:4], model.transform(pictures[3:4]), atol=1e-6)


def test_mixed_maps_of_pictures_of_nothing_are_even() -> None:
    nothing = dead_leaves(1_000, 16, 1, 1)
    spreads = []
    for mix in (False, True):
        maps = Scattering(directions=2, mix=mix).fit_transform(nothing).reshape(1_000, 9, 16)
        rows = (maps - maps.mean(axis=(0, 2), keepdims=True)).transpose(0, 2, 1).reshape(-1, 9)
        values = numpy.linalg.eigvalsh(rows.T @ rows)
        spreads.append(float(values[-1] / values[4]))
    assert spreads[1] < spreads[0] / 4


def test_small_shifts_change_less_than_pixels_do() -> None:
    picture = torch.zeros(1, 1, 32, 32)
    picture[:, :, 10:22, 14:18] = 1
    moved = picture.roll(1, dims=3)
    one, other = (Scattering().transform(x)[0] for x in (picture, moved))
    change = numpy.linalg.norm(one - other) / numpy.linalg.norm(one)
    assert change < 0.5 * float((picture - moved).norm() / picture.norm())


@pytest.mark.parametrize("shape", [(3, 28, 28), (3, 1, 4, 28), (3, 1, 27, 28)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidValue, match="sides that 4 divides"):
        Scattering().fit(torch.zeros(shape))


def test_pictures_of_another_shape_or_none_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evened, "_PICTURES", 20)
    mixed = Scattering(mix=True).fit(torch.rand(2, 1, 12, 12))
    for other in (torch.rand(2, 1, 16, 16), torch.rand(2, 3, 12, 12)):
        with pytest.raises(InvalidValue, match="as in fit"):
            mixed.transform(other)
    with pytest.raises(InvalidValue, match="must hold pictures"):
        Scattering().transform(torch.rand(0, 1, 12, 12))
    with pytest.raises(InvalidValue, match="finite"):
        Scattering().transform(torch.full((1, 1, 12, 12), torch.nan))
