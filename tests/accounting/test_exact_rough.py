"""Guesses without bounds lie near the truth, and so do their slopes; some deltas are not worked out further."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest

from hush import accounting
from hush.accounting.exact import answer, report
from hush.accounting.exact.logs import log_complex, tanh_complex
from hush.events import Composed, Event, Gaussian, PoissonSampled, PureDP, Repeated
from hush.privacy import Relation


def sampled(noise_multiplier: float, sampling_prob: float, steps: int) -> Event:
    return Repeated(PoissonSampled(Gaussian(noise_multiplier), sampling_prob), steps)


# noise_multiplier, sampling_prob, steps, delta: many small losses, and a few large ones
MANY = [(4.0, 0.01, 10_000, 1e-5), (1.1, 0.01, 3_000, 1e-5), (2.0, 0.178, 225, 1e-5), (50.0, 0.001, 100, 1e-6)]
FEW = [(0.474398, 4.096e-4, 12_696, 1e-9), (0.7, 0.0156503, 333, 1e-9), (0.43, 4.096e-4, 12_696, 1e-9)]
FEWER = [(0.7, 4.096e-4, 12_696, 1e-9)]
RELATIONS = ["add_remove", "replace_one"]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("noise", "prob", "steps", "delta"), MANY + FEW + FEWER)
def test_a_rough_epsilon_is_near_the_exact_one(
    noise: float, prob: float, steps: int, delta: float, relation: Relation
) -> None:
    event = sampled(noise, prob, steps)
    exact = accounting.guarantee(event, delta=delta, relation=relation)
    for near in (exact.epsilon, 0.93 * exact.epsilon, 1.07 * exact.epsilon):
        found = report.rough(event, delta=delta, relation=relation, near=near)
        assert found is not None
        assert found.epsilon == pytest.approx(exact.epsilon, rel=3e-4)
        assert report.guess(event, delta=delta, relation=relation, near=near) == found.epsilon


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("noise", "prob", "steps", "delta"), MANY + FEW)
@pytest.mark.parametrize("is_near", [True, False], ids=["by a rule", "by the saddle point"])
def test_slopes_are_those_of_the_exact_epsilon(
    noise: float, prob: float, steps: int, delta: float, relation: Relation, is_near: bool
) -> None:
    def exact(by_noise: float = 0.0, by_prob: float = 0.0, more: int = 0) -> float:
        event = sampled(noise * math.exp(by_noise), prob * math.exp(by_prob), steps + more)
        return accounting.guarantee(event, delta=delta, relation=relation).epsilon

    step, some = 1e-3, max(1, steps // 200)
    slopes = [
        (exact(by_noise=step) - exact(by_noise=-step)) / (2 * step),
        (exact(by_prob=step) - exact(by_prob=-step)) / (2 * step),
        (exact(more=some) - exact(more=-some)) / math.log((steps + some) / (steps - some)),
    ]
    near = exact() if is_near else None
    found = report.rough(sampled(noise, prob, steps), delta=delta, relation=relation, near=near)
    assert found is not None
    assert found.epsilon == pytest.approx(exact(), rel=1e-6 if is_near else 0.01)
    assert list(found[1:]) == pytest.approx(slopes, rel=1e-3 if is_near else 0.15)


def test_the_saddle_point_says_nothing_where_a_few_large_losses_make_up_the_answer() -> None:
    assert report.rough(sampled(0.6, 1e-5, 100_000), delta=1e-8, relation="add_remove") is None


def test_the_saddle_point_leaves_bounded_losses_alone() -> None:
    event = Composed(sampled(4.0, 0.01, 1_000), PureDP(0.5))
    assert report.rough(event, delta=1e-5, relation="add_remove") is None
    exact = accounting.guarantee(event, delta=1e-5).epsilon
    assert report.guess(event, delta=1e-5, relation="add_remove", near=exact) == pytest.approx(exact, rel=1e-4)


def no_grid() -> None:
    raise AssertionError("the loss grid was asked")


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("noise", [0.9, 1.57, 7.0])
def test_a_delta_below_the_least_one_is_not_worked_out(
    noise: float, relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = sampled(noise, 4.096e-4, 12_208)
    monkeypatch.setattr(answer, "_grid", no_grid)
    found = report.delta_guarantee(event, epsilon=8.0, relation=relation, least=1e-30)
    assert (found.delta_lower, found.delta) == (0.0, 1e-30)
    assert "1e-30" in found.notes[0]
    # That it is enough is seen from the other side: epsilon at that delta is below.
    assert accounting.guarantee(event, delta=1e-30, relation=relation).epsilon <= 8.0


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("noise", "epsilon"), [(0.7, 8.0), (0.7, 2.0), (1.2, 0.5), (0.5, 0.3)])
def test_the_least_delta_changes_nothing_above_it(noise: float, epsilon: float, relation: Relation) -> None:
    event = sampled(noise, 4.096e-4, 12_208)
    found = report.delta_guarantee(event, epsilon=epsilon, relation=relation, least=1e-30)
    assert found.delta > 1e-30
    assert found == accounting.delta(event, epsilon=epsilon, relation=relation)


# noise_multiplier, sampling_prob, steps, epsilon: a few large losses make up delta
RARE = [
    (2.3, 1.48e-6, 279_245, 0.0306),
    (1.35, 5.56e-5, 41_580, 0.204),
    (0.731, 2.88e-7, 2_678_840, 0.0552),
    (0.7, 4.096e-4, 12_696, 8.0),
    (0.399, 4.82e-4, 719, 6.14),
]


@pytest.mark.parametrize(("noise", "prob", "steps", "epsilon"), RARE)
def test_delta_by_few_large_losses_needs_no_grid(
    noise: float, prob: float, steps: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = sampled(noise, prob, steps)
    monkeypatch.setattr(answer, "_grid", no_grid)
    found = report.delta_guarantee(event, epsilon=epsilon, relation="add_remove", least=1e-30)
    # Each end, asked about from the other side.
    assert accounting.guarantee(event, delta=found.delta).epsilon_lower <= epsilon
    if found.delta > 1e-30:
        assert found.delta_lower > found.delta * (1 - 1e-4)
        assert accounting.guarantee(event, delta=found.delta_lower * (1 - 1e-9)).epsilon >= epsilon


def test_quick_complex_functions_are_the_complex_functions() -> None:
    rng = np.random.default_rng(8)
    for count in (5, 200):
        values = rng.normal(size=count) * np.exp(rng.normal(size=count) * 5) + 1j * rng.normal(size=count)
        assert np.allclose(log_complex(values), [cmath.log(value) for value in values], rtol=1e-14, atol=1e-14)
        assert np.allclose(tanh_complex(values), np.tanh(values), rtol=1e-12, atol=1e-300)
    real = rng.normal(size=7)
    assert (tanh_complex(real) == np.tanh(real)).all()
