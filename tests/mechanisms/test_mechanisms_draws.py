"""The quick way in floating point and the exact way in decimal digits decide alike, and both decide what they say."""

from __future__ import annotations

import math
from decimal import getcontext, localcontext
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hush import Rng
from hush.mechanisms import draws as draws_module
from hush.mechanisms import exact
from hush.mechanisms.choice import choose
from hush.mechanisms.discrete import gaussian_integers, laplace_integers
from hush.mechanisms.draws import Draws, Line
from hush.mechanisms.exact import LazyUniform
from hush.mechanisms.real import add_gaussian, add_laplace

SEED = Rng.from_seed(7)


def stream(name: str = "test") -> LazyUniform:
    words = Rng.from_seed(7).cipher_stream(name)
    return LazyUniform(int(words.words(2)[0]) & (1 << 64) - 1, words)


def first_bits(name: str, bits: int) -> mpmath.mpf:
    """The same uniform number by another way."""
    return mpmath.mpf(stream(name).leading(bits)) / mpmath.mpf(2) ** bits


def test_more_bits_go_on_from_fewer() -> None:
    uniform = stream()
    few, many = uniform.leading(128), uniform.leading(1024)
    assert many >> (1024 - 128) == few
    assert stream().leading(1024) == many
    assert uniform.leading(64) == few >> 64


@pytest.mark.parametrize("number", range(40))
def test_exact_floor_is_the_floor(number: int) -> None:
    """Against mpmath with 600 bits, for scales up to 2^50 (where 64 bits alone decide nothing)."""
    scale, offset, sign = Fraction(2 ** (number % 51)) * Fraction(4, 3), Fraction(number, 7), (-1) ** number
    found = exact.floor_on_line(stream(str(number)), scale, offset, sign)
    with mpmath.workprec(700):
        value = -mpmath.log(first_bits(str(number), 640))
        factor = mpmath.mpf(scale.numerator) / scale.denominator
        assert found == int(mpmath.floor(mpmath.mpf(offset.numerator) / offset.denominator + sign * factor * value))


@pytest.mark.parametrize("number", range(40))
def test_exact_thinning_keeps_what_it_should(number: int) -> None:
    uniform, thinning = stream(f"{number}"), stream(f"{number}t")
    found = exact.is_kept(uniform, thinning), exact.floor_on_line(uniform, Fraction(10), Fraction(0), 1)
    with mpmath.workprec(700):
        value, other = -mpmath.log(first_bits(f"{number}", 640)), first_bits(f"{number}t", 640)
        assert found == (other < mpmath.exp(-((value - 1) ** 2) / 2), int(mpmath.floor(10 * value)))


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 10**30), Fraction(1, 3), Fraction(50), Fraction(1000)])
def test_probability_is_compared_to_the_last_bit(exponent: Fraction) -> None:
    """A uniform number planted 2^-200 below e^-x is below it, and one planted as far above is not."""
    for side in (-1, 1):
        with mpmath.workprec(20_000):
            point = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)
            bits = 256 * math.ceil((300 - float(mpmath.log(point, 2))) / 256)
            digits = int(mpmath.floor(mpmath.ldexp(point, bits))) + side * (1 << (bits - 200) if exponent < 100 else 2)
        if digits >= 1 << bits:
            continue
        uniform = LazyUniform(digits >> (bits - 64), Rng.from_seed(1).cipher_stream("x"))
        uniform._value, uniform._bits = digits, bits
        assert exact.is_below_exp(uniform, exponent) is (side < 0)


def test_the_user_s_decimal_context_changes_nothing() -> None:
    with localcontext() as context:
        context.prec = 3
        context.Emin, context.Emax = -10, 10
        low = exact.floor_on_line(stream(), Fraction(2**50), Fraction(1, 3), -1)
    assert getcontext().prec != 3
    assert low == exact.floor_on_line(stream(), Fraction(2**50), Fraction(1, 3), -1)


VALUES = np.linspace(-3, 3, 601)
MADE = {
    "laplace": lambda: add_laplace(VALUES, 1.7, Draws(Rng.from_seed(3))),
    "gaussian": lambda: add_gaussian(VALUES, 1.7, Draws(Rng.from_seed(3))),
    "discrete laplace": lambda: laplace_integers(600, 12.5, Draws(Rng.from_seed(3))),
    "discrete gaussian": lambda: gaussian_integers(600, 12.5, Draws(Rng.from_seed(3))),
    "accept": lambda: Draws(Rng.from_seed(3)).accept(VALUES + 3, lambda place: Fraction(float((VALUES + 3)[place]))),
    "choose": lambda: [
        choose(np.arange(9) / 4, lambda place: Fraction(place, 4), None, Draws(Rng.from_seed(seed)))
        for seed in range(200)
    ],
}


