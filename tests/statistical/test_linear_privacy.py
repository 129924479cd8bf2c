"""Private linear models on neighbouring tables, by sampling.

Each check is wrong with a chance of at most SIGNIFICANCE = 1e-6 if the code is right: that of Clopper and Pearson's
bounds, shared among all sets that are looked at. Fewer than 120 are made, the slow ones included, so a false alarm in a
whole run has a chance below 1.2e-4. Each plan is then given half of its noise (less where `planted_share` says
so, and why), and the same look at the same tables must prove more than epsilon.

Tables and settings go through the estimators' own `fit`; what it hands to its method (scaled rows, a plan) is kept, and
the method is run on it many times. Tables are near worst cases, so that halved noise shows: linear_neighbours.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
import pytest
from linear_neighbours import (
    Floats,
    Table,
    Weighted,
    flipped_tables,
    gamma_norms,
    gaussian_calls,
    gaussian_statistics,
    nearer,
    pulled_tables,
    single_tables,
    turned_tables,
)
from neighbours import largest_log_ratio

from hush import Rng, mechanisms
from hush.linear import (
    PrivateLinearRegression,
    PrivateLogisticRegression,
    gradient,
    objective,
    output,
    repeats,
    ridge,
    sufficient,
    vector_noise,
)
from hush.privacy import Relation

SIGNIFICANCE = 1e-6
PURE_EPSILON = 2.0  # where delta is 0
EPSILON, DELTA = 1.0, 0.1
PULL = 40_000
SAMPLES = 16_000
RELATIONS: tuple[Relation, ...] = ("add_remove", "replace_one")
QUICK = {
    (1.0, True, "add_remove"),
    (12.0, True, "replace_one"),
    (1.0, False, "replace_one"),
    (12.0, False, "add_remove"),
}
of_every_kind = pytest.mark.parametrize(
    ("norm", "intercept", "relation"),
    [
        pytest.param(*kind, marks=() if kind in QUICK else pytest.mark.slow)
        for kind in itertools.product((1.0, 12.0), (True, False), RELATIONS)
    ],
)


@pytest.fixture(autouse=True)
def no_repeats() -> None:
    repeats.forget()


def proven(statistics: tuple[Any, Any], delta: float) -> float:
    one, other = (numpy.asarray(part).tolist() for part in statistics)
    return largest_log_ratio(one, other, significance=SIGNIFICANCE, delta=delta)


def kept(monkeypatch: pytest.MonkeyPatch, module: Any, fit: Callable[[Table], object], tables: Any) -> list[tuple]:
    """What the estimator hands to `module.fit` for each table: all but the randomness."""
    seen: list[tuple] = []

    def spy(*arguments: Any) -> Any:
        seen.append(arguments[:-1])
        columns = arguments[0].dimension if hasattr(arguments[0], "dimension") else arguments[0].shape[1]
        nothing = numpy.zeros(columns)
        return (nothing, 1.0) if module in (output, ridge) else nothing

    with monkeypatch.context() as patched:
        patched.setattr(module, "fit", spy)
        for table in tables:
            repeats.forget()
            fit(table)
    assert seen[0][-1] == seen[1][-1]  # the plan looks at no row
    return seen


def logistic(method: str, delta: float, norm: float, intercept: bool, relation: Relation) -> Callable[[Table], object]:
    alpha = 2.0 * norm**2
    model = PrivateLogisticRegression(
        EPSILON if delta else PURE_EPSILON,
        delta,
        method,
        norm,
        alpha,
        intercept,
        classes=[0, 1],
        relation=relation,
        steps=1,
    )
    return lambda table: model.fit(*table)


def least_squares(
    method: str, delta: float, norm: float, intercept: bool, relation: Relation
) -> Callable[[Table], object]:
    more: dict[str, Any] = {"alpha": 100.0, "coef_norm": 0.03} if method == "output" else {}
    model = PrivateLinearRegression(
        EPSILON if delta else PURE_EPSILON,
        delta,
        method,
        (norm, 1.0),
        fit_intercept=intercept,
        relation=relation,
        **more,
    )
    return lambda table: model.fit(*table)


def with_noise(plan: Any, share: float) -> Any:
    names = [name for name in ("scale", "noise_multiplier") if hasattr(plan, name)]
    return replace(plan, **{name: getattr(plan, name) * share for name in names})


def handed_over(
    monkeypatch: pytest.MonkeyPatch, method: str, delta: float, norm: float, intercept: bool, relation: Relation
) -> tuple[Any, list[tuple]]:
    """The module of a method, and what its `fit` gets for both neighbours."""
    kind = norm, intercept, relation
    if method in ("adassp", "ridge"):
        fit = least_squares("output" if method == "ridge" else method, delta, *kind)
        module: Any = ridge if method == "ridge" else sufficient
        flat = single_tables(relation, norm)
        tables = flat if method == "ridge" else turned_tables(relation, norm, intercept=intercept)
        return module, kept(monkeypatch, module, fit, tables)
    tables = pulled_tables(relation, norm, PULL, intercept=intercept)
    if method == "gradient":
        tables = flipped_tables(relation, norm)
    module = {"output": output, "gradient": gradient, "objective": objective}[method]
    return module, kept(monkeypatch, module, logistic(method, delta, *kind), tables)


# Gaussian noise: output, gradient, sufficient statistics, ridge -----------------------------------------------------


@of_every_kind
@pytest.mark.parametrize("method", ["output", "gradient", "adassp", "ridge"])
def test_gaussian_noise_and_its_half(
    method: str, norm: float, intercept: bool, relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real draws of what is released; under add_remove a gradient's noisy count is part of it."""
    module, pair = handed_over(monkeypatch, method, DELTA, norm, intercept, relation)
    for share in (1.0, 0.5):
        one, other = (
            gaussian_calls(monkeypatch, lambda a=arguments, s=share: module.fit(*a[:-1], with_noise(a[-1], s), Rng()))
            for arguments in pair
        )
        assert (proven(gaussian_statistics((one, other), SAMPLES), DELTA) <= EPSILON) is (share == 1.0)


