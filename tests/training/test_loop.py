"""Whole runs: the run, its ledger and its guarantee say the same, with every optimizer and option."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hush import Budget, Ledger, Rng, accounting, events
from hush.errors import BudgetExceeded, InvalidValue
from hush.training import AdaptiveClipping, Progress, Run, TrainingPlan, fit
from hush.training.averages import Average, project

Make = Callable[..., TrainingPlan]


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def sgd(model: nn.Module, rate: float = 0.5) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate)


def trained(plan: TrainingPlan, model: nn.Module, data: TensorDataset, **options: Any) -> Run:
    return fit(plan, model, data, loss_fn=loss_fn, optimizer=options.pop("optimizer", None) or sgd(model), **options)


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    x, y = data.tensors
    return float((model(x).argmax(1) == y).double().mean())


def test_a_run_learns_and_says_what_it_cost(model: nn.Module, data: TensorDataset) -> None:
    plan = TrainingPlan.for_budget(
        Budget(epsilon=8.0, delta=1e-5), sampling_prob=0.1, expected_batch_size=20, steps=60, clip_norm=1.0
    )
    run = trained(plan, model, data, rng=Rng.from_seed(1))
    assert run.complete
    assert run.guarantee == plan.guarantee()
    assert run.guarantee.epsilon <= 8.0
    assert run.ledger.account(run.account).spent().epsilon == run.guarantee.epsilon
    assert run.ledger.verify().accounts == 1
    assert accuracy(model, data) > 0.8
    assert len(run.history.loss) == 60
    assert "seed" in run.randomness
    assert any("seed" in note for note in run.notes)
    assert all(value.grad is None for value in model.parameters())


EVENTS = {
    "poisson": {},
    "full_batch": {"sampling": "full_batch", "sampling_prob": 1.0},
    "truncated": {"sampling": "truncated_poisson", "num_examples": 200, "max_batch_size": 45},
    "ordered": {
        "sampling": "ordered",
        "sampling_prob": 1.0,
        "num_examples": 200,
        "bands": 2,
        "relation": "replace_one",
    },
    "adaptive": {"adaptive": AdaptiveClipping(quantile=0.5, count_stddev=3.0)},
    "secure": {"secure": True},
    "per layer": {"clipping": "per_layer"},
    "automatic": {"clipping": "automatic"},
    "in parts": {"physical_batch_size": 7},
    "ema": {"average": "ema"},
    "mean": {"average": "mean"},
    "projected": {"project_to": 1.0},
}


@pytest.mark.parametrize("name", EVENTS)
def test_the_ledger_holds_the_plans_event(make_plan: Make, model: nn.Module, data: TensorDataset, name: str) -> None:
    plan = make_plan(**EVENTS[name])
    run = trained(plan, model, data)
    rows = [row for row in run.ledger.account(run.account).rows() if row.kind == "reserve"]
    charged = events.Composed(*(events.Repeated(row.event, row.count) for row in rows if row.event is not None))
    assert list(events.flat(charged)) == list(events.flat(plan.event))
    assert run.guarantee.epsilon == accounting.guarantee(plan.event, delta=1e-5, relation=plan.relation).epsilon
    assert all(value.isfinite().all() for value in run.weights.values())


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam"])
def test_every_optimizer_gets_private_gradients(
    make_plan: Make, model: nn.Module, data: TensorDataset, kind: str
) -> None:
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
    run = trained(make_plan(), model, data, optimizer=optimizer, scheduler=scheduler)
    assert all(not torch.equal(before[name], value) for name, value in model.named_parameters())
    assert scheduler.last_epoch == 12
    assert run.complete


def test_the_twin_is_ordinary_training(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    twin = make_plan(steps=5).without_privacy()
    other = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    other.load_state_dict(model.state_dict())
    run = trained(twin, model, data, rng=Rng.from_seed(4))
    optimizer = sgd(other)
    for x, y in twin.batches(data, rng=Rng.from_seed(4)):
        optimizer.zero_grad()
        (loss_fn(other, x, y).sum() / 20).backward()
        optimizer.step()
    for name, value in other.state_dict().items():
        assert torch.allclose(run.weights[name], value, atol=1e-6)
    assert run.guarantee.epsilon == math.inf


def test_runs_of_one_seed_are_the_same_and_others_not(make_plan: Make, data: TensorDataset) -> None:
    weights = []
    for seed in (1, 1, 2, None):
        model = nn.Linear(4, 3)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        rng = None if seed is None else Rng.from_seed(seed)
        weights.append(trained(make_plan(steps=3), model, data, rng=rng).weights["weight"])
    assert torch.equal(weights[0], weights[1])
    assert not any(torch.equal(weights[0], other) for other in weights[2:])


def test_global_seeds_change_nothing(make_plan: Make, data: TensorDataset) -> None:
    found = []
    for _ in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = nn.Linear(4, 3)
            found.append(trained(make_plan(steps=3), model, data).weights["weight"])
    assert not torch.equal(*found)


def test_people_are_the_unit(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    run = trained(make_plan(unit="person"), model, data, people=torch.arange(200) // 4)
    assert any("person" in note for note in run.notes)


def test_augmentations_are_checked_and_used(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    calls: SimpleQueue[int] = SimpleQueue()  # a list would be something that augment keeps

    def augment(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        calls.put(len(batch[0]))
        return batch[0] + 0.1 * torch.randn_like(batch[0]), batch[1]

    run = trained(make_plan(augmentations=3), model, data, augment=augment)
    assert run.complete
    assert all(number % 3 == 0 or number <= 16 for number in [calls.get() for _ in range(calls.qsize())])


def test_callbacks_see_steps_and_a_safe_epsilon(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    plan, seen = make_plan(), []

    def look(progress: Progress) -> None:
        seen.append((progress.step, progress.epsilon))

    trained(plan, model, data, callbacks=[look])
    assert [step for step, _ in seen] == list(range(1, 13))
    for step, epsilon in seen:
        exact = accounting.guarantee(plan.event_of(step), delta=1e-5)
        assert exact.epsilon_lower <= epsilon <= exact.epsilon * 1.2


def test_a_shared_account_is_charged_and_its_cap_holds(
    make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path
) -> None:
    plan = make_plan(steps=30)
    cap = Budget(epsilon=accounting.guarantee(plan.event_of(40), delta=1e-5).epsilon, delta=1e-5)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.account("hospital", cap=cap)
    first = trained(plan, model, data, ledger=ledger, account="hospital")
    second = trained(plan, model, data, ledger=ledger, account=ledger.account("hospital"))
    assert (first.steps, second.steps) == (30, 10)
    assert first.complete
    assert not second.complete
    assert any("stopped after 10 of 30 steps" in note for note in second.notes)
    assert ledger.account("hospital").spent().epsilon <= cap.epsilon
    assert second.guarantee.epsilon == accounting.guarantee(plan.event_of(10), delta=1e-5).epsilon
    with pytest.raises(BudgetExceeded):
        trained(plan, model, data, ledger=ledger, account="hospital")


def test_a_plan_over_its_own_budget_stops_inside_it(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    budget = Budget(epsilon=accounting.guarantee(make_plan().event_of(8), delta=1e-5).epsilon, delta=1e-5)
    run = trained(make_plan(budget=budget), model, data)
    assert run.steps == 8
    assert budget.allows(run.guarantee)


def test_an_account_without_its_ledger_is_refused(
    make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path
) -> None:
    with pytest.raises(InvalidValue, match="give the ledger"):
        trained(make_plan(), model, data, account=Ledger(tmp_path / "ledger.db").account("hospital"))


# Weights after the step ----------------------------------------------------------------------------------------


def weights_over_steps(model: nn.Module, values: list[float]) -> Iterator[None]:
    for value in values:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(value)
        yield


@pytest.mark.parametrize(
    ("kind", "expected"), [("mean", 7 / 3), ("ema", (0.25 * 1 + 0.5 * 2 + 1 * 4) / 1.75), ("none", 4.0)]
)
def test_averages_are_what_they_say(kind: str, expected: float) -> None:
    model = nn.Linear(2, 2)
    average = Average(model, kind, 0.5)
    for _ in weights_over_steps(model, [1.0, 2.0, 4.0]):
        average.update()
    average.put_into_model()
    assert torch.allclose(model.weight, torch.full((2, 2), expected))


def test_projection_keeps_the_ball(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    run = trained(make_plan(project_to=0.5), model, data, optimizer=sgd(model, 5.0))
    norm = torch.cat([value.flatten() for value in run.weights.values()]).norm()
    assert float(norm) <= 0.5 * (1 + 1e-6)
    inside = [torch.tensor([0.1])]
    project(inside, radius=1.0)
    assert inside[0] == 0.1
