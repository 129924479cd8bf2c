"""Training prompts, adapters and heads by `fit`: what learns, what is kept, what is named when it does not move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.prompts.tiny_models import VOCABULARY, made, trained_names
from torch import nn
from torch.utils.data import TensorDataset

from hush import Budget, Ledger, Rng, Run, TrainingPlan, fit
from hush.errors import InvalidValue, NotLearning, ResumeRefused
from hush.prompts import ExampleLoss, SoftPrompt, fit_soft_prompt, keep_trained_part, train_only
from hush.prompts.files import facts_of

ROWS, TOKENS = 64, 6


def rows() -> TensorDataset:
    """Class 1 has even tokens."""
    stream = torch.Generator().manual_seed(3)
    labels = torch.arange(ROWS) % 2
    ids = 2 + 2 * torch.randint(0, VOCABULARY // 2 - 1, (ROWS, TOKENS), generator=stream) + (1 - labels)[:, None]
    return TensorDataset(ids, torch.ones_like(ids), labels)


def plan(steps: int, **settings: Any) -> TrainingPlan:
    return TrainingPlan.for_budget(
        Budget(epsilon=50.0, delta=1e-4),
        sampling_prob=0.5,
        expected_batch_size=ROWS // 2,
        steps=steps,
        clip_norm=1.0,
        **settings,
    )


def loss_of(model: nn.Module) -> float:
    with torch.no_grad():
        return float(ExampleLoss("class")(model, *rows().tensors).mean())


def model_of(name: str) -> Any:
    return made(name, initializer_range=0.3).float()  # large weights, so that a prompt is felt


def prompt_of(name: str = "GPT-2", **settings: Any) -> SoftPrompt:
    if name == "GPT-2":
        settings.setdefault("label_words", [3, 4])
    return SoftPrompt(model_of(name), 3, rng=Rng.from_seed(0), **settings)


def test_a_prompt_learns_and_the_model_does_not(tmp_path: Path) -> None:
    prompt = prompt_of(per_layer=True)
    frozen = {name: value.clone() for name, value in prompt.model.named_parameters()}
    before = loss_of(prompt)
    run = fit_soft_prompt(plan(12), prompt, rows(), learning_rate=0.05, rng=Rng.from_seed(0), progress=False)
    assert loss_of(prompt) < before - 0.01
    assert all(torch.equal(frozen[name], value) for name, value in prompt.model.named_parameters())
    assert run.guarantee.epsilon <= 50.0
    assert run.complete
    run.save(tmp_path / "run")
    assert set(Run.load(tmp_path / "run").weights) == set(trained_names(prompt))
    again = prompt_of(per_layer=True)
    Run.load(tmp_path / "run").load_into(again)
    assert loss_of(again) == pytest.approx(loss_of(prompt), abs=1e-7)
    prompt.save(tmp_path / "prompt.safetensors", run=run)
    assert facts_of(tmp_path / "prompt.safetensors")["guarantee"]["epsilon"] == run.guarantee.epsilon
    assert loss_of(SoftPrompt.load(tmp_path / "prompt.safetensors", model_of("GPT-2"))) == pytest.approx(
        loss_of(prompt), abs=1e-7
    )


def test_it_is_charged_and_goes_on_from_a_small_checkpoint(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "budget.db")

    class Interrupted(Exception): ...

    def stop(progress: Any) -> None:
        if progress.step == 15:
            raise Interrupted

    given: dict[str, Any] = {"folder": tmp_path / "run", "progress": False, "ledger": ledger, "account": "notes"}
    ledger.account("notes", Budget(epsilon=60.0, delta=1e-4))
    with pytest.raises(Interrupted):
        fit_soft_prompt(plan(20, spare_steps=20), prompt_of(), rows(), callbacks=[stop], **given)
    assert (tmp_path / "run" / "checkpoint.safetensors").stat().st_size < 20_000
    with pytest.raises(ResumeRefused):
        fit_soft_prompt(plan(20, spare_steps=20), prompt_of(per_layer=True), rows(), resume=True, **given)
    run = fit_soft_prompt(plan(20, spare_steps=20), prompt_of(), rows(), resume=True, **given)
    assert run.complete
    assert run.guarantee.epsilon > plan(20, spare_steps=20).guarantee().epsilon  # the repeated steps are paid for


def test_wrong_arguments_are_named() -> None:
    prompt = prompt_of()
    with pytest.raises(InvalidValue, match=r"hush\.fit"):
        fit_soft_prompt(plan(2), prompt.model, rows())
    with pytest.raises(InvalidValue, match="not both"):
        fit_soft_prompt(plan(2), prompt, rows(), learning_rate=0.1, optimizer=torch.optim.SGD([prompt.vectors]))


def test_a_head_alone_is_trained() -> None:
    model = made("BERT").float()
    names = train_only(model, ["classifier"])
    assert names == ["classifier.weight", "classifier.bias"]
    with pytest.raises(InvalidValue, match="no module 'score'"):
        train_only(made("BERT"), ["score"])
    optimizer = torch.optim.Adam(model.classifier.parameters(), lr=0.05)
    before = model.bert.encoder.layer[0].attention.self.query.weight.clone()
    run = fit(plan(5), model, rows(), loss_fn=ExampleLoss("class"), optimizer=optimizer, progress=False)
    assert torch.equal(before, model.bert.encoder.layer[0].attention.self.query.weight)
    assert run.complete


def adapted(**settings: Any) -> Any:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, **settings)
    return peft.get_peft_model(made("GPT-2").float(), config)


def test_lora_keeps_only_its_adapters_in_a_run(tmp_path: Path) -> None:
    model = adapted()
    whole = len(model.state_dict())
    keep_trained_part(model)
    names = trained_names(model)
    assert set(model.state_dict()) == set(names)
    assert whole > len(names) + 20
    optimizer = torch.optim.Adam([value for value in model.parameters() if value.requires_grad], lr=0.01)
    text = TensorDataset(*rows().tensors[:2], rows().tensors[0])
    given: dict[str, Any] = {"loss_fn": ExampleLoss("next_token"), "optimizer": optimizer, "progress": False}
    run = fit(plan(12), model, text, folder=tmp_path, **given)
    fresh = adapted()
    keep_trained_part(fresh)
    Run.load(tmp_path).load_into(fresh)
    assert all(torch.equal(run.weights[name], fresh.state_dict()[name]) for name in names)
    ids = rows().tensors[0][:4]
    with torch.no_grad():
        torch.testing.assert_close(fresh.eval()(ids).logits, model.eval()(ids).logits)


def test_an_adapter_that_does_not_move_is_named() -> None:
    model = adapted()
    bypassed = model.base_model.model.transformer.h[1].attn

    def skipping(*args: Any, **kwargs: Any) -> Any:
        return args[0] if args else kwargs["hidden_states"], None

    bypassed.forward = skipping  # the layer's adapter is there, and nothing goes through it
    optimizer = torch.optim.Adam([value for value in model.parameters() if value.requires_grad], lr=0.01)
    text = TensorDataset(*rows().tensors[:2], rows().tensors[0])
    given: dict[str, Any] = {"loss_fn": ExampleLoss("next_token"), "progress": False}
    with pytest.raises(NotLearning, match=r"h\.1\.attn\.c_attn\.lora_A.*had no gradient"):
        fit(plan(12), model, text, optimizer=optimizer, **given)
    half = torch.optim.Adam([value for name, value in model.named_parameters() if "lora_A" in name], lr=0.01)
    with pytest.raises(NotLearning, match=r"lora_B.*not in the optimizer"):
        fit(plan(12), model, text, optimizer=half, **given)


def test_the_guide_fine_tunes_by_lora_in_twenty_lines() -> None:
    guide = Path(__file__).resolve().parents[2] / "docs" / "guides" / "lora.md"
    first_block = guide.read_text(encoding="utf-8").split("```python")[1].split("```")[0]
    lines = [line for line in first_block.splitlines() if line.startswith((">>>", "..."))]
    assert any("get_peft_model(" in line for line in lines)
    assert any("fit(plan" in line for line in lines)
    assert len(lines) <= 20
