"""The minimiser of a regularised convex problem, with a proof of how near it is.

    J(w) = sum of losses + alpha/2 |w|^2 + linear.w

J is alpha-strongly convex, so |w - w*| <= |gradient of J at w| / alpha. The solver goes on until that gradient, with
its rounding, is at most the tolerance. It never returns an uncertified vector.
"""

from __future__ import annotations

import math

import numpy
from numpy.typing import NDArray

from hush.errors import InvalidValue
from hush.linear.problem import Problem

Floats = NDArray[numpy.float64]
_MOST_STEPS = 500
_LARGEST_MATRIX = 1500
_AIM = 1e-3  # how far below the tolerance the plain gradient is brought before the careful one is asked


def minimise(problem: Problem, *, alpha: float, linear: Floats, tolerance: float) -> Floats:
    """A point whose gradient is certainly at most `tolerance` long.

    How many steps it took depends on the data; that is kept here.
    """
    weights = numpy.zeros(problem.dimension)
    value = _value(problem, weights, alpha, linear)
    for _ in range(_MOST_STEPS):
        gradient = problem.gradient(weights, math.inf) + alpha * weights + linear
        if float(numpy.linalg.norm(gradient)) <= _AIM * tolerance:
            break
        direction = _newton_direction(problem, weights, gradient, alpha)
        moved = _line_search(problem, weights, value, gradient, direction, alpha, linear)
        if moved is None:  # the value cannot tell points apart any more; the gradient still can
            break
        weights, value = moved
    return _certified(problem, weights, alpha, linear, tolerance)


def _value(problem: Problem, weights: Floats, alpha: float, linear: Floats) -> float:
    return problem.value(weights) + alpha / 2 * float(weights @ weights) + float(linear @ weights)


def _newton_direction(problem: Problem, weights: Floats, gradient: Floats, alpha: float) -> Floats:
    if problem.dimension <= _LARGEST_MATRIX:
        from scipy.linalg import cho_factor, cho_solve

        matrix = problem.hessian(weights)
        matrix[numpy.diag_indices_from(matrix)] += alpha
        return numpy.asarray(cho_solve(cho_factor(matrix, overwrite_a=True), -gradient))
    return _conjugate_gradients(problem, weights, gradient, alpha)


def _conjugate_gradients(problem: Problem, weights: Floats, gradient: Floats, alpha: float) -> Floats:
    """Newton's direction to a share of the gradient that falls with it, which keeps convergence superlinear."""
    direction = numpy.zeros_like(weights)
    rest = -gradient
    search, square = rest.copy(), float(rest @ rest)
    wanted = square * min(0.01, square**0.5)
    for _ in range(min(problem.dimension, 1000)):
        product = problem.hessian_product(weights, search) + alpha * search
        step = square / float(search @ product)
        direction += step * search
        rest = rest - step * product
        square, before = float(rest @ rest), square
        if square <= wanted:
            break
        search = rest + (square / before) * search
    return direction


def _line_search(
    problem: Problem,
    weights: Floats,
    value: float,
    gradient: Floats,
    direction: Floats,
    alpha: float,
    linear: Floats,
) -> tuple[Floats, float] | None:
    slope = float(gradient @ direction)
    step = 1.0
    rounding = 1e-13 * (abs(value) + len(problem.rows))
    if -slope <= 10 * rounding:  # full steps: Newton's method is in its quadratic range, values are all rounding
        return _smaller_gradient(problem, weights, gradient, direction, alpha, linear)
    while step > 1e-12:
        moved = weights + step * direction
        new = _value(problem, moved, alpha, linear)
        if new <= value + 1e-4 * step * slope + rounding:
            return moved, new
        step /= 2
    return None


def _smaller_gradient(
    problem: Problem, weights: Floats, gradient: Floats, direction: Floats, alpha: float, linear: Floats
) -> tuple[Floats, float] | None:
    moved = weights + direction
    new = problem.gradient(moved, math.inf) + alpha * moved + linear
    if float(numpy.linalg.norm(new)) > 0.9 * float(numpy.linalg.norm(gradient)):
        return None
    return moved, _value(problem, moved, alpha, linear)


def _certified(problem: Problem, weights: Floats, alpha: float, linear: Floats, tolerance: float) -> Floats:
    gradient, error = problem.careful_gradient(weights)
    gradient = gradient + alpha * weights + linear
    own = 2.0**-50 * float(alpha * numpy.linalg.norm(weights) + numpy.linalg.norm(linear))
    if not float(numpy.linalg.norm(gradient)) * (1 + 2.0**-40) + error + own <= tolerance:
        raise InvalidValue(
            "the minimiser could not be certified in double precision, so nothing was released; use a larger alpha, "
            "fewer than ten million rows, or method='gradient'."
        )
    return weights