def transcripts(pair: list[tuple], share: float, count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Floats, Floats]:
    """The log ratio of the densities of all that descents of several steps release, on each side."""
    problems, plan = [arguments[0] for arguments in pair], pair[0][-1]
    real, found = gradient._noisy_gradient, []
    total = [0.0]

    def step(problem: Any, weights: Floats, clip_norm: float, noise_multiplier: float, rng: Rng) -> Floats:
        released = real(problem, weights, clip_norm, noise_multiplier, rng)
        one, other = (part.gradient(weights, clip_norm) for part in problems)
        total[0] += float((released - (one + other) / 2) @ (one - other)) / (noise_multiplier * clip_norm) ** 2
        return released

    monkeypatch.setattr(gradient, "_noisy_gradient", step)
    for problem in problems:
        side = []
        for _ in range(count):
            total[0] = 0.0
            gradient.fit(problem, with_noise(plan, share), Rng())
            side.append(total[0])
        found.append(numpy.array(side))
    return found[0], found[1]


@pytest.mark.slow
def test_descent_of_several_steps_and_half_of_its_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step depends on the noise of those before it; together they cost what one Gaussian release would."""
    model = PrivateLogisticRegression(
        EPSILON, DELTA, "gradient", 1.0, 2.0, classes=[0, 1], relation="replace_one", steps=3
    )
    pair = kept(monkeypatch, gradient, lambda table: model.fit(*table), flipped_tables("replace_one", 1.0))
    for share in (1.0, 0.5):
        with monkeypatch.context() as patched:
            assert (proven(transcripts(pair, share, 6000, patched), DELTA) <= EPSILON) is (share == 1.0)


# Noise with a Gamma norm: output, ridge -----------------------------------------------------------------------------


def gamma_outputs(module: Any, arguments: tuple, count: int, draw: Callable[..., Any], patched: Any) -> Floats:
    """Fits of one table. Its minimiser is found once, by the module's own means; the noise is anew each time."""
    name = "minimise" if module is output else "in_ball"
    real, known = getattr(module, name), []

    def once(*inputs: Any, **settings: Any) -> Floats:
        if not known:
            known.append(real(*inputs, **settings))
        return numpy.asarray(known[0])

    patched.setattr(module, name, once)
    patched.setattr(module, "gamma_norm", draw)
    rng = Rng()
    return numpy.array([module.fit(*arguments, rng)[0] for _ in range(count)])


def in_bulk(count: int) -> Callable[..., Floats]:
    """Draws by numpy, of the law and scale that are asked for; the slow test has the real ones."""
    stock: dict[tuple[int, float], Any] = {}

    def draw(rng: Rng, dimension: int, scale: float) -> Floats:
        if (dimension, scale) not in stock:
            stock[dimension, scale] = iter(gamma_norms(count, dimension, scale))
        return numpy.asarray(next(stock[dimension, scale]))

    return draw


def check_gamma_noise(
    module: Any, pair: list[tuple], count: int, is_real: bool, planted: float, monkeypatch: Any
) -> None:
    for share in (1e-9, 1.0, planted):
        sides = []
        for arguments in pair:
            plan = with_noise(arguments[-1], share)
            draw = vector_noise.gamma_norm if is_real else in_bulk(count)
            with monkeypatch.context() as patched:
                amount = 1 if share == 1e-9 else count
                sides.append(gamma_outputs(module, (*arguments[:-1], plan), amount, draw, patched))
        if share == 1e-9:
            centres = [side[0] for side in sides]  # of the noise; next to none was added
            at_most = numpy.linalg.norm(centres[0] - centres[1]) * pair[0][-1].alpha / pair[0][-1].scale
            assert at_most <= PURE_EPSILON < 2 * at_most  # the exact densities' ratio, and with half of the noise
            continue
        statistics = [nearer(side, *centres) for side in sides]
        assert (proven((statistics[0], statistics[1]), 0.0) <= PURE_EPSILON) is (share == 1.0)


