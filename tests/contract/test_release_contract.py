"""Noise over sensitivity equals the charged event, on every path that releases a number, a count or a choice.

Training and federated rounds are in test_release_contract_training.py. The last test of this file lists every module
that draws noise, so that a new path cannot come without its contract.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from release_probe import Book, Probe, flat_norm, install, price
from scipy import integrate, stats
from scipy.sparse import csr_array

import hush
from hush import Rng, events, mechanisms
from hush.errors import BudgetExceeded
from hush.features import PrivateColumnWeights, PrivatePCA, PrivateScaler, WhitenedPatches, evened
from hush.gradients.noise import NoiseSource
from hush.linear import (
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateSoftmaxHead,
    PrivateTheilSen,
    noisy_projected_sgd,
    vector_noise,
)
from hush.linear import objective as objective_module
from hush.mechanisms import stability_threshold
from hush.mechanisms.draws import Draws
from hush.mechanisms.real import add_gaussian, add_laplace
from hush.pate import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, VoteCounts, cost_of
from hush.pate import aggregate as pate_aggregate
from hush.pate.private_costs import local_sensitivity, smoothable_rdp
from hush.pate.sanitise import ReleasePlan
from hush.privacy import Relation
from hush.prompts import PromptPATE
from hush.prompts.generate import GenerationPlan, generate_demonstrations
from hush.prompts.templates import Template

NEAR = 1e-5  # relative: grids, safety margins and roundings of the paths are smaller
RELATIONS: tuple[Relation, ...] = ("add_remove", "replace_one")


@pytest.fixture
def probe() -> Iterator[Probe]:
    with pytest.MonkeyPatch.context() as patch:
        yield install(patch)


# The primitives themselves: a draw of size 1 arrives as one standard deviation or scale ------------------------


def test_primitives_add_what_they_are_told(probe: Probe) -> None:
    values = numpy.array([0.0, 3.25, -7.5])
    probe.level = 1.0
    for add, scale in itertools.product((add_gaussian, add_laplace), (1.0, 0.3, 41.0)):
        assert add(values, scale, Draws()) - values == pytest.approx(numpy.full(3, scale), rel=1e-6)
    assert numpy.linalg.norm(vector_noise.gamma_norm(Rng(), 4, 0.7)) == pytest.approx(4 * 0.7)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradient_noise_adds_what_it_is_told(probe: Probe, secure: bool, dtype: torch.dtype) -> None:
    probe.level = 1.0
    noisy = NoiseSource(Rng(), secure=secure).add({"weight": torch.zeros(3, 2, dtype=dtype)}, 1.75)
    assert noisy["weight"].double().numpy() == pytest.approx(numpy.full((3, 2), 1.75), rel=2e-5)


def test_two_releases_of_one_source_share_no_noise() -> None:
    rng, seen = Rng.from_seed(3), []
    for _ in range(3):
        seen.append(vector_noise.gamma_norm(rng, 2, 1.0)[0])
        seen.append(add_gaussian(numpy.zeros(2), 1.0, Draws(rng))[0])
        seen.append(float(NoiseSource(rng).add({"weight": torch.zeros(2)}, 1.0)["weight"][0]))
        seen.append(float(NoiseSource(rng, secure=True).add({"weight": torch.zeros(2)}, 1.0)["weight"][0]))
    assert len(set(numpy.round(seen, 4))) == len(seen)


# Mechanisms ----------------------------------------------------------------------------------------------------

Call = Callable[[Any, Any, Relation], Any]  # data, account, relation -> what is released


def _additive(probe: Probe, call: Call, data: Any, neighbour: Any, relation: Relation, order: int) -> Iterator[float]:
    """Yield the measured sensitivity, the scale of the noise, and the charged price."""
    book = Book(probe, relation)
    exact = probe.run(lambda: call(data, book, relation))
    assert book.drawn == [0]  # charged before the first draw
    moved = flat_norm(exact, probe.run(lambda: call(neighbour, None, relation)), order)
    noisy = probe.run(lambda: call(data, None, relation), level=1.0)
    arrived = numpy.unique(numpy.round(numpy.ravel(numpy.asarray(noisy, float) - numpy.asarray(exact, float)), 9))
    assert len(arrived) == 1  # every coordinate has the same noise
    yield from (moved, float(arrived[0]), price(book.event, relation))  # type: ignore[misc]


LAPLACE: dict[str, tuple[Call, dict[Relation, tuple[Any, Any]]]] = {
    "laplace": (
        lambda data, account, relation: mechanisms.laplace(
            data, sensitivity=3.0, epsilon=0.25, relation=relation, account=account
        ),
        dict.fromkeys(RELATIONS, ([5.0, 1.0], [3.0, 2.0])),
    ),
    "discrete_laplace": (
        lambda data, account, relation: mechanisms.discrete_laplace(
            data, sensitivity=3, epsilon=0.25, relation=relation, account=account
        ),
        dict.fromkeys(RELATIONS, ([5, 1], [3, 2])),
    ),
    "count": (
        lambda data, account, relation: mechanisms.count(data, epsilon=0.25, relation=relation, account=account),
        {"add_remove": ([True] * 5, [True] * 4), "replace_one": ([True] * 5, [True] * 4 + [False])},
    ),
    "sum": (
        lambda data, account, relation: mechanisms.sum(
            data, bounds=(-2.0, 3.0), epsilon=0.25, relation=relation, account=account
        ),
        {"add_remove": ([1.0, 99.0], [1.0]), "replace_one": ([1.0, 99.0], [1.0, -99.0])},
    ),
    "sum below zero": (
        lambda data, account, relation: mechanisms.sum(
            data, bounds=(-7.0, 3.0), epsilon=0.25, relation=relation, account=account
        ),
        {"add_remove": ([1.0, -99.0], [1.0]), "replace_one": ([1.0, 99.0], [1.0, -99.0])},
    ),
    "histogram of bins": (
        lambda data, account, relation: mechanisms.histogram(
            data, bins=["a", "b", "c"], epsilon=0.25, relation=relation, account=account
        ),
        {"add_remove": (["a", "b"], ["a"]), "replace_one": (["a", "b"], ["a", "c"])},
    ),
    "histogram of edges": (
        lambda data, account, relation: mechanisms.histogram(
            data, edges=[0.0, 1.0, 2.0], epsilon=0.25, relation=relation, account=account
        ),
        {"add_remove": ([0.5, 1.5], [0.5]), "replace_one": ([0.5, 1.5], [0.5, 0.7])},
    ),
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", LAPLACE)
def test_laplace_noise_over_sensitivity_is_the_charge(probe: Probe, name: str, relation: Relation) -> None:
    call, data = LAPLACE[name]
    moved, scale, spent = _additive(probe, call, *data[relation], relation, 1)
    assert moved / scale == pytest.approx(0.25, rel=NEAR)
    assert spent.epsilon == pytest.approx(0.25, rel=NEAR)  # type: ignore[attr-defined]


@pytest.mark.parametrize("relation", RELATIONS)
def test_gaussian_noise_over_sensitivity_is_the_charge(probe: Probe, relation: Relation) -> None:
    def call(data: Any, account: Any, relation: Relation) -> Any:
        return mechanisms.gaussian(data, sensitivity=5.0, noise_multiplier=8.0, relation=relation, account=account)

    moved, scale, spent = _additive(probe, call, [3.0, 4.0], [0.0, 0.0], relation, 2)
    mu = moved / scale
    assert mu == pytest.approx(1 / 8.0, rel=NEAR)
    # The sensitivity is stated for the relation: a replacement is not counted twice.
    assert price(gaussian_event(relation, 8.0), relation).mu_squared == pytest.approx(mu**2, rel=NEAR)
    assert spent.mu_squared == pytest.approx(mu**2, rel=NEAR)  # type: ignore[attr-defined]


def gaussian_event(relation: Relation, noise_multiplier: float) -> events.Event:
    return events.GaussianDP(1 / noise_multiplier) if relation == "replace_one" else events.Gaussian(noise_multiplier)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """[Balle, Wang 2018, Thm. 8]."""
    phi = stats.norm.cdf
    return float(phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu))


def test_gaussian_noise_by_budget_is_the_least_that_meets_it(probe: Probe) -> None:
    def call(data: Any, account: Any, relation: Relation) -> Any:
        return mechanisms.gaussian(data, sensitivity=2.0, epsilon=0.7, delta=1e-4, account=account)

    moved, scale, spent = _additive(probe, call, 2.0, 0.0, "add_remove", 2)
    assert gaussian_delta(0.7, moved / scale) == pytest.approx(1e-4, rel=1e-4)
    assert spent.mu_squared == pytest.approx((moved / scale) ** 2, rel=NEAR)  # type: ignore[attr-defined]


def test_discrete_gaussian_noise_is_the_charge(probe: Probe) -> None:
    def call(data: Any, account: Any, relation: Relation) -> Any:
        return mechanisms.discrete_gaussian(data, sensitivity=5.0, stddev=10.0, account=account)

    moved, scale, spent = _additive(probe, call, [3, 4], [0, 0], "add_remove", 2)
    assert moved / scale == pytest.approx(0.5)
    assert spent.rho == pytest.approx((moved / scale) ** 2 / 2)  # type: ignore[attr-defined]


def test_discrete_gaussian_by_budget_meets_it(probe: Probe) -> None:
    mechanisms.discrete_gaussian(3, sensitivity=2.0, epsilon=0.7, delta=1e-4, account=(book := Book(probe)))
    rho = 2 / probe.releases[0].scale ** 2
    assert price(book.event).rho == pytest.approx(rho)
    # Any order gives a bound on delta [Canonne, Kamath, Steinke 2020, Cor. 13]; the best of them is the calibration.
    orders = 1 + numpy.geomspace(0.1, 1000, 20_000)
    logs = (orders - 1) * (orders * rho - 0.7) - numpy.log(orders) + (orders - 1) * numpy.log1p(-1 / orders)
    assert math.exp(logs.min()) == pytest.approx(1e-4, rel=1e-3)


def test_discrete_laplace_by_stddev_is_the_charge(probe: Probe) -> None:
    mechanisms.discrete_laplace(3, sensitivity=2.0, stddev=10.0, account=(book := Book(probe)))
    ratio = math.exp(-price(book.event).epsilon / 2.0)  # of the chances of two neighbouring whole numbers
    assert math.sqrt(2 * ratio) / (1 - ratio) == pytest.approx(10.0)


@pytest.mark.parametrize("relation", RELATIONS)
def test_mean_is_two_releases_or_one(probe: Probe, relation: Relation) -> None:
    def call(data: Sequence[float], account: Any = None) -> Any:
        return mechanisms.mean(data, bounds=(-2.0, 6.0), epsilon=0.5, relation=relation, account=account)

    book = Book(probe, relation)
    base, other = ([1.0, 99.0], [1.0]) if relation == "add_remove" else ([1.0, 99.0], [1.0, -99.0])
    found = []
    for data, level in ((base, 0.0), (other, 0.0), (base, 1.0)):
        probe.run(lambda data=data: call(data, book), level)
        found.append({release.kind: release.value for release in probe.releases})
    epsilon = 0.0
    for kind in found[0]:
        exact, neighbour, noisy = (each[kind] for each in found)
        epsilon += abs(exact - neighbour) / (noisy - exact)
    assert list(found[0]) == (["total", "count"] if relation == "add_remove" else ["total"])
    assert book.drawn == [0, 0, 0]
    assert price(book.charged[0], relation).epsilon == pytest.approx(0.5, rel=NEAR)
    assert epsilon == pytest.approx(0.5, rel=NEAR)


@pytest.mark.parametrize("relation", RELATIONS)
def test_histogram_of_unknown_bins_shows_one_record_with_chance_delta(probe: Probe, relation: Relation) -> None:
    moved, delta, data = (2 if relation == "replace_one" else 1), 1e-3, ["a"] * 500 + ["rare"]

    def call(level: float, account: Any = None) -> Any:
        return probe.run(
            lambda: mechanisms.histogram(data, epsilon=0.25, delta=delta, relation=relation, account=account), level
        )

    book = Book(probe, relation)
    assert "rare" not in call(0.0, book)
    spent = price(book.event)
    assert (spent.epsilon, spent.delta, book.drawn) == (0.25, delta, [0])
    assert probe.releases[0].scale == pytest.approx(moved / 0.25)
    # A Laplace number is above `edge` scales with chance exp(-edge) / 2, which must be delta at the threshold.
    edge = math.log(1 / (2 * delta))
    assert "rare" not in call(edge * (1 - 1e-4))
    assert "rare" in call(edge * (1 + 1e-4))
    assert stability_threshold(0.25, delta, relation) == pytest.approx(1 + edge * moved / 0.25)


def law(exponents: numpy.ndarray, sizes: Any = None) -> numpy.ndarray:
    weights = numpy.exp(-exponents) * (1 if sizes is None else numpy.asarray(sizes))
    return weights / weights.sum()


def permute_and_flip(exponents: numpy.ndarray) -> numpy.ndarray:
    """The exact chances: over all orders, the first candidate whose coin falls."""
    chances, number = numpy.exp(-exponents), len(exponents)
    result = numpy.zeros(number)
    for order in itertools.permutations(range(number)):
        missed = 1.0
        for place in order:
            result[place] += missed * chances[place]
            missed *= 1 - chances[place]
    return result / math.factorial(number)


def loss(one: numpy.ndarray, other: numpy.ndarray) -> float:
    return float(numpy.abs(numpy.log(one) - numpy.log(other)).max())


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("name", ["exponential", "report_noisy_max"])
def test_choices_lose_what_is_charged(probe: Probe, name: str, monotone: bool) -> None:
    chances = law if name == "exponential" else permute_and_flip
    low = [0.0, -8.0, -8.0] if monotone else [0.0, 0.0, 0.0]
    pairs = {True: (low, [low[0] + 2, *low[1:]]), False: ([2.0, -40.0, -40.0], [-2.0 + 2, -38.0, -38.0])}
    worst = 0.0
    book = Book(probe)
    for before, after in (pairs[monotone], ([0.0] * 6, [-2.0] + [2.0 * (not monotone)] * 5)):
        found = []
        for utilities in (before, after):
            probe.clear()
            getattr(mechanisms, name)(utilities, sensitivity=2.0, epsilon=0.5, monotone=monotone, account=book)
            found.append(chances(probe.choices[0]))
        worst = max(worst, loss(*found))
    assert {price(event).epsilon for event in book.charged} == {0.5}
    assert set(book.drawn) == {0}
    assert 0.3 < worst / 0.5 <= 1 + 1e-9


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_quantile_loses_what_is_charged(probe: Probe, relation: Relation, level: float) -> None:
    def chances(data: list[float], account: Any = None) -> numpy.ndarray:
        probe.clear()
        mechanisms.quantile(
            data, level, bounds=(0.0, 8.0), candidates=40_001, epsilon=0.5, relation=relation, account=account
        )
        sizes = numpy.asarray(probe.sizes[0])
        return numpy.repeat(numpy.exp(-probe.choices[0]), sizes) / law(probe.choices[0], sizes).size

    book, worst = Book(probe, relation), 0.0
    # The last rows are the worst case: nearly all candidates lie in one gap and get worse, the two at the end better.
    low = round(20 * level)
    edge = [0.0] * low + [7.9998] + [8.0] * (19 - low)
    for rows, extra in (([8.0] * 40, -5.0), ([0.0] * 40, 99.0), ([8.0] * 40, 99.0), (edge, 99.0)):
        other = [*rows[1:], extra] if relation == "replace_one" else [*rows, extra]
        before, after = (weights / weights.sum() for weights in (chances(rows, book), chances(other)))
        worst = max(worst, loss(before, after))
    assert {price(event).epsilon for event in book.charged} == {0.5}
    assert set(book.drawn) == {0}
    assert 0.98 < worst / 0.5 <= 1 + 1e-9


@pytest.mark.parametrize("categories", [2, 5])
def test_randomized_response_keeps_with_the_charged_odds(probe: Probe, categories: int) -> None:
    mechanisms.randomized_response([1, 0], epsilon=0.5, categories=categories, account=(book := Book(probe)))
    kept = probe.chances[0]
    assert math.log(kept / ((1 - kept) / (categories - 1))) == pytest.approx(0.5)
    assert book.charged == [events.RandomizedResponse(0.5, categories)]
    assert book.drawn == [0]


# Linear models -------------------------------------------------------------------------------------------------


def rows_and_labels(extra: Sequence[float] = (), label: int = 1, number: int = 40) -> tuple[Any, Any]:
    """Rows of 0 and one more, far longer than any bound: what it adds is what one example can add."""
    x = numpy.zeros((number + bool(len(extra)), 2))
    y = numpy.arange(len(x)) % 2
    if len(extra):
        x[-1], y[-1] = extra, label
    return x, y


def logistic(probe: Probe, method: str, delta: float, relation: Relation, **settings: Any) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(
        0.5, delta, method=method, data_norm=2.0, classes=[0, 1], relation=relation, fit_intercept=False, **settings
    )


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("alpha", [None, 30.0])
def test_gaussian_output_perturbation(probe: Probe, relation: Relation, alpha: float | None) -> None:
    model = logistic(probe, "output", 1e-5, relation, alpha=alpha)
    book = Book(probe, relation)
    exact = probe.run(lambda: model.fit(*rows_and_labels(), account=book))
    before, alpha = list(probe.of_kind("gaussian")), exact.alpha_ / 4.0  # rows are divided by data_norm
    fixed = logistic(probe, "output", 1e-5, relation, alpha=exact.alpha_)
    probe.run(lambda: fixed.fit(*rows_and_labels((1e6, 0.0))))
    moved = flat_norm(before[-1].value, probe.of_kind("gaussian")[-1].value)
    # The minimiser moves by the gradient's length, 1 for unit rows, over alpha; half of that at weights 0.
    assert 0.4 / alpha < moved <= 1 / alpha
    mu_squared = (1 / alpha / before[-1].scale) ** 2 * (4 if relation == "replace_one" else 1)
    counted = len(before) == 2
    assert counted == (model.alpha is None and relation == "add_remove")
    if counted:
        assert before[0].value == 40
        mu_squared += before[0].scale ** -2
    assert price(book.event, relation).mu_squared == pytest.approx(mu_squared, rel=1e-4)
    assert book.event.parts()
    assert book.drawn == [0]
    assert gaussian_delta(0.5, math.sqrt(mu_squared)) == pytest.approx(1e-5, rel=1e-3)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("alpha", [None, 30.0])
def test_pure_output_perturbation(probe: Probe, relation: Relation, alpha: float | None) -> None:
    model, book = logistic(probe, "output", 0.0, relation, alpha=alpha), Book(probe, relation)
    exact = probe.run(lambda: model.fit(*rows_and_labels(), account=book))
    scale, used = probe.of_kind("gamma")[0].scale, exact.alpha_ / 4.0
    noisy = probe.run(lambda: logistic(probe, "output", 0.0, relation, alpha=exact.alpha_).fit(*rows_and_labels()), 1.0)
    if model.alpha is not None:
        arrived = flat_norm(noisy.coef_, exact.coef_) * 2.0  # weights are divided by data_norm on their way out
        assert arrived == pytest.approx(2 * scale, rel=1e-4)  # the Gamma law of two dimensions has mean 2 scale
    twice = 2 if relation == "replace_one" else 1
    epsilon = twice / used / scale
    if model.alpha is None and relation == "add_remove":
        epsilon += events.flat(book.event).__next__()[0].epsilon  # the count; see test_counts_of_rows
    assert epsilon == pytest.approx(0.5, rel=1e-4)
    assert price(book.event).epsilon == pytest.approx(0.5, rel=1e-4)
    assert book.drawn == [0]


def test_counts_of_rows_cost_their_share(probe: Probe) -> None:
    from hush.linear.counting import split_epsilon, split_gaussian

    for count, pure in ((split_epsilon(0.5)[0], True), (split_gaussian(4.0)[0], False)):
        exact, other = (probe.run(lambda rows=rows, count=count: count.release(rows, Rng())) for rows in (900, 901))
        noisy = probe.run(lambda count=count: count.release(900, Rng()), level=1.0)
        spent = price(count.event)
        ratio = abs(other - exact) / (noisy - exact)
        assert ratio == pytest.approx(spent.epsilon if pure else math.sqrt(spent.mu_squared), rel=1e-2)
    whole = split_gaussian(4.0)
    assert price(whole[0].event).mu_squared + whole[1] ** -2 == pytest.approx(4.0**-2)
    assert price(split_epsilon(0.5)[0].event).epsilon + split_epsilon(0.5)[1] == pytest.approx(0.5)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("classes", [2, 3])
def test_noisy_gradient_descent(probe: Probe, relation: Relation, classes: int) -> None:
    def fit(extra: Sequence[float], account: Any = None) -> Any:
        model = PrivateLogisticRegression(
            0.5, 1e-5, method="gradient", data_norm=2.0, classes=list(range(classes)), relation=relation,
            fit_intercept=False, steps=7,
        )  # fmt: skip
        return model.fit(*rows_and_labels(extra), account=account)

    book = Book(probe, relation)
    probe.run(lambda: fit((), book))
    before = [release for release in probe.of_kind("gaussian") if release.value.ndim]
    counts = [release for release in probe.of_kind("gaussian") if not release.value.ndim]
    probe.run(lambda: fit((1e6, 0.0)))
    after = next(release for release in probe.of_kind("gaussian") if release.value.ndim)
    moved = flat_norm(before[0].value, after.value)
    assert len(before) == 7
    assert len({release.scale for release in before}) == 1
    mu_squared = 7 * (moved / before[0].scale) ** 2 * (4 if relation == "replace_one" else 1)
    mu_squared += sum(release.scale**-2 for release in counts)
    assert len(counts) == (relation == "add_remove")
    assert price(book.event, relation).mu_squared == pytest.approx(mu_squared, rel=1e-4)
    assert gaussian_delta(0.5, math.sqrt(mu_squared)) == pytest.approx(1e-5, rel=1e-3)
    assert book.drawn == [0]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_objective_perturbation(
    monkeypatch: pytest.MonkeyPatch, probe: Probe, relation: Relation, classes: int, delta: float
) -> None:
    """The charge is the linear term's, the determinant's and the solver's together [Chaudhuri et al. 2011, Thm. 9]."""
    problems, plans = [], []
    fit = objective_module.fit

    def recorded(problem: Any, plan: Any, rng: Rng) -> Any:
        problems.append(problem)
        plans.append(plan)
        return fit(problem, plan, rng)

    monkeypatch.setattr(objective_module, "fit", recorded)
    model = PrivateLogisticRegression(
        0.5, delta, data_norm=2.0, classes=list(range(classes)), relation=relation, fit_intercept=False
    )
    book = Book(probe, relation)
    probe.run(lambda: model.fit(*rows_and_labels((1e6, 0.0)), account=book))
    problem, (*linear, solver) = problems[0], probe.releases
    assert len(linear) == 1
    assert linear[0].kind == ("gaussian" if delta else "gamma")
    # What one row can do, measured on its own at weights that put it far on the wrong side, and at weights 0.
    direction = problem.rows[-1] / numpy.linalg.norm(problem.rows[-1])
    weights = numpy.zeros((classes - 1, 2))
    weights[0] = -300 * direction if classes == 2 else 300 * direction
    own = type(problem)(problem.rows[-1:], problem.labels[-1:], classes, problem.row_norm)
    other = type(problem)(problem.rows[-1:] * 0, problem.labels[-1:], classes, problem.row_norm)
    gradient = flat_norm(own.gradient(weights.ravel(), math.inf), other.gradient(weights.ravel(), math.inf))
    trace, rank = numpy.trace(own.hessian(0 * weights.ravel())), classes - 1
    assert gradient == pytest.approx(1.0 if classes == 2 else math.sqrt(2), rel=1e-3)
    assert trace == pytest.approx(0.25 if classes == 2 else 2 / 3, rel=1e-3)
    alpha = model.alpha_ / 4.0
    left = price(book.event).epsilon * 0.99 - rank * math.log1p(trace / (rank * alpha))
    twice = 2 if relation == "replace_one" else 1
    moved = twice * gradient
    if delta:
        assert chi_delta(left, moved / linear[0].scale, rank * twice) == pytest.approx(delta, rel=3e-2)
        assert price(book.event).delta == pytest.approx(delta, rel=1e-6)
    else:
        assert moved / linear[0].scale == pytest.approx(left, rel=1e-3)
    # Two minimisers are each within (tolerance + rounding of the linear term) / alpha of the truth.
    assert solver.kind == "gamma"
    rounding = math.sqrt(problem.dimension) * linear[0].scale * 2.0**-24
    error = 2 * (plans[0].tolerance + rounding) / alpha / solver.scale
    assert error == pytest.approx(0.01 * price(book.event).epsilon, rel=1e-6)
    assert price(book.event).epsilon == pytest.approx(0.5, rel=1e-6)
    assert book.drawn == [0]


