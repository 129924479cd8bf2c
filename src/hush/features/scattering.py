"""Scattering: lengths of wavelet answers, and of wavelet answers of those, averaged. Nothing is learned.

A picture x is filtered by Morlet wavelets of `scales` sizes and `directions` directions; the moduli |x * w| are
filtered again by larger wavelets; x, the moduli and the moduli of moduli are averaged over windows of 2^scales pixels
[mallat12, bruna13]. With two scales and eight directions that is 81 maps a channel. Small shifts and
bends of a picture change little in it. Wavelets and their parameters are those of Kymatio [andreux20]; all
products are taken on whole batches in the Fourier domain, and each result is made only as fine as its band asks for.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from torch import Tensor
from torch.nn import functional

from hush import _check
from hush.errors import InvalidValue

_AT_ONCE = 128


class Scattering(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Pictures (rows, channels, height, width) -> rows of scattering coefficients.

    Each picture is looked at alone, so that nothing is spent: there is no event.

    >>> Scattering().transform(torch.rand(2, 1, 28, 28)).shape
    (2, 3969)

    Args:
        scales: Sizes of wavelets; windows have 2^scales pixels a side.
        directions: Of the wavelets, over half a turn.
        root: Take the square root of the coefficients, which evens out their sizes.
    """

    def __init__(self, scales: int = 2, *, directions: int = 8, root: bool = True) -> None:
        self.scales = scales
        self.directions = directions
        self.root = root

    def fit(self, X: Any, y: object = None) -> Scattering:
        """Nothing is learned; the settings are checked."""
        self._checked(X)
        return self

    @torch.no_grad()
    def transform(self, X: Any) -> NDArray[numpy.float32]:
        """The coefficients, channel by channel: (rows, channels x maps x windows)."""
        pictures = self._checked(X)
        maps = [self._maps(part) for part in pictures.split(_AT_ONCE)]
        result = torch.cat(maps).flatten(1).clamp_(min=0)
        return (result.sqrt_() if self.root else result).numpy()

    def _maps(self, pictures: Tensor) -> Tensor:
        """(rows, channels, maps, windows down, windows across)."""
        window = 2**self.scales
        sides = [window * (size // window + 2) for size in pictures.shape[2:]]
        before = [(side - size) // 2 for side, size in zip(sides, pictures.shape[2:], strict=True)]
        pads = [
            before[1],
            sides[1] - pictures.shape[3] - before[1],
            before[0],
            sides[0] - pictures.shape[2] - before[0],
        ]
        wide = torch.fft.fft2(functional.pad(pictures, pads, mode="reflect"))
        averages = _scatter(wide, self.scales, self.directions)
        down, across = (size // window for size in pictures.shape[2:])
        return averages[..., 1 : down + 1, 1 : across + 1]

    def _checked(self, X: Any) -> Tensor:
        _check.whole("scales", self.scales)
        _check.whole("directions", self.directions)
        pictures = torch.as_tensor(X, dtype=torch.float32)
        least = 2 ** (self.scales + 1)
        if pictures.ndim != 4 or min(pictures.shape[2:]) < least or any(size % 4 for size in pictures.shape[2:]):
            raise InvalidValue(
                f"X must hold pictures (rows, channels, height, width) with sides that 4 divides, of at least {least} "
                f"pixels; got shape {tuple(pictures.shape)}."
            )
        return pictures


def _scatter(wide: Tensor, scales: int, directions: int) -> Tensor:
    """Averages of the picture, of moduli and of moduli of moduli; `wide` is the picture's Fourier transform."""
    window, sides = 2**scales, (int(wide.shape[-2]), int(wide.shape[-1]))
    low = _lowpass(*sides, scales)
    averages = [_average(wide, low, window)[..., None, :, :]]
    for one in range(scales):
        first = _moduli(wide, _wavelets(*sides, one, directions), 2**one)  # (..., directions, side / 2^one)
        averages.append(_average(first, _folded(low, 2**one), window >> one))
        for other in range(one + 1, scales):
            second = _moduli(first, _folded(_wavelets(*sides, other, directions), 2**one), 2 ** (other - one))
            averages.append(_average(second, _folded(low, 2**other), window >> other).flatten(-4, -3))
    return torch.cat(averages, dim=-3)


def _moduli(spectrum: Tensor, wavelets: Tensor, coarser: int) -> Tensor:
    """The Fourier transform of |x * w| for each wavelet, `coarser` times coarser than x."""
    answers = torch.fft.ifft2(_folded(spectrum[..., None, :, :] * wavelets, coarser, mean=True))
    return torch.fft.fft2(answers.abs())


def _average(spectrum: Tensor, low: Tensor, coarser: int) -> Tensor:
    return torch.fft.ifft2(_folded(spectrum * low, coarser, mean=True)).real


def _folded(spectrum: Tensor, times: int, *, mean: bool = False) -> Tensor:
    """Every `times`-th pixel kept, in the Fourier domain: frequencies that become the same are added (or averaged)."""
    if times == 1:
        return spectrum
    down, across = spectrum.shape[-2] // times, spectrum.shape[-1] // times
    parts = spectrum.reshape(*spectrum.shape[:-2], times, down, times, across)
    return parts.mean(dim=(-4, -2)) if mean else parts.sum(dim=(-4, -2))


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


@lru_cache(maxsize=32)
def _lowpass(down: int, across: int, scales: int) -> Tensor:
    return torch.fft.fft2(_hill(down, across, 0.8 * 2 ** (scales - 1), 0.0, 0.0, 1.0)).real


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
