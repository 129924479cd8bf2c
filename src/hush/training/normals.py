"""Standard normal numbers from a cryptographic stream, by Box and Muller's formula.

Two uniform numbers U and V become the pair R cos(2 pi V), R sin(2 pi V) with R = sqrt(-2 ln U) [Box, Muller 1958]. They
are made of 64 random bits each. Where U is small it gets 64 bits more, so that the tail is as fine as the middle: R
reaches 13.3, and a true normal pair goes further with a chance of 2^-128. Generators that make U of the 24 bits of a
float32 end at R = 5.8, which a model of a million parameters passes every thirty steps or so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from hush.rng import Rng

_LEAST, _MOST = 1 << 10, 1 << 17  # numbers made at a time: more would not stay in the cache
_SMALL = 1 << 43  # of 2^63: U below 2^-20 is drawn finer
_FINER_WORDS = 2  # one block of the cipher; the second word is not used


class NormalStream:
    """Independent N(0, 1) numbers of one dtype, never the same twice. Its state is secret and never on disk."""

    def __init__(self, rng: Rng, name: str, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self._words = rng.cipher_stream(name)
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
        first, second = torch.from_numpy(self._words.words(total)).chunk(2)
        self._fill_radius(radius, first)
        angle.copy_(second).mul_(2 * math.pi / 2**64)  # from -pi to pi
        torch.cos(angle, out=cosines).mul_(radius)
        torch.sin(angle, out=sines).mul_(radius)
        return self._room[:total]

    def _fill_radius(self, radius: Tensor, words: Tensor) -> None:
        # |word| / 2^63 is uniform and keeps its leading bits where it is small.
        radius.copy_(words).abs_()
        if radius.min() < _SMALL:
            self._refine(radius, words)
        radius.mul_(2.0**-63).log_().mul_(-2).sqrt_()

    def _refine(self, radius: Tensor, words: Tensor) -> None:
        for place in torch.nonzero(radius < _SMALL).flatten().tolist():
            more = int(self._finer.words(_FINER_WORDS)[0])
            radius[place] = abs(int(words[place])) + (more + 2**63 + 0.5) / 2**64
