"""Training weights again: the new guarantee says what it leaves out, for copies and parts of a model too."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import hush
from hush import PrivateGradients, Run, TrainingPlan
from hush.errors import TrainedBefore

Make = Callable[..., TrainingPlan]
NOTE = "trained before"


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def fit(plan: TrainingPlan, model: nn.Module, data: TensorDataset, **options: Any) -> Run:
    trainable = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.SGD(trainable, lr=0.5)
    return hush.fit(plan, model, data, loss_fn=loss_fn, optimizer=optimizer, progress=False, guard_steps=0, **options)


def loop(plan: TrainingPlan, model: nn.Module, data: TensorDataset) -> PrivateGradients:
    private = PrivateGradients(model, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for batch in plan.batches(data):
        private.backward(loss_fn, batch)
        optimizer.step()
    return private


def loaded(model: nn.Module) -> nn.Module:
    other = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    other.load_state_dict(model.state_dict())
    return other


def with_new_head(model: nn.Module) -> nn.Module:
    """Return the model with its first layers frozen, and another head."""
    assert isinstance(model, nn.Sequential)
    model[:2].requires_grad_(False)
    return nn.Sequential(*model[:2], nn.Linear(5, 3))


@pytest.mark.parametrize("again", [lambda model: model, copy.deepcopy, loaded, with_new_head])
def test_a_second_run_on_trained_weights_is_warned_of_and_noted(
    make_plan: Make, model: nn.Module, data: TensorDataset, again: Callable[[nn.Module], nn.Module]
) -> None:
    plan = make_plan(steps=3)
    first = fit(plan, model, data)
    with pytest.warns(TrainedBefore, match=f"epsilon {first.guarantee.epsilon:.4g}"):
        second = fit(plan, again(model), data)
    assert any(NOTE in note for note in second.guarantee.notes)
    assert not any(NOTE in note for note in first.guarantee.notes)


@pytest.mark.parametrize("again", [lambda model: model, copy.deepcopy, loaded])
def test_a_loop_of_ones_own_is_known_once_its_guarantee_was_asked_for(
    make_plan: Make, model: nn.Module, data: TensorDataset, again: Callable[[nn.Module], nn.Module]
) -> None:
    plan = make_plan(steps=3)
    loop(plan, model, data).guarantee()
    with pytest.warns(TrainedBefore):
        private = PrivateGradients(again(model), plan)
    assert any(NOTE in note for note in private.guarantee().notes)


def test_new_weights_are_not_warned_of(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    untrained = copy.deepcopy(model)
    fit(make_plan(steps=3), model, data)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrainedBefore)
        fit(make_plan(steps=3), untrained, data)


def test_what_a_guarantee_leaves_out_is_saved_with_it(
    make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path
) -> None:
    fit(make_plan(steps=3), model, data)
    with pytest.warns(TrainedBefore):
        run = fit(make_plan(steps=3), model, data)
    run.save(tmp_path / "run")
    found = Run.load(tmp_path / "run")
    assert found.guarantee == run.guarantee
    assert found.notes == run.notes
