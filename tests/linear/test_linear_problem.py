"""Losses, their constants and the solver, against finite differences, random search and closed forms."""

from __future__ import annotations

import math

import numpy
import pytest

from hush.errors import InvalidValue
from hush.linear.problem import Constants, Problem, contrast
from hush.linear.rows import box, within_norm
from hush.linear.solver import minimise

CLASSES = (2, 3, 5)


def random_problem(num_classes: int, num_rows: int = 40, columns: int = 3, seed: int = 0) -> Problem:
    rng = numpy.random.default_rng(seed)
    rows = rng.standard_normal((num_rows, columns))
    rows /= numpy.maximum(1.0, numpy.linalg.norm(rows, axis=1, keepdims=True))
    return Problem(rows, rng.integers(0, num_classes, num_rows), num_classes, 1.0)


@pytest.mark.parametrize("num_classes", CLASSES)
def test_gradient_and_hessian_are_the_differences_of_the_value(num_classes: int) -> None:
    problem = random_problem(num_classes)
    rng = numpy.random.default_rng(1)
    weights, direction = rng.standard_normal((2, problem.dimension))
    step = 1e-5
    ahead, behind = weights + step * direction, weights - step * direction
    slope = (problem.value(ahead) - problem.value(behind)) / (2 * step)
    assert problem.gradient(weights, math.inf) @ direction == pytest.approx(slope, rel=1e-6)
    change = (problem.gradient(ahead, math.inf) - problem.gradient(behind, math.inf)) / (2 * step)
    assert problem.hessian(weights) @ direction == pytest.approx(change, rel=1e-5, abs=1e-6)
    assert problem.hessian_product(weights, direction) == pytest.approx(problem.hessian(weights) @ direction, rel=1e-9)
    careful, error = problem.careful_gradient(weights)
    assert numpy.linalg.norm(careful - problem.gradient(weights, math.inf)) <= 2 * error < 1e-8


@pytest.mark.parametrize("num_classes", CLASSES)
def test_one_row_stays_within_the_constants_and_comes_near_them(num_classes: int) -> None:
    constants = Constants.of(num_classes, 1.0)
    rng = numpy.random.default_rng(2)
    lengths, traces, largest, ranks = [], [], [], []
    for scale in (0.0, 1e-3, 1.0, 3.0, 10.0, 40.0) * 60:
        row = rng.standard_normal((1, 2))
        problem = Problem(row / numpy.linalg.norm(row), rng.integers(0, num_classes, 1), num_classes, 1.0)
        weights = scale * rng.standard_normal(problem.dimension)
        hessian = problem.hessian(weights)
        lengths.append(numpy.linalg.norm(problem.gradient(weights, math.inf)))
        traces.append(numpy.trace(hessian))
        largest.append(numpy.linalg.eigvalsh(hessian)[-1])
        ranks.append(int((numpy.linalg.eigvalsh(hessian) > 1e-9).sum()))
    for found, bound in ((lengths, constants.gradient), (traces, constants.trace)):
        assert 0.95 * bound < max(found) <= bound * (1 + 1e-9)
    assert 0.8 * constants.curvature < max(largest) <= constants.curvature * (1 + 1e-9)
    assert max(ranks) == constants.rank


def test_contrasts_are_orthonormal_and_sum_to_zero() -> None:
    matrix = contrast(6)
    assert matrix.T @ matrix == pytest.approx(numpy.eye(5), abs=1e-14)
    assert matrix.sum(axis=0) == pytest.approx(numpy.zeros(5), abs=1e-14)


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("largest_matrix", [1500, 0])
def test_solver_is_certified_and_near_the_minimiser(
    num_classes: int, largest_matrix: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hush.linear.solver._LARGEST_MATRIX", largest_matrix)
    problem = random_problem(num_classes, num_rows=300)
    linear = numpy.random.default_rng(3).standard_normal(problem.dimension) * 30
    for alpha in (0.1, 1.0, 100.0):
        weights = minimise(problem, alpha=alpha, linear=linear, tolerance=1e-6)
        assert numpy.linalg.norm(problem.gradient(weights, math.inf) + alpha * weights + linear) <= 1e-6
        finer = minimise(problem, alpha=alpha, linear=linear, tolerance=1e-8)
        assert numpy.linalg.norm(weights - finer) <= 1e-6 / alpha


def test_solver_refuses_what_it_cannot_certify() -> None:
    problem = random_problem(2)
    with pytest.raises(InvalidValue, match="could not be certified"):
        minimise(problem, alpha=1.0, linear=numpy.zeros(3), tolerance=1e-17)


def test_rows_within_the_norm_are_scaled_and_longer_ones_clipped() -> None:
    rows = numpy.array([[3.0, 4.0], [0.6, 0.8], [0.0, 0.0], [1e308, 1e308], [1e-320, 0.0]])
    unit = within_norm(rows, 10.0)
    assert unit[0] == pytest.approx([0.3, 0.4], rel=1e-8)
    assert unit[2].tolist() == [0.0, 0.0]
    assert unit[3] == pytest.approx([math.sqrt(0.5)] * 2, rel=1e-8)
    assert all(math.fsum(value * value for value in row) <= 1.0 for row in within_norm(rows, 1e-3).tolist())


@pytest.mark.parametrize("bounds", [None, 3, (1, 0), (0, 0), (0, math.inf), (0, [1, 2, 3]), ("a", "b"), (0, math.nan)])
def test_bad_bounds_are_refused(bounds: object) -> None:
    with pytest.raises(InvalidValue, match="low below high"):
        box("x_bounds", bounds, 2)