def chi_delta(epsilon: float, shift: float, freedom: int) -> float:
    """delta of a privacy loss shift^2 / 2 + shift chi, by quadrature over the law of chi."""

    def part(length: float) -> float:
        excess = shift**2 / 2 + shift * length - epsilon
        return float(stats.chi(freedom).pdf(length) * -math.expm1(-excess)) if excess > 0 else 0.0

    start = max(0.0, (epsilon - shift**2 / 2) / shift)
    return float(integrate.quad(part, start, start + 15, limit=200)[0])


@pytest.mark.parametrize("relation", RELATIONS)
def test_sufficient_statistics(probe: Probe, relation: Relation) -> None:
    def fit(x: Any, y: Any, account: Any = None) -> Any:
        return PrivateLinearRegression(0.5, 1e-5, bounds=((-1, 1), (-1, 1)), relation=relation).fit(x, y, account)

    book = Book(probe, relation)
    x, y = numpy.zeros((20, 2)), numpy.zeros(20)
    probe.run(lambda: fit(x, y, book))
    before = probe.releases[0]
    if relation == "add_remove":
        pair = [(numpy.vstack([x, [1e6, -1e6]]), numpy.append(y, 1e6))]
    else:
        far, back = x.copy(), x.copy()
        far[0], back[0] = (1e6, 1e6), (-1e6, -1e6)
        top, bottom = y.copy(), y.copy()
        top[0], bottom[0] = 1e6, 1e6
        pair = [(far, top), (back, bottom)]
    found = []
    for data in pair:
        probe.run(lambda data=data: fit(*data, Book(probe, relation)))  # an account keeps the warning of repeats away
        found.append(probe.releases[0].value)
    moved = flat_norm(found[0], before.value if len(found) == 1 else found[1])
    mu = 1 / before.scale
    if relation == "add_remove":
        assert moved * mu == pytest.approx(math.sqrt(price(book.event).mu_squared), rel=1e-4)
    else:  # the worst pair of rows is a matter of geometry; this one comes near
        assert 0.6 < moved * mu / math.sqrt(price(book.event).mu_squared) <= 1 + 1e-6
    assert gaussian_delta(0.5, math.sqrt(price(book.event, relation).mu_squared)) == pytest.approx(1e-5, rel=1e-3)
    assert (len(probe.releases), book.drawn) == (1, [0])


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_ridge_regression_in_a_ball(probe: Probe, relation: Relation, delta: float) -> None:
    def fit(x: Any, y: Any, account: Any = None) -> Any:
        model = PrivateLinearRegression(
            0.5, delta, method="output", bounds=(2.0, 3.0), relation=relation, fit_intercept=False, alpha=400.0
        )
        return model.fit(x, y, account)

    x, y, book = numpy.zeros((20, 2)), numpy.zeros(20), Book(probe, relation)
    first = probe.run(lambda: fit(x, y, book))
    release = probe.releases[0]
    second = probe.run(lambda: fit(numpy.vstack([x, [1e6, 0.0]]), numpy.append(y, 1e6)))
    moved = flat_norm(first.coef_, second.coef_) / 3.0 * 2.0  # in units of the bounds
    # A gradient is at most row_norm (row_norm radius + 1) = 2 long, and 1 at weights 0.
    assert 0.4 * 2 / 400 < moved <= 2 / 400
    ratio = 2 / 400 / release.scale * (2 if relation == "replace_one" else 1)
    spent = price(book.event, relation)
    assert ratio == pytest.approx(math.sqrt(spent.mu_squared) if delta else spent.epsilon, rel=1e-4)
    assert (gaussian_delta(0.5, ratio) if delta else ratio) == pytest.approx(delta or 0.5, rel=1e-3)
    assert book.drawn == [0]


