"""Objective perturbation: exact densities on neighbours never differ by more than the budget says."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy
import pytest

from hush import Budget, accounting
from hush.linear.objective import ObjectivePlan, chi_delta, gaussian_shift, log_determinant, renyi_bound
from hush.linear.problem import Constants, Problem
from hush.privacy import Relation

RELATIONS: tuple[Relation, ...] = ("add_remove", "replace_one")


def neighbours(num_classes: int, columns: int, relation: Relation, seed: int) -> tuple[Problem, Problem]:
    """Two tiny data sets with rows of length 1 that differ in one row."""
    rng = numpy.random.default_rng(seed)
    rows = rng.standard_normal((6, columns))
    rows /= numpy.linalg.norm(rows, axis=1, keepdims=True)
    labels = rng.integers(0, num_classes, 6)
    other = rows.copy(), labels.copy()
    if relation == "replace_one":
        row = rng.standard_normal(columns)
        other[0][-1], other[1][-1] = row / numpy.linalg.norm(row), rng.integers(0, num_classes)
    else:
        other = other[0][:-1], other[1][:-1]
    return Problem(rows, labels, num_classes, 1.0), Problem(*other, num_classes, 1.0)


def log_density(problem: Problem, plan: ObjectivePlan, weights: numpy.ndarray) -> float:
    """Of the exact minimiser, up to a constant: the noise's density at b(w), times the determinant of db/dw."""
    noise = -(problem.gradient(weights, math.inf) + plan.alpha * weights)
    matrix = problem.hessian(weights) + plan.alpha * numpy.eye(problem.dimension)
    exponent = noise @ noise / (2 * plan.scale**2) if plan.gaussian else numpy.linalg.norm(noise) / plan.scale
    return float(numpy.linalg.slogdet(matrix)[1] - exponent)


def largest_ratio(num_classes: int, relation: Relation, plan: ObjectivePlan) -> float:
    rng = numpy.random.default_rng(5)
    found = []
    for seed in range(30):
        one, other = neighbours(num_classes, 2, relation, seed)
        for scale in (0.01, 1.0, 5.0, 30.0):
            for weights in scale * rng.standard_normal((25, one.dimension)):
                found.append(abs(log_density(one, plan, weights) - log_density(other, plan, weights)))
    return max(found)


def plan_for(num_classes: int, relation: Relation, epsilon: float, alpha: float | None, delta: float) -> ObjectivePlan:
    constants = Constants.of(num_classes, 1.0)
    budget = Budget(epsilon=epsilon, delta=delta)
    return ObjectivePlan.for_budget(budget, constants, 2 * (num_classes - 1), alpha=alpha, relation=relation)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize(("epsilon", "alpha"), [(0.5, None), (1.0, 0.7), (4.0, 0.1)])
def test_densities_of_the_minimiser_differ_by_at_most_epsilon(
    relation: Relation, num_classes: int, epsilon: float, alpha: float | None
) -> None:
    plan = plan_for(num_classes, relation, epsilon, alpha, 0.0)
    assert 0.3 * epsilon < largest_ratio(num_classes, relation, plan) <= 0.99 * epsilon


@pytest.mark.parametrize("relation", RELATIONS)
def test_halved_noise_and_a_forgotten_determinant_are_caught(relation: Relation) -> None:
    plan = plan_for(2, relation, 1.0, 2.0, 0.0)
    assert largest_ratio(2, relation, replace(plan, scale=plan.scale / 2)) > 1.0
    # Half of epsilon belongs to the determinant at the least alpha; a plan that spends it on the noise as well:
    tight = plan_for(2, relation, 1.0, 1e-9, 0.0)
    moved = 2.0 if relation == "replace_one" else 1.0
    assert tight.scale == pytest.approx(moved / (0.99 - log_determinant(Constants.of(2, 1.0), tight.alpha)), rel=1e-6)
    assert log_determinant(Constants.of(2, 1.0), tight.alpha) == pytest.approx(0.99 / 2, rel=1e-6)


