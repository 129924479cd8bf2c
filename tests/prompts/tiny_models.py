"""Small transformers models with random weights, and batches for them."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import logging
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("transformers")
logging.getLogger("transformers").setLevel(logging.ERROR)

BATCH, TOKENS, LABELS, VOCABULARY = 5, 7, 3, 50
_COUNTS = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2,
           "intermediate_size": 24, "max_position_embeddings": 32}  # fmt: skip
_ENCODER = {**_COUNTS, "num_labels": LABELS, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "BERT": ("bert", "BertForSequenceClassification", {**_ENCODER, "pad_token_id": 0}),
    "RoBERTa": ("roberta", "RobertaForSequenceClassification", {**_ENCODER, "pad_token_id": 1}),
    "DistilBERT": ("distilbert", "DistilBertForSequenceClassification",
                   {"vocab_size": VOCABULARY, "dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 24, "dropout": 0.0,
                    "attention_dropout": 0.0, "seq_classif_dropout": 0.0, "num_labels": LABELS,
                    "max_position_embeddings": 32}),
    "ELECTRA": ("electra", "ElectraForSequenceClassification", {**_ENCODER, "embedding_size": 8, "pad_token_id": 0}),
    "GPT-2": ("gpt2", "GPT2LMHeadModel", {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 3, "n_head": 2,
                                          "n_positions": 32, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
    "Llama": ("llama", "LlamaForCausalLM", {**_COUNTS, "num_key_value_heads": 1}),
    "OPT": ("opt", "OPTForCausalLM",
            {**_COUNTS, "word_embed_proj_dim": 8, "ffn_dim": 24, "dropout": 0.0, "attention_dropout": 0.0}),
    "Bloom": ("bloom", "BloomForCausalLM", {"vocab_size": VOCABULARY, "hidden_size": 16, "n_layer": 3, "n_head": 2}),
    "MPT": ("mpt", "MptForCausalLM",
            {"vocab_size": VOCABULARY, "d_model": 16, "n_layers": 3, "n_heads": 2, "max_seq_len": 32}),
    "CodeGen": ("codegen", "CodeGenForCausalLM",
                {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 3, "n_head": 4, "rotary_dim": 4,
                 "n_positions": 32, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
    "Llama classifier": ("llama", "LlamaForSequenceClassification",
                         {**_COUNTS, "num_key_value_heads": 1, "num_labels": LABELS, "pad_token_id": 0}),
}  # fmt: skip
ENCODERS = ("BERT", "RoBERTa", "DistilBERT", "ELECTRA")
CAUSAL = ("GPT-2", "Llama", "OPT", "Bloom", "MPT", "CodeGen")
NAMES = tuple(_KINDS)
ROUNDED = ("Bloom", "MPT", "CodeGen")  # these compute attention in single precision, whatever the weights have
UNFOLLOWED = {"Bloom": "looped"}  # its GELU has a backward pass of its own


def made(name: str, **settings: Any) -> Any:
    """The model in double precision and eval mode, the same at every call."""
    family, head, own = _KINDS[name]
    models = f"transformers.models.{family}"
    config = head.split("For")[0].removesuffix("LMHeadModel") + "Config"
    configuration = getattr(import_module(f"{models}.configuration_{family}"), config)(**own, **settings)
    torch.manual_seed(0)
    return getattr(import_module(f"{models}.modeling_{family}"), head)(configuration).eval().double()


def batch() -> dict[str, Tensor]:
    """Right-padded rows of different lengths, and a class for each."""
    mask = torch.ones(BATCH, TOKENS, dtype=torch.long)
    mask[1, 5:], mask[3, 4:] = 0, 0
    ids = torch.randint(2, VOCABULARY, (BATCH, TOKENS), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": torch.tensor([0, 2, 1, 1, 0])}


def text() -> dict[str, Tensor]:
    """The same rows, with the labels that collators give for next words."""
    found = batch()
    return {**found, "labels": torch.where(found["attention_mask"] == 1, found["input_ids"], -100)}


def plain_kernels() -> Any:
    """For bfloat16: some processors announce units for it that the system does not let programs use."""
    return torch.backends.mkldnn.flags(enabled=False)


def trained_names(model: nn.Module) -> list[str]:
    return [name for name, value in model.named_parameters() if value.requires_grad]