def test_theil_sen_chooses_twice_for_half(probe: Probe) -> None:
    def fit(last: float, account: Any = None) -> list[numpy.ndarray]:
        x = numpy.linspace(0, 1, 40)
        y = numpy.where(numpy.arange(40) % 2, 0.9, 0.1)
        y[7] = last
        probe.clear()
        model = PrivateTheilSen(0.5, (0, 1), (0, 1), matchings=3, relation="replace_one", random_state=1)
        model.fit(x, y, account)
        return [law(exponents) for exponents in probe.choices]

    book = Book(probe, "replace_one")
    before, after = fit(-1e6, book), fit(1e6)
    assert len(before) == 2
    assert [price(part).epsilon * times for part, times in events.flat(book.event)] == [pytest.approx(0.5)]
    worst = max(loss(*pair) for pair in zip(before, after, strict=True))
    assert 0.2 < worst / 0.25 <= 1 + 1e-9
    assert book.drawn == [0]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("sparse", [False, True])
def test_softmax_head(probe: Probe, relation: Relation, sparse: bool) -> None:
    def fit(extra: Sequence[float], account: Any = None) -> Any:
        x, y = rows_and_labels(extra)
        model = PrivateSoftmaxHead(
            0.5, 1e-5, classes=[0, 1, 2], data_norm=2.0, clip_norm=0.3, steps=6, relation=relation
        )
        return model.fit(csr_array(x) if sparse else x, y, account)

    book = Book(probe, relation)
    probe.run(lambda: fit((), book))
    before, counts = probe.of_kind("gradients"), probe.of_kind("gaussian")
    probe.run(lambda: fit((1e6, 0.0)))
    moved = flat_norm(before[0].value, probe.of_kind("gradients")[0].value)
    assert moved == pytest.approx(0.3, rel=NEAR)
    assert (len(before), len(counts)) == (6, int(relation == "add_remove"))
    assert len({release.scale for release in before}) == 1
    mu_squared = 6 * (moved / before[0].scale) ** 2 * (4 if relation == "replace_one" else 1)
    mu_squared += sum(release.scale**-2 for release in counts)
    assert price(book.event, relation).mu_squared == pytest.approx(mu_squared, rel=1e-4)
    assert gaussian_delta(0.5, math.sqrt(mu_squared)) == pytest.approx(1e-5, rel=1e-3)
    assert book.drawn == [0]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("sampling_prob", [1.0, 0.25])
