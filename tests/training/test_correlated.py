"""Correlated noise: the recursion against the full matrix, one strategy per run, and what a plan makes of it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

from hush import Rng, accounting
from hush.errors import InvalidValue
from hush.gradients.noise import NoiseSource, grid_of
from hush.training.correlated import CorrelatedNoise, event_of, for_plan
from hush.training.matrix_factorization import BandedStrategy
from hush.training.plan import TrainingPlan

STRATEGY = BandedStrategy.square_root(steps=12, bands=4, min_separation=5, participations=3)


def run(noise: CorrelatedNoise | NoiseSource, steps: int, *, count: int = 50, stddev: float = 1.0) -> Tensor:
    """The noise of some steps on gradients of zeros, one row each."""
    rows = []
    for _ in range(steps):
        gradients = {"weight": torch.zeros(count - 3, dtype=torch.float64), "bias": torch.zeros(3, dtype=torch.float64)}
        rows.append(torch.cat(list(noise.add(gradients, stddev).values())))
    return torch.stack(rows)


def test_the_noise_is_the_inverse_of_the_strategy_times_independent_noise() -> None:
    found = run(CorrelatedNoise(STRATEGY, Rng.from_seed(1)), 12, stddev=0.5)
    independent = run(NoiseSource(Rng.from_seed(1)), 12)
    truth = np.linalg.solve(STRATEGY.matrix(), independent.numpy()) * 0.5 * STRATEGY.sensitivity
    assert np.allclose(found.numpy(), truth, rtol=1e-12, atol=1e-12)


def test_one_band_is_independent_noise() -> None:
    plain = BandedStrategy(steps=3, min_separation=3, participations=1, coefficients=(1.0,))
    found = run(CorrelatedNoise(plain, Rng.from_seed(1)), 3)
    assert torch.allclose(found, run(NoiseSource(Rng.from_seed(1)), 3), rtol=1e-11)


def test_secure_noise_is_the_same_on_a_grid() -> None:
    plain = run(CorrelatedNoise(STRATEGY, Rng.from_seed(1)), 12)
    secure = run(CorrelatedNoise(STRATEGY, Rng.from_seed(1), secure=True), 12)
    grid = grid_of(STRATEGY.sensitivity / STRATEGY.coefficients[0])
    assert torch.all((secure - plain).abs() <= 0.51 * grid)
    assert torch.equal(secure / grid, (secure / grid).round())
    assert not torch.equal(plain / grid, (plain / grid).round())


def test_the_data_does_not_move_the_noise_of_later_steps() -> None:
    noise = CorrelatedNoise(STRATEGY, Rng.from_seed(1))
    with_data = torch.stack([noise.add({"w": torch.full((47,), 7.0)}, 1.0)["w"] for _ in range(12)])
    noise = CorrelatedNoise(STRATEGY, Rng.from_seed(1))
    without = torch.stack([noise.add({"w": torch.zeros(47)}, 1.0)["w"] for _ in range(12)])
    assert torch.allclose(with_data - without, torch.full((12, 47), 7.0), atol=1e-5)


@pytest.mark.parametrize("secure", [False, True])
def test_it_keeps_only_what_the_bands_need(secure: bool) -> None:
    noise = CorrelatedNoise(STRATEGY, Rng.from_seed(1), secure=secure)
    for _ in range(12):
        noise.add({"weight": torch.zeros(5)}, 1.0)
    assert len(noise._past) == STRATEGY.bands - 1


def test_no_step_beyond_the_strategy() -> None:
    noise = CorrelatedNoise(STRATEGY, Rng.from_seed(1))
    run(noise, 12)
    assert noise.remaining == 0
    with pytest.raises(InvalidValue, match="all 12 steps are taken"):
        noise.add({"weight": torch.zeros(47), "bias": torch.zeros(3)}, 1.0)


def test_changed_gradients_and_a_bad_stddev_take_no_step() -> None:
    noise = CorrelatedNoise(STRATEGY, Rng.from_seed(1))
    noise.add({"weight": torch.zeros(5)}, 1.0)
    for gradients in ({"weight": torch.zeros(6)}, {"other": torch.zeros(5)}, {}):
        with pytest.raises(InvalidValue, match="has changed"):
            noise.add(gradients, 1.0)
    with pytest.raises(InvalidValue, match="stddev"):
        noise.add({"weight": torch.zeros(5)}, 0.0)
    assert noise.remaining == 11


def test_two_runs_share_no_noise_and_nothing_is_written() -> None:
    rng = Rng.from_seed(1)
    one, two = (run(CorrelatedNoise(STRATEGY, rng), 3) for _ in range(2))
    assert not set(one.flatten().tolist()) & set(two.flatten().tolist())
    with pytest.raises(TypeError, match="not written"):
        pickle.dumps(CorrelatedNoise(STRATEGY, rng))


# A plan with ordered passes -------------------------------------------------------------------------------------


def plan(bands: int = 4, steps: int = 25, **values: object) -> TrainingPlan:
    settings = {
        "noise_multiplier": 2.0,
        "sampling_prob": 1.0,
        "expected_batch_size": 10,
        "clip_norm": 1.0,
        "delta": 1e-5,
        "relation": "zero_out",
        "sampling": "ordered",
        "num_examples": 100,
    }
    return TrainingPlan(bands=bands, steps=steps, **{**settings, **values})  # type: ignore[arg-type]


def test_the_event_of_a_plan_is_that_of_its_strategy() -> None:
    ordered = plan()
    strategy = for_plan(ordered, Rng.from_seed(1)).strategy
    assert (strategy.steps, strategy.bands, strategy.min_separation, strategy.participations) == (25, 4, 10, 3)
    assert event_of(ordered, 25) == strategy.event(2.0) == ordered.event
    found, truth = ordered.guarantee(), accounting.gdp.guarantee(ordered.event, delta=1e-5, relation="zero_out")
    assert found.epsilon == pytest.approx(truth.epsilon, rel=1e-9)


def test_the_strategy_holds_for_what_the_sampler_does() -> None:
    """Rows of the sampler, all steps: each example takes part as often and as far apart as the strategy says."""
    ordered = plan()
    strategy = for_plan(ordered, Rng.from_seed(1)).strategy
    stream = Rng.from_seed(1).stream("sampling")
    uses: dict[int, list[int]] = {}
    for step in range(ordered.steps):
        for row in ordered.sampler.draw(100, step=step, stream=stream).tolist():
            uses.setdefault(row, []).append(step)
    assert max(len(steps) for steps in uses.values()) == strategy.participations
    assert min(np.diff(steps).min() for steps in uses.values()) == strategy.min_separation


def test_a_plan_that_goes_on_begins_a_new_strategy() -> None:
    rest = for_plan(plan(secure=True), Rng.from_seed(1), first=23)
    assert rest.secure
    assert (rest.strategy.steps, rest.strategy.bands, rest.strategy.participations) == (2, 2, 1)
    assert event_of(plan(), 2) == rest.strategy.event(2.0)


def test_bands_beyond_a_pass_and_other_sampling_are_refused() -> None:
    with pytest.raises(InvalidValue, match="at most 10"):
        event_of(plan(bands=11), 25)
    poisson = plan(sampling="poisson", sampling_prob=0.1, bands=None, num_examples=None)
    with pytest.raises(InvalidValue, match="'ordered'"):
        event_of(poisson, 25)
