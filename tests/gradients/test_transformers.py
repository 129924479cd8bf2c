"""Models of the transformers library from configurations, and adapters by peft, unmodified, on the tape."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from naive_loop import TIGHT, naive, relative_error
from torch import Tensor, nn

from hush.gradients import clipped_sum

pytest.importorskip("transformers")
logging.getLogger("transformers").setLevel(logging.ERROR)
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

BATCH, TOKENS, LABELS, VOCABULARY = 5, 7, 3, 50
COUNTS = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
          "intermediate_size": 24, "max_position_embeddings": 32}  # fmt: skip
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
CLASSIFIER = {**COUNTS, **NO_DROPOUT, "num_labels": LABELS, "pad_token_id": 1}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "resid_pdrop": 0.0,
        "embd_pdrop": 0.0, "attn_pdrop": 0.0}  # fmt: skip


def built(family: str, name: str, head: str, **settings: Any) -> Callable[[], nn.Module]:
    """A model of this family, from its submodule: importing the whole library takes long and is noisy."""

    def make() -> nn.Module:
        models = f"transformers.models.{family}"
        configuration = getattr(import_module(f"{models}.configuration_{family}"), f"{name}Config")(**settings)
        return getattr(import_module(f"{models}.modeling_{family}"), f"{name}{head}")(configuration)

    return make


def tokens() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mask = torch.ones(BATCH, TOKENS, dtype=torch.long)
    mask[1, 5:], mask[3, 4:] = 0, 0
    ids = torch.randint(2, VOCABULARY, (BATCH, TOKENS), generator=generator)
    return {"input_ids": ids, "attention_mask": mask}


def labelled() -> dict[str, Tensor]:
    return {**tokens(), "labels": torch.tensor([0, 2, 1, 1, 0])}


def translated() -> dict[str, Tensor]:
    return {**tokens(), "labels": torch.randint(2, VOCABULARY, (BATCH, 4), generator=torch.Generator().manual_seed(1))}


def images() -> dict[str, Tensor]:
    pixels = torch.randn(BATCH, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return {"pixel_values": pixels, "labels": torch.tensor([0, 2, 1, 1, 0])}


def classify(model: nn.Module, *, labels: Tensor, **inputs: Tensor) -> Tensor:
    return F.cross_entropy(model(**inputs).logits, labels, reduction="none")


def next_word(model: nn.Module, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    logits = model(input_ids=input_ids, attention_mask=attention_mask).logits[:, :-1]
    losses = F.cross_entropy(logits.transpose(1, 2), input_ids[:, 1:], reduction="none") * attention_mask[:, 1:]
    return losses.sum(1) / attention_mask[:, 1:].sum(1)


def translate(model: nn.Module, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Tensor:
    logits = model(input_ids=input_ids, attention_mask=attention_mask, labels=labels).logits
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(1)


def adapted() -> nn.Module:
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=4, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, lora_dropout=0.0,
                               init_lora_weights=False)  # fmt: skip
    return peft.get_peft_model(built("gpt2", "GPT2", "LMHeadModel", **GPT2)(), settings)


CAUSAL = {**COUNTS, "num_key_value_heads": 1}
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor], Callable[[], dict[str, Tensor]]]] = {
    "BERT": (built("bert", "Bert", "ForSequenceClassification", **CLASSIFIER), classify, labelled),
    "RoBERTa": (built("roberta", "Roberta", "ForSequenceClassification", **CLASSIFIER), classify, labelled),
    "DistilBERT": (
        built("distilbert", "DistilBert", "ForSequenceClassification", vocab_size=VOCABULARY, dim=16, n_layers=2,
              n_heads=2, hidden_dim=24, max_position_embeddings=32, num_labels=LABELS, dropout=0.0,
              attention_dropout=0.0, seq_classif_dropout=0.0), classify, labelled),
    "ALBERT": (built("albert", "Albert", "ForSequenceClassification", **CLASSIFIER, embedding_size=8,
                     classifier_dropout_prob=0.0), classify, labelled),
    "GPT-2": (built("gpt2", "GPT2", "LMHeadModel", **GPT2), next_word, tokens),
    "Llama": (built("llama", "Llama", "ForCausalLM", **CAUSAL), next_word, tokens),
    "Mistral": (built("mistral", "Mistral", "ForCausalLM", **CAUSAL), next_word, tokens),
    "Qwen2": (built("qwen2", "Qwen2", "ForCausalLM", **CAUSAL), next_word, tokens),
    "OPT": (
        built("opt", "OPT", "ForCausalLM", vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2,
              num_attention_heads=2, ffn_dim=24, max_position_embeddings=32, word_embed_proj_dim=16, dropout=0.0,
              attention_dropout=0.0), next_word, tokens),
    "T5": (
        built("t5", "T5", "ForConditionalGeneration", vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=24, num_layers=2,
              num_heads=2, dropout_rate=0.0, decoder_start_token_id=0), translate, translated),
    "ViT": (built("vit", "ViT", "ForImageClassification", hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                  intermediate_size=24, image_size=16, patch_size=4, num_labels=LABELS, **NO_DROPOUT), classify,
            images),
    "LoRA on GPT-2": (adapted, next_word, tokens),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_the_tape_serves_it_unmodified_and_exactly(name: str) -> None:
    make, loss_fn, batch = MODELS[name]
    torch.manual_seed(0)
    model, given = make().eval().double(), batch()
    truth = naive(model, loss_fn, given)
    clip_norm = 0.9 * float(truth.norms.median())
    got = clipped_sum(model, loss_fn, given, clip_norm, method="tape")
    assert relative_error(got.gradients, truth.clipped(clip_norm)) < TIGHT
    torch.testing.assert_close(got.norms, truth.norms, rtol=TIGHT, atol=TIGHT)


def test_adapters_alone_get_gradients() -> None:
    torch.manual_seed(0)
    model = adapted().eval().double()
    got = clipped_sum(model, next_word, tokens(), 1.0, method="tape")
    assert got.gradients
    assert all("lora_" in name for name in got.gradients)
    assert all(value.any() for value in got.gradients.values())
