"""Audits inside a training: every kind of plan and data, what is left untouched, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, Subset, TensorDataset

import hush
from hush import Rng, TrainingPlan, fit
from hush.audit import GradientCanaries, WhiteBox, WhiteBoxAudit
from hush.errors import InvalidValue
from hush.training import AdaptiveClipping, PrivateGradients, Run


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), y, reduction="none")


def named_loss(model: nn.Module, *, x: Tensor, y: Tensor) -> Tensor:
    return loss_fn(model, x, y)


class Items(Dataset[Any]):
    def __init__(self, data: TensorDataset, *, named: bool = False) -> None:
        self.data, self.named = data, named

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, row: int) -> Any:
        x, y = self.data[row]
        return {"x": x, "y": y} if self.named else (x, y)


def points() -> TensorDataset:
    stream = torch.Generator().manual_seed(5)
    return TensorDataset(torch.randn(30, 3, generator=stream), torch.randint(0, 2, (30,), generator=stream))


def plan_of(**changes: Any) -> TrainingPlan:
    usual: dict[str, Any] = {
        "noise_multiplier": 1.0,
        "sampling_prob": 1.0,
        "sampling": "full_batch",
        "expected_batch_size": 30,
        "steps": 4,
        "clip_norm": 0.5,
        "delta": 1e-5,
    }
    return TrainingPlan(**{**usual, **changes})


def trained(plan: TrainingPlan, data: Dataset[Any] | None = None, **more: Any) -> tuple[Run, nn.Module]:
    model = nn.Linear(3, 2)
    usual = {"loss_fn": loss_fn, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "progress": False}
    usual |= {"rng": Rng.from_seed(2), "audit": WhiteBox(num_canaries=300)}
    return fit(plan, model, points() if data is None else data, **{**usual, **more}), model  # type: ignore[arg-type]


def stacked(items: list[Any]) -> dict[str, Tensor]:
    return {name: torch.stack([item[place] for item in items]) for place, name in enumerate(("x", "y"))}


KINDS: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    "full batch": ({}, None, {}),
    "items": ({}, Items(points()), {}),
    "named items": ({}, Items(points(), named=True), {"loss_fn": named_loss}),
    "subset": ({}, Subset(points(), list(range(20))), {}),
    "own collate": ({}, None, {"collate": stacked, "loss_fn": named_loss}),
    "people": ({"unit": "person"}, None, {"people": torch.arange(30) // 3}),
    "augmented": ({"augmentations": 2}, None, {"augment": lambda batch: (batch[0] + 0.1, batch[1])}),
    "adaptive": ({"adaptive": AdaptiveClipping(quantile=0.5, count_stddev=3.0)}, None, {}),
    "automatic": ({"clipping": "automatic"}, None, {}),
    "replace one": ({"relation": "replace_one", "noise_multiplier": 2.0}, None, {}),
    "zero out": ({"relation": "zero_out"}, None, {}),
    "secure": ({"secure": True}, None, {}),
    "pieces": ({"physical_batch_size": 50}, None, {}),
    "vectorized": ({}, None, {"method": "vectorized"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_training_shows_what_it_leaks_and_no_more(kind: str) -> None:
    """mu is 2 and the best rate 0.841; 300 guesses are below 0.75 with chance 1e-5, and an accusation has 1e-6."""
    changes, data, more = KINDS[kind]
    run, _ = trained(plan_of(**changes), data, **more)
    assert run.audit is not None
    assert run.audit.num_guesses == 300
    assert run.audit.num_correct > 225, run.audit
    assert not run.audit.contradicts, run.audit
    assert run.audit.guarantee == run.guarantee


def test_sampled_and_truncated_plans_can_be_audited() -> None:
    changes = {"sampling_prob": 0.5, "sampling": "truncated_poisson", "max_batch_size": 400, "num_examples": 500}
    run, _ = trained(plan_of(**changes))
    assert run.evidence is not None
    assert 0 < run.evidence.epsilon_at_least < run.guarantee.epsilon


def test_model_and_run_are_as_without_an_audit() -> None:
    run, model = trained(plan_of())
    assert list(run.weights) == ["weight", "bias"]
    assert [name for name, _ in model.named_parameters()] == ["weight", "bias"]
    assert type(model) is nn.Linear
    plain, _ = trained(plan_of(), audit=False)
    assert (plain.audit, plain.evidence) == (None, None)
    assert plain.guarantee == run.guarantee


def test_canaries_change_no_gradient_of_the_model() -> None:
    """Before noise, the clipped sum of the model's own parameters is the same to rounding."""
    data, model = points(), nn.Linear(3, 2)
    canaries = GradientCanaries(50, clip_norm=0.5, rng=Rng.from_seed(1))
    audited, grown, loss = canaries.model(model), canaries.dataset(data), canaries.loss(loss_fn)
    assert isinstance(grown, TensorDataset)
    plain = hush.clipped_sum(model, loss_fn, data.tensors, clip_norm=0.5)
    found = hush.clipped_sum(audited, loss, grown.tensors, clip_norm=0.5)
    for name, value in plain.gradients.items():
        torch.testing.assert_close(found.gradients[f"model.{name}"], value)
    audited.canaries.grad, audited.canaries_too.grad = found.gradients["canaries"], found.gradients["canaries_too"]
    expected = torch.from_numpy(0.5 * canaries.coins * canaries.signs(0))
    torch.testing.assert_close(audited.noisy_sum(1.0), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.gradients["canaries"].abs(), found.gradients["canaries_too"].abs())


