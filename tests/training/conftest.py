from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hush.training import TrainingPlan


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


@pytest.fixture
def data() -> TensorDataset:
    """Two hundred points of three classes that a linear model can tell apart."""
    stream = torch.Generator().manual_seed(5)
    y = torch.randint(0, 3, (200,), generator=stream)
    x = torch.randn(200, 4, generator=stream) + 2 * nn.functional.one_hot(y, 4)
    return TensorDataset(x, y)


@pytest.fixture
def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(6)
        return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


@pytest.fixture
def make_plan() -> Callable[..., TrainingPlan]:
    def make(**changes: object) -> TrainingPlan:
        usual = {
            "noise_multiplier": 1.0,
            "sampling_prob": 0.1,
            "expected_batch_size": 20,
            "steps": 12,
            "clip_norm": 1.0,
            "delta": 1e-5,
        }
        return TrainingPlan(**{**usual, **changes})  # type: ignore[arg-type]

    return make
