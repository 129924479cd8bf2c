"""Exact random draws, many at a time.

Every draw starts from 64 random bits and is computed in floating point together with a margin that is far larger than
the error can be. Where the margin leaves the result open, about once in ten thousand, `hush.mechanisms.exact` decides
with more bits and more digits. So the law is exact and the cost that of floating point.

The margins: a 64-bit word u stands for a uniform number in [u, u + 1) / 2^64. Words below 2^48 always go the exact way.
For the others -ln(u / 2^64) is known to 1/u <= 2^-48, plus the error of numpy's logarithm, which is a few units in the
last place of a number below 12. `_SLACK` = 2^-42 is taken for the sum, and `_RELATIVE` = 2^-40 for a probability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context
from fractions import Fraction
from functools import cached_property

import numpy
from numpy.typing import NDArray

from hush.mechanisms import exact
from hush.rng import CipherStream, Rng

Floats = NDArray[numpy.float64]
Integers = NDArray[numpy.int64]
Booleans = NDArray[numpy.bool_]
Words = NDArray[numpy.uint64]

_TAIL = numpy.uint64(1 << 48)
_SLACK = 2.0**-42
_RELATIVE = 2.0**-40
_WHOLE = 2.0**64
_FARTHEST = 1e6  # e^-1e6 is 0 in floating point, so that larger exponents are settled alike, or exactly
_MOST_AT_ONCE = 1 << 16  # numbers made at a time: more would not stay in the cache


@dataclass(frozen=True)
class Line:
    """The map x -> offset + shift + sign * scale * x, with an offset and a sign for each draw; x is never negative."""

    scale: float
    signs: Integers
    offsets: Floats | None = None
    shift: float = 0.0

    def values(self, places: Integers, x: Floats) -> Floats:
        """The map at these places, in floating point."""
        result = self.signs[places] * x * self.scale + self.shift
        return result if self.offsets is None else result + self.offsets[places]

    def margin(self, values: Floats) -> Floats:
        """More than the values' error, for an x that is known to 2^-42."""
        result: Floats = _SLACK * (self.scale + 2.0) + 2.0**-51 * numpy.abs(values)
        return result

    def exactly(self, place: int) -> tuple[Fraction, Fraction, int]:
        """Scale, offset and sign at this place."""
        offset = 0 if self.offsets is None else Fraction(float(self.offsets[place]))
        return Fraction(self.scale), Fraction(self.shift) + offset, int(self.signs[place])


