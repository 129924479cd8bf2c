"""Standard normal numbers from a cryptographic stream, by Box and Muller's formula.

Two uniform numbers U and V become the pair R cos(2 pi V), R sin(2 pi V) with R = sqrt(-2 ln U) [Box, Muller 1958]. They
are made of 32 random bits each in float32 and of 64 in float64. Where U is small it gets 64 bits more, so that the tail
is as fine as the middle: R reaches 11.5 or 13.3, and a true normal pair goes further with a chance of 2^-95 or 2^-127.
Generators that make U of the 24 bits of a float32 end at R = 5.8, which a model of a million parameters passes every
thirty steps or so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from hush.rng import Rng

_LEAST, _MOST = 1 << 10, 1 << 18  # numbers made at a time: more would not stay in the cache


@dataclass(frozen=True)
class _Words:
    """How the words of the cipher become uniform numbers: |word| / 2^bits, drawn finer below `small`."""

    kind: type[numpy.signedinteger]
    bits: int
    small: float


_WORDS = {
    torch.float32: _Words(numpy.int32, bits=31, small=2.0**20),  # U below 2^-11 is drawn finer
    torch.float64: _Words(numpy.int64, bits=63, small=2.0**43),  # U below 2^-20
}


class NormalStream:
    """Independent N(0, 1) numbers of one dtype, never the same twice. Its state is secret and never on disk."""

    def __init__(self, rng: Rng, name: str, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self._form = _WORDS[dtype]
        self._per_word = 64 // (self._form.bits + 1)
        self._cipher = rng.cipher_stream(name)
        self._finer = rng.cipher_stream(f"{name}/tail")
        self._room = self._ready = torch.empty(0, dtype=dtype)

    def pieces(self, count: int, *, ahead: int = 0) -> Iterator[Tensor]:
        """The next `count` numbers in pieces that the caller may overwrite, and must use before it asks for more.

        `ahead` is how many will be wanted soon, these among them: making many at once is quicker.
        """
        while count:
            if not len(self._ready):
                self._ready = self._portion(max(count, ahead))
            piece = self._ready[:count]
            self._ready = self._ready[count:]
            count -= len(piece)
            yield piece

    def tensor(self, count: int, *, ahead: int = 0) -> Tensor:
        """The next `count` numbers in a tensor of their own."""
        result, start = torch.empty(count, dtype=self.dtype), 0
        for piece in self.pieces(count, ahead=ahead):
            result[start : start + len(piece)] = piece
            start += len(piece)
        return result

    def _portion(self, wanted: int) -> Tensor:
        total = min(max(_LEAST, 1 << (wanted - 1).bit_length()), _MOST)
        if len(self._room) != 2 * total:
            self._room = torch.empty(2 * total, dtype=self.dtype)
        cosines, sines, radius, angle = self._room.chunk(4)
        words = self._cipher.words(total // self._per_word).view(self._form.kind)
        first, second = torch.from_numpy(words).chunk(2)
        self._fill_radius(radius, first)
        angle.copy_(second).mul_(math.pi / 2.0**self._form.bits)  # from -pi to pi
        torch.cos(angle, out=cosines).mul_(radius)
        torch.sin(angle, out=sines).mul_(radius)
        return self._room[:total]

    def _fill_radius(self, radius: Tensor, words: Tensor) -> None:
        # |word| / 2^bits is uniform and keeps its leading bits where it is small.
        numbers = radius.copy_(words).abs_().numpy()  # compares, and serves few places, ten times as fast as torch
        small = numpy.flatnonzero(numbers < self._form.small)
        if len(small):
            numbers[small] = self._finer_than(words.numpy()[small])
        radius.mul_(2.0**-self._form.bits).log_().mul_(-2).sqrt_()

    def _finer_than(self, words: NDArray[numpy.signedinteger]) -> NDArray[numpy.float64]:
        """The same uniform numbers, before the division by 2^bits, with 64 more bits; never 0."""
        more = self._finer.words(len(words)).astype(numpy.float64)
        return numpy.abs(words.astype(numpy.float64)) + (more + 2.0**63 + 0.5) * 2.0**-64
