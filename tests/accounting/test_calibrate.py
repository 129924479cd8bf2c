"""Calibration: never over budget, tight, and equal to published noise."""

from __future__ import annotations

import numpy as np
import pytest

from hush import accounting
from hush.accounting.calibrate import MOST_STEPS, sampled_gaussian
from hush.errors import HushError, InvalidValue, Unreachable
from hush.privacy import Budget, Relation

RELATIONS: tuple[Relation, ...] = ("add_remove", "replace_one")
PUBLISHED = [  # epsilon, delta, sampling_prob, steps, noise_multiplier to the digits given
    (1.0, 1e-5, 0.01, 10_000, 3.8128168),
    (8.0, 1e-5, 0.01, 10_000, 0.8825285),
    (3.0, 1e-6, 0.001, 100_000, 0.7902175),
    (8.0, 1e-5, 0.08192, 2_500, 2.5758326),
]
ANALYTIC = [  # epsilon, delta, noise_multiplier of one Gaussian release (Balle and Wang 2018)
    (1.0, 1e-5, 3.73063163482),
    (1.0, 1e-6, 4.22467888933),
    (0.5, 1e-5, 7.03182667558),
    (0.1, 1e-6, 36.3046904262),
    (3.0, 1e-5, 1.39059345667),
    (8.0, 1e-5, 0.600229072199),
]


def spent(noise, prob, steps, delta, relation="add_remove", method="exact"):
    event = sampled_gaussian(noise, prob, steps)
    return accounting.guarantee(event, delta=delta, relation=relation, method=method)


@pytest.mark.parametrize(("epsilon", "delta", "prob", "steps", "noise"), PUBLISHED)
def test_published_noise(epsilon, delta, prob, steps, noise):
    found = accounting.noise_for(Budget(epsilon, delta), sampling_prob=prob, steps=steps)
    assert found == pytest.approx(noise, rel=1e-7)
    assert spent(found, prob, steps, delta).epsilon <= epsilon


@pytest.mark.parametrize(("epsilon", "delta", "noise"), ANALYTIC)
def test_one_full_batch_is_the_analytic_gaussian(epsilon, delta, noise):
    budget = Budget(epsilon, delta)
    assert accounting.noise_for(budget, sampling_prob=1.0, steps=1) == pytest.approx(noise, rel=3e-9)
    replaced = accounting.noise_for(budget, sampling_prob=1.0, steps=1, relation="replace_one")
    assert replaced == pytest.approx(2 * noise, rel=3e-9)


def random_budgets(seed: int, count: int, least: float = 0.0) -> list[tuple[Budget, float, int, Relation]]:
    rng, rows = np.random.default_rng(seed), []
    for index in range(count):
        budget = Budget(float(10 ** rng.uniform(-1, 1)), float(10 ** rng.uniform(-10, -4)))
        prob = 1.0 if index % 6 == 5 else float(10 ** rng.uniform(-3, -0.5))
        rows.append((budget, prob, round(10 ** rng.uniform(least, 4)), RELATIONS[index % 2]))
    return rows


@pytest.mark.parametrize(("budget", "prob", "steps", "relation"), random_budgets(11, 12))
def test_noise_is_inside_the_budget_and_tight(budget, prob, steps, relation):
    noise = accounting.noise_for(budget, sampling_prob=prob, steps=steps, relation=relation)
    assert budget.allows(spent(noise, prob, steps, budget.delta, relation))
    if noise > 0.051:  # the least that is ever returned
        assert spent(noise * (1 - 1e-6), prob, steps, budget.delta, relation).epsilon > budget.epsilon


@pytest.mark.parametrize(("budget", "prob", "steps", "relation"), random_budgets(12, 7, 1.5))
def test_steps_are_inside_the_budget_and_one_more_is_not(budget, prob, steps, relation):
    noise = 1.2 * accounting.noise_for(budget, sampling_prob=prob, steps=steps, relation=relation)
    found = accounting.steps_for(budget, noise_multiplier=noise, sampling_prob=prob, relation=relation)
    assert found >= steps
    assert budget.allows(spent(noise, prob, found, budget.delta, relation))
    assert spent(noise, prob, found + 1, budget.delta, relation).epsilon > budget.epsilon


@pytest.mark.parametrize(("budget", "prob", "steps", "relation"), random_budgets(13, 7, 0.5))
def test_sampling_prob_is_inside_the_budget_and_tight(budget, prob, steps, relation):
    noise = 1.3 * accounting.noise_for(budget, sampling_prob=prob, steps=steps, relation=relation)
    found = accounting.sampling_prob_for(budget, noise_multiplier=noise, steps=steps, relation=relation)
    assert prob <= found <= 1
    assert budget.allows(spent(noise, found, steps, budget.delta, relation))
    if found < 1:
        assert spent(noise, found * (1 + 1e-6), steps, budget.delta, relation).epsilon > budget.epsilon