@of_every_kind
@pytest.mark.parametrize("method", ["output", "ridge"])
def test_gamma_noise_and_its_half(
    method: str, norm: float, intercept: bool, relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, pair = handed_over(monkeypatch, method, 0.0, norm, intercept, relation)
    planted = planted_share(0.0, intercept and method == "output", relation)
    check_gamma_noise(module, pair, SAMPLES, False, planted, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["output", "ridge"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_real_gamma_noise_and_its_half(method: str, relation: Relation, monkeypatch: pytest.MonkeyPatch) -> None:
    module, pair = handed_over(monkeypatch, method, 0.0, 12.0, True, relation)
    planted = planted_share(0.0, method == "output", relation)
    check_gamma_noise(module, pair, 30_000, True, planted, monkeypatch)


# Objective perturbation ---------------------------------------------------------------------------------------------


def objective_outputs(arguments: tuple, share: float, count: int, monkeypatch: pytest.MonkeyPatch) -> Floats:
    """Fits of one table: the linear terms that `fit` draws are kept, all minimisers are found together."""
    problem, plan = arguments[0], replace(arguments[1], scale=arguments[1].scale * share)
    dimension, terms, stock = problem.dimension, [], iter(())

    def keep(problem: Any, *, alpha: float, linear: Floats, tolerance: float) -> Floats:
        assert alpha == plan.alpha
        terms.append(linear)
        return numpy.zeros(dimension)

    if plan.gaussian:
        many = numpy.zeros((count, dimension))
        stock = iter(mechanisms.gaussian(many, sensitivity=1.0, noise_multiplier=plan.scale))

    def gaussian(value: Floats, *, sensitivity: float, noise_multiplier: float, rng: Rng) -> Floats:
        assert (sensitivity, noise_multiplier) == (1.0, plan.scale)
        return numpy.asarray(value + next(stock))

    with monkeypatch.context() as patched:
        patched.setattr(objective, "minimise", keep)
        patched.setattr(objective, "gamma_norm", in_bulk(count))
        patched.setattr(mechanisms, "gaussian", gaussian)
        rng = Rng()
        solver_noise = numpy.array([objective.fit(problem, plan, rng) for _ in range(count)])
    found = Weighted.of(problem).minimisers(plan.alpha, numpy.array(terms), plan.tolerance)
    return found + solver_noise


@of_every_kind
@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_objective_noise_and_its_half(
    delta: float, norm: float, intercept: bool, relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statistic is the exact ratio of the minimisers' densities: that of the noise, times the determinants'."""
    _, pair = handed_over(monkeypatch, "objective", delta, norm, intercept, relation)
    one, other = (Weighted.of(arguments[0]) for arguments in pair)
    epsilon = EPSILON if delta else PURE_EPSILON
    for share in (1.0, planted_share(delta, intercept, relation)):
        plan = replace(pair[0][1], scale=pair[0][1].scale * share)
        sides = [objective_outputs(arguments, share, SAMPLES, monkeypatch) for arguments in pair]
        statistics = [one.log_densities(side, plan) - other.log_densities(side, plan) for side in sides]
        assert (proven((statistics[0], statistics[1]), delta) <= epsilon) is (share == 1.0)
        if not delta:  # then one point at which the exact densities differ by more is proof enough
            assert bool(numpy.abs(numpy.concatenate(statistics)).max() <= epsilon) is (share == 1.0)


def planted_share(delta: float, intercept: bool, relation: Relation) -> float:
    """Half the noise; less where the theorem's bound has room to spare, or so few samples would prove too little.

    The Gaussian form bounds a loss by its size, in twice as many dimensions for a replaced row: with half of its noise
    it may still be private. With an intercept the neighbours come to 0.7 of the bound, in three dimensions: for pure
    privacy that half of the noise is too little is shown by exact densities, here and in `check_gamma_noise`.
    """
    if delta:
        return 0.2 if relation == "replace_one" and intercept else 0.25
    return 0.35 if intercept else 0.5


@pytest.mark.parametrize("norm", [1.0, 12.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_exact_densities_catch_half_of_the_objective_noise(
    norm: float, relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an intercept, where sampling takes away more of the noise."""
    _, pair = handed_over(monkeypatch, "objective", 0.0, norm, True, relation)
    one, other = (Weighted.of(arguments[0]) for arguments in pair)
    for share in (1.0, 0.5):
        plan = replace(pair[0][1], scale=pair[0][1].scale * share)
        points = objective_outputs(pair[0], share, 2000, monkeypatch)
        gaps = numpy.abs(one.log_densities(points, plan) - other.log_densities(points, plan))
        assert bool(gaps.max() <= PURE_EPSILON) is (share == 1.0)
