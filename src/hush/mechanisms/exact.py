"""Decisions about random numbers that are right to the last bit.

A uniform number has infinitely many binary digits. `LazyUniform` holds as many as were needed so far and draws more
from the cipher when a decision asks for them. Each decision is made with an interval of decimal numbers that is known
to hold the truth, and the interval shrinks until the decision is certain. So the law of the result is the one written
down, with no rounding in it. Python's decimal module rounds `exp` and `ln` correctly at every precision.

These functions are slow, about a tenth of a millisecond, and rarely called: `hush.mechanisms.draws` settles all but a
few numbers in a hundred thousand in floating point, with a margin, and sends the rest here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction

from hush.rng import CipherStream

_FIRST_BITS = 128
_DIGITS_PER_BIT = 0.30103
_GUARD = 12  # decimal digits beyond those of the bits
Interval = tuple[Decimal, Decimal]


class LazyUniform:
    """A uniform number of [0, 1) that starts with the 64 bits of `first`; more are drawn when asked for."""

    def __init__(self, first: int, words: CipherStream) -> None:
        self._value, self._bits, self._words = first, 64, words

    def leading(self, bits: int) -> int:
        """The first `bits` binary digits as a whole number; `bits` is a multiple of 128."""
        if bits > self._bits:
            count = (bits - self._bits + 63) // 64
            for word in self._words.words(count):
                self._value, self._bits = self._value << 64 | (int(word) & (1 << 64) - 1), self._bits + 64
        return self._value >> (self._bits - bits)


def precisions() -> Iterator[tuple[int, Context]]:
    """How many bits to look at, and a decimal context that is finer than they are; twice as many each time."""
    bits = _FIRST_BITS
    while True:
        digits = int(bits * _DIGITS_PER_BIT) + 1 + _GUARD
        yield bits, Context(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
        bits *= 2


def decimal(value: Fraction, context: Context) -> Decimal:
    """The fraction to the context's digits."""
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def widened(value: Decimal, context: Context, parts: int = 1) -> Interval:
    """`value` with a relative error of `parts` hundred units of the last digit on both sides."""
    slack = context.multiply(context.abs(value), _units(100 * parts, context))
    return context.subtract(value, slack), context.add(value, slack)


def _units(count: int, context: Context) -> Decimal:
    """So many units in the last digit of 1."""
    return Decimal(count).scaleb(1 - context.prec, context)


def exp_of_minus(exponent: Interval, context: Context) -> Interval:
    """An interval that holds e^-x for every x of the interval."""
    low, high = (context.exp(context.minus(end)) for end in reversed(exponent))
    return widened(low, context)[0], widened(high, context)[1]


def exp_of_fraction(exponent: Fraction, context: Context) -> Interval:
    """An interval that holds e^-exponent."""
    value = decimal(exponent, context)
    return exp_of_minus(widened(value, context), context)


def exponential_bounds(uniform: LazyUniform, bits: int, context: Context) -> Interval | None:
    """An interval that holds -ln U, which is exponential with mean 1; None while all digits are 0."""
    digits = uniform.leading(bits)
    if digits == 0:
        return None
    ends = (context.minus(context.ln(decimal(Fraction(end, 1 << bits), context))) for end in (digits + 1, digits))
    slack = _units(100 * (bits + 1), context)  # -ln U is at most 0.7 bits; the quotient is off by a unit
    low, high = ends
    return context.subtract(low, slack), context.add(high, slack)


def compare(uniform: LazyUniform, probability: Interval, bits: int, context: Context) -> bool | None:
    """Whether U is below the probability; None if these digits do not tell."""
    digits, whole = uniform.leading(bits), Decimal(1 << bits)
    low, high = (context.multiply(end, whole) for end in probability)
    if Decimal(digits + 1) <= widened(low, context)[0]:
        return True
    return False if Decimal(digits) >= widened(high, context)[1] else None


def is_below(uniform: LazyUniform, probability: Callable[[Context], Interval]) -> bool:
    """Whether U is below a probability that is known to as many digits as one asks for."""
    for bits, context in precisions():
        answer = compare(uniform, probability(context), bits, context)
        if answer is not None:
            return answer
    raise AssertionError("not reached")


