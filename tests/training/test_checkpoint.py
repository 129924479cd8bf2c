"""Crash and resume: nothing changed goes on, nothing spent is lost, no noise comes twice."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, MultiStepLR, OneCycleLR, StepLR
from torch.utils.data import Subset, TensorDataset

from hush import Budget, Ledger, Rng, accounting, events
from hush.errors import BudgetExceeded, InvalidValue, ResumeRefused, UnreadableFile
from hush.gradients.noise import NoiseSource
from hush.training import AdaptiveClipping, PrivateGradients, Progress, Run, TrainingPlan, fit
from hush.training.checkpoint import CHECKPOINT_FILE, read

Make = Callable[..., TrainingPlan]


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


class PowerCut(Exception):
    pass


def net(width: int = 5) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(6)
        return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3))


def go(
    plan: TrainingPlan,
    data: Any,
    folder: Path,
    *,
    model: nn.Module | None = None,
    make: Callable[[nn.Module], torch.optim.Optimizer] = lambda m: torch.optim.Adam(m.parameters(), lr=0.01),
    scheduler: Callable[[torch.optim.Optimizer], Any] = lambda o: StepLR(o, 5),
    cut: int | None = None,
    **options: Any,
) -> Run:
    """One process's attempt; `cut` ends it right after that step, as if the power went."""
    model = model or net()
    optimizer = make(model)

    def callback(progress: Progress) -> None:
        if progress.step == cut:
            raise PowerCut

    options = {"resume": True, "checkpoint_every": 4, "callbacks": [callback], **options}
    return fit(
        plan,
        model,
        data,
        loss_fn=loss_fn,
        optimizer=optimizer,
        scheduler=scheduler(optimizer),
        folder=folder,
        **options,
    )


def crashed(plan: TrainingPlan, data: Any, folder: Path, *, cut: int = 6, **options: Any) -> None:
    with pytest.raises(PowerCut):
        go(plan, data, folder, cut=cut, **options)


def test_a_crashed_run_goes_on_under_new_charges(make_plan: Make, data: TensorDataset, tmp_path: Path) -> None:
    plan = make_plan(average="ema", adaptive=AdaptiveClipping(quantile=0.5, count_stddev=3.0))
    crashed(plan, data, tmp_path, cut=6)  # two blocks of 4 are charged, 6 steps ran, 4 are in the checkpoint
    assert read(tmp_path / CHECKPOINT_FILE).step == 4
    run = go(plan, data, tmp_path)
    assert run.complete
    assert len(run.history.loss) == 12
    assert run.event == events.Composed(events.Repeated(plan.step_event, 8 + 8))
    assert run.guarantee.epsilon == run.ledger.account(run.account).spent(delta=1e-5).epsilon
    assert run.guarantee.epsilon > plan.guarantee().epsilon
    assert Run.load(tmp_path).guarantee == run.guarantee


def test_a_resumed_twin_ends_where_an_unbroken_one_does(make_plan: Make, data: TensorDataset, tmp_path: Path) -> None:
    """Weights, optimizer, scheduler, average and step all come back: with full batches nothing else matters."""
    plan = make_plan(sampling="full_batch", sampling_prob=1.0, average="ema", project_to=3.0).without_privacy()
    whole = go(plan, data, tmp_path / "whole")
    for cut in (1, 6, 9):
        crashed(plan, data, tmp_path / "broken", cut=cut)
    broken = go(plan, data, tmp_path / "broken")
    for name, value in whole.weights.items():
        assert torch.equal(value, broken.weights[name])
    assert broken.history.loss == whole.history.loss


