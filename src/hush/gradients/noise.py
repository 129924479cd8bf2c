"""Gaussian noise on gradients.

    >>> import torch
    >>> noise = NoiseSource(Rng.from_seed(7))
    >>> gradients = noise.add({"weight": torch.zeros(2, 3)}, stddev=1.5)
    >>> gradients["weight"].shape
    torch.Size([2, 3])

The random numbers come from a cipher in every case. `secure=True` also hides what floating-point numbers tell: the
noisy sum is rounded to a grid, a power of two between 2^-17 and 2^-16 of the standard deviation, and what leaves is a
multiple of it. The set of possible outputs is then the grid, whatever the data [Mironov 2012]. Rounding comes after the
noise, so it costs nothing and the noise needs no enlarging. How far this is from real numbers:
docs/theory/secure-noise.md.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hush import _check
from hush.errors import InvalidValue
from hush.gradients.normals import NormalStream
from hush.rng import Rng, StreamLock

GRID_BITS = 16  # the standard deviation is 2^16 to 2^17 steps of the grid
_RANGE_BITS = 50  # sums beyond 2^50 steps of the grid are held there: more would not be exact in 53 bits
_EXPONENTS = 400  # secure noise is for standard deviations from 2^-400 to 2^400


def add_noise(gradients: dict[str, Tensor], stddev: float, rng: Rng, *, secure: bool = False) -> dict[str, Tensor]:
    """Independent N(0, stddev^2) on every coordinate, in place; no two calls with one `rng` add the same noise.

    A loop should keep one `NoiseSource` instead, which is quicker.
    """
    return NoiseSource(rng, secure=secure).add(gradients, stddev)


class NoiseSource:
    """A source of Gaussian noise that goes on from step to step and never repeats itself.

    Two sources share no noise, be they made from two `Rng`s or from one. A seeded `Rng` gives its first, second, ...
    source the same noise in every program that asks in the same order.

    Args:
        rng: Where the key comes from; no global seed changes it.
        secure: Round to the grid, at a little more time.
    """

    def __init__(self, rng: Rng, *, secure: bool = False) -> None:
        self.secure = secure
        self._rng, self._name = rng, rng.unused("noise")
        self._streams: dict[torch.dtype, NormalStream] = {}
        self._lock = StreamLock()  # threads that share a source take turns: the numbers stand in one buffer

    def add(self, gradients: dict[str, Tensor], stddev: float) -> dict[str, Tensor]:
        """Add independent N(0, stddev^2) to every coordinate, in place, and give the same dictionary back.

        | case | result |
        |---|---|
        | no gradients, or an empty tensor | nothing to do |
        | stddev 0, NaN or infinite | refused |
        | half precision | noise in float32, rounded once |
        | a gradient that is not on the CPU | noise is made on the CPU and moved |
        | secure, and a sum is NaN or beyond 2^33 standard deviations | counts as 0, or as that bound |
        """
        scale = _check.positive("stddev", stddev)
        total = sum([gradient.numel() for gradient in gradients.values()])
        with self._lock:
            for name, gradient in gradients.items():
                self._add_to(name, gradient, scale, total)
        return gradients

    def _add_to(self, name: str, gradient: Tensor, scale: float, total: int) -> None:
        numbers = self.normals(name, gradient)
        row, start = flat(gradient), 0
        if self.secure:
            hold_in_range(row, scale)
        for piece in numbers.pieces(row.numel(), ahead=total):
            end = start + piece.shape[0]
            part = row if end - start == row.numel() else row[start:end]
            add_on_grid(part, piece, scale, scale) if self.secure else add_plain(part, piece, scale)
            start = end
        write_back(gradient, row)

    def normals(self, name: str, gradient: Tensor) -> NormalStream:
        """The stream that serves this gradient: in float64 for secure noise and for a float64 gradient."""
        if not gradient.is_floating_point():
            raise InvalidValue(f"gradient {name!r} must be of floating-point numbers; got {gradient.dtype}.")
        dtype = torch.float64 if self.secure or gradient.dtype == torch.float64 else torch.float32
        if dtype not in self._streams:
            self._streams[dtype] = NormalStream(self._rng, f"{self._name}/{dtype}", dtype)
        return self._streams[dtype]

    def __getstate__(self) -> object:
        raise TypeError("a NoiseSource is not written to disk: its state would undo the noise; make a new one instead.")


def add_plain(part: Tensor, normals: Tensor, stddev: float) -> None:
    """`part` plus `stddev` times the normals, in place."""
    part.add_(normals if part.is_cpu else normals.to(part.device), alpha=stddev)


def add_on_grid(part: Tensor, normals: Tensor, stddev: float, grid_stddev: float) -> None:
    """The same in float64, rounded to the grid that belongs to `grid_stddev`.

    Adding and taking off 1.5 * 2^52 grid steps rounds to the grid: a float64 of that size has no finer digits. What
    goes into the parameter's dtype is a multiple of the grid, exactly or by a rounding that sees nothing else.
    """
    lift = 1.5 * 2.0**52 * grid_of(grid_stddev)
    noisy = part.to(normals.device, torch.float64)  # operations on mixed dtypes are slower than this copy
    part.copy_(noisy.add_(normals, alpha=stddev).add_(lift).sub_(lift))


def grid_of(stddev: float) -> float:
    """The grid of secure noise: the power of two with 2^16 <= stddev / grid < 2^17.

    >>> grid_of(1.5) == 2.0**-16
    True
    """
    exponent = math.frexp(stddev)[1] - 1
    if abs(exponent) > _EXPONENTS:
        raise InvalidValue(f"stddev of secure noise must be within 2^-{_EXPONENTS} and 2^{_EXPONENTS}; got {stddev!r}.")
    return math.ldexp(1.0, exponent - GRID_BITS)


def hold_in_range(row: Tensor, stddev: float) -> None:
    """NaN to 0 and huge values to the bound: holding a coordinate in a range brings no two sums further apart."""
    if not len(row):
        return
    bound = grid_of(stddev) * 2.0**_RANGE_BITS
    low, high = torch.aminmax(row)
    if not (low >= -bound and high <= bound):  # false for NaN as well
        largest = min(bound, torch.finfo(row.dtype).max)
        row.nan_to_num_(nan=0.0).clamp_(-largest, largest)


def flat(gradient: Tensor) -> Tensor:
    """The gradient as one row, without its graph; a copy only where it is not laid out in one piece."""
    return gradient.detach().reshape(-1)


def write_back(gradient: Tensor, row: Tensor) -> None:
    """Copy the row back if `flat` had to copy it."""
    if row.numel() and row.untyped_storage()._cdata != gradient.untyped_storage()._cdata:
        gradient.detach().copy_(row.view(gradient.shape))
