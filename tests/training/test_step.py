"""One step: what lands in .grad, what is charged and when, and what a unit can contribute at most."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hush import Budget, Ledger, Rng, accounting, events
from hush.errors import BudgetExceeded, InvalidValue, UnplannedBatch
from hush.gradients import clipped_sum
from hush.gradients.memory import peak_bytes
from hush.gradients.noise import NoiseSource
from hush.training import AdaptiveClipping, Lot, PrivateGradients, TrainingPlan
from hush.training.lots import augmented, padded

Make = Callable[..., TrainingPlan]
Gradients = dict[str, Tensor]
STILL = 1e-9  # a noise multiplier whose noise is too small to see


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def grads(model: nn.Module) -> Gradients:
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def by_hand(model: nn.Module, units: list[tuple[Tensor, Tensor]], clip_norm: float, scale: float = 1.0) -> Gradients:
    """The naive sum over units of their clipped gradients."""
    total = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    for x, y in units:
        found = torch.autograd.grad(scale * loss_fn(model, x, y).sum(), list(model.parameters()))
        norm = math.sqrt(sum(float(value.square().sum()) for value in found))
        for name, value in zip(total, found, strict=True):
            total[name] += value * min(1.0, clip_norm / norm)
    return total


def close(left: Gradients, right: Gradients, tolerance: float = 1e-5) -> bool:
    return all(torch.allclose(left[name], right[name], atol=tolerance) for name in right)


def test_gradients_are_the_clipped_sum_plus_noise_over_the_divisor(
    make_plan: Make, model: nn.Module, data: TensorDataset
) -> None:
    plan = make_plan(noise_multiplier=1.3, clip_norm=0.7)
    x, y = data[:9]
    report = PrivateGradients(model, plan, rng=Rng.from_seed(3)).backward(loss_fn, (x, y))
    wanted = by_hand(model, [(x[i : i + 1], y[i : i + 1]) for i in range(9)], 0.7)
    NoiseSource(Rng.from_seed(3)).add(wanted, 1.3 * 0.7)
    assert close(grads(model), {name: value / plan.expected_batch_size for name, value in wanted.items()})
    assert report.step == 1
    assert report.loss == pytest.approx(float(loss_fn(model, x, y).detach().mean()), rel=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 40])
def test_the_divisor_is_the_public_constant(make_plan: Make, model: nn.Module, data: TensorDataset, rows: int) -> None:
    plan = make_plan(noise_multiplier=STILL, expected_batch_size=20)
    x, y = data[:rows]
    report = PrivateGradients(model, plan).backward(loss_fn, (x, y))
    wanted = by_hand(model, [(x[i : i + 1], y[i : i + 1]) for i in range(rows)], 1.0)
    assert close(grads(model), {name: value / 20 for name, value in wanted.items()})
    assert (report.loss is None) == (rows == 0)


def test_an_empty_batch_still_gets_noise(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    PrivateGradients(model, make_plan()).backward(loss_fn, data[:0])
    assert all(float(value.abs().min()) > 0 for value in grads(model).values())


def test_people_are_clipped_together(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    plan = make_plan(unit="person", noise_multiplier=STILL, clip_norm=0.5)
    x, y = data[:6]
    groups = torch.tensor([0, 1, 0, 2, 2, 0])
    PrivateGradients(model, plan).backward(loss_fn, Lot((x, y), groups=groups))
    wanted = by_hand(model, [(x[groups == i], y[groups == i]) for i in range(3)], 0.5)
    assert close(grads(model), {name: value / 20 for name, value in wanted.items()})


def test_augmented_copies_are_averaged_before_clipping(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    plan = make_plan(augmentations=4, noise_multiplier=STILL, clip_norm=0.5)
    lot = augmented(Lot(data[:3]), 4, lambda batch: (batch[0] + torch.randn_like(batch[0]), batch[1]))
    PrivateGradients(model, plan).backward(loss_fn, lot)
    x, y = lot.batch
    wanted = by_hand(model, [(x[i : i + 4], y[i : i + 4]) for i in (0, 4, 8)], 0.5, scale=1 / 4)
    assert close(grads(model), {name: value / 20 for name, value in wanted.items()})


@pytest.mark.parametrize("size", [3, 8])
def test_padding_counts_nothing(make_plan: Make, model: nn.Module, data: TensorDataset, size: int) -> None:
    plan = make_plan(noise_multiplier=STILL, physical_batch_size=2 if size == 8 else None)
    PrivateGradients(model, plan).backward(loss_fn, data[:3])
    wanted = grads(model)
    report = PrivateGradients(model, plan).backward(loss_fn, padded(data[:3], size))
    assert close(grads(model), wanted)
    assert report.loss == pytest.approx(float(loss_fn(model, *data[:3]).detach().mean()), rel=1e-5)


def test_a_memory_limit_splits_the_lot_and_changes_nothing(
    make_plan: Make, model: nn.Module, data: TensorDataset
) -> None:
    plan, batch, parts = make_plan(noise_multiplier=STILL), data[:40], list[int]()
    PrivateGradients(model, plan).backward(loss_fn, batch)
    wanted = grads(model)
    one = peak_bytes(lambda: clipped_sum(model, loss_fn, data[:1], 1.0))
    all_rows = peak_bytes(lambda: clipped_sum(model, loss_fn, batch, 1.0))
    private = PrivateGradients(model, plan, memory_limit=(one + all_rows) // 2)
    private.backward(loss_fn, batch)  # finds the size
    assert close(grads(model), wanted)

    def watched(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        parts.append(len(x))
        return loss_fn(net, x, y)

    private.backward(watched, batch)
    assert close(grads(model), wanted)
    assert sum(part for part in parts if part > 1) == 40  # one alone is a spot check
    assert 1 < max(parts) < 40


def test_mappings_and_tensors_are_batches_too(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    plan = make_plan(noise_multiplier=STILL)
    x, y = data[:4]
    PrivateGradients(model, plan).backward(loss_fn, [x, y])
    wanted = grads(model)
    for batch in ({"x": x, "y": y}, padded({"x": x, "y": y}, 6)):
        PrivateGradients(model, plan).backward(loss_fn, batch)
        assert close(grads(model), wanted)
    PrivateGradients(model, plan).backward(lambda net, rows: net(rows).square().sum(1), x)
    assert not close(grads(model), wanted)


def test_the_twin_takes_the_ordinary_gradient(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    twin = make_plan(physical_batch_size=3).without_privacy()
    x, y = data[:10]
    (loss_fn(model, 5 * x, y).sum() / 20).backward()
    wanted = grads(model)
    PrivateGradients(model, twin).backward(loss_fn, (5 * x, y))
    assert close(grads(model), wanted, 1e-6)


def test_moving_one_unit_moves_the_sum_by_the_clip_norm_at_most(
    make_plan: Make, model: nn.Module, data: TensorDataset
) -> None:
    plan = make_plan(noise_multiplier=STILL, clip_norm=0.3, expected_batch_size=1)
    x, y = data[:8]
    sums = []
    for rows in [list(range(8)), *([i for i in range(8) if i != left] for left in range(8))]:
        PrivateGradients(model, plan).backward(loss_fn, (100 * x[rows], y[rows]))
        sums.append(torch.cat([value.flatten() for value in grads(model).values()]))
    distances = [float((sums[0] - other).norm()) for other in sums[1:]]
    assert max(distances) <= 0.3 * (1 + 1e-5)
    assert max(distances) > 0.2  # some example is clipped, so the bound is met


# Charges -------------------------------------------------------------------------------------------------------


def test_the_charge_is_on_disk_before_the_noise_is_drawn(
    make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Ledger(tmp_path / "ledger.db").account("people")
    seen = []

    def add(self: NoiseSource, gradients: Gradients, stddev: float) -> Gradients:
        seen.append([row.count for row in Ledger(tmp_path / "ledger.db").account("people").rows()[1:]])
        raise RuntimeError("power cut")

    monkeypatch.setattr(NoiseSource, "add", add)
    private = PrivateGradients(model, make_plan(), account=account, block=5)
    with pytest.raises(RuntimeError, match="power cut"):
        private.backward(loss_fn, data[:3])
    assert seen == [[5]]
    assert all(value.grad is None for value in model.parameters())


def test_an_error_before_the_release_charges_nothing(
    make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path
) -> None:
    account = Ledger(tmp_path / "ledger.db").account("people")
    private = PrivateGradients(model, make_plan(), account=account)
    with pytest.raises(InvalidValue, match="one loss per example"):
        private.backward(lambda net, x, y: loss_fn(net, x, y).mean(), data[:3])
    assert len(account.rows()) == 1
    assert private.guarantee().epsilon == 0


def test_the_ledger_says_what_was_done(make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path) -> None:
    account = Ledger(tmp_path / "ledger.db").account("people")
    plan = make_plan(steps=7)
    with PrivateGradients(model, plan, account=account, block=5, note="mine") as private:
        for batch in plan.batches(data):
            private.backward(loss_fn, batch)
        assert private.steps == 7
    assert account.event == events.Composed(events.Repeated(plan.step_event, 7))
    assert {row.note for row in account.rows()[1:]} == {"mine"}
    assert private.guarantee() == plan.guarantee()
    assert account.spent(delta=1e-5).epsilon == plan.guarantee().epsilon


def test_never_started_steps_are_given_back(
    make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path
) -> None:
    account = Ledger(tmp_path / "ledger.db").account("people")
    plan = make_plan(steps=12)
    private = PrivateGradients(model, plan, account=account, block=12)
    private.backward(loss_fn, data[:3])
    charged = accounting.guarantee(plan.event_of(12), delta=1e-5)
    assert private.guarantee().epsilon == charged.epsilon  # what is charged counts, not what ran
    private.close()
    assert account.event == events.Composed(plan.step_event)


def test_a_step_that_was_not_planned_does_not_run(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    private = PrivateGradients(model, make_plan(steps=2))
    for _ in range(2):
        private.backward(loss_fn, data[:3])
    before = grads(model)
    with pytest.raises(BudgetExceeded, match="all 2 steps"):
        private.backward(loss_fn, data[:3])
    assert close(grads(model), before, 0.0)


def test_a_step_over_the_plans_own_budget_does_not_run(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    budget = Budget(epsilon=accounting.guarantee(make_plan().event_of(3), delta=1e-5).epsilon, delta=1e-5)
    private = PrivateGradients(model, make_plan(budget=budget))
    for _ in range(3):
        private.backward(loss_fn, data[:3])
    with pytest.raises(BudgetExceeded, match="budget of the plan"):
        private.backward(loss_fn, data[:3])
    assert budget.allows(private.guarantee())


def test_a_step_over_the_cap_does_not_run(
    make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path
) -> None:
    plan = make_plan(steps=50)
    cap = Budget(epsilon=accounting.guarantee(plan.event_of(10), delta=1e-5).epsilon, delta=1e-5)
    account = Ledger(tmp_path / "ledger.db").account("people", cap=cap)
    private = PrivateGradients(model, plan, account=account, block=4)
    for _ in range(10):
        private.backward(loss_fn, data[:3])
    before = grads(model)
    with pytest.raises(BudgetExceeded):
        private.backward(loss_fn, data[:3])
    assert close(grads(model), before, 0.0)
    assert account.spent().epsilon <= cap.epsilon


def test_an_account_for_other_neighbours_is_refused(make_plan: Make, model: nn.Module, tmp_path: Path) -> None:
    account = Ledger(tmp_path / "ledger.db").account("people", relation="replace_one")
    with pytest.raises(InvalidValue, match="replace_one"):
        PrivateGradients(model, make_plan(), account=account)


def test_a_twin_does_not_fit_under_a_cap(
    make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path
) -> None:
    account = Ledger(tmp_path / "ledger.db").account("people", cap=Budget(epsilon=9.0, delta=1e-5))
    with pytest.raises(BudgetExceeded):
        PrivateGradients(model, make_plan().without_privacy(), account=account).backward(loss_fn, data[:3])


def test_ordered_passes_are_one_charge(make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path) -> None:
    plan = make_plan(sampling="ordered", sampling_prob=1.0, num_examples=200, bands=3, relation="zero_out", steps=15)
    account = Ledger(tmp_path / "ledger.db").account("people", relation="zero_out")
    with PrivateGradients(model, plan, account=account) as private:
        for batch in plan.batches(data):
            private.backward(loss_fn, batch)
    assert [row.event for row in account.rows()[1:]] == [plan.event]
    assert private.guarantee().epsilon == plan.guarantee().epsilon


# Adaptive clipping ---------------------------------------------------------------------------------------------


def test_the_clip_norm_goes_to_the_quantile() -> None:
    """Gradients of norm 1..100: the clip norm comes near the wanted quantile from both sides."""
    model = nn.Linear(1, 1, bias=False)
    x = torch.arange(1.0, 101.0)[:, None]
    for start in (1.0, 1000.0):
        plan = TrainingPlan(
            noise_multiplier=1.0,
            sampling_prob=1.0,
            sampling="full_batch",
            expected_batch_size=100,
            steps=200,
            clip_norm=start,
            delta=1e-5,
            adaptive=AdaptiveClipping(quantile=0.7, count_stddev=5.0),
        )
        private = PrivateGradients(model, plan, rng=Rng.from_seed(1))
        for _ in range(200):
            report = private.backward(lambda net, rows: net(rows)[:, 0], x)
        assert 60 < private.clip_norm.value < 80
        assert 60 < report.clip_norm < 80


@pytest.mark.parametrize("wrap", [lambda batch: batch, lambda batch: padded(batch, 9)])
def test_one_unit_moves_the_count_by_half(
    make_plan: Make, model: nn.Module, data: TensorDataset, wrap: Callable
) -> None:  # type: ignore[type-arg]
    """The sensitivity that the noise on the count is made for; padding must not count."""
    plan = make_plan(adaptive=AdaptiveClipping(quantile=0.5, count_stddev=5.0))
    seen: list[float] = []
    for rows in (5, 6):
        private = PrivateGradients(model, plan)
        count = private.clip_norm.centred_count
        private.clip_norm.centred_count = lambda norms, count=count: seen.append(count(norms)) or count(norms)  # type: ignore[method-assign,misc]
        private.backward(loss_fn, wrap(data[:rows]))
    assert abs(seen[0] - seen[1]) == 0.5
    assert abs(seen[0]) <= 2.5


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("row", [0, 1, 3, 50])
def test_a_broken_example_counts_as_zero_and_is_told(
    make_plan: Make, model: nn.Module, data: TensorDataset, row: int, value: float
) -> None:
    x, y = (tensor.clone() for tensor in data.tensors)
    x[row] = value
    private = PrivateGradients(model, make_plan(noise_multiplier=STILL, expected_batch_size=1))
    report = private.backward(loss_fn, (x, y))
    assert report.nonfinite == 1
    others = [place for place in range(len(x)) if place != row]
    assert close(grads(model), by_hand(model, [(x[i : i + 1], y[i : i + 1]) for i in others], 1.0), 1e-4)
    assert report.loss == pytest.approx(float(loss_fn(model, x[others], y[others]).detach().mean()), rel=1e-5)


def test_padding_that_breaks_is_no_example(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    def on_the_sphere(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return loss_fn(net, x / x.norm(dim=1, keepdim=True), y)  # 0 / 0 in rows of zeros

    plan = make_plan(
        noise_multiplier=STILL, expected_batch_size=1, sampling="truncated_poisson", max_batch_size=30, num_examples=200
    )
    x, y = data[:9]
    report = PrivateGradients(model, plan).backward(on_the_sphere, padded((x, y), 30))
    assert report.nonfinite == 0
    on_it = x / x.norm(dim=1, keepdim=True)
    assert report.loss == pytest.approx(float(loss_fn(model, on_it, y).detach().mean()), rel=1e-5)
    assert close(grads(model), by_hand(model, [(on_it[i : i + 1], y[i : i + 1]) for i in range(9)], 1.0))


def test_a_persons_rows_must_be_known(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    private = PrivateGradients(model, make_plan(unit="person"))
    with pytest.raises(InvalidValue, match=r"whose they are; take it from plan\.batches\(dataset, people="):
        private.backward(loss_fn, data[:5])
    assert private.steps == 0


def test_a_batch_above_the_cap_is_refused(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    plan = make_plan(sampling="truncated_poisson", max_batch_size=45, num_examples=200)
    with pytest.raises(InvalidValue, match="at most 45 examples, and this one has 200"):
        PrivateGradients(model, plan).backward(loss_fn, data[:])


@pytest.mark.parametrize("frozen", [True, False])
def test_freezing_after_the_start_is_refused_before_the_charge(
    make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path, frozen: bool
) -> None:
    model[0].requires_grad_(frozen)
    account = Ledger(tmp_path / "ledger.db").account("data", cap=Budget(epsilon=100.0, delta=1e-5))
    private = PrivateGradients(model, make_plan(), account=account)
    model[0].requires_grad_(not frozen)
    with pytest.raises(InvalidValue, match=r"0\.bias, 0\.weight: frozen or unfrozen"):
        private.backward(loss_fn, data[:9])
    assert private.steps == 0
    assert account.spent().epsilon == 0


def test_a_shuffled_loader_is_told_and_noted(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    private = PrivateGradients(model, make_plan(delta=1.1e-5))  # a plan that nobody has drawn from
    loader = DataLoader(data, batch_size=20, shuffle=True)
    with pytest.warns(UnplannedBatch, match="shuffled loader") as told:
        reports = [private.backward(loss_fn, batch) for batch in loader]
    assert len(reports) == 10
    assert len(told) == 1
    assert told[0].filename == __file__
    assert any("plan.batches" in note for note in private.guarantee().notes)


@pytest.mark.parametrize(
    "change", [lambda batch: batch, lambda batch: {"x": batch[0], "y": batch[1]}], ids=["", "named"]
)
def test_the_plans_own_batches_are_not_told_of(
    make_plan: Make, model: nn.Module, data: TensorDataset, change: Callable[[Any], Any]
) -> None:
    plan = make_plan(delta=1.2e-5)
    private, other = PrivateGradients(model, plan), PrivateGradients(model, plan)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in list(plan.batches(data)):  # as a queue would have them
            private.backward(loss_fn, change(batch))
            other.backward(loss_fn, change(batch))
    assert private.guarantee() == plan.guarantee()


def test_a_loss_that_closes_over_a_statistic_of_the_batch_is_told_of(
    make_plan: Make, model: nn.Module, data: TensorDataset
) -> None:
    plan = make_plan(steps=3)
    private = PrivateGradients(model, plan)

    def train() -> None:
        for x, y in plan.batches(data):
            mean = x.mean(0)
            private.backward(lambda model, x, y, mean=mean: loss_fn(model, x - mean, y), (x, y))

    with pytest.warns(UnplannedBatch, match="closes over"):
        train()
    assert any("closes over" in note for note in private.guarantee().notes)


def test_a_loss_that_closes_over_what_stays_is_not_told_of(
    make_plan: Make, model: nn.Module, data: TensorDataset
) -> None:
    plan, weights = make_plan(steps=3), torch.ones(3)
    private = PrivateGradients(model, plan)
    for batch in plan.batches(data):
        private.backward(
            lambda model, x, y: nn.functional.cross_entropy(model(x), y, weight=weights, reduction="none"), batch
        )
    assert not any("closes over" in note for note in private.guarantee().notes)


def test_a_batch_that_numpy_wrote_into_is_not_the_plans(make_plan: Make, model: nn.Module, data: TensorDataset) -> None:
    plan = make_plan(steps=1)
    private = PrivateGradients(model, plan)
    (batch,) = plan.batches(data)
    rows = batch[0].numpy()
    rows -= rows.mean(0)
    with pytest.warns(UnplannedBatch, match=r"did not come from plan\.batches"):
        private.backward(loss_fn, batch)


@pytest.mark.parametrize("made", [nn.LazyLinear(3), nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 3))])
def test_a_lazy_model_is_refused_in_one_line(make_plan: Make, data: TensorDataset, made: nn.Module) -> None:
    with pytest.raises(InvalidValue, match="no shape yet"):
        PrivateGradients(made, make_plan())
    with pytest.raises(InvalidValue, match="no shape yet"):
        clipped_sum(made, loss_fn, data[:4], 1.0)


def test_a_numpy_array_in_a_batch_is_refused_in_one_line(model: nn.Module, data: TensorDataset) -> None:
    x, y = data[:4]
    with pytest.raises(InvalidValue, match="numpy array"):
        clipped_sum(model, loss_fn, (x, y.numpy()), 1.0)
