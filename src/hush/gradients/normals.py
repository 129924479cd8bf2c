"""Standard normal numbers from a cryptographic stream, by Box and Muller's formula.

Two uniform numbers U and V become the pair R cos(2 pi V), R sin(2 pi V) with R = sqrt(-2 ln U) [Box, Muller 1958]. They
are made of 32 random bits each in float32 and of 64 in float64. So that the tail is as fine as the middle, U is either
p F with a chance of p, where F has 128 bits, or p + (1 - p) F with 32 or 64: uniform again. R reaches 13.9 or 14.4.
Generators that make U of the 24 bits of a float32 end at R = 5.8, which a model of a million parameters passes every
thirty steps or so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from hush.rng import CipherStream, Rng

_LEAST, _MOST = 1 << 10, 1 << 19  # numbers made at a time: more would not stay in the cache
_AHEAD = 1 << 19  # numbers made ahead of the steps that will ask for them
_TAILS = 1024  # numbers of the tail, likewise


@dataclass(frozen=True)
class _Words:
    """How the words of the cipher become uniform numbers: the share `tail` of them is drawn finer."""

    kind: type[numpy.signedinteger]
    bits: int
    tail: float


_WORDS = {
    torch.float32: _Words(numpy.int32, bits=31, tail=2.0**-11),
    torch.float64: _Words(numpy.int64, bits=63, tail=2.0**-20),
}


class NormalStream:
    """Independent N(0, 1) numbers of one dtype, never the same twice. Its state is secret and never on disk."""

    def __init__(self, rng: Rng, name: str, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self._form = _WORDS[dtype]
        self._per_word = 64 // (self._form.bits + 1)
        self._cipher = rng.cipher_stream(name)
        self._tail = _Tail(rng.cipher_stream(f"{name}/tail"), self._form.tail)
        self._least = torch.tensor(self._form.tail, dtype=dtype)
        self._room = torch.empty(3, 0, 0, dtype=dtype)
        self._words: NDArray[numpy.int64] = numpy.empty(0, dtype=numpy.int64)
        self._halves: Sequence[Tensor] = ()
        self._ready: list[Tensor] = []  # the last one comes first
        self._used = 0  # numbers of the last one that were given out

    def pieces(self, count: int, *, ahead: int = 0) -> Iterator[Tensor]:
        """The next `count` numbers in pieces that the caller must use before it asks for more.

        `ahead` is how many will be wanted soon, these among them: making many at once is quicker.
        """
        self._cipher.require_own()  # numbers made before a fork would come twice
        while count:
            if not self._ready:
                self._ready = self._portions(max(count, ahead))[::-1]
            numbers = self._ready[-1]
            left = numbers.shape[0] - self._used
            if count < left:
                start, self._used = self._used, self._used + count
                yield numbers[start : self._used]
                return
            self._ready.pop()
            start, self._used = self._used, 0
            count -= left
            yield numbers[start:] if start else numbers

    def tensor(self, count: int, *, ahead: int = 0) -> Tensor:
        """The next `count` numbers in a tensor of their own."""
        result, start = torch.empty(count, dtype=self.dtype), 0
        for piece in self.pieces(count, ahead=ahead):
            end = start + piece.shape[0]
            result[start:end] = piece
            start = end
        return result

    def _portions(self, wanted: int) -> list[Tensor]:
        """Radii times cosines, and times sines; of several portions, where one size is asked for again.

        A step that needs few numbers finds neither code nor data in the cache, and pays as much for that as for them.
        """
        share = -(-wanted // -(-wanted // _MOST))  # as many portions as must be, of one size
        half = max(_LEAST, share + -share % 4) // 2
        _, times, size = self._room.shape
        times = min(2 * times, max(1, _AHEAD // (2 * half))) if half == size else 1
        if self._room.shape != (3, times, half):
            self._room = torch.empty(3, times, half, dtype=self.dtype)
        cosines, angle, radius = self._room
        first, second = self._halves_of(self._cipher.words(times * 2 * half // self._per_word), times)
        self._fill_radius(radius, first)
        angle.copy_(second).mul_(math.pi / 2.0**self._form.bits)  # from -pi to pi
        torch.cos(angle, out=cosines).mul_(radius)
        angle.sin_().mul_(radius)
        return [wave[at] for at in range(times) for wave in (cosines, angle)]

    def _halves_of(self, words: NDArray[numpy.int64], times: int) -> Sequence[Tensor]:
        if words is not self._words or len(self._halves[0]) != times:
            rows = torch.from_numpy(words.view(self._form.kind)).view(times, 2, -1)
            self._words, self._halves = words, rows.unbind(1)
        return self._halves

    def _fill_radius(self, radius: Tensor, words: Tensor) -> None:
        least, scale = self._form.tail, 2.0**-self._form.bits
        torch.add(self._least, radius.copy_(words).abs_(), alpha=(1 - least) * scale, out=radius)
        places, values = self._tail.of(words.numel())
        radius.view(-1).numpy()[places] = values
        radius.log_().mul_(-2).sqrt_()


class _Tail:
    """Which of a row of uniform numbers are below `share`, and what they are, to 128 bits.

    The gaps between them are geometric: floor(ln V / ln(1 - share)) for a uniform V [Devroye 1986, section X.2].
    """

    def __init__(self, stream: CipherStream, share: float) -> None:
        self._stream, self._share = stream, share
        self._places, self._values = numpy.empty(0), numpy.empty(0)  # of the row that comes next

    def of(self, count: int) -> tuple[NDArray[numpy.intp], NDArray[numpy.float64]]:
        """Places and values among the next `count` numbers."""
        while not len(self._places) or self._places[-1] < count:
            self._draw()
        end = int(self._places.searchsorted(count))
        places, values = self._places[:end].astype(numpy.intp), self._values[:end]
        self._places, self._values = self._places[end:] - count, self._values[end:]
        return places, values

    def _draw(self) -> None:
        gap, high, low = self._stream.words(3 * _TAILS).reshape(3, -1).astype(numpy.float64) + 2.0**63
        gap = numpy.floor(numpy.log((gap + 0.5) * 2.0**-64) / math.log1p(-self._share))
        last = self._places[-1] if len(self._places) else -1.0
        values = (high + (low + 0.5) * 2.0**-64) * (self._share * 2.0**-64)
        self._places = numpy.concatenate([self._places, last + numpy.cumsum(gap + 1)])
        self._values = numpy.concatenate([self._values, values])
