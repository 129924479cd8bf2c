"""How torch teachers and students learn: public settings, the same for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from hush import _check

Augment = Callable[[Tensor, torch.Generator], Tensor]  # rows and a stream -> rows of the same shape
OPTIMIZERS = ("adam", "sgd")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Cross-entropy by Adam or SGD with momentum; the rate falls to zero along a cosine.

    Fixed before the private rows are seen, and equal for all teachers: a recipe chosen by how the teachers do on
    private rows would be one more result to pay for. The number of steps is a constant too, and no number of passes:
    that would depend on how many rows there are. `augment(rows, stream)` gives changed copies of the rows.
    """

    steps: int = 600
    rows_per_step: int = 16
    learning_rate: float = 0.01
    weight_decay: float = 1e-4
    optimizer: str = "adam"
    augment: Augment | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check.whole("steps", self.steps)
        _check.whole("rows_per_step", self.rows_per_step, least=2)
        _check.positive("learning_rate", self.learning_rate)
        _check.nonnegative("weight_decay", self.weight_decay)
        _check.one_of("optimizer", self.optimizer, OPTIMIZERS)

    def identity(self) -> dict[str, Any]:
        """The settings as JSON; a changed one makes other teachers."""
        plain = asdict(self)
        plain["augment"] = None if self.augment is None else getattr(self.augment, "__qualname__", "given")
        return plain


def draw_rows(sizes: Sequence[int], count: int, stream: torch.Generator) -> Tensor:
    """For each shard `count` places in it, drawn with replacement: (shards, count).

    The draws of a shard depend on its own size and on random numbers of its own, never on another shard.
    """
    draws = torch.rand(len(sizes), count, generator=stream, dtype=torch.float64)
    most = torch.tensor(sizes)[:, None]
    return torch.minimum((draws * most).long(), most - 1)


def make_optimizer(parameters: Sequence[Tensor], recipe: Recipe, steps: int) -> tuple[torch.optim.Optimizer, Any]:
    """The optimizer and its falling rate. Both work number by number, so stacked teachers stay strangers."""
    optimizer: torch.optim.Optimizer
    rate, decay = recipe.learning_rate, recipe.weight_decay
    if recipe.optimizer == "adam":
        optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)
    else:
        optimizer = torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=decay, fused=True)
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(1, steps))
