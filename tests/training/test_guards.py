"""Wrong runs end at their start, and the message names what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hush.errors import InvalidValue, NotIsolated, NotLearning
from hush.gradients import isolation
from hush.gradients.clipped import clipped_sum_and_rows
from hush.training import TrainingPlan, fit

Make = Callable[..., TrainingPlan]


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def sgd(model: nn.Module, rate: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate)


class Centred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - x.mean(0))


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.pooler = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


@pytest.mark.parametrize(
    "mixing",
    [
        nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)),
        nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, affine=False)),
        Centred(),
    ],
    ids=["BatchNorm", "BatchNorm without weights", "own mean"],
)
def test_models_that_mix_examples_are_refused(make_plan: Make, data: TensorDataset, mixing: nn.Module) -> None:
    with pytest.raises(NotIsolated):
        fit(make_plan(), mixing, data, loss_fn=loss_fn, optimizer=sgd(mixing))


def test_losses_that_are_not_per_example_are_refused(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    with pytest.raises(InvalidValue, match="one loss per example"):
        fit(make_plan(), model, data, loss_fn=lambda m, x, y: loss_fn(m, x, y).mean(), optimizer=sgd(model))


def test_losses_that_share_a_denominator_are_refused(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    def shared(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return loss_fn(net, x, y) * len(x) / x.abs().sum()  # as a mean over the tokens of the whole batch

    with pytest.raises(NotIsolated):
        fit(make_plan(), model, data, loss_fn=shared, optimizer=sgd(model))


def test_a_parameter_outside_the_optimizer_is_named(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    optimizer = torch.optim.SGD(list(model.parameters())[:-1], lr=0.1)
    with pytest.raises(NotLearning, match=r"'2\.bias' is trainable but not in the optimizer"):
        fit(make_plan(), model, data, loss_fn=loss_fn, optimizer=optimizer)


def test_an_optimizer_of_another_model_is_refused(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    extra = [*model.parameters(), nn.Parameter(torch.zeros(2))]
    with pytest.raises(NotLearning, match="1 trainable tensors that are not"):
        fit(make_plan(), model, data, loss_fn=loss_fn, optimizer=torch.optim.SGD(extra, lr=0.1))


def test_a_parameter_replaced_after_the_optimizer_was_made_is_named(
    make_plan: Make, model: nn.Module, data: TensorDataset
) -> None:
    optimizer = sgd(model)
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())  # what moving or wrapping a model may do
    with pytest.raises(NotLearning, match=r"'0\.weight'"):
        fit(make_plan(), model, data, loss_fn=loss_fn, optimizer=optimizer)


def test_a_parameter_that_stands_still_ends_the_run(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    groups = [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters()}]
    with pytest.raises(NotLearning, match=r"'0\.weight', '0\.bias' has not moved"):
        fit(make_plan(steps=40), model, data, loss_fn=loss_fn, optimizer=torch.optim.SGD(groups, lr=0.1), guard_steps=4)


def test_a_short_run_is_checked_at_its_end(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    with pytest.raises(NotLearning, match="has not moved"):
        fit(make_plan(steps=2), model, data, loss_fn=loss_fn, optimizer=sgd(model, 0.0))


def test_a_parameter_that_only_noise_moves_ends_the_run(make_plan: Make, data: TensorDataset) -> None:
    model = Unused()
    with pytest.raises(NotLearning, match=r"'pooler\.bias', 'pooler\.weight' had no gradient in 10 steps"):
        fit(make_plan(steps=40), model, data, loss_fn=loss_fn, optimizer=sgd(model))


@pytest.mark.parametrize("way", ["may_rest", "no guard", "frozen"])
def test_the_guard_can_be_told(make_plan: Make, data: TensorDataset, way: str) -> None:
    model = Unused()
    model.pooler.requires_grad_(way != "frozen")
    optimizer = torch.optim.SGD([value for value in model.parameters() if value.requires_grad], lr=0.1)
    names = [name for name, _ in model.named_parameters() if "pooler" in name]
    run = fit(
        make_plan(steps=14),
        model,
        data,
        loss_fn=loss_fn,
        optimizer=optimizer,
        may_rest=names if way == "may_rest" else (),
        guard_steps=0 if way == "no guard" else 10,
    )
    assert run.complete


def test_a_frozen_model_is_refused(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    optimizer = sgd(model)
    with pytest.raises(InvalidValue, match="no trainable parameter"):
        fit(make_plan(), model.requires_grad_(False), data, loss_fn=loss_fn, optimizer=optimizer)


@pytest.mark.parametrize("method", ["auto", "looped"])
@pytest.mark.parametrize("rows", [(0,), (1, 2), (3,), (50,)], ids=str)
def test_broken_examples_do_not_end_a_run(
    make_plan: Make, model: nn.Module, data: TensorDataset, rows: tuple[int, ...], method: str
) -> None:
    x, y = (tensor.clone() for tensor in data.tensors)
    x[list(rows)] = torch.nan
    plan = make_plan(sampling="full_batch", sampling_prob=1.0, expected_batch_size=200, steps=2)
    run = fit(plan, model, TensorDataset(x, y), loss_fn=loss_fn, optimizer=sgd(model), method=method)
    assert list(run.history.nonfinite) == [len(rows)] * 2
    assert all(math.isfinite(loss) for loss in run.history.loss)
    assert all(bool(torch.isfinite(value).all()) for value in run.weights.values())


def test_the_isolation_check_takes_the_runs_own_method(
    make_plan: Make, model: nn.Module, data: TensorDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def listened(*args: object, method: str = "auto", **how: object) -> object:
        seen.append(method)
        return clipped_sum_and_rows(*args, method=method, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(isolation, "clipped_sum_and_rows", listened)
    fit(make_plan(), model, data, loss_fn=loss_fn, optimizer=sgd(model), method="vectorized")
    assert set(seen) == {"vectorized"}


def test_an_optimizer_that_wants_a_closure_is_refused(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    with pytest.raises(InvalidValue, match="optimizer LBFGS needs a closure"):
        fit(make_plan(), model, data, loss_fn=loss_fn, optimizer=torch.optim.LBFGS(model.parameters()))


def test_a_scheduler_that_wants_a_metric_is_refused(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(InvalidValue, match="scheduler ReduceLROnPlateau needs a metrics"):
        fit(make_plan(), model, data, loss_fn=loss_fn, optimizer=optimizer, scheduler=scheduler)


def test_a_run_that_goes_on_early_is_guarded_too(
    make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path
) -> None:
    class Stop(Exception):
        pass

    def stop(progress: object) -> None:
        raise Stop

    def start(resume: bool, **how: object) -> None:
        optimizer = torch.optim.SGD(
            [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters()}], 0.1
        )
        fit(
            make_plan(),
            model,
            data,
            loss_fn=loss_fn,
            optimizer=optimizer,
            folder=tmp_path / "run",
            resume=resume,
            **how,
        )  # type: ignore[arg-type]

    with pytest.raises(Stop):
        start(False, callbacks=[stop])
    with pytest.raises(NotLearning, match=r"'0\.weight', '0\.bias' has not moved"):
        start(True)