@pytest.mark.parametrize("loss", ["logistic", "own"])
def test_noisy_projected_sgd(probe: Probe, relation: Relation, sampling_prob: float, loss: str) -> None:
    gradients: Any = "logistic" if loss == "logistic" else lambda weights, rows, targets: 7.0 * rows

    def fit(extra: float, account: Any = None) -> Any:
        x = numpy.zeros((30, 2))
        x[0, 0] = extra
        return noisy_projected_sgd(
            gradients, x, numpy.ones(30), epsilon=0.5, delta=1e-5, lipschitz=0.3, radius=2.0, steps=5,
            num_examples=30 if relation == "add_remove" else None, sampling_prob=sampling_prob, relation=relation,
            account=account,
        )  # fmt: skip

    book = Book(probe, relation)
    done = probe.run(lambda: fit(0.0, book))
    before, sampled = list(probe.releases), list(probe.sampled)
    probe.run(lambda: fit(1e6))
    moved = flat_norm(before[0].value, probe.releases[0].value)
    assert moved == pytest.approx(0.3, rel=NEAR)  # a row of zeros against one whose gradient is clipped
    assert len(before) == 5
    assert {release.scale for release in before} == {before[0].scale}
    assert before[0].scale / moved == pytest.approx(done.noise_multiplier, rel=NEAR)
    step: events.Event = events.Gaussian(done.noise_multiplier)
    step = events.PoissonSampled(step, sampling_prob) if sampling_prob < 1 else step
    assert book.charged == [done.event] == [events.Repeated(step, 5)]
    assert sampled == ([sampling_prob] * 5 if sampling_prob < 1 else [])
    assert hush.accounting.guarantee(done.event, delta=1e-5, relation=relation).epsilon <= 0.5
    assert book.drawn == [0]


