"""How far neighbours can move what is noised: random search never exceeds the bound, and comes near it."""

from __future__ import annotations

import math

import numpy
import pytest

from hush import Budget, Rng, accounting, events
from hush.errors import InvalidValue
from hush.linear import counting, gradient, output, ridge, sufficient
from hush.linear.problem import Constants, Problem
from hush.linear.solver import minimise
from hush.privacy import Relation

RELATIONS: tuple[Relation, ...] = ("add_remove", "replace_one")
FACTOR = {"add_remove": 1.0, "replace_one": 2.0}


def pulled(relation: Relation, alpha: float) -> tuple[Problem, Problem]:
    """Rows that pull hard along the first axis, and one that is on the wrong side and nearly across: a near worst case.

    Its gradient is nearly of full length, and the objective is curved by alpha alone in its direction.
    """
    common = numpy.tile([1.0, 0.0], (math.ceil(230 * alpha), 1))
    wrong = numpy.array([[-0.7, math.sqrt(0.51)]])
    mirrored = wrong * [1, -1]
    rows = numpy.vstack([common, wrong])
    other = numpy.vstack([common, mirrored]) if relation == "replace_one" else common
    return tuple(Problem(part, numpy.ones(len(part), numpy.int64), 2, 1.0) for part in (rows, other))  # type: ignore[return-value]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("alpha", [1.0, 5.0])
def test_minimisers_move_by_at_most_the_contribution(relation: Relation, alpha: float) -> None:
    bound = FACTOR[relation] / alpha
    one, other = (
        minimise(problem, alpha=alpha, linear=numpy.zeros(2), tolerance=1e-8) for problem in pulled(relation, alpha)
    )
    assert 0.4 * bound < numpy.linalg.norm(one - other) <= bound
    plan = output.OutputPlan.for_budget(
        Budget(epsilon=1.0, delta=0.0), Constants.of(2, 1.0), alpha=alpha, relation=relation
    )
    assert plan.scale >= FACTOR[relation]  # at epsilon 1 and alpha 1


@pytest.mark.parametrize("relation", RELATIONS)
def test_ridge_in_a_ball_moves_by_at_most_the_contribution(relation: Relation) -> None:
    rng = numpy.random.default_rng(0)
    radius, row_norm, found = 1.5, math.sqrt(2), []
    for alpha in (0.3, 3.0):
        for _ in range(400):
            rows = rng.choice([-1.0, 1.0], (rng.integers(1, 6), 2))
            targets = rng.choice([-1.0, 1.0], len(rows))
            changed = rows.copy(), targets.copy()
            changed[0][0], changed[1][0] = rng.choice([-1.0, 1.0], 2), rng.choice([-1.0, 1.0])
            other = changed if relation == "replace_one" else (rows[1:], targets[1:])
            one, two = (ridge.in_ball(x.T @ x, x.T @ y, alpha, radius) for x, y in ((rows, targets), other))
            found.append(numpy.linalg.norm(one - two) * alpha)
    assert 0.15 < max(found) / ridge._contribution(row_norm, radius) / FACTOR[relation] <= 1


def test_ridge_in_a_ball_is_the_constrained_minimiser() -> None:
    from scipy.optimize import minimize

    rng = numpy.random.default_rng(1)
    rows, targets = rng.standard_normal((30, 3)), rng.standard_normal(30) * 4
    for radius in (0.2, 10.0):
        found = ridge.in_ball(rows.T @ rows, rows.T @ targets, 0.5, radius)
        constraint = {"type": "ineq", "fun": lambda w, radius=radius: radius**2 - w @ w}
        wanted = minimize(
            lambda w: 0.5 * ((rows @ w - targets) ** 2).sum() + 0.25 * w @ w,
            numpy.zeros(3),
            constraints=[constraint],
            tol=1e-12,
        )
        assert found == pytest.approx(wanted.x, abs=1e-4)
        assert numpy.linalg.norm(found) <= radius * (1 + 1e-12)


