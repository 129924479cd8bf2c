"""Exact random draws, many at a time.

Every draw starts from 64 random bits and is computed in floating point together with a margin that is far larger than
the error can be. Where the margin leaves the result open, a few times in a hundred thousand, `hush.mechanisms.exact`
decides with more bits and more digits. So the law is exact and the cost that of floating point.

The margins: a 64-bit word u stands for a uniform number in [u, u + 1) / 2^64. Words below 2^48 always go the exact way.
For the others -ln(u / 2^64) is known to 1/u <= 2^-48, plus the error of numpy's logarithm, which is a few units in the
last place of a number below 12. `_SLACK` = 2^-42 is taken for the sum, and `_RELATIVE` = 2^-40 for a probability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
_MOST_AT_ONCE = 1 << 14  # numbers made at a time: more would not stay in the cache


@dataclass(frozen=True)
class Line:
    """The map x -> offset + shift + sign * scale * x, with an offset and a sign for each draw; x is never negative."""

    scale: float
    signs: Integers
    offsets: Floats | None = None
    shift: float = 0.0

    def part(self, places: slice) -> Line:
        """The map of some of the draws."""
        return replace(self, signs=self.signs[places], offsets=None if self.offsets is None else self.offsets[places])

    def values(self, x: Floats) -> Floats:
        """The map in floating point."""
        result = x * self.scale
        result *= self.signs
        result += self.shift if self.offsets is None else self.offsets + self.shift
        return result

    def margin(self, values: Floats) -> float:
        """More than the error of any of the values, for an x that is known to 2^-42."""
        largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
        return _SLACK * (self.scale + 2.0) + 2.0**-51 * largest

    def exactly(self, place: int) -> tuple[Fraction, Fraction, int]:
        """Scale, offset and sign at this place."""
        offset = 0 if self.offsets is None else Fraction(float(self.offsets[place]))
        return Fraction(self.scale), Fraction(self.shift) + offset, int(self.signs[place])


@dataclass(frozen=True)
class _Exponentials:
    """Numbers -ln U, known to 2^-42, and what their uniform numbers begin with."""

    values: Floats
    words: Words
    begun: dict[int, exact.LazyUniform]  # where the value says nothing, or more digits were looked at already


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
        return self._floors(line, lambda wanted: self._exponentials(self.words(wanted)))

    def floor_normals(self, line: Line) -> Integers:
        """The floor of the line at |Z|, Z standard normal, one for each sign of the line."""
        return self._floors(line, self._half_normals)

    def _exponentials(self, words: Words) -> _Exponentials:
        values = numpy.maximum(words, _TAIL).astype(numpy.float64)
        values /= _WHOLE
        numpy.negative(numpy.log(values, out=values), out=values)
        rare = numpy.flatnonzero(words < _TAIL).tolist()
        return _Exponentials(values, words, {place: self.uniform(int(words[place])) for place in rare})

    def _half_normals(self, wanted: int) -> _Exponentials:
        """About as many numbers |Z| as are wanted, and no more: of more that were made, the first.

        E is kept with chance exp(-(E - 1)^2 / 2) and then has the law of |Z|; 76 of 100 are.
        """
        made = 4 * wanted // 3 + 16
        proposed, thinning = self._exponentials(self.words(made)), self.words(made)
        gap = proposed.values - 1
        gap *= gap
        gap *= -0.5
        numpy.exp(gap, out=gap)
        gap *= _WHOLE
        gap -= thinning
        kept = gap > 0
        unsure = numpy.flatnonzero(numpy.abs(gap, out=gap) <= _RELATIVE * _WHOLE).tolist()
        for place in {*proposed.begun, *unsure}:
            uniform = proposed.begun.setdefault(place, self.uniform(int(proposed.words[place])))
            kept[place] = exact.is_kept(uniform, self.uniform(int(thinning[place])))
        places = numpy.flatnonzero(kept)[:wanted]
        moved = {int(numpy.searchsorted(places, old)): one for old, one in proposed.begun.items() if kept[old]}
        begun = {place: one for place, one in moved.items() if place < len(places)}
        return _Exponentials(proposed.values[places], proposed.words[places], begun)

    def _floors(self, line: Line, draw: Callable[[int], _Exponentials]) -> Integers:
        """The floor of the line at numbers that are drawn a portion after another, few enough to stay in the cache."""
        result, done = numpy.empty(len(line.signs), numpy.int64), 0
        while done < len(result):
            found = draw(min(len(result) - done, _MOST_AT_ONCE))
            places = slice(done, done + len(found.values))
            result[places] = self._floors_at(line.part(places), found)
            done = places.stop
        return result

    def _floors_at(self, line: Line, found: _Exponentials) -> Integers:
        values = line.values(found.values)
        floors = numpy.floor(values)
        unsure = numpy.abs(values - floors - 0.5) >= 0.5 - line.margin(values)
        unsure[list(found.begun)] = True
        result = floors.astype(numpy.int64)
        for place in numpy.flatnonzero(unsure).tolist():
            uniform = found.begun.get(place) or self.uniform(int(found.words[place]))
            result[place] = exact.floor_on_line(uniform, *line.exactly(place))
        return result
