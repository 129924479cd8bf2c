"""The models and batches of the issue's table, the same for every library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count as counted
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_seeds = counted(1)  # every batch is another one


@dataclass(frozen=True)
class Row:
    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[], Any]
    loss_fn: Callable[..., Tensor]


def cross_entropy(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs), labels, reduction="none")


def _images(count: int, *shape: int) -> Any:
    generator = torch.Generator().manual_seed(next(_seeds))
    return (
        torch.randn(count, *shape, generator=generator),
        torch.randint(0, 10, (count,), generator=generator),
    )


def _tokens(count: int, length: int, vocabulary: int) -> Tensor:
    return torch.randint(0, vocabulary, (count, length), generator=torch.Generator().manual_seed(next(_seeds)))


def small_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 10))


def large_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))


def tanh_cnn() -> nn.Module:
    """Papernot et al. 2020, for 28 x 28 pictures."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


def cifar_cnn() -> nn.Module:
    def pair(inside: int, outside: int) -> list[nn.Module]:
        first, second = nn.Conv2d(inside, outside, 3, padding=1), nn.Conv2d(outside, outside, 3, padding=1)
        return [first, nn.Tanh(), second, nn.Tanh(), nn.MaxPool2d(2)]

    return nn.Sequential(
        *pair(3, 32), *pair(32, 64), *pair(64, 128), nn.Flatten(), nn.Linear(2048, 128), nn.Tanh(), nn.Linear(128, 10)
    )


class Transformer(nn.Module):
    """An encoder of unmodified torch layers with learned positions, read at its mean."""

    def __init__(self, width: int = 256, layers: int = 4, length: int = 128, vocabulary: int = 1000) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, index: Tensor) -> Tensor:
        hidden = self.tokens(index) + self.positions(torch.arange(index.shape[1]))
        return self.head(self.layers(hidden).mean(1))


def bert_small() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=30522, hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048,
        max_position_embeddings=512, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def classify(model: nn.Module, input_ids: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(input_ids=input_ids).logits, labels, reduction="none")


def gpt_like() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=10000, n_positions=128, n_embd=256, n_layer=4, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def next_token(model: nn.Module, input_ids: Tensor) -> Tensor:
    logits = model(input_ids=input_ids).logits
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), input_ids[:, 1:], reduction="none").mean(1)


ROWS = (
    Row("MLP 784-1000-10, batch 600", small_mlp, lambda: _images(600, 784), cross_entropy),
    Row("MLP 784-2048-2048-10, batch 512", large_mlp, lambda: _images(512, 784), cross_entropy),
    Row("tanh CNN, batch 512", tanh_cnn, lambda: _images(512, 1, 28, 28), cross_entropy),
    Row("CIFAR CNN 32-32-64-64-128-128, batch 128", cifar_cnn, lambda: _images(128, 3, 32, 32), cross_entropy),
    Row("transformer d=256 L=4 T=128, batch 16", Transformer, lambda: (_tokens(16, 128, 1000), _images(16)[1]),
        cross_entropy),
    Row("BERT-small T=64, batch 8", bert_small,
        lambda: {"input_ids": _tokens(8, 64, 30522), "labels": torch.arange(8) % 2}, classify),
    Row("GPT-2-like tied T=64, batch 8", gpt_like, lambda: {"input_ids": _tokens(8, 64, 10000)}, next_token),
)  # fmt: skip
