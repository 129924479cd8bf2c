"""The noise is N(0, stddev^2), independent between steps, coordinates and parameters.

Every test has a fixed seed and states the chance that a right program fails it for a seed chosen at random.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from hush import Rng
from hush.gradients.noise import NoiseSource
from hush.gradients.normals import _MOST

STDDEV = 2.5
COUNT = 1_000_000
FALSE_ALARM = 1e-7
WIDTH = stats.norm.isf(FALSE_ALARM / 2)  # in standard deviations: 5.3
KINDS = pytest.mark.parametrize(
    ("secure", "dtype"),
    [(False, torch.float32), (False, torch.float64), (True, torch.float32), (True, torch.float64)],
    ids=["plain", "plain64", "secure", "secure64"],
)


def steps(secure: bool, dtype: torch.dtype, number: int, *, count: int = COUNT) -> list[NDArray[np.float64]]:
    """The noise of some steps on a gradient of zeros, over its standard deviation."""
    source = NoiseSource(Rng.from_seed(2024), secure=secure)
    zeros = (torch.zeros(count, dtype=dtype) for _ in range(number))
    return [source.add({"": value}, STDDEV)[""].double().numpy() / STDDEV for value in zeros]


def correlation_is_chance(one: NDArray[np.float64], two: NDArray[np.float64]) -> bool:
    """Of independent samples, sqrt(n) times the correlation is N(0, 1) but for terms of order 1/n."""
    return abs(float(np.corrcoef(one, two)[0, 1])) * math.sqrt(len(one)) < WIDTH


@KINDS
def test_mean_and_variance(secure: bool, dtype: torch.dtype) -> None:
    """False alarm 2e-7: the sum is normal and the sum of squares chi-squared, exactly."""
    (values,) = steps(secure, dtype, 1)
    assert abs(values.sum()) / math.sqrt(COUNT) < WIDTH
    square = float(np.sum(values**2))
    assert stats.chi2.isf(1 - FALSE_ALARM / 2, COUNT) < square < stats.chi2.isf(FALSE_ALARM / 2, COUNT)


@KINDS
def test_normality(secure: bool, dtype: torch.dtype) -> None:
    """False alarm 1e-7: Kolmogorov and Smirnov's test."""
    (values,) = steps(secure, dtype, 1)
    assert stats.kstest(values, "norm").pvalue > FALSE_ALARM


@KINDS
def test_tails(secure: bool, dtype: torch.dtype) -> None:
    """False alarm 4e-7: the number of values beyond 2, 3, 4 and 4.5 standard deviations is binomial."""
    (values,) = steps(secure, dtype, 1)
    for bound in (2.0, 3.0, 4.0, 4.5):
        beyond = int(np.sum(np.abs(values) > bound))
        assert stats.binomtest(beyond, COUNT, 2 * stats.norm.sf(bound)).pvalue > FALSE_ALARM


@KINDS
def test_independence_between_steps(secure: bool, dtype: torch.dtype) -> None:
    """False alarm 6e-7: correlations of three steps, of the values and of their squares."""
    found = steps(secure, dtype, 3)
    for place, one in enumerate(found):
        for two in found[:place]:
            assert correlation_is_chance(one, two)
            assert correlation_is_chance(one**2, two**2)


@KINDS
def test_independence_between_coordinates(secure: bool, dtype: torch.dtype) -> None:
    """False alarm 8e-7: correlations at four distances, among them that of the two numbers of one pair."""
    (values,) = steps(secure, dtype, 1)
    for distance in (1, 2, _MOST // 2, _MOST):  # the halves of a portion belong together
        one, two = values[:-distance], values[distance:]
        assert correlation_is_chance(one, two)
        assert correlation_is_chance(one**2, two**2)


@KINDS
def test_pairs_have_no_direction(secure: bool, dtype: torch.dtype) -> None:
    """False alarm 1e-7: a chi-squared test on the angles of the pairs that are made together."""
    (values,) = steps(secure, dtype, 1, count=4 * _MOST)
    cosines, sines = values.reshape(4, 2, -1).swapaxes(0, 1).reshape(2, -1)
    counts = np.histogram(np.arctan2(sines, cosines), bins=64, range=(-math.pi, math.pi))[0]
    assert stats.chisquare(counts).pvalue > FALSE_ALARM


@KINDS
def test_independence_between_parameters(secure: bool, dtype: torch.dtype) -> None:
    """False alarm 2e-7."""
    source = NoiseSource(Rng.from_seed(2024), secure=secure)
    gradients = source.add({name: torch.zeros(300, 1_000, dtype=dtype) for name in ("first", "second")}, STDDEV)
    one, two = (value.double().flatten().numpy() for value in gradients.values())
    assert correlation_is_chance(one, two)
    assert correlation_is_chance(one**2, two**2)


def test_independence_of_two_sources() -> None:
    """False alarm 2e-7: of one Rng, plain and secure."""
    rng = Rng.from_seed(2024)
    one, two = (
        NoiseSource(rng, secure=secure).add({"": torch.zeros(COUNT)}, 1.0)[""].double().numpy()
        for secure in (False, True)
    )
    assert correlation_is_chance(one, two)
    assert correlation_is_chance(one**2, two**2)


def test_secure_noise_does_not_shift_the_data() -> None:
    """False alarm 2e-7: the mean is the sum itself, be it on the grid or between its points."""
    for value in (0.3, 1 / 3):
        total = torch.full((COUNT,), value, dtype=torch.float64)
        found = NoiseSource(Rng.from_seed(2024), secure=True).add({"": total}, STDDEV)[""]
        assert abs(float(found.mean()) - value) < WIDTH * STDDEV / math.sqrt(COUNT)


def test_short_tails_would_be_seen() -> None:
    """The tests above have teeth: noise that is a little too small, cut off or correlated does not pass."""
    (values,) = steps(False, torch.float32, 1)
    square = float(np.sum((0.99 * values) ** 2))
    assert not stats.chi2.isf(1 - FALSE_ALARM / 2, COUNT) < square
    cut = int(np.sum(np.abs(np.clip(values, -3.5, 3.5)) > 4))
    assert stats.binomtest(cut, COUNT, 2 * stats.norm.sf(4)).pvalue < FALSE_ALARM
    assert not correlation_is_chance(values, values + 50 * np.roll(values, 1))
