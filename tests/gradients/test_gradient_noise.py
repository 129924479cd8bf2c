"""Noise on gradients: what it is added to, the grid of secure noise, and that no draw ever comes twice."""

from __future__ import annotations

import copy
import math
import pickle
import random
from collections.abc import Iterator
from dataclasses import replace

import mpmath
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from hush import Rng
from hush.errors import InvalidValue
from hush.gradients.noise import GRID_BITS, NoiseSource, add_noise, grid_of
from hush.gradients.normals import _MOST, _WORDS, NormalStream, _Tail

P32, P64 = _WORDS[torch.float32].tail, _WORDS[torch.float64].tail
BOTH = pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])


def draw(source: NoiseSource, count: int = 100, stddev: float = 1.0) -> Tensor:
    return source.add({"weight": torch.zeros(count)}, stddev)["weight"]


class Words:
    """A stand-in for the cipher that gives these words, over and over."""

    def __init__(self, values: list[int]) -> None:
        self.values = np.array(values, dtype=np.int64)

    def require_own(self) -> None:
        pass

    def words(self, count: int) -> NDArray[np.int64]:
        return np.resize(self.values, count)


class Tail:
    """A stand-in for the tail that has these numbers at these places, of the first portion."""

    def __init__(self, numbers: dict[int, float]) -> None:
        self.numbers = numbers

    def of(self, count: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        return np.array(list(self.numbers), dtype=np.intp), np.array(list(self.numbers.values()))


def with_words(first: list[int], second: list[int], *, tail: dict[int, float] | None = None) -> Tensor:
    """The cosines and the sines that a stream in float64 makes of these words."""
    stream = NormalStream(Rng.from_seed(0), "noise", torch.float64)
    half = 512  # of the least portion
    words = np.concatenate([np.resize(np.array(part, dtype=np.int64), half) for part in (first, second)])
    stream._cipher = Words(words.tolist())  # type: ignore[assignment]
    stream._tail = Tail(tail or {})  # type: ignore[assignment]
    numbers = stream.tensor(2 * half)
    return torch.stack([numbers[: len(first)], numbers[half : half + len(first)]])


# What the noise is added to ------------------------------------------------------------------------------------


@BOTH
def test_noise_is_added_in_place_to_every_tensor(secure: bool) -> None:
    gradients = {"weight": torch.full((30, 40), 5.0), "bias": torch.full((30,), -5.0), "scale": torch.tensor(5.0)}
    before = dict(gradients)
    result = NoiseSource(Rng.from_seed(1), secure=secure).add(gradients, 0.01)
    assert result is gradients
    for name, value in before.items():
        assert result[name] is value
        assert torch.all(value.abs() - 5 != 0)
        assert torch.all((value.abs() - 5).abs() < 0.1)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dtypes_are_kept(secure: bool, dtype: torch.dtype) -> None:
    gradient = NoiseSource(Rng.from_seed(1), secure=secure).add({"": torch.zeros(20_000, dtype=dtype)}, 2.0)[""]
    assert gradient.dtype == dtype
    assert abs(float(gradient.double().std()) - 2) < 0.06  # six standard deviations
    assert len(gradient.unique()) > 1_000


@BOTH
def test_gradients_that_are_not_in_one_piece_or_carry_a_graph(secure: bool) -> None:
    gradients = {
        "transposed": torch.zeros(50, 20).t(),
        "every second": torch.zeros(100)[::2],
        "with graph": torch.zeros(50, requires_grad=True),
    }
    NoiseSource(Rng.from_seed(1), secure=secure).add(gradients, 1.0)
    assert all(torch.all(value != 0) for value in gradients.values())


@BOTH
def test_nothing_to_do(secure: bool) -> None:
    source = NoiseSource(Rng.from_seed(1), secure=secure)
    assert source.add({}, 1.0) == {}
    assert source.add({"empty": torch.zeros(3, 0)}, 1.0)["empty"].shape == (3, 0)


@BOTH
@pytest.mark.parametrize("stddev", [0.0, -1.0, math.nan, math.inf, "1"])
def test_a_bad_stddev_is_refused(secure: bool, stddev: float) -> None:
    with pytest.raises(InvalidValue, match="stddev"):
        NoiseSource(Rng.from_seed(1), secure=secure).add({"weight": torch.zeros(3)}, stddev)


def test_other_refusals() -> None:
    with pytest.raises(InvalidValue, match="'count' must be of floating-point"):
        NoiseSource(Rng.from_seed(1)).add({"count": torch.zeros(3, dtype=torch.int64)}, 1.0)
    with pytest.raises(InvalidValue, match=r"2\^-400"):
        NoiseSource(Rng.from_seed(1), secure=True).add({"weight": torch.zeros(3)}, 1e-200)


def test_many_small_tensors_get_what_one_large_one_gets() -> None:
    whole = draw(NoiseSource(Rng.from_seed(1)), 3_000)
    parts = {str(place): torch.zeros(30) for place in range(100)}
    NoiseSource(Rng.from_seed(1)).add(parts, 1.0)
    assert torch.equal(torch.cat(list(parts.values())), whole)


# The grid ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stddev", [1.0, 1.999, 2.0, 3.7e-5, 8.1e9])
def test_the_grid_is_a_power_of_two_below_the_noise(stddev: float) -> None:
    grid = grid_of(stddev)
    assert math.frexp(grid)[0] == 0.5
    assert 2**GRID_BITS <= stddev / grid < 2 ** (GRID_BITS + 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 1 / 3, -0.1, 1e-9, 77.7])
