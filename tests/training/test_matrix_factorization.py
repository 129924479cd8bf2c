"""Strategies for correlated noise: sensitivity against brute force, error against full matrices."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hush import events
from hush.errors import InvalidValue
from hush.training.matrix_factorization import BandedStrategy


def patterns(strategy: BandedStrategy) -> list[tuple[int, ...]]:
    """All choices of steps that one example may take part in."""
    found = []
    for uses in range(1, strategy.participations + 1):
        for steps in itertools.combinations(range(strategy.steps), uses):
            if all(later - earlier >= strategy.min_separation for earlier, later in itertools.pairwise(steps)):
                found.append(steps)
    return found


def brute_force(strategy: BandedStrategy) -> float:
    """The most that contributions of +1 or -1 at the steps of a pattern move C S."""
    matrix = strategy.matrix()
    largest = 0.0
    for steps in patterns(strategy):
        for signs in itertools.product((1.0, -1.0), repeat=len(steps)):
            largest = max(largest, float(np.linalg.norm(matrix[:, list(steps)] @ np.array(signs))))
    return largest


def of(coefficients: tuple[float, ...], steps: int, min_separation: int, participations: int) -> BandedStrategy:
    return BandedStrategy(
        steps=steps, min_separation=min_separation, participations=participations, coefficients=coefficients
    )


@pytest.mark.parametrize(
    ("steps", "bands", "min_separation", "participations"),
    [(9, 1, 1, 3), (9, 2, 3, 3), (9, 3, 3, 3), (10, 4, 5, 2), (8, 8, 8, 1), (12, 3, 4, 3), (7, 3, 6, 2)],
)
def test_bands_that_do_not_meet_have_the_exact_sensitivity(
    steps: int, bands: int, min_separation: int, participations: int
) -> None:
    strategy = BandedStrategy.square_root(
        steps=steps, bands=bands, min_separation=min_separation, participations=participations
    )
    assert np.linalg.norm(strategy.coefficients) == pytest.approx(1, rel=1e-14)
    assert strategy.sensitivity == pytest.approx(math.sqrt(participations), rel=1e-11)
    found = brute_force(strategy)
    assert found <= strategy.sensitivity
    if (participations - 1) * min_separation + bands <= steps:  # the last column fits whole
        assert found == pytest.approx(strategy.sensitivity, rel=1e-11)


@pytest.mark.parametrize("seed", range(30))
def test_the_sensitivity_is_never_below_brute_force(seed: int) -> None:
    """Any coefficients, also negative, rising and meeting ones."""
    stream = np.random.default_rng(seed)
    steps, bands = int(stream.integers(4, 11)), int(stream.integers(1, 5))
    min_separation = int(stream.integers(1, 4))
    participations = int(stream.integers(1, 1 + min(4, 1 + (steps - 1) // min_separation)))
    coefficients = (float(stream.uniform(0.2, 1)), *stream.normal(size=bands - 1).tolist())
    strategy = of(coefficients, steps, min_separation, participations)
    assert brute_force(strategy) <= strategy.sensitivity


@pytest.mark.parametrize(("bands", "min_separation", "participations"), [(4, 2, 3), (5, 1, 3), (6, 2, 2), (4, 3, 4)])
def test_bands_that_meet_cost_what_brute_force_finds(bands: int, min_separation: int, participations: int) -> None:
    """Falling coefficients meet most where uses are as near as may be: the bound is reached if all columns fit."""
    steps = (participations - 1) * min_separation + bands
    strategy = BandedStrategy.square_root(
        steps=steps, bands=bands, min_separation=min_separation, participations=participations
    )
    assert strategy.sensitivity > math.sqrt(participations) * (1 + 1e-6)
    assert brute_force(strategy) == pytest.approx(strategy.sensitivity, rel=1e-9)


def test_contributions_of_many_dimensions_move_no_more() -> None:
    """Each use may point elsewhere: the Frobenius norm stays below the sensitivity."""
    stream = np.random.default_rng(5)
    strategy = of((0.8, -0.5, 0.4, 0.3), 10, 2, 4)
    for steps in patterns(strategy):
        contributions = stream.normal(size=(len(steps), 3))
        contributions /= np.linalg.norm(contributions, axis=1, keepdims=True)
        assert np.linalg.norm(strategy.matrix()[:, list(steps)] @ contributions) <= strategy.sensitivity


def test_square_root_has_the_coefficients_of_the_root() -> None:
    strategy = BandedStrategy.square_root(steps=40, bands=40, min_separation=40, participations=1)
    root = strategy.matrix() / strategy.coefficients[0]
    assert np.allclose(root @ root, np.tril(np.ones((40, 40))), atol=1e-12)


@pytest.mark.parametrize("bands", [1, 3, 12])
def test_error_is_that_of_the_full_matrices(bands: int) -> None:
    strategy = BandedStrategy.square_root(steps=30, bands=bands, min_separation=12, participations=3)
    spread = np.tril(np.ones((30, 30))) @ np.linalg.inv(strategy.matrix())
    assert strategy.error() == pytest.approx(strategy.sensitivity**2 * np.sum(spread**2) / 30, rel=1e-10)


def test_correlated_noise_has_a_lower_error_and_optimized_the_lowest() -> None:
    settings = {"steps": 300, "min_separation": 100, "participations": 3}
    independent = BandedStrategy(coefficients=(1.0,), **settings)
    assert independent.error() == pytest.approx(3 * 301 / 2)
    last = independent.error()
    for bands in (2, 5, 20, 80):
        root = BandedStrategy.square_root(bands=bands, **settings)
        best = BandedStrategy.optimized(bands=bands, **settings)
        assert best.error() < 0.995 * root.error() < 0.9 * independent.error()
        assert best.error() < last
        assert best.sensitivity == pytest.approx(math.sqrt(3), rel=1e-11)
        last = best.error()


def test_optimized_is_a_minimum() -> None:
    best = BandedStrategy.optimized(steps=60, bands=4, min_separation=20, participations=3)
    for place in range(4):
        for factor in (0.98, 1.02):
            moved = list(best.coefficients)
            moved[place] *= factor
            assert of(tuple(moved), 60, 20, 3).error() > best.error()


def test_one_band_is_independent_noise() -> None:
    best = BandedStrategy.optimized(steps=5, bands=1, min_separation=5, participations=1)
    assert best.coefficients == (1.0,)


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"coefficients": ()}, "diagonal"),
        ({"coefficients": (0.0, 1.0)}, "diagonal"),
        ({"coefficients": (1.0, math.nan)}, r"coefficients\[1\]"),
        ({"coefficients": (1.0,) * 11}, "bands"),
        ({"participations": 4}, "do not fit"),
        ({"participations": 0}, "participations"),
        ({"min_separation": 0}, "min_separation"),
        ({"steps": 2.5}, "steps"),
    ],
)
def test_bad_settings_are_refused(values: dict[str, object], part: str) -> None:
    good = {"steps": 10, "min_separation": 4, "participations": 3, "coefficients": (1.0, 0.5)}
    BandedStrategy(**good)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=part):
        BandedStrategy(**{**good, **values})  # type: ignore[arg-type]


def test_optimizing_bands_that_meet_is_refused() -> None:
    with pytest.raises(InvalidValue, match="min_separation"):
        BandedStrategy.optimized(steps=10, bands=5, min_separation=4, participations=2)


def test_the_event_says_what_the_strategy_is() -> None:
    strategy = BandedStrategy.square_root(steps=10, bands=3, min_separation=4, participations=3)
    assert strategy.event(1.5) == events.MatrixGaussian(1.5, steps=10, bands=3, min_separation=4, participations=3)