# Features ------------------------------------------------------------------------------------------------------

STRIPES = torch.zeros(1, 1, 8, 8)
STRIPES[..., ::3] = 1e4
DULL = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
FEATURES: dict[str, tuple[Callable[[], Any], Any, Any, list[float]]] = {
    "scaler": (lambda: PrivateScaler(5.0), numpy.zeros((9, 2)), [[1e6, 0.0]], [math.hypot(1, 0.1), math.sqrt(2.0)]),
    "scaler without spread": (
        lambda: PrivateScaler(5.0, with_std=False), numpy.zeros((9, 2)), [[1e6, 0.0]], [math.hypot(1, 0.1)],
    ),
    "pca": (lambda: PrivatePCA(1, noise_multiplier=5.0), numpy.zeros((9, 2)), [[1e6, 1e6]], [1.0]),
    "column weights": (lambda: PrivateColumnWeights(5.0), numpy.zeros((9, 2)), [[1e6, 0.0]], [0.1]),
    "whitened patches": (
        lambda: WhitenedPatches(6, patch_size=3, cells=2, noise_multiplier=5.0), DULL, STRIPES, [1.0],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FEATURES)
def test_private_features(monkeypatch: pytest.MonkeyPatch, probe: Probe, name: str) -> None:
    monkeypatch.setattr(evened, "_PICTURES", 20)  # what follows the release does not matter here
    make, data, extra, bounds = FEATURES[name]
    join = torch.cat if isinstance(data, torch.Tensor) else numpy.vstack
    book = Book(probe)
    fitted = probe.run(lambda: make().fit(data, account=book))
    before = list(probe.releases)
    probe.run(lambda: make().fit(join([data, extra])))
    assert [release.kind for release in before] == ["gaussian"] * len(bounds)
    moved = flat_norm(before[0].value, probe.releases[0].value)
    assert 0.97 < moved / bounds[0] <= 1 + NEAR
    for release, bound in zip(before, bounds, strict=True):
        assert release.scale / bound == pytest.approx(5.0, rel=NEAR)
    if len(bounds) == 2:  # the second sum, at the mean of the first data set: rows of length 1 have squares of length 1
        assert flat_norm(before[1].value, probe.releases[1].value) <= bounds[1] * (1 + NEAR)
    assert price(book.event).mu_squared == pytest.approx(len(bounds) / 25)
    assert fitted.event_ == book.charged[0]
    assert book.drawn == [0]


# PATE ----------------------------------------------------------------------------------------------------------

VOTES = VoteCounts([[60, 30, 10], [51, 49, 0]], 100)
MOVED = VoteCounts([[59, 31, 10], [50, 49, 1]], 100)
STUDENT = [[0.2, 0.7, 0.1], [0.4, 0.4, 0.2]]
AGGREGATORS: dict[str, Any] = {
    "LNMax": LNMax(8.0),
    "GNMax": GNMax(8.0),
    "discrete GNMax": GNMax(8.0, noise="discrete"),
    "ConfidentGNMax": ConfidentGNMax(30, 20.0, 8.0),
    "discrete ConfidentGNMax": ConfidentGNMax(30, 20.0, 8.0, noise="discrete"),
    "InteractiveGNMax": InteractiveGNMax(-50, 20.0, 8.0, 0.9),
    "discrete InteractiveGNMax": InteractiveGNMax(-50, 20.0, 8.0, 0.9, noise="discrete"),
}


@pytest.fixture
def noisy_votes(monkeypatch: pytest.MonkeyPatch) -> list[numpy.ndarray]:
    """What is compared after the noise, in the order of the comparisons."""
    seen: list[numpy.ndarray] = []
    noisiest, add = pate_aggregate.noisiest, pate_aggregate.add_noise

    def recorded_largest(noisy: Any, source: Any) -> Any:
        seen.append(numpy.array(noisy, dtype=float))
        return noisiest(noisy, source)

    def recorded_add(values: Any, *how: Any) -> Any:
        result = add(values, *how)
        if numpy.ndim(values) == 1:  # the tested numbers
            seen.append(numpy.array(result, dtype=float))
        return result

    from hush.pate import interactive

    for module in (pate_aggregate, interactive):
        monkeypatch.setattr(module, "noisiest", recorded_largest)
        monkeypatch.setattr(module, "add_noise", recorded_add)
    return seen


@pytest.mark.parametrize("name", AGGREGATORS)
def test_votes(probe: Probe, noisy_votes: list[numpy.ndarray], name: str) -> None:
    vote = AGGREGATORS[name]
    extra = (STUDENT,) if "Interactive" in name else ()

    def answer(votes: VoteCounts, level: float, account: Any = None) -> list[numpy.ndarray]:
        noisy_votes.clear()
        found = probe.run(lambda: vote.answer(votes, *extra, account=account), level)
        assert found.answered.all()
        return list(noisy_votes)

    book = Book(probe)
    exact, moved, noisy = answer(VOTES, 0.0, book), answer(MOVED, 0.0), answer(VOTES, 1.0)
    tested = len(exact) == 2
    assert tested == ("LNMax" not in name and name.removeprefix("discrete ") != "GNMax")
    gaussian = pure = 0.0
    for before, after, loud in zip(exact, moved, noisy, strict=True):
        scales = numpy.unique((loud - before).round(6))
        assert len(scales) == 1  # every count has its own noise, of one size
        for one, other in zip(before, after, strict=True):
            gaussian += (flat_norm(one, other) / scales[0]) ** 2
            pure += flat_norm(one, other, 1) / scales[0]
    spent = price(book.event)
    if name == "LNMax":
        assert spent.epsilon == pytest.approx(pure, rel=NEAR)
    else:
        charged = 2 * spent.rho if "discrete" in name else spent.mu_squared
        assert charged == pytest.approx(gaussian, rel=NEAR)
    assert len(book.charged) == 1


@pytest.mark.parametrize("name", AGGREGATORS)
def test_no_label_leaves_that_was_not_paid_for(probe: Probe, name: str) -> None:
    extra = (STUDENT,) if "Interactive" in name else ()
    with pytest.raises(BudgetExceeded, match="nothing left"):
        AGGREGATORS[name].answer(VOTES, *extra, account=Book(probe, refuses=True))


def test_a_test_that_fails_is_charged_without_an_answer(probe: Probe) -> None:
    vote, book = ConfidentGNMax(55, 20.0, 8.0), Book(probe)
    answers = vote.answer(VOTES, account=book)
    assert answers.labels.tolist() == [0, -1]
    assert price(book.event).mu_squared == pytest.approx(2 / 20.0**2 + 2 / 8.0**2, rel=NEAR)


def test_votes_of_equal_counts_are_not_settled_by_their_order(probe: Probe) -> None:
    votes = VoteCounts([[50, 50]] * 400, 100)
    labels = GNMax(8.0).answer(votes).labels  # the probe adds the same noise to both counts
    assert 100 < labels.sum() < 300


@pytest.mark.parametrize("vote", [GNMax(40.0), ConfidentGNMax(100, 60.0, 40.0)], ids=["GNMax", "ConfidentGNMax"])
def test_sanitised_cost(probe: Probe, vote: Any) -> None:
    """The release is normal with a standard deviation of `release_stddev` smooth sensitivities."""
    plan = ReleasePlan(order=8.0, smoothness=0.03, release_stddev=6.0)
    rows = [[140, 60, 50]] * 5 + [[200, 30, 20]] * 5
    data = [VoteCounts(rows, 250), VoteCounts([[a - 1, b + 1, c] for a, b, c in rows], 250)]
    book, found = Book(probe), []
    for votes in data:
        answers = vote.answer(votes)
        exact, noisy = (
            probe.run(
                lambda votes=votes, answers=answers: cost_of(
                    vote, votes, answers, delta=1e-5, release=plan, release_delta=1e-6, account=book
                ),
                level,
            ).sanitised.epsilon
            for level in (0.0, 1.0)
        )
        masks = answers.asked, answers.answered
        local = local_sensitivity(vote, votes, *masks, plan.order)
        smooth = float((numpy.exp(-plan.smoothness * numpy.arange(len(local))) * local).max())
        assert noisy - exact == pytest.approx(plan.release_stddev * smooth, rel=1e-3)
        cost = smoothable_rdp(vote, votes, *masks, plan.order)
        # The stated epsilon is that of the released cost at one order, plus the release's own cost.
        excess = plan.order - 1
        conversion = (-math.log(1e-5) - math.log(plan.order)) / excess + math.log(excess / plan.order)
        released = exact - conversion - plan.rdp(plan.order)
        lift = plan.shift * plan.release_stddev * smooth  # so that it is rarely too small
        assert released == pytest.approx(cost + lift, rel=1e-3)
        found.append((cost, smooth, exact, noisy - exact))
    (cost, smooth, centre, stddev), (other_cost, other_smooth, other_centre, other_stddev) = found
    assert abs(cost - other_cost) <= min(smooth, other_smooth)
    assert abs(math.log(smooth / other_smooth)) <= plan.smoothness * (1 + 1e-9)
    assert len(set(book.charged)) == 1
    assert set(book.drawn) == {0}
    charged = price(book.charged[0])
    assert charged.delta == 1e-6
    # Two normal laws, as measured: their privacy loss beyond the charged epsilon has mass below the charged delta.
    for one, other in (
        ((centre, stddev), (other_centre, other_stddev)),
        ((other_centre, other_stddev), (centre, stddev)),
    ):
        points = numpy.linspace(one[0] - 12 * one[1], one[0] + 12 * one[1], 200_001)
        density, rival = stats.norm(*one).pdf(points), stats.norm(*other).pdf(points)
        excess = numpy.maximum(density - math.exp(charged.epsilon) * rival, 0)
        assert integrate.trapezoid(excess, points) <= charged.delta


@pytest.mark.parametrize("shift", [0.0, 4.75])
def test_the_sanitised_release_costs_no_more_than_charged_at_its_worst(shift: float) -> None:
    """The worst neighbours: the sensitivity grows by its factor, and the cost moves by the lesser one."""
    from hush.pate.sanitise import release_rdp

    smoothness, stddev, order = 0.02, 10.0, 8.0
    worst = 0.0
    for ratio in (math.exp(smoothness), math.exp(-smoothness)):
        gap = (min(1.0, ratio) + shift * stddev * abs(1 - ratio)) / stddev
        points = numpy.linspace(-40, 40, 400_001)
        one, other = stats.norm(0, 1).logpdf(points), stats.norm(gap, ratio).logpdf(points)
        moment = integrate.trapezoid(numpy.exp(order * one - (order - 1) * other), points)
        worst = max(worst, math.log(moment) / (order - 1))
    assert worst <= release_rdp(smoothness, stddev, order, shift=shift) <= 1.35 * worst


# Prompts -------------------------------------------------------------------------------------------------------


class Parrot:
    """Answers the last of the label words that its demonstrations show, and the first label word without any."""

    def log_probs(self, prefix: str, inputs: Sequence[str], continuations: Sequence[str], /) -> Any:
        said = max([0, *(place for place, word in enumerate(continuations) if word in prefix)])
        return [[[0.0 if word == said else -5.0] for word in range(len(continuations))] for _ in inputs]


@pytest.mark.parametrize("name", ["GNMax", "LNMax", "ConfidentGNMax"])
def test_prompt_pate(probe: Probe, noisy_votes: list[numpy.ndarray], name: str) -> None:
    """One person is in one prompt and moves one vote: what reaches the noise moves as the charge says."""
    people, queries = numpy.arange(30), ["one", "two", "three"]
    vote = ConfidentGNMax(5, 20.0, 8.0) if name == "ConfidentGNMax" else AGGREGATORS[name]
    make = PromptPATE(Parrot(), Template(), (" no", " yes"), content_free=(), by_queries=False)

    def answer(number: int, level: float, account: Any = None) -> list[numpy.ndarray]:
        noisy_votes.clear()
        labels = (people[:number] == 29).astype(numpy.int64)  # the last person alone says yes
        how = {"num_teachers": 10, "demonstrations": 30, "vote": vote, "progress": False, "account": account}
        texts = [f"text {person}" for person in range(number)]
        found = probe.run(
            lambda: make.label(texts, labels, queries, groups=people[:number], rng=Rng.from_seed(2), **how), level
        )
        assert found.answered.all()
        return list(noisy_votes)

    book = Book(probe)
    exact, moved, noisy = answer(30, 0.0, book), answer(29, 0.0), answer(30, 1.0)
    gaussian = pure = 0.0
    for before, after, loud in zip(exact, moved, noisy, strict=True):
        (scale,) = numpy.unique((loud - before).round(6))
        gaussian += (flat_norm(before, after) / scale) ** 2
        pure += flat_norm(before, after, 1) / scale
    assert exact[-1].shape == (3, 2)
    spent = price(book.event)
    measured, charged = (pure, spent.epsilon) if name == "LNMax" else (gaussian, spent.mu_squared)
    assert charged == pytest.approx(measured, rel=NEAR)


class Echo:
    """Says the last letter of the last private text for sure, and '.' without one."""

    def next_token_probs(self, prefixes: Sequence[str], ending: Sequence[int], /) -> numpy.ndarray:
        table = numpy.zeros((len(prefixes), 128))
        for row, prefix in enumerate(prefixes):
            shown = prefix.removesuffix("Text:").split("Text: ")[1:]
            table[row, ord(shown[-1].split("\n")[0][-1] if shown else ".")] = 1.0
        return table

    def text(self, tokens: Sequence[int], /) -> str:
        return "".join(map(chr, tokens))


def test_private_generation(probe: Probe) -> None:
    plan = GenerationPlan(sampling_prob=0.5, num_prompts=2, max_tokens=3, noise_multiplier=4.0, public_choices=128)
    frame = Template(instruction="Invent.\n\n")

    def write(texts: list[str], account: Any = None) -> Any:
        labels = numpy.zeros(len(texts), dtype=numpy.int64)
        return generate_demonstrations(
            Echo(), frame, [" x"], texts, labels, plan=plan, per_label=2, account=account, rng=Rng.from_seed(1)
        )

    book = Book(probe)
    made = probe.run(lambda: write([], book))
    before, sampled = list(probe.releases), list(probe.sampled)
    probe.run(lambda: write(["a"]))
    moved = flat_norm(before[0].value, probe.releases[0].value)
    assert moved == pytest.approx(math.sqrt(2), rel=1e-8)  # one distribution moved from a token to another
    assert {release.scale for release in before} == {before[0].scale}
    assert before[0].scale / moved == pytest.approx(4.0, rel=1e-8)
    step = events.PoissonSampled(events.Gaussian(4.0), 0.5)
    assert book.charged == [events.Repeated(step, 3)] * 2
    assert made.event == events.Repeated(events.Repeated(step, 3), 2)
    assert len(before) == len(sampled) == 6
    assert set(sampled) == {0.5}
    assert book.drawn == [0, 3]


def test_each_example_draws_its_prompt_for_itself() -> None:
    """Dealing in turn would fill prompts evenly, and one example more would move all that follow to other prompts."""
    shown: list[int] = []

    class Counting(Echo):
        def next_token_probs(self, prefixes: Sequence[str], ending: Sequence[int], /) -> numpy.ndarray:
            if len(prefixes) == 2:
                shown.append(prefixes[0].count("Text: "))
                assert sum(prefix.count("Text: ") for prefix in prefixes) == 40
            return super().next_token_probs(prefixes, ending)

    plan = GenerationPlan(sampling_prob=1.0, num_prompts=2, max_tokens=30, noise_multiplier=4.0, public_choices=128)
    texts, labels = ["a"] * 40, [0] * 40
    generate_demonstrations(
        Counting(), Template(), [" x"], texts, labels, plan=plan, per_label=1, rng=Rng.from_seed(1), stop="never"
    )
    assert len(shown) == 30
    assert stats.binomtest(sum(shown), 30 * 40, 0.5).pvalue > 1e-6
    assert len(set(shown)) > 5  # binomial, with a standard deviation of 3


def test_private_generation_stops_where_the_account_ends(probe: Probe) -> None:
    plan = GenerationPlan(sampling_prob=0.5, num_prompts=2, max_tokens=3, noise_multiplier=4.0)
    with pytest.raises(BudgetExceeded):
        generate_demonstrations(
            Echo(), Template(instruction=""), [" x"], ["a"], [0], plan=plan, per_label=2,
            account=Book(probe, refuses=True),
        )  # fmt: skip
    assert probe.draws == 0


# Charge before release -----------------------------------------------------------------------------------------

X, Y = rows_and_labels((1.0, 0.5))
REFUSED: dict[str, Callable[[Any], Any]] = {
    "laplace": lambda account: mechanisms.laplace(1.0, sensitivity=1.0, epsilon=1.0, account=account),
    "gaussian": lambda account: mechanisms.gaussian(1.0, sensitivity=1.0, noise_multiplier=1.0, account=account),
    "discrete_laplace": lambda account: mechanisms.discrete_laplace(1, sensitivity=1, epsilon=1.0, account=account),
    "discrete_gaussian": lambda account: mechanisms.discrete_gaussian(1, sensitivity=1, stddev=1.0, account=account),
    "count": lambda account: mechanisms.count([True], epsilon=1.0, account=account),
    "sum": lambda account: mechanisms.sum([1.0], bounds=(0, 1), epsilon=1.0, account=account),
    "mean": lambda account: mechanisms.mean([1.0], bounds=(0, 1), epsilon=1.0, account=account),
    "quantile": lambda account: mechanisms.quantile([1.0], 0.5, bounds=(0, 1), epsilon=1.0, account=account),
    "histogram": lambda account: mechanisms.histogram(["a"], bins=["a"], epsilon=1.0, account=account),
    "histogram of unknown bins": lambda account: mechanisms.histogram(["a"], delta=0.1, epsilon=1.0, account=account),
    "exponential": lambda account: mechanisms.exponential([1.0], sensitivity=1.0, epsilon=1.0, account=account),
    "report_noisy_max": lambda account: mechanisms.report_noisy_max([1.0], sensitivity=1, epsilon=1.0, account=account),
    "randomized_response": lambda account: mechanisms.randomized_response(
        [1], epsilon=1.0, categories=2, account=account
    ),
    "objective": lambda account: PrivateLogisticRegression(0.5, data_norm=1.0, classes=[0, 1]).fit(X, Y, account),
    "output": lambda account: PrivateLogisticRegression(0.5, method="output", data_norm=1.0, classes=[0, 1]).fit(
        X, Y, account
    ),
    "gradient": lambda account: PrivateLogisticRegression(
        0.5, 1e-5, method="gradient", data_norm=1.0, classes=[0, 1]
    ).fit(X, Y, account),
    "adassp": lambda account: PrivateLinearRegression(0.5, 1e-5, bounds=((0, 1), (0, 1))).fit(X, Y, account),
    "ridge": lambda account: PrivateLinearRegression(0.5, method="output", bounds=((0, 1), (0, 1))).fit(X, Y, account),
    "theil-sen": lambda account: PrivateTheilSen(0.5, (0, 1), (0, 1)).fit(X[:, :1], Y, account),
    "softmax head": lambda account: PrivateSoftmaxHead(0.5, 1e-5, classes=[0, 1], data_norm=1.0).fit(X, Y, account),
    "projected": lambda account: noisy_projected_sgd(
        "absolute", X, Y, epsilon=0.5, delta=1e-5, lipschitz=1.0, radius=1.0, num_examples=40, account=account
    ),
    "scaler": lambda account: PrivateScaler().fit(X, account=account),
    "pca": lambda account: PrivatePCA(1, noise_multiplier=1.0).fit(X, account=account),
    "column weights": lambda account: PrivateColumnWeights().fit(X, account=account),
}


@pytest.mark.parametrize("name", REFUSED)
def test_without_a_charge_no_noise_is_drawn(probe: Probe, name: str) -> None:
    with pytest.raises(BudgetExceeded, match="nothing left"):
        REFUSED[name](Book(probe, refuses=True))
    assert probe.draws == 0


# Completeness --------------------------------------------------------------------------------------------------

PRIMITIVES = {
    "Draws", "NoiseSource", "add_noise", "gamma_norm", "gaussian", "gaussian_integers", "laplace_integers",
    "discrete_laplace", "discrete_gaussian", "exponential", "report_noisy_max", "randomized_response", "add_gaussian",
    "add_laplace", "noise_source", "_noisy", "_noisy_moments", "choose",
}  # fmt: skip
# Every module that draws noise, and where its contract is tested. Add the test before the line.
COVERED = {
    "mechanisms/": "this file",
    "linear/": "this file",
    "features/": "this file",
    "pate/aggregate.py": "test_votes",
    "pate/interactive.py": "test_votes",
    "pate/cost.py": "test_sanitised_cost",
    "prompts/generate.py": "test_private_generation",
    "training/step.py": "test_release_contract_training.py",
    "training/noise_choice.py": "test_release_contract_training.py",
    "training/correlated.py": "test_release_contract_training.py",
    "training/distributed.py": "tests/training/test_distributed.py",
    "training/sharded.py": "tests/training/test_distributed.py",
    "federated/rounds.py": "test_release_contract_training.py",
    "federated/grpc.py": "adds no noise of its own: PrivateRounds does",
    "federated/strategy.py": "adds no noise of its own: PrivateRounds does",
    "gradients/noise.py": "test_gradient_noise_adds_what_it_is_told",
}


def test_every_module_that_draws_noise_has_a_contract() -> None:
    package = Path(hush.__file__).parent
    drawing = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name in PRIMITIVES and "accounting" not in path.parts:
                    drawing.add(path.relative_to(package).as_posix())
    assert {name for name in drawing if not any(name.startswith(known) for known in COVERED)} == set()
    assert all(any(name.startswith(known) for name in drawing) for known in COVERED)