def test_layers_keep_their_modes() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).train()
    model[1].eval()
    assert GradientCanaries(2, clip_norm=1.0).model(model).training
    assert not model[1].training


def test_signs_sum_to_zero_over_four_steps() -> None:
    """So noise that comes again in every step, or in every second one, cancels for some canaries."""
    canaries = GradientCanaries(6, clip_norm=1.0)
    assert (sum(canaries.signs(step) for step in range(4)) == 0).all()


def test_gradients_that_nobody_made_are_refused() -> None:
    with pytest.raises(InvalidValue, match="no gradient"):
        GradientCanaries(2, clip_norm=1.0).model(nn.Linear(1, 1)).noisy_sum(1.0)


def test_canaries_that_do_not_take_part_are_told() -> None:
    """Noise alone: half of the guesses are right where the claim allows 76 per cent."""
    audit = an_audit(num_canaries=1_000, rng=Rng.from_seed(1))
    stream = torch.Generator().manual_seed(2)
    for _ in range(2):
        audit.see(torch.randn(1_000, generator=stream), 1.0)
    assert audit.result().is_weak
    assert "fewer right guesses" in str(audit.result())
    run, _ = trained(plan_of())
    assert run.audit is not None
    assert not run.audit.is_weak


def test_a_run_keeps_its_audit_on_disk(tmp_path: Path) -> None:
    run, _ = trained(plan_of(), folder=tmp_path / "run")
    assert Run.load(tmp_path / "run").audit == run.audit


def test_a_resumed_run_is_not_audited(tmp_path: Path) -> None:
    trained(plan_of(), folder=tmp_path, audit=False)
    with pytest.raises(InvalidValue, match="resume it without audit"):
        trained(plan_of(), folder=tmp_path, resume=True)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (plan_of().without_privacy(), "claims nothing"),
        (plan_of(clipping="per_layer"), "per_layer"),
        (plan_of(sampling="ordered", num_examples=30, bands=1, relation="zero_out"), "correlated"),
    ],
    ids=["without privacy", "per layer", "ordered"],
)
def test_what_cannot_be_audited_is_refused(plan: TrainingPlan, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        trained(plan)


def test_a_strange_audit_is_refused() -> None:
    with pytest.raises(InvalidValue, match="audit must be"):
        trained(plan_of(), audit="yes")
    for bad in ({"num_canaries": 0}, {"significance": 0.0}, {"accusation_significance": 1.0}):
        with pytest.raises(InvalidValue):
            WhiteBox(**bad)


def an_audit(**changes: Any) -> WhiteBoxAudit:
    usual: dict[str, Any] = {
        "noise_multiplier": 1.0,
        "sampling_prob": 1.0,
        "steps": 2,
        "clip_norm": 1.0,
        "delta": 1e-5,
        "num_canaries": 5,
    }
    return WhiteBoxAudit(**{**usual, **changes})


def test_a_loop_of_your_own() -> None:
    plan, audit = plan_of(), an_audit(steps=4, clip_norm=0.5, num_canaries=200, rng=Rng.from_seed(3))
    model, data, loss = audit.model(nn.Linear(3, 2)), audit.dataset(points()), audit.loss(loss_fn)
    private = PrivateGradients(model, plan, rng=Rng.from_seed(4))
    for batch in plan.batches(data, rng=Rng.from_seed(5)):
        report = private.backward(loss, batch)
        audit.see(model.noisy_sum(plan.expected_batch_size), report.clip_norm)
    assert audit.result().num_correct > 140
    assert audit.event == plan.event
    with pytest.raises(InvalidValue, match="not claimed"):
        audit.see(torch.zeros(200), 0.5)


def test_nothing_seen_and_sums_of_another_size_are_refused() -> None:
    with pytest.raises(InvalidValue, match="no step"):
        an_audit().result()
    with pytest.raises(InvalidValue, match="5 numbers"):
        an_audit().see(torch.zeros(4), 1.0)


def test_sums_that_are_no_numbers_do_not_stop_an_audit() -> None:
    audit = an_audit(sampling_prob=0.5)
    audit.see(torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, 1e30]), 1.0)
    audit.see(torch.zeros(5), 1.0)
    assert 0 <= audit.result().num_correct <= 5