def test_resumed_steps_have_fresh_noise(
    make_plan: Make, data: TensorDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even from a seed: step 5 is released twice, under two charges, with two noises."""
    drawn: list[Tensor] = []
    add = NoiseSource.add

    def listening(self: NoiseSource, gradients: dict[str, Tensor], stddev: float) -> dict[str, Tensor]:
        noise = {name: torch.zeros_like(value) for name, value in gradients.items()}
        add(self, noise, stddev)
        drawn.append(noise["0.weight"].clone())
        return {name: gradients[name] + value for name, value in noise.items()}

    monkeypatch.setattr(NoiseSource, "add", listening)
    crashed(make_plan(), data, tmp_path, rng=Rng.from_seed(3))
    go(make_plan(), data, tmp_path, rng=Rng.from_seed(3))
    assert len(drawn) == 6 + 8
    assert not any(torch.equal(a, b) for place, a in enumerate(drawn) for b in drawn[:place])


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        (None, None, "operating-system entropy"),
        (3, 3, "seed 3"),
        (3, None, "seed 3, then operating-system entropy"),
        (None, 3, "operating-system entropy, then seed 3"),
    ],
)
def test_a_run_says_where_the_randomness_of_each_part_came_from(
    make_plan: Make, data: TensorDataset, tmp_path: Path, first: int | None, then: int | None, said: str
) -> None:
    def source(seed: int | None) -> Rng | None:
        return None if seed is None else Rng.from_seed(seed)

    crashed(make_plan(), data, tmp_path, rng=source(first))
    run = go(make_plan(), data, tmp_path, rng=source(then))
    assert run.randomness == Run.load(tmp_path).randomness == said
    assert any("from a seed" in note for note in run.notes) == ("seed" in said)


def test_a_budget_that_does_not_hold_the_repeat_ends_the_run_early(data: TensorDataset, tmp_path: Path) -> None:
    budget = Budget(epsilon=3.0, delta=1e-5)
    plan = TrainingPlan.for_budget(budget, sampling_prob=0.1, expected_batch_size=20, steps=12, clip_norm=1.0)
    crashed(plan, data, tmp_path)
    run = go(plan, data, tmp_path)
    assert run.steps == 8  # 12 charges fit; 8 were made for 4 kept steps
    assert not run.complete
    assert "stopped after 8 of 12 steps" in run.notes[0]
    assert budget.allows(run.guarantee)
    assert budget.allows(run.ledger.account(run.account).spent())
    again = go(plan, data, tmp_path)
    assert (again.steps, again.guarantee) == (8, run.guarantee)


def test_spare_steps_let_a_run_finish_inside_the_budget(data: TensorDataset, tmp_path: Path) -> None:
    budget = Budget(epsilon=3.0, delta=1e-5)
    plan = TrainingPlan.for_budget(
        budget, sampling_prob=0.1, expected_batch_size=20, steps=12, clip_norm=1.0, spare_steps=4
    )
    crashed(plan, data, tmp_path)
    run = go(plan, data, tmp_path)
    assert run.complete
    assert budget.allows(run.guarantee)


def test_correlated_noise_goes_on_as_a_second_event(make_plan: Make, data: TensorDataset, tmp_path: Path) -> None:
    plan = make_plan(sampling="ordered", sampling_prob=1.0, num_examples=200, bands=2, relation="zero_out")
    crashed(plan, data, tmp_path)
    run = go(plan, data, tmp_path)
    assert [row.event for row in run.ledger.account(run.account).rows()[1:]] == [plan.event, plan.event_of(8)]
    two = accounting.guarantee(events.Composed(plan.event, plan.event), delta=1e-5, relation="zero_out")
    assert run.guarantee.epsilon == pytest.approx(two.epsilon, rel=1e-9)


def test_finished_runs_are_not_trained_again(make_plan: Make, data: TensorDataset, tmp_path: Path) -> None:
    run = go(make_plan(), data, tmp_path)
    again = go(make_plan(), data, tmp_path)
    assert again.guarantee == run.guarantee
    assert all(torch.equal(value, again.weights[name]) for name, value in run.weights.items())


def test_a_folder_with_a_run_needs_the_word_resume(make_plan: Make, data: TensorDataset, tmp_path: Path) -> None:
    crashed(make_plan(), data, tmp_path)
    with pytest.raises(InvalidValue, match="resume=True"):
        go(make_plan(), data, tmp_path, resume=False)
    with pytest.raises(InvalidValue, match="resume needs the folder"):
        fit(
            make_plan(),
            net(),
            data,
            loss_fn=loss_fn,
            optimizer=torch.optim.SGD(net().parameters(), lr=1.0),
            resume=True,
        )


def frozen_first() -> nn.Module:
    model = net()
    model[0].requires_grad_(False)
    return model


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "plan": ({"plan": {"clip_norm": 2.0}}, "plan .*clip_norm was 1.0 and is 2.0"),
    "steps": ({"plan": {"steps": 13}}, "plan .*steps was 12 and is 13"),
    "budget": ({"plan": {"budget": Budget(epsilon=9.0, delta=1e-5)}}, "plan .*budget"),
    "relation": ({"plan": {"relation": "zero_out"}}, "plan .*relation was"),
    "shape": ({"model": lambda: net(6)}, r"model .*0\.weight"),
    "frozen": ({"model": frozen_first}, r"model .*0\.weight"),
    "dtype": ({"model": lambda: net().double()}, r"model .*0\.weight"),
    "optimizer": ({"make": lambda m: torch.optim.SGD(m.parameters(), lr=0.01)}, "optimizer .*class was"),
    "rate": ({"make": lambda m: torch.optim.Adam(m.parameters(), lr=0.02)}, "optimizer .*lr"),
    "scheduler": ({"scheduler": lambda o: CosineAnnealingLR(o, 9)}, "scheduler .*class was"),
    "schedule": ({"scheduler": lambda o: StepLR(o, 6)}, "scheduler .*step_size"),
    "no scheduler": ({"scheduler": lambda o: None}, "scheduler"),
    "size": ({"data": "part"}, "data set .*examples was 200 and is 199"),
    "name": ({"dataset_name": "other"}, "data set .*name was"),
    "account": ({"account": "other"}, "ledger account"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_changed_is_refused_and_named(make_plan: Make, data: TensorDataset, tmp_path: Path, name: str) -> None:
    change, message = CHANGES[name]
    options = dict(change)
    crashed(make_plan(), data, tmp_path, dataset_name="two hundred")
    plan = make_plan(**options.pop("plan", {}))
    shown = Subset(data, range(199)) if options.pop("data", None) else data
    model = options.pop("model", net)()
    if name == "frozen":
        options["make"] = lambda m: torch.optim.Adam([p for p in m.parameters() if p.requires_grad], lr=0.01)
    before = Ledger(tmp_path / "ledger.db").verify().heads["training"]
    with pytest.raises(ResumeRefused, match=message):
        go(plan, shown, tmp_path, model=model, **{"dataset_name": "two hundred", **options})
    assert Ledger(tmp_path / "ledger.db").verify().heads["training"] == before


def test_a_missing_older_or_edited_ledger_is_refused(make_plan: Make, data: TensorDataset, tmp_path: Path) -> None:
    plan, ledger = make_plan(), tmp_path / "ledger.db"
    crashed(plan, data, tmp_path, cut=2)
    shutil.copy(ledger, tmp_path / "old.db")
    crashed(plan, data, tmp_path, cut=9)
    shutil.copy(ledger, tmp_path / "new.db")
    ledger.unlink()
    with pytest.raises(ResumeRefused, match="missing"):
        go(plan, data, tmp_path)
    shutil.copy(tmp_path / "old.db", ledger)  # rows that the checkpoint knows are gone
    with pytest.raises(ResumeRefused, match="expected head"):
        go(plan, data, tmp_path)
    shutil.copy(tmp_path / "new.db", ledger)
    with sqlite3.connect(ledger) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = next(name for name in tables if "row" in name)
        connection.execute(f"UPDATE {table} SET count = 1 WHERE number = 1")
    connection.close()
    with pytest.raises(ResumeRefused, match="edited"):
        go(plan, data, tmp_path)


@pytest.mark.parametrize("size", [0, 50, 3000])
def test_a_damaged_checkpoint_is_refused(make_plan: Make, data: TensorDataset, tmp_path: Path, size: int) -> None:
    crashed(make_plan(), data, tmp_path)
    path = tmp_path / CHECKPOINT_FILE
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(UnreadableFile):
        go(make_plan(), data, tmp_path)


def test_other_safetensors_are_not_checkpoints(make_plan: Make, data: TensorDataset, tmp_path: Path) -> None:
    import safetensors.torch

    for metadata in ({}, {"hush": "{}"}, {"hush": '{"format": 2}'}, {"hush": '{"format": 1, "step": 3}'}):
        safetensors.torch.save_file({"a": torch.zeros(1)}, tmp_path / CHECKPOINT_FILE, metadata)
        with pytest.raises(UnreadableFile):
            go(make_plan(), data, tmp_path)


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda o: MultiStepLR(o, [3, 7]),
        lambda o: LambdaLR(o, lambda step: 1 / (1 + step)),
        lambda o: OneCycleLR(o, 0.1, total_steps=30),
        lambda o: torch.optim.lr_scheduler.SequentialLR(o, [StepLR(o, 2), CosineAnnealingLR(o, 9)], [4]),
    ],
)
@pytest.mark.parametrize("kind", ["SGD", "AdamW", "RMSprop"])
def test_optimizers_and_schedulers_go_on(
    make_plan: Make, data: TensorDataset, tmp_path: Path, scheduler: Callable[..., Any], kind: str
) -> None:
    plan = make_plan(sampling="full_batch", sampling_prob=1.0, steps=8).without_privacy()

    def make(model: nn.Module) -> torch.optim.Optimizer:
        more = {"momentum": 0.9} if kind == "SGD" else {}
        return getattr(torch.optim, kind)(model.parameters(), lr=0.01, **more)  # type: ignore[no-any-return]

    whole = go(plan, data, tmp_path / "whole", make=make, scheduler=scheduler)
    crashed(plan, data, tmp_path / "broken", make=make, scheduler=scheduler)
    broken = go(plan, data, tmp_path / "broken", make=make, scheduler=scheduler)
    assert all(torch.equal(value, broken.weights[name]) for name, value in whole.weights.items())


def test_a_later_process_counts_from_its_first_step(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    private = PrivateGradients(model, make_plan(steps=5), first=3)
    assert [private.backward(loss_fn, data[:3]).step for _ in range(2)] == [4, 5]
    with pytest.raises(BudgetExceeded):
        private.backward(loss_fn, data[:3])
