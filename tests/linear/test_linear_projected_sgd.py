"""Noisy projected gradient descent: the theorem's rate, the event, the errors."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest

from hush import Budget, Ledger, Rng, accounting, events
from hush.errors import BudgetExceeded, InvalidValue
from hush.linear import ProjectedDescent, noisy_projected_sgd
from hush.linear.losses import SLOPES, VALUES, clipped_sum

RADIUS = 1.0


def table(num_rows: int, dimension: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Signs along the axes: each coordinate has its own optimum, so the noise on every one of them counts."""
    rng = numpy.random.default_rng(dimension)
    rows = numpy.eye(dimension)[numpy.arange(num_rows) % dimension]
    targets = numpy.where(rng.uniform(size=num_rows) < 0.65, 1.0, -1.0)
    return rows, targets


def descend(num_rows: int, dimension: int, epsilon: float, **more: Any) -> ProjectedDescent:
    rows, targets = table(num_rows, dimension)
    settings = {"epsilon": epsilon, "delta": 1e-6, "lipschitz": 1.0, "radius": RADIUS, "num_examples": num_rows, **more}
    return noisy_projected_sgd("logistic", rows, targets, **settings)


def best_risk(rows: numpy.ndarray, targets: numpy.ndarray) -> float:
    """The least risk in the ball, by projected descent without noise."""
    weights = numpy.zeros(rows.shape[1])
    for _ in range(3000):
        weights = weights - SLOPES["logistic"](rows @ weights, targets) @ rows / len(rows) * 4
        weights /= max(1.0, float(numpy.linalg.norm(weights)) / RADIUS)
    return float(VALUES["logistic"](rows @ weights, targets).mean())


def excess(num_rows: int, dimension: int, epsilon: float, seeds: int = 5, **more: Any) -> tuple[float, float]:
    """Mean excess risk over seeds, and the theorem's bound."""
    rows, targets = table(num_rows, dimension)
    found = [descend(num_rows, dimension, epsilon, rng=Rng.from_seed(seed), **more) for seed in range(seeds)]
    risks = [float(VALUES["logistic"](rows @ one.weights, targets).mean()) for one in found]
    return float(numpy.mean(risks)) - best_risk(rows, targets), found[0].risk_bound


@pytest.mark.parametrize("iterate", ["average", "last"])
def test_excess_risk_is_within_the_theorem(iterate: str) -> None:
    for num_rows, dimension, epsilon in ((400, 4, 1.0), (1600, 16, 0.5), (400, 64, 0.5)):
        found, bound = excess(num_rows, dimension, epsilon, iterate=iterate, steps=100)
        assert -1e-4 < found <= bound


def test_bound_falls_with_rows_and_epsilon_and_grows_with_the_root_of_the_dimension() -> None:
    """R G sqrt(1/T + d / (mu n)^2), with T = (mu n)^2 / d: proportional to sqrt(d) / (mu n), while T is not capped."""
    low, high = (
        1 / accounting.noise_for(Budget(epsilon=value, delta=1e-6), sampling_prob=1.0, steps=1) for value in (0.5, 1.0)
    )
    base = descend(500, 16, 0.5).risk_bound
    assert base == pytest.approx(math.sqrt(2 * 16) / (low * 500), rel=0.1)
    assert descend(1000, 16, 0.5).risk_bound == pytest.approx(base / 2, rel=0.1)
    assert descend(500, 64, 0.5).risk_bound == pytest.approx(base * 2, rel=0.15)
    assert descend(500, 16, 1.0).risk_bound == pytest.approx(base * low / high, rel=0.1)


@pytest.mark.slow
def test_measured_risk_follows_the_rate() -> None:
    """With the theorem's steps the excess goes like sqrt(d) / (mu n); the spread over seeds leaves these margins."""
    base = excess(500, 16, 0.5, seeds=8)[0]
    assert excess(1500, 16, 0.5, seeds=3)[0] < 0.8 * base
    assert excess(500, 16, 2.0, seeds=3)[0] < 0.8 * base
    assert excess(500, 128, 0.5, seeds=8)[0] > excess(500, 128, 4.0, seeds=3)[0]


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("sampling_prob", [1.0, 0.1])
def test_event_is_inside_the_budget(relation: str, sampling_prob: float, tmp_path: object) -> None:
    rows, targets = table(200, 4)
    number = 200 if relation == "add_remove" else None
    settings = {"lipschitz": 1.0, "radius": 2.0, "num_examples": number, "steps": 20, "relation": relation}
    found = noisy_projected_sgd(
        "huber", rows, targets, epsilon=1.0, delta=1e-5, sampling_prob=sampling_prob, **settings
    )
    assert Budget(epsilon=1.0, delta=1e-5).allows(found.guarantee)
    assert found.guarantee.epsilon > 0.99
    step: events.Event = events.Gaussian(found.noise_multiplier)
    step = step if sampling_prob == 1 else events.PoissonSampled(step, sampling_prob)
    assert found.event == events.Repeated(step, 20)
    assert numpy.linalg.norm(found.weights) <= 2.0 * (1 + 1e-12)


def test_long_gradients_are_clipped_and_broken_ones_count_as_zero() -> None:
    rows, targets = numpy.array([[100.0, 0.0], [0.0, 1.0]]), numpy.array([1.0, 1.0])
    zero = numpy.zeros(2)
    assert clipped_sum("hinge", zero, rows, targets, 2.0) == pytest.approx([-2.0, -1.0])

    def own(weights: numpy.ndarray, x: numpy.ndarray, y: numpy.ndarray) -> numpy.ndarray:
        return numpy.array([[numpy.nan, 1.0], [3.0, 4.0]])

    assert clipped_sum(own, zero, rows, targets, 1.0) == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("name", list(SLOPES))
def test_slopes_are_those_of_the_losses(name: str) -> None:
    margins, targets = numpy.array([-2.0, -0.3, 0.4, 1.7]), numpy.array([1.0, -1.0, 1.0, -1.0])
    step = 1e-6
    wanted = (VALUES[name](margins + step, targets) - VALUES[name](margins - step, targets)) / (2 * step)
    assert SLOPES[name](margins, targets) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loss": "squared"}, "loss must be one of"),
        ({"num_examples": None}, "num_examples is needed"),
        ({"delta": 0.0}, "delta must be above 0"),
        ({"lipschitz": 0.0}, "lipschitz must be above 0"),
        ({"radius": -1.0}, "radius must be above 0"),
        ({"iterate": "best"}, "iterate must be one of"),
        ({"y": [0.0, 1.0]}, "targets -1 and 1"),
        ({"X": [[1.0, numpy.nan], [0.0, 1.0]]}, "finite"),
        ({"relation": "replace_one", "num_examples": 7}, "leave it out"),
    ],
)
def test_wrong_settings_are_said(change: dict[str, Any], words: str) -> None:
    settings: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "lipschitz": 1.0, "radius": 1.0, "num_examples": 2}
    settings |= {"loss": "logistic", "X": [[1.0, 0.0], [0.0, 1.0]], "y": [1.0, -1.0], **change}
    with pytest.raises(InvalidValue, match=words):
        noisy_projected_sgd(**settings)


def test_account_is_charged_first(tmp_path: object) -> None:
    account = Ledger(f"{tmp_path}/budget.db").account("rows", cap=Budget(epsilon=1.0, delta=1e-6))
    descend(100, 4, 0.9, steps=5, account=account)
    with pytest.raises(BudgetExceeded):
        descend(100, 4, 0.9, steps=5, account=account)
