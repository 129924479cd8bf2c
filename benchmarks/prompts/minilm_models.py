"""What is trained on SST-2 with MiniLM: a head, its last layer, or the whole encoder for a soft prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from benchmarks.prompts import minilm


class Head(nn.Module):
    """A linear layer on the direction of a mean of tokens; the 4 lets it be sure of itself. It starts at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(minilm.WIDTH, 2)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, pooled: Tensor) -> Tensor:
        return 4 * self.linear(F.normalize(pooled))


class LastLayers(nn.Module):
    """The layers of the encoder that are not kept, the mean of their tokens, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = minilm.encoder().encoder.layer[minilm.KEPT_LAYERS :]
        self.head = Head()

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layers:
            tokens = layer(tokens, attention_mask=mask[:, None, None, :].bool())
        return self.head(mean(tokens, mask))


class MeanClassifier(nn.Module):
    """The whole encoder, the mean of its tokens, and a head, called as transformers' classifiers are."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = minilm.encoder()
        self.config = self.encoder.config
        self.head = Head()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        from transformers.modeling_outputs import SequenceClassifierOutput

        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        pooled = mean(states, attention_mask)
        return SequenceClassifierOutput(logits=self.head(pooled), hidden_states=(pooled,))


def mean(tokens: Tensor, mask: Tensor) -> Tensor:
    weights = mask[:, :, None].to(tokens.dtype)
    return (tokens * weights).sum(1) / weights.sum(1).clamp(min=1)


class Sentences(Dataset[tuple[Tensor, int]]):
    """Tokens after the kept layers, and the label."""

    def __init__(self, part: str) -> None:
        self.cached = minilm.cached(part)

    def __len__(self) -> int:
        return len(self.cached.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.cached.row(index)


class Tokens(Dataset[tuple[Tensor, int]]):
    """Token ids and the label."""

    def __init__(self, part: str) -> None:
        self.ids, self.labels = minilm.ids_of(part)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.tensor(self.ids[index]), int(self.labels[index])


def padded(items: list[tuple[Tensor, Any]]) -> tuple[Tensor, Tensor, Tensor]:
    """Sorted by length, so that physical batches need little padding. Rows are units here, so their order is free."""
    items = sorted(items, key=lambda item: len(item[0]))
    tokens = nn.utils.rnn.pad_sequence([row for row, _ in items], batch_first=True)
    lengths = torch.tensor([len(row) for row, _ in items])
    mask = (torch.arange(tokens.shape[1]) < lengths[:, None]).long()
    return tokens.float() if tokens.is_floating_point() else tokens, mask, torch.tensor([label for _, label in items])


def trimmed_loss(model: Callable[..., Any], tokens: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
    """The loss of each example; what no example of the physical batch uses is cut off."""
    longest = int(mask.sum(1).max())
    return F.cross_entropy(logits_of(model(tokens[:, :longest], mask[:, :longest])), labels, reduction="none")


def logits_of(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output.logits


@torch.no_grad()
def accuracy(model: Callable[..., Any], rows: Dataset[Any], numbers: list[int]) -> float:
    right = 0
    for start in range(0, len(numbers), 128):
        tokens, mask, labels = padded([rows[number] for number in numbers[start : start + 128]])
        right += int((logits_of(model(tokens, mask)).argmax(1) == labels).sum())
    return right / len(numbers)