def test_secure_sums_are_multiples_of_the_grid_whatever_the_data(dtype: torch.dtype, value: float) -> None:
    total = torch.full((5_000,), value, dtype=dtype)
    secure = NoiseSource(Rng.from_seed(1), secure=True).add({"": total.clone()}, 1.3)[""].double() / grid_of(1.3)
    assert torch.equal(secure, secure.round())
    assert len(secure.unique()) > 4_000
    assert len((secure.long() % 2).unique()) == 2  # the grid is not finer than it has to be
    plain = NoiseSource(Rng.from_seed(1)).add({"": total.clone()}, 1.3)[""].double() / grid_of(1.3)
    assert not torch.equal(plain, plain.round())


def test_secure_noise_is_the_rounded_sum_of_data_and_noise() -> None:
    """Against whole numbers: with the same random numbers, the grid point next to data plus noise."""
    total = torch.linspace(-3, 3, 4_001)
    noise = NoiseSource(Rng.from_seed(1), secure=True).add({"": torch.zeros(4_001, dtype=torch.float64)}, 0.7)[""]
    found = NoiseSource(Rng.from_seed(1), secure=True).add({"": total.double()}, 0.7)[""]
    steps = (found - noise - total.double()) / grid_of(0.7)
    assert torch.all(steps.abs() <= 1)
    assert 0.1 < float(steps.std()) < 0.7  # the difference of two roundings: 1 / sqrt(6) = 0.41


def test_broken_and_huge_sums_are_held() -> None:
    bound = grid_of(1.0) * 2.0**50
    values = torch.tensor([math.nan, math.inf, -math.inf, 1e30, -1e30, 1.0])
    found = NoiseSource(Rng.from_seed(1), secure=True).add({"": values}, 1.0)[""]
    assert torch.isfinite(found).all()
    assert found[0].abs() < 10
    assert found[1:5].tolist() == pytest.approx([bound, -bound, bound, -bound])
    assert (found[5] - 1).abs() < 10


# The random numbers --------------------------------------------------------------------------------------------


def test_normals_are_box_mullers_to_the_last_bits() -> None:
    """Against 40 digits: within 2^-49 of the radius, which is what the distance on the theory page rests on."""
    stream = Rng.from_seed(5).stream("words")
    first, second = stream.integers(-(2**63), 2**63 - 1, (2, 200)).tolist()
    first[:4] = [2**63 - 1, 2**62, -(2**50), 2**44]
    found = with_words(first, second)
    with mpmath.workdps(40):
        for place, (one, two) in enumerate(zip(first, second, strict=True)):
            radius = mpmath.sqrt(-2 * mpmath.log(P64 + (1 - P64) * mpmath.mpf(abs(one)) / 2**63))
            angle = 2 * mpmath.pi * two / mpmath.mpf(2) ** 64
            for value, truth in zip(found[:, place].tolist(), (mpmath.cos(angle), mpmath.sin(angle)), strict=True):
                # 2^-53 of U itself is lost where U is near 1: the radius there is at least 2^-26.
                assert abs(value - radius * truth) <= radius * 2.0**-49 + 2.0**-53 / max(radius, 2.0**-26)


@pytest.mark.parametrize(("share", "furthest"), [(P32, 13.9), (P64, 14.3)], ids=["plain", "secure"])
def test_the_tail_gets_more_bits(share: float, furthest: float) -> None:
    least, most = -(2**63), 2**63 - 1
    tail = _Tail(Words(([most, least] * 512) + [least] * 1024 + [least] * 1024), share)  # type: ignore[arg-type]
    places, values = tail.of(2)
    assert places[0] == 0  # a gap of nothing
    assert values[0] == share * 2.0**-129
    assert math.sqrt(-2 * math.log(values[0])) > furthest
    tail = _Tail(Words([most] * 3072), share)  # type: ignore[arg-type]
    assert tail.of(5)[0].tolist() == [0, 1, 2, 3, 4]
    assert tail.of(1000)[1].tolist() == [share] * 1000


