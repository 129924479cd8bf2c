"""LoRA through `fit` itself, with gradient checkpointing and on a bfloat16 model: the step is the clipped sum's."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from tests.gradients.naive_loop import naive
from tests.prompts.tiny_models import BATCH, made, plain_kernels, text
from torch import Tensor
from torch.utils.data import TensorDataset

from hush import TrainingPlan, fit
from hush.gradients import clipped_sum
from hush.prompts import ExampleLoss

pytestmark = pytest.mark.filterwarnings("ignore:TF32:UserWarning")
TARGETS = {"GPT-2": ["c_attn", "c_proj"], "Llama": ["q_proj", "v_proj", "down_proj"]}
LOSS = ExampleLoss("next_token")
KINDS = ["checkpointing", "bfloat16", "both"]
ROUGH = {"checkpointing": 1e-5, "bfloat16": 0.01, "both": 0.01}  # single precision; 8 bits


def adapted(name: str, kind: str) -> Any:
    """A frozen model with float32 adapters that are not zero, in train mode; nothing here has dropout."""
    peft = pytest.importorskip("peft")
    base = made(name).float() if kind == "checkpointing" else made(name).to(torch.bfloat16)
    config = peft.LoraConfig(r=3, target_modules=TARGETS[name], fan_in_fan_out=name == "GPT-2", lora_dropout=0.0)
    torch.manual_seed(1)
    model = peft.get_peft_model(base, config)
    for key, value in model.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(value, std=0.1)  # at 0, as peft leaves them, lora_A has no gradient
    return model.train()


def checkpointed(model: Any) -> Any:
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
    return model


def parts(model: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Copies of the adapters and of the rest."""
    every = {name: value.detach().clone() for name, value in model.named_parameters()}
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    assert trained == {name for name in every if "lora_" in name}
    return {n: every[n] for n in every if n in trained}, {n: every[n] for n in every if n not in trained}


def distance(got: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Relative, over all parameters together."""
    assert list(got) == list(expected)
    difference = sum(float((got[name] - expected[name]).double().square().sum()) for name in expected)
    return (difference / sum(float(value.double().square().sum()) for value in expected.values())) ** 0.5


def plan(clip_norm: float, steps: int = 1) -> TrainingPlan:
    """Every row in every step, and so little noise that the step shows the clipped sum."""
    return TrainingPlan(
        noise_multiplier=1e-7, sampling_prob=1.0, sampling="full_batch", expected_batch_size=BATCH, steps=steps,
        clip_norm=clip_norm, delta=1e-4,
    )  # fmt: skip


@pytest.fixture
def kernels(kind: str) -> Iterator[None]:
    with nullcontext() if kind == "checkpointing" else plain_kernels():
        yield


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_step_of_fit_is_the_looped_clipped_sum(name: str, kind: str) -> None:
    model, given = adapted(name, kind), text()
    truth = naive(copy.deepcopy(model), LOSS, given)  # one example at a time, nothing checkpointed
    clip_norm = 0.9 * float(truth.norms.median())
    expected = truth.clipped(clip_norm)
    model = model if kind == "bfloat16" else checkpointed(model)
    for method in ("tape", "looped"):
        got = clipped_sum(model, LOSS, given, clip_norm, method=method)  # type: ignore[arg-type]
        assert distance(got.gradients, expected) < ROUGH[kind]
    adapters, rest = parts(model)
    assert {value.dtype for value in adapters.values()} == {torch.float32}
    optimizer = torch.optim.SGD([value for value in model.parameters() if value.requires_grad], lr=float(BATCH))
    rows = TensorDataset(given["input_ids"], given["attention_mask"], given["labels"])
    runs: SimpleQueue[bool] = SimpleQueue()  # a list would be seen as something that the pass writes
    norm = next(part for part in model.modules() if "Norm" in type(part).__name__)  # of the first layer
    norm.register_forward_hook(lambda *_: runs.put(torch.is_grad_enabled()))
    clipped_sum(model, LOSS, given, clip_norm, method="tape")
    assert runs.qsize() == (1 if kind == "bfloat16" else 2)  # a checkpointed layer runs again on the way back
    run = fit(plan(clip_norm), model, rows, loss_fn=LOSS, optimizer=optimizer, progress=False)
    assert run.steps == 1
    after, untouched = parts(model)
    assert distance({key: adapters[key] - after[key] for key in adapters}, expected) < ROUGH[kind]
    assert all(torch.equal(rest[key], untouched[key]) for key in rest)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_adapters_move_the_base_does_not_and_the_loss_falls(name: str, kind: str) -> None:
    model, given = adapted(name, kind), text()
    model = model if kind == "bfloat16" else checkpointed(model)
    adapters, rest = parts(model)
    rows = TensorDataset(given["input_ids"], given["attention_mask"], given["labels"])
    optimizer = torch.optim.Adam([value for value in model.parameters() if value.requires_grad], lr=0.05)
    with torch.no_grad():
        before = float(LOSS(model, **given).mean())
    run = fit(plan(1.0, steps=12), model, rows, loss_fn=LOSS, optimizer=optimizer, progress=False)
    assert run.complete
    after, untouched = parts(model)
    assert not any(torch.equal(adapters[key], after[key]) for key in adapters)
    assert all(torch.equal(rest[key], untouched[key]) for key in rest)
    with torch.no_grad():
        assert float(LOSS(model, **given).mean()) < before - 0.05
