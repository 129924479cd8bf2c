"""What a step really adds, on exact tails. Seeds are fixed; false-alarm probabilities are for fresh ones."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import chi2, norm
from torch import Tensor, nn

from hush import Rng
from hush.training import AdaptiveClipping, PrivateGradients, TrainingPlan

FALSE_ALARM = 1e-7
EMPTY = torch.zeros(0, 100)


def loss_fn(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).sum(1)


def plan_of(**changes: object) -> TrainingPlan:
    usual = {
        "noise_multiplier": 1.7,
        "sampling_prob": 0.1,
        "expected_batch_size": 500,
        "steps": 3_000,
        "clip_norm": 0.3,
        "delta": 1e-5,
    }
    return TrainingPlan(**{**usual, **changes})  # type: ignore[arg-type]


def assert_variance(values: Tensor, stddev: float, false_alarm: float = FALSE_ALARM) -> None:
    """The sum of squares over the variance is not in the outer `false_alarm` of its chi-square distribution."""
    statistic = float((values.double() / stddev).square().sum())
    assert chi2.cdf(statistic, values.numel()) > false_alarm / 2
    assert chi2.sf(statistic, values.numel()) > false_alarm / 2


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("adaptive", [None, AdaptiveClipping(quantile=0.5, count_stddev=1.0, rate=1e-9)])
def test_gradients_have_the_plans_noise(secure: bool, adaptive: AdaptiveClipping | None) -> None:
    """False alarm 1e-7: the variance of 100,000 coordinates; its root is noise_multiplier * clip_norm / divisor."""
    plan = plan_of(secure=secure, adaptive=adaptive)
    model = nn.Linear(100, 1000, bias=False)
    PrivateGradients(model, plan, rng=Rng.from_seed(1)).backward(loss_fn, EMPTY)
    assert model.weight.grad is not None
    multiplier = 1.7 if adaptive is None else (1.7**-2 - (2 * 1.0) ** -2) ** -0.5
    assert_variance(model.weight.grad, multiplier * 0.3 / 500)


def test_steps_and_parameters_have_independent_noise() -> None:
    """False alarm 3e-7: three correlations of 100,000 normal pairs, whose mean product is normal to within the tail."""
    model = nn.ModuleList([nn.Linear(100, 1000, bias=False) for _ in range(2)])
    private = PrivateGradients(model, plan_of(), rng=Rng.from_seed(2))
    found = []
    for _ in range(2):
        private.backward(lambda both, x: both[0](x).sum(1) + both[1](x).sum(1), EMPTY)
        found += [layer.weight.grad.flatten().double() * 500 / 0.51 for layer in model]
    for left, right in [(0, 1), (0, 2), (1, 3)]:
        correlation = float((found[left] * found[right]).mean()) * math.sqrt(100_000)
        assert abs(correlation) < norm.isf(FALSE_ALARM / 2)


def test_the_count_has_its_noise() -> None:
    """False alarm 1e-7: the variance of 3,000 counts, read from how the clip norm moved."""
    adaptive = AdaptiveClipping(quantile=0.5, count_stddev=7.0, rate=1e-3)
    private = PrivateGradients(nn.Linear(100, 1), plan_of(adaptive=adaptive), rng=Rng.from_seed(3))
    moves, before = [], private.clip_norm.value
    for _ in range(3_000):
        private.backward(loss_fn, EMPTY)
        moves.append(-math.log(private.clip_norm.value / before) / 1e-3 * 500)
        before = private.clip_norm.value
    assert_variance(torch.tensor(moves, dtype=torch.float64), 7.0)
