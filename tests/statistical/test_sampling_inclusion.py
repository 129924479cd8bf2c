"""Poisson inclusion, on counts with exact tails. Seeds are fixed; false-alarm probabilities are for fresh ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, chi2

from hush import Rng
from hush.sampling import Poisson, Sampling, TruncatedPoisson

ROWS, DRAWS = 60, 20_000
FALSE_ALARM = 1e-7


def table(sampling: Sampling, seed: int) -> np.ndarray:
    """(draws, rows): who took part."""
    stream = Rng.from_seed(seed).stream("sampling")
    found = np.zeros((DRAWS, ROWS), dtype=bool)
    for step in range(DRAWS):
        found[step, sampling.draw(ROWS, step=step, stream=stream)] = True
    return found


def assert_binomial(count: int, number: int, prob: float, false_alarm: float) -> None:
    """The count is not in the outer `false_alarm` of its distribution, both sides together."""
    assert binom.cdf(count, number, prob) > false_alarm / 2
    assert binom.sf(count - 1, number, prob) > false_alarm / 2


@pytest.mark.parametrize("prob", [0.03, 0.19, 0.4])  # the first two by gaps, the third row by row
def test_each_row_joins_with_its_probability_and_independently(prob: float) -> None:
    """False alarms: 60 rows + 59 neighbours + 59 later turns, each at 1e-7 / 178, below 1e-7 by the union bound."""
    found = table(Poisson(prob), seed=11)
    share = FALSE_ALARM / (3 * ROWS)
    for row in range(ROWS):
        assert_binomial(int(found[:, row].sum()), DRAWS, prob, share)
    for row in range(ROWS - 1):  # two rows together, and one row's next turn, with prob^2
        assert_binomial(int((found[:, row] & found[:, row + 1]).sum()), DRAWS, prob**2, share)
        assert_binomial(int((found[: DRAWS // 2, row] & found[DRAWS // 2 :, row]).sum()), DRAWS // 2, prob**2, share)


@pytest.mark.parametrize("prob", [0.03, 0.4])
def test_batch_sizes_are_binomial(prob: float) -> None:
    """False alarm 1e-7: the chi-square test's limit (cells of at least 50 expected, so its tail is close)."""
    sizes = table(Poisson(prob), seed=12).sum(axis=1)
    expected = DRAWS * binom.pmf(np.arange(ROWS + 1), ROWS, prob)
    large = expected >= 50
    observed = np.bincount(sizes, minlength=ROWS + 1)
    cells = np.append(observed[large], observed[~large].sum())
    wanted = np.append(expected[large], expected[~large].sum())
    statistic = float(((cells - wanted) ** 2 / wanted).sum())
    assert statistic < chi2.isf(FALSE_ALARM, len(cells) - 1)


def test_truncation_keeps_every_row_alike() -> None:
    """False alarm 60 * 1e-7 / 60: each row's count is binomial with the probability that theory gives."""
    prob, cap = 0.4, 20
    found = table(TruncatedPoisson(prob, cap, ROWS), seed=13)
    sizes = np.arange(ROWS + 1)
    joins = float((np.minimum(sizes, cap) * binom.pmf(sizes, ROWS, prob)).sum()) / ROWS
    assert found.sum(axis=1).max() == cap
    for row in range(ROWS):
        assert_binomial(int(found[:, row].sum()), DRAWS, joins, FALSE_ALARM / ROWS)