@pytest.mark.parametrize("relation", RELATIONS)
def test_sufficient_statistics_move_by_at_most_the_sensitivity(
    relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = sufficient.SufficientPlan.for_budget(Budget(epsilon=1.0, delta=1e-5), math.sqrt(3), relation)
    seen: list[numpy.ndarray] = []

    def keep(value: numpy.ndarray, **settings: float) -> numpy.ndarray:
        assert settings["sensitivity"] == plan.sensitivity
        assert settings["noise_multiplier"] == plan.noise_multiplier
        seen.append(value)
        return value + 1e-3

    monkeypatch.setattr(sufficient.mechanisms, "gaussian", keep)
    rng, found = numpy.random.default_rng(2), []
    for _ in range(500):
        rows, targets = rng.choice([-1.0, 1.0, 0.3], (2, 3)), rng.choice([-1.0, 1.0], 2)
        for part in (slice(0, 1), slice(1, 2)) if relation == "replace_one" else (slice(0, 2), slice(1, 2)):
            sufficient.fit(rows[part], targets[part], plan, Rng.from_seed(0))
        found.append(numpy.linalg.norm(seen[-1] - seen[-2]))
    assert 0.8 * plan.sensitivity < max(found) <= plan.sensitivity
    mu = accounting.gdp.mu_of(plan.event, relation)
    assert mu == pytest.approx(1 / plan.noise_multiplier, rel=1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_plans_stay_inside_the_budget_and_use_it(relation: Relation, delta: float) -> None:
    budget, constants = Budget(epsilon=0.7, delta=delta), Constants.of(3, math.sqrt(2))
    plans: list[events.Event] = [
        output.OutputPlan.for_budget(budget, constants, alpha=alpha, relation=relation).event for alpha in (None, 1.0)
    ]
    plans.append(ridge.RidgePlan.for_budget(budget, row_norm=2.0, radius=1.0, alpha=None, relation=relation).event)
    if delta:
        plans.append(sufficient.SufficientPlan.for_budget(budget, 2.0, relation).event)
        plans.append(gradient.GradientPlan.for_budget(budget, constants, steps=7, alpha=None, relation=relation).event)
    for event in plans:
        found = accounting.guarantee(event, delta=delta, relation=relation)
        assert budget.allows(found)
        assert found.epsilon > 0.7 * (1 - 1e-6)


@pytest.mark.parametrize("relation", RELATIONS)
def test_noise_of_a_gradient_step_is_exact(relation: Relation) -> None:
    """All steps together have the whole noise that the analytic mechanism needs; doubled under replace_one."""
    constants, budget = Constants.of(2, 1.0), Budget(epsilon=1.0, delta=1e-5)
    plan = gradient.GradientPlan.for_budget(budget, constants, steps=50, alpha=1.0, relation=relation)
    share = 1 - counting.GAUSSIAN_SHARE if relation == "add_remove" else 1.0
    wanted = 3.7306316348 * FACTOR[relation] / math.sqrt(share)  # analytic noise at (1, 1e-5): a reference value
    assert plan.noise_multiplier == pytest.approx(wanted, rel=1e-7)


@pytest.mark.parametrize("steps", [None, 1, 7])
def test_all_gradient_steps_together_have_the_planned_noise(steps: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 / noise^2 adds up over the steps, in units of what one clipped row can move."""
    budget, constants = Budget(epsilon=1.0, delta=1e-5), Constants.of(2, 1.0)
    plan = gradient.GradientPlan.for_budget(budget, constants, steps=steps, alpha=None, relation="add_remove")
    squares: list[float] = []
    clip_norm = gradient.CLIP_SHARE * constants.gradient

    def keep(value: object, *, sensitivity: float, noise_multiplier: float, rng: object) -> object:
        if numpy.ndim(value):  # not the count
            squares.append((clip_norm / (sensitivity * noise_multiplier)) ** 2)
        return value

    monkeypatch.setattr(gradient.mechanisms, "gaussian", keep)
    row = numpy.array([[0.6, 0.8]])
    problem = Problem(numpy.repeat(row, 40, axis=0), numpy.repeat([0, 1], 20), 2, 1.0)
    gradient.fit(problem, plan, Rng.from_seed(0))
    assert len(squares) == (steps or 50)
    assert math.sqrt(sum(squares)) == pytest.approx(1 / plan.noise_multiplier, rel=3e-6)
    assert math.sqrt(sum(squares)) <= 1 / plan.noise_multiplier
    assert numpy.linalg.norm(
        Problem(row, numpy.array([1]), 2, 1.0).gradient(numpy.zeros(2), clip_norm)
    ) <= clip_norm * (1 + 1e-12)


def test_rows_without_their_zeros_give_the_same_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    from hush.linear import problem as module

    rng = numpy.random.default_rng(0)
    rows = numpy.where(rng.uniform(size=(60, 20)) < 0.1, rng.standard_normal((60, 20)), 0.0)
    for num_classes in (2, 4):
        labels = rng.integers(0, num_classes, 60)
        weights = rng.standard_normal(20 * (num_classes - 1))
        dense = Problem(rows, labels, num_classes, 5.0).gradient(weights, 0.3)
        with monkeypatch.context() as patched:
            patched.setattr(module, "_LARGE", 0)
            compact = Problem(rows, labels, num_classes, 5.0)
            assert not isinstance(compact._compact, numpy.ndarray)
            assert compact.gradient(weights, 0.3) == pytest.approx(dense, rel=1e-12, abs=1e-13)


def test_the_number_of_rows_is_private_under_add_remove_only() -> None:
    budget, constants = Budget(epsilon=1.0, delta=0.0), Constants.of(2, 1.0)
    assert output.OutputPlan.for_budget(budget, constants, alpha=None, relation="add_remove").count is not None
    assert output.OutputPlan.for_budget(budget, constants, alpha=None, relation="replace_one").count is None
    assert output.OutputPlan.for_budget(budget, constants, alpha=2.0, relation="add_remove").count is None
    draws = [counting.Count(epsilon=0.5, noise_multiplier=0.0).release(1000, Rng()) for _ in range(50)]
    assert len(set(draws)) > 1


def test_gaussian_methods_need_a_delta() -> None:
    pure = Budget(epsilon=1.0, delta=0.0)
    with pytest.raises(InvalidValue, match="delta above 0"):
        sufficient.SufficientPlan.for_budget(pure, 1.0, "add_remove")
    with pytest.raises(InvalidValue, match="delta above 0"):
        gradient.GradientPlan.for_budget(pure, Constants.of(2, 1.0), steps=3, alpha=None, relation="add_remove")
