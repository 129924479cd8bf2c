"""The event that a mechanism charges bounds the true curve of its law, by sums and integrals instead of samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hush import accounting, events

EPSILONS = np.linspace(0, 4, 41)


def discrete_delta(weights: np.ndarray, moved: int, epsilon: float) -> float:
    """delta(epsilon) of a law on whole numbers and the same law moved by `moved`."""
    law = np.concatenate([weights, np.zeros(moved)]) / math.fsum(weights)
    other = np.concatenate([np.zeros(moved), weights]) / math.fsum(weights)
    return math.fsum(np.maximum(law - math.exp(epsilon) * other, 0))


def laplace_weights(scale: float) -> np.ndarray:
    far = math.ceil(60 * scale)
    return np.exp(-np.abs(np.arange(-far, far + 1)) / scale)


def gaussian_weights(stddev: float) -> np.ndarray:
    far = math.ceil(40 * stddev)
    return np.exp(-(np.arange(-far, far + 1.0) ** 2) / (2 * stddev * stddev))


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_whole_numbers_have_the_pure_curve(scale: float) -> None:
    """Moved by 1, the discrete Laplace has the curve of `PureDP` and goes above that of `Laplace`."""
    pure, real = events.PureDP(1 / scale), events.Laplace(scale)
    above = 0
    for epsilon in np.linspace(0, 1 / scale, 9)[:-1]:
        found = discrete_delta(laplace_weights(scale), 1, epsilon)
        assert found == pytest.approx(accounting.delta(pure, epsilon=float(epsilon)).delta, rel=1e-6, abs=1e-12)
        above += found > accounting.delta(real, epsilon=float(epsilon)).delta * (1 + 1e-6)
    assert above > 3


@pytest.mark.parametrize("moved", [1, 2, 7])
@pytest.mark.parametrize("scale", [0.7, 5.0])
def test_pure_epsilon_bounds_every_move(scale: float, moved: int) -> None:
    event = events.PureDP(moved / scale)
    for epsilon in np.linspace(0, moved / scale, 9):
        bound = accounting.delta(event, epsilon=float(epsilon)).delta
        assert discrete_delta(laplace_weights(scale), moved, float(epsilon)) <= bound + 1e-12


@pytest.mark.parametrize(("stddev", "moved"), [(0.5, 1), (1.0, 1), (3.0, 1), (2.0, 5)])
def test_discrete_gaussian_is_concentrated(stddev: float, moved: int) -> None:
    event = events.ZeroConcentratedDP((moved / stddev) ** 2 / 2)
    for epsilon in EPSILONS[1:]:
        found = discrete_delta(gaussian_weights(stddev), moved, float(epsilon))
        if found > 1e-12:
            assert found <= accounting.delta(event, epsilon=float(epsilon)).delta


def test_real_gaussian_curve_is_no_bound_for_the_discrete() -> None:
    """Why `discrete_gaussian` is not charged as `Gaussian`."""
    event = events.Gaussian(0.5)
    excess = [
        discrete_delta(gaussian_weights(0.5), 1, float(epsilon)) / accounting.delta(event, epsilon=float(epsilon)).delta
        for epsilon in EPSILONS
    ]
    assert max(excess) > 1.05
    assert discrete_delta(gaussian_weights(0.5), 1, 4.0) > accounting.delta(event, epsilon=4.0).delta


@pytest.mark.parametrize("parts", [(0.5, 0.5), (0.1, 0.9), (0.3, 0.3, 0.4), (1.0, 2.0), (0.25,) * 8])
def test_product_of_laplace_is_dominated(parts: tuple[float, ...]) -> None:
    """Coordinates that share a move of s scales: their joint curve is below 1 - e^((epsilon - s)/2)."""
    total = math.fsum(parts)
    product = events.Composed(*(events.Laplace(1 / part) for part in parts))
    for epsilon in np.linspace(0, total, 12)[:-1]:
        joint = accounting.delta(product, epsilon=float(epsilon))
        assert joint.delta <= 1 - math.exp((epsilon - total) / 2) + 1e-9
    assert accounting.delta(product, epsilon=0.0).delta > 0.3 * (1 - math.exp(-total / 2))
