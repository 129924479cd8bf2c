"""Scattering: lengths of wavelet answers, and of wavelet answers of those, averaged. Nothing is learned.

A picture x is filtered by Morlet wavelets of `scales` sizes and `directions` directions; the moduli |x * w| are
filtered again by larger wavelets; x, the moduli and the moduli of moduli are averaged over windows of 2^scales pixels
[mallat12, bruna13]. With two scales and eight directions that is 81 maps a channel. Small shifts and
bends of a picture change little in it. Wavelets and their parameters are those of Kymatio [andreux20]. Wavelets act in
the Fourier domain, on batches that stay in the cache, and each answer is made only as fine as its band asks for:
frequencies that become the same are added before the way back. Averages are products with two small matrices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn import functional

from hush import _check
from hush.errors import InvalidValue
from hush.features.evened import mixing
from hush.features.pictures import checked

_AT_ONCE = 16  # planes
_SEED = 1  # of the pictures of nothing that mixing looks at


class Scattering(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Pictures (rows, channels, height, width) -> rows of scattering coefficients.

    Each picture is looked at alone, so that nothing is spent: there is no event.

    >>> Scattering().transform(torch.rand(2, 1, 28, 28)).shape
    (2, 3969)

    Args:
        scales: Sizes of wavelets; windows have 2^scales pixels a side.
        directions: Of the wavelets, over half a turn.
        root: Take the square root of the coefficients, which evens out their sizes.
        mix: Mix the maps so that each says something of its own (`evened`); the best for a linear model after a
            `PrivateScaler` without scaling.
        num_directions: With `mix`, how many mixed maps are kept, of those in which pictures differ most. None: all.
    """

    def __init__(
        self,
        scales: int = 2,
        *,
        directions: int = 8,
        root: bool = True,
        mix: bool = False,
        num_directions: int | None = None,
    ) -> None:
        self.scales = scales
        self.directions = directions
        self.root = root
        self.mix = mix
        self.num_directions = num_directions

    @torch.no_grad()
    def fit(self, X: Any, y: object = None) -> Scattering:
        """Nothing is learned from X but its shape; with `mix`, pictures of nothing of that shape are looked at."""
        shape = tuple(int(size) for size in self._checked(X).shape[1:])
        if self.mix:
            self.picture_shape_ = shape
            self.mixing_ = mixing(self._all, shape, seed=_SEED, kept=self.num_directions)
        return self

    @torch.no_grad()
    def transform(self, X: Any) -> NDArray[numpy.float32]:
        """The coefficients, channel by channel: (rows, channels x maps x windows)."""
        pictures = self._checked(X)
        if self.mix:
            check_is_fitted(self, "mixing_")
            if tuple(pictures.shape[1:]) != self.picture_shape_:
                raise InvalidValue(
                    f"X must hold pictures of shape {self.picture_shape_}, as in fit; got {tuple(pictures.shape[1:])}."
                )
        result, start = torch.empty(len(pictures), 0, 0), 0
        for part in self._all(pictures):
            maps = self.mixing_.T @ part if self.mix else part
            if not start:
                result = torch.empty(len(pictures), *maps.shape[1:])
            result[start : start + len(part)] = maps
            start += len(part)
        return result.flatten(1).numpy()

    def _all(self, pictures: Tensor) -> Iterator[Tensor]:
        """Maps (rows, channels x maps, windows) of a few pictures after another."""
        window, channels = 2**self.scales, pictures.shape[1]
        windows = (int(pictures.shape[2]) // window, int(pictures.shape[3]) // window)
        for part in pictures.split(max(1, _AT_ONCE // channels)):
            maps = self._maps(part.flatten(0, 1), windows).clamp_(min=0)
            yield (maps.sqrt_() if self.root else maps).reshape(len(part), -1, windows[0] * windows[1])

    def _maps(self, planes: Tensor, windows: tuple[int, int]) -> Tensor:
        """Planes (channels of pictures) -> (planes, maps, windows down, windows across)."""
        pads = []
        for size, count in zip(planes.shape[:0:-1], windows[::-1], strict=True):
            more = 2**self.scales * (count + 2) - size
            pads += [more // 2, more - more // 2]
        return _scatter(functional.pad(planes, pads, mode="reflect"), self.scales, self.directions, windows)

    def _checked(self, X: Any) -> Tensor:
        _check.whole("scales", self.scales)
        _check.whole("directions", self.directions)
        if self.num_directions is not None:
            _check.whole("num_directions", self.num_directions)
        return checked(X, 2 ** (self.scales + 1), divisor=4)


def _scatter(planes: Tensor, scales: int, directions: int, windows: tuple[int, int]) -> Tensor:
    """Averages of planes (count, height, width), of moduli and of moduli of moduli."""
    sides = (int(planes.shape[1]), int(planes.shape[2]))

    def average(maps: Tensor, coarser: int) -> Tensor:
        down, across = _averaging(sides, windows, scales, coarser)
        return down @ (maps @ across)

    averages = [average(planes, 1)[:, None]]
    spectra = torch.fft.fft2(planes)
    for one in range(scales):
        first = _moduli(spectra, _folded_wavelets(*sides, one, directions, 1, 2**one))
        averages.append(average(first, 2**one))
        inner = torch.fft.fft2(first).flatten(0, 1) if one + 1 < scales else None
        for other in range(one + 1, scales):
            assert inner is not None
            second = _moduli(inner, _folded_wavelets(*sides, other, directions, 2**one, 2 ** (other - one)))
            averages.append(average(second, 2**other).reshape(len(planes), -1, *windows))
    return torch.cat(averages, dim=1)


def _moduli(spectra: Tensor, wavelets: Tensor) -> Tensor:
    """|x * w| for spectra (count, ...) and each wavelet, `times` times coarser: (count, wavelets, height, width).

    Wavelets are (times, times, wavelets, numbers): those numbers that meet in one coarse frequency come in turn. Their
    spectra are real, so that they multiply real and imaginary parts alike.
    """
    times = len(wavelets)
    down, across = spectra.shape[1] // times, spectra.shape[2] // times
    total = torch.zeros(())
    for row, column in itertools.product(range(times), repeat=2):
        block = spectra[:, row * down : (row + 1) * down, column * across : (column + 1) * across]
        numbers = torch.view_as_real(block).reshape(len(block), 1, -1)
        many = wavelets[row, column]
        total = total.addcmul_(numbers, many) if row or column else numbers * many
    answers = torch.fft.ifft2(torch.view_as_complex(total.view(len(spectra), -1, down, across, 2)))
    real, imaginary = torch.view_as_real(answers).unbind(-1)
    return real.square().addcmul_(imaginary, imaginary).sqrt_()  # three times quicker than abs


@lru_cache(maxsize=32)
def _folded_wavelets(down: int, across: int, scale: int, directions: int, coarser: int, times: int) -> Tensor:
    """Wavelets for pictures that are `coarser`, arranged for answers that are `times` coarser still, each number twice.

    To keep every n-th pixel is, in the Fourier domain, to add up n x n numbers (of a picture: to average them).
    """
    whole = _wavelets(down, across, scale, directions)
    whole = whole.reshape(directions, coarser, down // coarser, coarser, across // coarser).sum(dim=(1, 3)) / times**2
    blocks = whole.reshape(directions, times, down // coarser // times, times, across // coarser // times)
    return blocks.permute(1, 3, 0, 2, 4).flatten(3).repeat_interleave(2, dim=-1).contiguous()


@lru_cache(maxsize=32)
def _averaging(sides: tuple[int, int], windows: tuple[int, int], scales: int, coarser: int) -> tuple[Tensor, Tensor]:
    """Matrices that average columns and rows under a Gaussian hill around each window but the outermost."""
    width, found = 0.8 * 2 ** (scales - 1), []
    for side, count in zip(sides, windows, strict=True):
        places = torch.arange(-2 * side, 3 * side, dtype=torch.float64)
        hill = torch.exp(-places.square() / (2 * width**2)).reshape(5, side).sum(dim=0) / math.sqrt(2 * math.pi) / width
        centres, pixels = 2**scales * torch.arange(1, count + 1), torch.arange(0, side, coarser)
        found.append((coarser * hill[(centres[:, None] - pixels) % side]).to(torch.float32))
    return found[0], found[1].T.contiguous()


@lru_cache(maxsize=32)
def _wavelets(down: int, across: int, scale: int, directions: int) -> Tensor:
    """Fourier transforms of Morlet wavelets: waves under a hill, less the hill that gives them a mean of 0."""
    width, frequency, slant = 0.8 * 2**scale, 0.75 * math.pi / 2**scale, 4 / directions
    found = []
    for turn in range(directions):
        angle = (int(directions - directions / 2 - 1) - turn) * math.pi / directions
        wave, hill = (_hill(down, across, width, angle, wanted, slant) for wanted in (frequency, 0.0))
        found.append(torch.fft.fft2(wave - wave.sum() / hill.sum() * hill).real)
    return torch.stack(found)


def _hill(down: int, across: int, width: float, angle: float, frequency: float, slant: float) -> Tensor:
    """A Gaussian hill times a wave along its angle, repeated with the period of the picture."""
    rows, columns = (torch.arange(-2 * size, 3 * size, dtype=torch.float64) for size in (down, across))
    x, y = torch.meshgrid(rows, columns, indexing="ij")
    cos, sin = math.cos(angle), math.sin(angle)
    along, beside = x * cos + y * sin, y * cos - x * sin
    phase = torch.complex(torch.zeros_like(along), frequency * along)
    hill = torch.exp(-(along.square() + (slant * beside).square()) / (2 * width**2) + phase)
    whole = hill.reshape(5, down, 5, across).sum(dim=(0, 2))
    return (whole / (2 * math.pi * width**2 / slant)).to(torch.complex64)