def hockey_stick(one: Problem, other: Problem, plan: ObjectivePlan, epsilon: float) -> float:
    """delta(epsilon) of two densities in one dimension, by quadrature over the noise."""
    noises = numpy.linspace(-9, 9, 1201) * plan.scale
    weights = numpy.array([_root(one, plan.alpha, noise) for noise in noises])
    gaps = []
    for weight in weights:
        point = numpy.array([weight])
        gaps.append(log_density(one, plan, point) - log_density(other, plan, point))
    densities = numpy.exp(-0.5 * (noises / plan.scale) ** 2) / math.sqrt(2 * math.pi) / plan.scale
    return float(numpy.trapezoid(densities * numpy.maximum(0, -numpy.expm1(epsilon - numpy.array(gaps))), noises))


def _root(problem: Problem, alpha: float, noise: float) -> float:
    from scipy.optimize import brentq

    edge = (abs(noise) + len(problem.rows)) / alpha + 1
    return float(brentq(lambda w: problem.gradient(numpy.array([w]), math.inf)[0] + alpha * w + noise, -edge, edge))


@pytest.mark.parametrize("relation", RELATIONS)
def test_gaussian_form_keeps_delta_in_one_dimension(relation: Relation) -> None:
    plan = plan_for(2, relation, 1.0, 1.0, 1e-2)
    rows, labels = numpy.ones((6, 1)), numpy.array([1, 1, 1, 1, 1, 0])
    other = (rows, 1 - numpy.array([0, 0, 0, 0, 0, 0])) if relation == "replace_one" else (rows[:-1], labels[:-1])
    one, two = Problem(rows, labels, 2, 1.0), Problem(*other, 2, 1.0)
    worst = max(hockey_stick(one, two, plan, 0.99), hockey_stick(two, one, plan, 0.99))
    assert worst <= 1e-2
    weak = replace(plan, scale=plan.scale / 4)
    assert max(hockey_stick(one, two, weak, 0.99), hockey_stick(two, one, weak, 0.99)) > 1e-2


def test_chi_delta_is_the_closed_form_in_one_dimension_and_the_integral_elsewhere() -> None:
    for epsilon, shift in ((1.0, 0.25), (0.5, 0.1), (3.0, 0.7), (0.1, 0.03)):
        gauss = accounting.delta(accounting.calibrate.events.GaussianDP(shift), epsilon=epsilon).delta
        assert chi_delta(epsilon, shift, 1) == pytest.approx(2 * gauss, rel=1e-7)
    for freedom in (2, 3, 9, 60):
        epsilon, shift = 2.0, 0.4

        def integrand(value: object, freedom: int = freedom, epsilon: float = epsilon, shift: float = shift) -> object:
            density = value ** (freedom - 1) * mpmath.exp(-value * value / 2)  # type: ignore[operator]
            return density * (1 - mpmath.exp(epsilon - shift**2 / 2 - shift * value))

        norm = mpmath.mpf(2) ** (mpmath.mpf(freedom) / 2 - 1) * mpmath.gamma(mpmath.mpf(freedom) / 2)
        start = epsilon / shift - shift / 2
        edges = [start, start + 1, start + 3, start + 8, start + 30]
        exact = mpmath.quad(integrand, edges) / norm
        assert float(exact) <= chi_delta(epsilon, shift, freedom) <= float(exact) * (1 + 1e-7)


def test_gaussian_shift_uses_the_whole_delta() -> None:
    for freedom in (1, 2, 8):
        shift = gaussian_shift(1.0, 1e-5, freedom)
        assert chi_delta(1.0, shift, freedom) <= 1e-5 < chi_delta(1.0, shift * (1 + 1e-9), freedom)


@pytest.mark.parametrize(("order", "value"), [(2.0, 0.13793546), (8.0, 0.15073947), (32.0, 0.23362165)])
def test_published_renyi_bound(order: float, value: float) -> None:
    """Values computed from the formula at 30 digits: noise 10, alpha 5, curvature 1/4."""
    assert renyi_bound(order, noise_multiplier=10.0, curvature=0.25 / 5) == pytest.approx(value, abs=5e-9)
