"""A small character-level language model, and texts with secrets planted in them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from hush import Rng

LENGTH = 64  # characters of one example
DIGITS = 6
PREFIX = "\nMy number is "


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.mixed(self.before(x)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class CharacterModel(nn.Module):
    """A transformer that predicts the next character."""

    def __init__(self, vocabulary: int, *, width: int = 96, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(vocabulary, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1]).expand(tokens.shape)
        return self.head(self.last(self.blocks(self.letters(tokens) + self.places(places))))


def loss_fn(model: nn.Module, tokens: Tensor) -> Tensor:
    """The mean loss of each example's characters, one number per example."""
    logits = model(tokens[:, :-1])
    return functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none").mean(dim=1)


@dataclass(frozen=True)
class Planted:
    """Examples of a text, some of which hold a secret number."""

    alphabet: str
    examples: Tensor  # (examples, LENGTH)
    canaries: Tensor  # (secrets, length of prefix and digits)
    repetitions: Tensor  # (secrets,)
    references: Tensor
    prefix_length: int

    def decode(self, tokens: list[int]) -> str:
        return "".join(self.alphabet[token] for token in tokens)


def planted(
    text: str, *, examples: int, repetitions: tuple[int, ...], each: int, references: int, seed: int
) -> Planted:
    """Cut the text into examples, and hide `each` secrets for every number of repetitions among them."""
    alphabet = "".join(sorted(set(text) | set(PREFIX) | set("0123456789")))
    place = {letter: number for number, letter in enumerate(alphabet)}
    tokens = torch.tensor([place[letter] for letter in text[: examples * LENGTH]]).view(-1, LENGTH)
    stream = Rng.from_seed(seed).stream("secrets")
    numbers = stream.choice(10**DIGITS, len(repetitions) * each + references, replace=False)
    secrets = torch.tensor([[place[letter] for letter in f"{PREFIX}{number:0{DIGITS}d}"] for number in numbers])
    canaries, others = secrets[: -references or None], secrets[len(secrets) - references :]
    counts = torch.tensor(repetitions).repeat_interleave(each)
    rows = canaries.repeat_interleave(counts, dim=0)
    filler = tokens[torch.from_numpy(stream.choice(len(tokens), len(rows)))]
    with_secret = torch.cat([rows, filler[:, rows.shape[1] :]], dim=1)
    mixed = torch.cat([tokens, with_secret])
    mixed = mixed[torch.from_numpy(stream.permutation(len(mixed)))]
    return Planted(alphabet, mixed, canaries, counts, others, len(PREFIX))
