"""A tiny causal model with random weights, a tokenizer of letters, and models that only seem to be some."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from hush.prompts.language_model import TokenLogProbs, TransformersModel

VOCABULARY = 128


class Letters:
    """One token for each letter; the first token of a text marks its beginning, if `begin` is given."""

    def __init__(self, begin: int | None = None) -> None:
        self.bos_token_id = begin

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        marked = [self.bos_token_id] if add_special_tokens and self.bos_token_id is not None else []
        return {"input_ids": marked + [min(ord(letter), VOCABULARY - 1) for letter in text]}

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))


def tiny(family: str = "llama") -> Any:
    """A model of this family with random weights, large enough to have opinions."""
    pytest.importorskip("transformers")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if family == "gpt2":
            from transformers.models.gpt2.configuration_gpt2 import GPT2Config
            from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel

            model: Any = GPT2LMHeadModel(
                GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=512)
            )
        else:
            from transformers.models.llama.configuration_llama import LlamaConfig
            from transformers.models.llama.modeling_llama import LlamaForCausalLM

            model = LlamaForCausalLM(
                LlamaConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                            num_key_value_heads=1, intermediate_size=24, max_position_embeddings=2048)
            )  # fmt: skip
        for value in model.parameters():
            value.data.mul_(8.0 if value.ndim > 1 else 1.0)
    return model.eval()


def language_model(family: str = "llama", begin: int | None = None) -> TransformersModel:
    return TransformersModel(tiny(family), Letters(begin))


class Keyword:
    """A model that has learned from its prompt: it answers the label whose demonstrations share most words."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []

    def log_probs(self, prefix: str, inputs: Sequence[str], continuations: Sequence[str], /) -> TokenLogProbs:
        self.calls.append((prefix, list(inputs)))
        shown: dict[str, set[str]] = {word: set() for word in continuations}
        for block in prefix.split("\n\n"):
            for word in continuations:
                if block.endswith(word):
                    shown[word] |= set(block.split())
        result = []
        for question in inputs:
            scores = [len(shown[word] & set(question.split())) for word in continuations]
            logits = torch.tensor(scores, dtype=torch.float64)
            result.append([[float(value)] for value in logits.log_softmax(0)])
        return result