def test_the_three_searches_agree():
    budget = Budget(2.0, 1e-6)
    noise = accounting.noise_for(budget, sampling_prob=0.02, steps=3_000)
    prob = accounting.sampling_prob_for(budget, noise_multiplier=noise, steps=3_000)
    assert prob == pytest.approx(0.02, rel=1e-7)
    assert accounting.steps_for(budget, noise_multiplier=noise, sampling_prob=0.02) == 3_000


@pytest.mark.parametrize("relation", RELATIONS)
def test_renyi_method_is_inside_its_own_budget_and_noisier(relation):
    budget, prob, steps = Budget(2.0, 1e-5), 0.01, 2_000
    noise = accounting.noise_for(budget, sampling_prob=prob, steps=steps, relation=relation, method="rdp")
    assert spent(noise, prob, steps, 1e-5, relation, "rdp").epsilon <= 2.0
    assert spent(noise * (1 - 1e-6), prob, steps, 1e-5, relation, "rdp").epsilon > 2.0
    assert noise > accounting.noise_for(budget, sampling_prob=prob, steps=steps, relation=relation)


def test_replacing_needs_more_noise():
    budget = Budget(1.0, 1e-5)
    plain, replaced = (
        accounting.noise_for(budget, sampling_prob=0.01, steps=1_000, relation=relation) for relation in RELATIONS
    )
    assert 1.5 * plain < replaced < 2.5 * plain


# What no value meets -----------------------------------------------------------------------------------------------


def test_a_delta_of_zero_is_out_of_reach():
    budget = Budget(1.0, 0.0)
    with pytest.raises(Unreachable, match="noise_multiplier"):
        accounting.noise_for(budget, sampling_prob=0.01, steps=10)
    with pytest.raises(Unreachable, match="one step"):
        accounting.steps_for(budget, noise_multiplier=5.0, sampling_prob=0.01)
    with pytest.raises(Unreachable, match="sampling_prob"):
        accounting.sampling_prob_for(budget, noise_multiplier=5.0, steps=10)


def test_one_step_over_budget_is_out_of_reach():
    with pytest.raises(Unreachable, match="one step already exceeds") as caught:
        accounting.steps_for(Budget(0.1, 1e-8), noise_multiplier=0.5, sampling_prob=1.0)
    assert isinstance(caught.value, HushError)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


def test_a_budget_without_end_is_answered_with_the_most_steps():
    found = accounting.steps_for(Budget(5.0, 1e-5), noise_multiplier=1e6, sampling_prob=1e-4)
    assert found == MOST_STEPS
    assert spent(1e6, 1e-4, found, 1e-5).epsilon <= 5.0


def test_a_generous_budget_allows_the_full_batch():
    assert accounting.sampling_prob_for(Budget(5.0, 1e-5), noise_multiplier=10.0, steps=1) == 1.0


BUDGET = Budget(1.0, 1e-5)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (accounting.noise_for, {"sampling_prob": 0.0, "steps": 10}),
        (accounting.noise_for, {"sampling_prob": 1.1, "steps": 10}),
        (accounting.noise_for, {"sampling_prob": 0.1, "steps": 0}),
        (accounting.noise_for, {"sampling_prob": 0.1, "steps": 2.5}),
        (accounting.noise_for, {"sampling_prob": 0.1, "steps": 10, "relation": "swap"}),
        (accounting.noise_for, {"sampling_prob": 0.1, "steps": 10, "method": "basic"}),
        (accounting.steps_for, {"noise_multiplier": 0.0, "sampling_prob": 0.1}),
        (accounting.steps_for, {"noise_multiplier": float("nan"), "sampling_prob": 0.1}),
        (accounting.steps_for, {"noise_multiplier": 1.0, "sampling_prob": -0.1}),
        (accounting.sampling_prob_for, {"noise_multiplier": -1.0, "steps": 10}),
        (accounting.sampling_prob_for, {"noise_multiplier": 1.0, "steps": True}),
    ],
)
def test_bad_values_are_refused_in_one_line(function, arguments):
    with pytest.raises(InvalidValue) as caught:
        function(BUDGET, **arguments)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


def test_a_budget_must_be_a_budget():
    with pytest.raises(InvalidValue, match="budget must be a Budget"):
        accounting.noise_for(1.0, sampling_prob=0.1, steps=10)