def test_numbers_of_the_tail_take_the_place_of_others() -> None:
    numbers = {0: 2.0**-149, 2: 2.0**-30}
    cosines, sines = with_words([5, 2**62, 7, 2**62], [0, 0, 0, 0], tail=numbers)
    middle = P64 + (1 - P64) / 2
    truth = [math.sqrt(-2 * math.log(value)) for value in (2.0**-149, middle, 2.0**-30, middle)]
    assert cosines.tolist() == pytest.approx(truth, rel=1e-14)
    assert sines.tolist() == [0, 0, 0, 0]


def test_the_tail_is_the_same_however_it_is_asked_for() -> None:
    whole, parts = (_Tail(Rng.from_seed(3).cipher_stream("tail"), 0.01) for _ in range(2))
    places, values = whole.of(100_000)
    found, start = [], 0
    for count in [1, 10, 0, 989, 99_000]:
        where, what = parts.of(count)
        assert np.all((where >= 0) & (where < count))
        found.append(np.stack([where + start, what]))
        start += count
    assert np.array_equal(np.concatenate(found, axis=1), np.stack([places, values]))


def test_the_tail_is_where_chance_puts_it_and_uniform() -> None:
    """False alarm 1e-6 in all: how many there are, the gaps between them and their values."""
    share, count = 2.0**-11, 40_000_000
    places, values = _Tail(Rng.from_seed(4).cipher_stream("tail"), share).of(count)
    assert stats.binomtest(len(places), count, share).pvalue > 2e-7
    assert len(np.unique(places)) == len(places)
    gaps = np.bincount(np.minimum(np.diff(places) // 256, 20), minlength=21)
    edges = np.append(stats.geom.cdf(256 * np.arange(1, 21) - 1, share), 1)
    assert stats.chisquare(gaps, (len(places) - 1) * np.diff(edges, prepend=0)).pvalue > 2e-7
    assert stats.kstest(values / share, "uniform").pvalue > 2e-7


def test_the_tail_of_plain_noise_gets_more_bits_too() -> None:
    stream = NormalStream(Rng.from_seed(0), "noise", torch.float32)
    words = np.concatenate([np.resize(np.array(part, dtype=np.int32), 512) for part in ([0, 1, 2**20, -(2**31)], [0])])
    stream._cipher = Words(words.view(np.int64).tolist())  # type: ignore[assignment]
    stream._tail = Tail({0: P32 * 2.0**-129})  # type: ignore[assignment]
    uniform = [P32 * 2.0**-129, *(P32 + (1 - P32) * place / 2**31 for place in (1, 2**20, 2**31))]
    truth = [math.sqrt(-2 * math.log(value)) for value in uniform]
    found = stream.tensor(1024)[:4].tolist()
    assert found == pytest.approx(truth, rel=1e-6)
    assert found[0] > 13.9


def test_plain_normals_are_box_mullers_in_single_precision() -> None:
    stream = NormalStream(Rng.from_seed(0), "noise", torch.float32)
    words = Rng.from_seed(5).stream("words").integers(-(2**31), 2**31 - 1, 1024).astype(np.int32)
    stream._cipher = Words(words.view(np.int64).tolist())  # type: ignore[assignment]
    stream._tail = Tail({})  # type: ignore[assignment]
    first, second = words.astype(np.float64).reshape(2, -1)
    keep = np.abs(first) < 0.99 * 2**31
    uniform = P32 + (1 - P32) * np.abs(first) / 2**31
    radius, angle = np.sqrt(-2 * np.log(uniform)), np.pi * second / 2**31
    found = stream.tensor(1024).double().numpy().reshape(2, -1)
    truth = radius * np.stack([np.cos(angle), np.sin(angle)])
    assert np.abs(found - truth)[:, keep].max() < 2e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [2.0**-3, 2.0**-6])
def test_numbers_are_normal_whatever_the_share_of_the_tail(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, share: float
) -> None:
    """With a share this large, a stream that forgets its tail ends at 2.9 or earlier, and is seen with few numbers."""
    monkeypatch.setitem(_WORDS, dtype, replace(_WORDS[dtype], tail=share))
    numbers = NormalStream(Rng.from_seed(9), "tail", dtype).tensor(200_000).double().numpy()
    assert stats.kstest(numbers, "norm").pvalue > 1e-4
    beyond = int((np.abs(numbers) > 3).sum())  # 540 are expected, 23 their standard deviation
    assert 400 < beyond < 680


def test_portions_of_one_size_and_no_number_twice() -> None:
    source, total = NoiseSource(Rng.from_seed(6)), 2 * _MOST + 10
    found = [source.add({"a": torch.zeros(total - 7), "b": torch.zeros(7)}, 1.0) for _ in range(2)]
    numbers = torch.cat([part for gradients in found for part in gradients.values()])
    assert source._streams[torch.float32]._room.shape[1:] == (1, -(-total // 3 // 4) * 2)
    assert len(torch.unique(numbers)) > 0.9 * len(numbers)  # of float32 some are equal by chance
    assert abs(float(numbers.double().mean())) * math.sqrt(len(numbers)) < 5.3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [10, 1024, 5000])
def test_numbers_of_several_steps_made_at_once_are_those_of_one_step_at_a_time(
    dtype: torch.dtype, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps() -> Tensor:
        stream = NormalStream(Rng.from_seed(4), "noise", dtype)
        return torch.stack([stream.tensor(size) for _ in range(40)])

    ahead = steps()
    monkeypatch.setattr("hush.gradients.normals._AHEAD", 1)
    assert torch.allclose(ahead, steps(), rtol=1e-6, atol=0.0)  # the last elements of an array may be rounded otherwise
    assert len(torch.unique(ahead)) > 0.99 * ahead.numel()


def test_sizes_may_change_from_step_to_step() -> None:
    stream, sizes = NormalStream(Rng.from_seed(4), "noise", torch.float64), (1024, 1024, 1024, 2048, 10, 10, 4096, 1024)
    numbers = torch.cat([stream.tensor(size) for size in sizes])
    assert len(torch.unique(numbers)) == sum(sizes)
    assert abs(float(numbers.square().mean()) - 1) < 5.3 * math.sqrt(2 / sum(sizes))


def test_numbers_made_before_a_fork_are_not_used_in_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = NormalStream(Rng(), "noise", torch.float32)
    for _ in range(4):
        stream.tensor(1024)
    assert stream._ready  # the next step needs nothing from the cipher
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(InvalidValue, match="fork"):
        stream.tensor(1024)


def sources(seed: int | None) -> Iterator[NoiseSource]:
    rng = Rng() if seed is None else Rng.from_seed(seed)
    for secure in (False, True, False, True):
        yield NoiseSource(rng, secure=secure)


@pytest.mark.parametrize("seed", [None, 3])
def test_no_two_sources_and_no_two_steps_give_equal_noise(seed: int | None) -> None:
    other = [NoiseSource(Rng()), NoiseSource(Rng.from_seed(4))]
    found = [draw(source) for source in [*sources(seed), *other] for _ in range(3)]
    together = torch.cat(found)
    assert len(together.unique()) > 0.99 * len(together)
    assert not any(torch.equal(one, two) for place, one in enumerate(found) for two in found[:place])


@BOTH
def test_calls_with_one_rng_never_repeat(secure: bool) -> None:
    rng = Rng.from_seed(3)
    one, two = (add_noise({"": torch.zeros(50)}, 1.0, rng, secure=secure)[""] for _ in range(2))
    assert not set(one.tolist()) & set(two.tolist())


@BOTH
def test_a_seed_repeats_the_sources_in_their_order(secure: bool) -> None:
    one, two = (
        [draw(NoiseSource(rng, secure=secure)) for _ in range(3)] for rng in (Rng.from_seed(3), Rng.from_seed(3))
    )
    assert all(torch.equal(first, second) for first, second in zip(one, two, strict=True))


@BOTH
def test_global_seeds_neither_move_the_noise_nor_are_moved(secure: bool) -> None:
    found = []
    for seeded in (False, False, True, True):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        torch.manual_seed(0)
        rng = Rng.from_seed(7) if seeded else Rng()
        state = torch.random.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]  # noqa: NPY002
        found.append(draw(NoiseSource(rng, secure=secure)))
        assert torch.equal(state[0], torch.random.get_rng_state())
        assert state[1:] == (np.random.get_state()[1].tolist(), random.getstate())  # type: ignore[index]  # noqa: NPY002
    assert not torch.equal(found[0], found[1])
    torch.manual_seed(1)
    assert torch.equal(found[2], found[3])


def test_the_state_is_not_written() -> None:
    for write in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not written"):
            write(NoiseSource(Rng()))