@pytest.mark.parametrize("name", MADE)
def test_all_by_the_exact_way_gives_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With margins so wide that nothing is settled in floating point."""
    quick, calls = MADE[name](), []
    for function in ("floor_on_line", "is_kept", "is_below_exp", "choose_exactly"):
        original = getattr(exact, function)
        monkeypatch.setattr(exact, function, lambda *a, original=original, **k: (calls.append(1), original(*a, **k))[1])
    monkeypatch.setattr(draws_module, "_SLACK", 1.0)
    monkeypatch.setattr(draws_module, "_RELATIVE", 1e30)
    monkeypatch.setattr("hush.mechanisms.choice._MARGIN", 1.0)
    assert np.array_equal(MADE[name](), quick)
    assert len(calls) >= 200


def test_margins_are_a_hundred_times_the_error_of_numpy() -> None:
    words = np.concatenate([Draws(SEED).words(3000), np.uint64(2**48) + Draws(SEED).words(500) % np.uint64(2**40)])
    logs = -np.log(np.maximum(words, np.uint64(2**48)).astype(float) / 2.0**64)
    with mpmath.workprec(200):
        truth = [-mpmath.log(mpmath.mpf(max(int(word), 2**48)) / 2**64) for word in words]
        assert max(abs(mpmath.mpf(float(a)) - b) for a, b in zip(logs, truth, strict=True)) < draws_module._SLACK / 100
        exponents = np.linspace(0, 700, 3001)
        worst = max(abs(mpmath.mpf(float(np.exp(-x))) / mpmath.exp(-mpmath.mpf(float(x))) - 1) for x in exponents)
        assert worst < draws_module._RELATIVE / 100


def test_tail_goes_further_than_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word of zeros is no largest number: more bits follow."""
    source = Draws(Rng.from_seed(7))
    monkeypatch.setattr(source, "words", lambda count: np.zeros(count, np.uint64))
    found = source.floor_exponentials(Line(1.0, np.ones(100, np.int64)))
    assert (found >= 44).all()
    assert len(set(found.tolist())) > 3


@pytest.mark.parametrize("zeros", [1.0, 0.5])
def test_a_long_row_of_normals_has_one_for_each_place_and_tails_go_the_exact_way(
    zeros: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words of zeros are the far tail, which is kept hardly ever; the row is filled from the others, in their order."""
    source, coins = Draws(Rng.from_seed(7)), np.random.default_rng(0)
    drawn, kept = source.words, []
    monkeypatch.setattr(source, "words", lambda count: drawn(count) * (coins.random(count) < 1 - zeros / 100))
    monkeypatch.setattr(exact, "is_kept", lambda *a, found=exact.is_kept: kept.append(found(*a)) or kept[-1])
    found = source.floor_normals(Line(2.0**20, np.ones(50_001, np.int64), np.zeros(50_001), 0.5)) / 2.0**20
    assert len(kept) > 300 * zeros
    assert not any(kept)
    assert found.min() > 0
    assert abs((found**2).mean() - 1) < 0.05  # eight standard errors of one


def test_a_number_that_was_looked_at_closely_is_floored_by_the_same_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the digits that decided whether it is kept would be drawn once more, and the law be another."""
    seen: dict[int, LazyUniform] = {}
    real = exact.is_kept
    monkeypatch.setattr(draws_module, "_RELATIVE", 1e30)  # all go the exact way
    monkeypatch.setattr(exact, "is_kept", lambda one, other: seen.setdefault(id(one), one) and real(one, other))
    found = Draws(Rng.from_seed(7))._half_normals(300)
    assert len(seen) == 4 * 300 // 3 + 16
    assert sorted(found.begun) == list(range(len(found.values)))
    for place, uniform in found.begun.items():
        assert uniform is seen[id(uniform)]
        assert uniform.leading(64) == int(found.words[place])


def test_uniform_integers_and_orders() -> None:
    source = Draws(Rng.from_seed(7))
    for bound in (1, 2, 3, 5, 1000, 2**40 + 1):
        found = source.below(bound, 1000)
        assert found.min() >= 0
        assert found.max() < bound
    assert set(source.below(5, 1000).tolist()) == {0, 1, 2, 3, 4}
    assert sorted(source.order(50).tolist()) == list(range(50))


def test_draws_do_not_repeat_and_do_not_follow_global_seeds() -> None:
    found = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        found.append(laplace_integers(50, 1e6, Draws()).tolist())
    assert found[0] != found[1]
    rng = Rng.from_seed(7)
    assert laplace_integers(50, 1e6, Draws(rng)).tolist() != laplace_integers(50, 1e6, Draws(rng)).tolist()


def test_no_draws() -> None:
    assert laplace_integers(0, 1.0, Draws()).tolist() == []
    assert gaussian_integers(0, 1.0, Draws()).tolist() == []