class Draws:
    """One stream of exact draws. Silence means fresh entropy from the operating system."""

    def __init__(self, rng: Rng | None = None) -> None:
        source = Rng() if rng is None else rng
        name = source.unused("mechanisms")
        self._stream = source.cipher_stream(name)
        self._source, self._name = source, name

    def words(self, count: int) -> Words:
        """Random 64-bit words."""
        return self._stream.words(count).view(numpy.uint64).copy()

    def uniform(self, word: int) -> exact.LazyUniform:
        """The uniform number that starts with this word."""
        return exact.LazyUniform(word, self._more)

    @cached_property
    def _more(self) -> CipherStream:
        """The stream of the digits after the first 64; seldom needed, and slow to open."""
        return self._source.cipher_stream(f"{self._name}/more")

    def signs(self, count: int) -> Integers:
        """+1 and -1, each with chance 1/2."""
        bits = numpy.unpackbits(self.words((count + 63) // 64).view(numpy.uint8))[:count]
        return 1 - 2 * bits.astype(numpy.int64)

    def below(self, bound: int, count: int) -> Integers:
        """Uniform whole numbers of 0 .. bound - 1: words cut to the bound's bits, drawn again where too large."""
        mask = numpy.uint64((1 << (bound - 1).bit_length()) - 1)
        result = self.words(count) & mask
        while len(late := numpy.flatnonzero(result >= numpy.uint64(bound))):
            result[late] = self.words(len(late)) & mask
        return result.astype(numpy.int64)

    def order(self, count: int) -> Integers:
        """A uniform permutation: the order of distinct random words."""
        while True:
            words = self.words(count)
            if len(numpy.unique(words)) == count:
                return numpy.argsort(words).astype(numpy.int64)

    def accept(self, exponents: Floats, exponent_at: Callable[[int], Fraction]) -> Booleans:
        """True with chance e^-exponent, place by place; `exponent_at` gives the exact exponent of a place.

        The exponents in floating point may be off by 2^-42 (1 + exponent).
        """
        exponents = numpy.minimum(exponents, _FARTHEST)
        chances = numpy.exp(-exponents) * _WHOLE
        words = self.words(len(exponents))
        gap = chances - words.astype(numpy.float64)
        result: Booleans = gap > 0
        for place in numpy.flatnonzero(numpy.abs(gap) <= chances * (_RELATIVE * (1 + exponents)) + 4.0).tolist():
            result[place] = exact.is_below_exp(self.uniform(int(words[place])), exponent_at(place))
        return result

    def flip(self, count: int, chance: float, interval: Callable[[Context], exact.Interval]) -> Booleans:
        """`count` coins with one chance, known in floating point to 2^-42 and as an interval to any precision."""
        words = self.words(count)
        gap = chance * _WHOLE - words.astype(numpy.float64)
        result: Booleans = gap > 0
        for place in numpy.flatnonzero(numpy.abs(gap) <= _WHOLE * _RELATIVE).tolist():
            result[place] = exact.is_below(self.uniform(int(words[place])), interval)
        return result

    def floor_exponentials(self, line: Line) -> Integers:
        """The floor of the line at E, exponential with mean 1, one for each sign of the line."""
        return _in_portions(lambda places: self._proposals(line, places, normal=False)[0], len(line.signs))

    def floor_normals(self, line: Line) -> Integers:
        """The floor of the line at |Z|, Z standard normal, one for each sign of the line.

        E is kept with chance exp(-(E - 1)^2 / 2) and then has the law of |Z|; 76 of 100 are.
        """

        def portion(places: Integers) -> Integers:
            result, open_places = numpy.empty(len(places), numpy.int64), places
            while len(open_places):
                floors, kept = self._proposals(line, open_places, normal=True)
                result[open_places[kept] - places[0]] = floors[kept]
                open_places = open_places[~kept]
            return result

        return _in_portions(portion, len(line.signs))

    def _proposals(self, line: Line, places: Integers, *, normal: bool) -> tuple[Integers, Booleans]:
        """The floor of the line at one E for each place, and whether E is kept (always, unless `normal`)."""
        words = self.words(len(places))
        thinning = self.words(len(places)) if normal else None
        unsure = words < _TAIL
        exponentials = -numpy.log(numpy.maximum(words, _TAIL).astype(numpy.float64) / _WHOLE)
        values = line.values(places, exponentials)
        floors, margin = numpy.floor(values), line.margin(values)
        unsure |= (values - floors < margin) | (values - floors > 1 - margin)
        kept = numpy.ones(len(places), numpy.bool_)
        if thinning is not None:
            chances = numpy.exp(-0.5 * (exponentials - 1) ** 2) * _WHOLE
            gap = chances - thinning.astype(numpy.float64)
            kept = gap > 0
            unsure |= numpy.abs(gap) <= chances * _RELATIVE + 4.0
        result = floors.astype(numpy.int64)
        for index in numpy.flatnonzero(unsure).tolist():
            thin = None if thinning is None else self.uniform(int(thinning[index]))
            found = exact.floor_on_line(
                self.uniform(int(words[index])), *line.exactly(int(places[index])), thinning=thin
            )
            result[index], kept[index] = (0, False) if found is None else (found, True)
        return result, kept


def _in_portions(portion: Callable[[Integers], Integers], count: int) -> Integers:
    starts = range(0, count, _MOST_AT_ONCE)
    parts = [portion(numpy.arange(start, min(start + _MOST_AT_ONCE, count))) for start in starts]
    return numpy.concatenate(parts) if parts else numpy.empty(0, numpy.int64)
