"""Runs of `hush prompt ...` of a moment, by the commands: made-up questions and a model of random weights."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from hush import data
from hush.cli.main import run
from hush.prompts.templates import TASKS

WORDS = tuple(word.strip() for word in TASKS["trec"].labels)
SECRET = "zanzibar"  # a word of every text of the data
_NUMBERS = {"train": 60, "test": 4}


def questions(name: str, part: str = "train", *, folder: object = None) -> data.LabelledTexts:
    """Stands for the files of TREC."""
    kinds = [word.lower() for word in WORDS]
    texts = tuple(f"which {kind} is {SECRET} {part}{row}" for row in range(_NUMBERS[part]) for kind in kinds)
    labels = tuple(range(len(kinds))) * _NUMBERS[part]
    return data.LabelledTexts(name=name, texts=texts, labels=labels, label_names=WORDS)


def tiny_model(folder: Path) -> Path:
    """A GPT-2 of random weights whose tokens are whole words, as transformers keeps it."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    pytest.importorskip("transformers")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from transformers.models.gpt2.configuration_gpt2 import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel

    names = ["[PAD]", "[UNK]", *WORDS, "which", "is", "question", "answer", "person", "number"]
    inner = Tokenizer(models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=len(names), n_embd=16, n_layer=1, n_head=2, n_positions=512)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


def prompt_run(what: str, out: Path, model: Path, *more: object) -> Path:
    """The run of one command in the folder `out`."""
    words: dict[str, tuple[Any, ...]] = {
        "votes": ("pate", "--teachers", 20, "--demonstrations", 4, "--queries", 12, "--candidates", 1, "--test", 12,
                  "--threshold", -100, "--out", out),
        "generation": ("generate", "--sampling-prob", 0.1, "--prompts", 3, "--max-tokens", 5, "--per-label", 2,
                       "--public-choices", 8, "--out", out),
        "soft prompt": ("soft", "--delta", 1e-5, "--limit", 120, "--steps", 12, "--expected-batch-size", 30, "--length",
                        3, "--run", out, "--out", out.with_suffix(".safetensors")),
    }  # fmt: skip
    given = ("prompt", *words[what], "--data", "trec", "--model", model, "--epsilon", 4, "--json", *more)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transformers
        patch.setattr(data, "load_labelled_texts", questions)
        assert run([str(word) for word in given]) == 0
    return out