def is_below_exp(uniform: LazyUniform, exponent: Fraction) -> bool:
    """Whether U is below e^-exponent."""
    return is_below(uniform, lambda context: exp_of_fraction(exponent, context))


def floor_of(interval: Interval) -> int | None:
    """The whole number below every number of the interval, or None if there are two."""
    low, high = (int(end.to_integral_value("ROUND_FLOOR")) for end in interval)
    return low if low == high else None


def floor_on_line(uniform: LazyUniform, scale: Fraction, offset: Fraction, sign: int) -> int:
    """floor(offset + sign * scale * E) with E = -ln U."""
    for bits, context in precisions():
        bounds = exponential_bounds(uniform, bits, context)
        result = None if bounds is None else floor_of(_affine(bounds, scale, offset, sign, context))
        if result is not None:
            return result
    raise AssertionError("not reached")


def is_kept(uniform: LazyUniform, thinning: LazyUniform) -> bool:
    """Whether `thinning` is below exp(-(E - 1)^2 / 2) with E = -ln U.

    The thinned E has the density of |Z|, Z standard normal: exp(-x) exp(-(x - 1)^2 / 2) = exp(-1/2) exp(-x^2 / 2).
    """
    for bits, context in precisions():
        bounds = exponential_bounds(uniform, bits, context)
        kept = None if bounds is None else _thinned(bounds, thinning, bits, context)
        if kept is not None:
            return kept
    raise AssertionError("not reached")


def _thinned(bounds: Interval, thinning: LazyUniform, bits: int, context: Context) -> bool | None:
    """Whether an exponential number in these bounds is kept; None if these digits do not tell."""
    ends = [context.subtract(end, Decimal(1)) for end in bounds]
    squares = [context.divide(context.multiply(end, end), Decimal(2)) for end in ends]
    least = Decimal(0) if ends[0] <= 0 <= ends[1] else min(squares)
    low, high = widened(least, context)[0], widened(max(squares), context)[1]
    return compare(thinning, exp_of_minus((low, high), context), bits, context)


def _affine(bounds: Interval, scale: Fraction, offset: Fraction, sign: int, context: Context) -> Interval:
    factor, start = decimal(scale, context), decimal(offset, context)
    ends = [context.multiply(end, factor) for end in bounds]
    size = context.add(context.add(context.abs(ends[1]), context.abs(start)), Decimal(1))
    slack = context.multiply(size, _units(100, context))
    low, high = ends if sign > 0 else [end.copy_negate() for end in reversed(ends)]
    return context.subtract(context.add(start, low), slack), context.add(context.add(start, high), slack)


def choose_exactly(uniform: LazyUniform, multiplicities: Sequence[int], exponents: Sequence[Fraction]) -> int:
    """An index with chance proportional to multiplicity * e^-exponent: where U falls among the cumulated chances."""
    for bits, context in precisions():
        lows, highs, total_low, total_high = [], [], Decimal(0), Decimal(0)
        for count, exponent in zip(multiplicities, exponents, strict=True):
            low, high = exp_of_fraction(exponent, context)
            total_low = context.add(total_low, context.multiply(low, count))
            total_high = context.add(total_high, context.multiply(high, count))
            lows.append(total_low)
            highs.append(total_high)
        parts = len(lows) + 1
        below = [widened(context.divide(end, total_high), context, parts)[0] for end in lows]
        above = [widened(context.divide(end, total_low), context, parts)[1] for end in highs]
        result = _place(uniform.leading(bits), 1 << bits, below, above)
        if result is not None:
            return result
    raise AssertionError("not reached")


def _place(digits: int, whole: int, below: list[Decimal], above: list[Decimal]) -> int | None:
    last = len(below) - 1
    for index in range(last + 1):
        if index == last or Fraction(digits + 1, whole) <= Fraction(below[index]):  # surely under this end ...
            start = Fraction(above[index - 1]) if index else Fraction(0)
            return index if Fraction(digits, whole) >= start else None  # ... and surely over the one before
    return None
