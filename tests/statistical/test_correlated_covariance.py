"""The covariance of correlated noise, by sampling."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from hush import Rng
from hush.training.correlated import CorrelatedNoise
from hush.training.matrix_factorization import BandedStrategy

COUNT, STEPS, STDDEV = 200_000, 8, 1.5


def sample(strategy: BandedStrategy, *, secure: bool) -> NDArray[np.float64]:
    noise = CorrelatedNoise(strategy, Rng.from_seed(11), secure=secure)
    rows = [noise.add({"": torch.zeros(COUNT)}, STDDEV)[""] for _ in range(STEPS)]
    return torch.stack(rows).double().numpy()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
@pytest.mark.parametrize("bands", [1, 3, 8])
def test_covariance_is_that_of_the_inverse(bands: int, secure: bool) -> None:
    """False alarm 4e-7: 36 entries of a sample covariance, each against its own standard deviation, 1e-8 each."""
    strategy = BandedStrategy.square_root(steps=STEPS, bands=bands, min_separation=8, participations=1)
    values = sample(strategy, secure=secure)
    inverse = np.linalg.inv(strategy.matrix()) * STDDEV * strategy.sensitivity
    truth = inverse @ inverse.T
    found = values @ values.T / COUNT
    spread = np.sqrt((np.outer(np.diag(truth), np.diag(truth)) + truth**2) / COUNT)
    assert np.all(np.abs(found - truth) < stats.norm.isf(1e-8 / 2) * spread)


def test_the_sum_of_all_steps_has_less_noise_than_independent_steps() -> None:
    """False alarm below 1e-12: 2.4 against 4.5, each known to half a percent."""
    correlated = BandedStrategy.optimized(steps=STEPS, bands=8, min_separation=8, participations=1)
    independent = BandedStrategy(steps=STEPS, min_separation=8, participations=1, coefficients=(1.0,))
    errors = []
    for strategy in (correlated, independent):
        prefix = np.cumsum(sample(strategy, secure=False), axis=0) / STDDEV
        errors.append(float(np.mean(prefix**2)))
        assert errors[-1] == pytest.approx(strategy.error(), rel=0.02)
    assert errors[0] < 0.7 * errors[1]
