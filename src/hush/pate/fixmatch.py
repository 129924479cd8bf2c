"""A student from few labels and many public rows without one, by FixMatch.

Sohn, Berthelot, Carlini, Zhang, Zhang, Cubuk, Kurakin, Raffel 2020. Two changes: the labels that the student gives
itself come from the average of its weights over the last steps (Tarvainen, Valpola 2017), which is what is returned;
and its guesses are divided by how often it guesses each class (Berthelot et al. 2020), so that no class swallows the
others: this assumes that the classes are about equally frequent in public rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from hush import _check
from hush.pate.recipe import Augment, Recipe, make_optimizer
from hush.pate.watching import Bar

Change = Callable[[Tensor, torch.Generator], Tensor]
_LONG_MEMORY, _PRIOR_MEMORY = 0.98, 0.98


@dataclass(frozen=True, kw_only=True)
class FixMatch:
    """Steps, rows and rate of a semi-supervised student. `first_steps` learn from the labels alone."""

    steps: int = 1200
    first_steps: int = 150
    rows_per_step: int = 32
    unlabelled_per_step: int = 128
    learning_rate: float = 4e-3
    weight_decay: float = 1e-3
    sure_above: float = 0.95
    weak: Augment | None = field(default=None, repr=False)
    strong: Augment | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("steps", "rows_per_step", "unlabelled_per_step"):
            _check.whole(name, getattr(self, name))
        _check.whole("first_steps", self.first_steps, least=0)
        _check.positive("learning_rate", self.learning_rate)
        _check.nonnegative("weight_decay", self.weight_decay)
        _check.probability("sure_above", self.sure_above)


def train_fixmatch(
    student: nn.Module,
    x: Tensor,
    y: Tensor,
    others: Tensor,
    settings: FixMatch,
    changes: tuple[Change, Change],
    stream: torch.Generator,
    *,
    progress: bool = False,
) -> nn.Module:
    """Train the student and return the average of its weights, ready to predict."""
    weak, strong = changes
    average = copy.deepcopy(student).eval()
    recipe = Recipe(learning_rate=settings.learning_rate, weight_decay=settings.weight_decay)
    optimizer, schedule = make_optimizer(list(student.parameters()), recipe, settings.steps)
    shares = None
    student.train()
    with Bar("student", total=settings.steps, shown=progress) as bar:
        for step in range(settings.steps):
            chosen = torch.randint(len(x), (settings.rows_per_step,), generator=stream)
            rows, answers, weights = strong(x[chosen], stream), y[chosen], torch.ones(len(chosen))
            if step >= settings.first_steps:
                free = others[torch.randint(len(others), (settings.unlabelled_per_step,), generator=stream)]
                guesses, sure, shares = _guess(average, weak(free, stream), shares, settings.sure_above)
                rows, answers = torch.cat([rows, strong(free, stream)]), torch.cat([answers, guesses])
                weights = torch.cat([weights, sure * (len(chosen) / len(free))])
            losses = functional.cross_entropy(student(rows), answers, reduction="none")
            loss = (losses * weights).sum() / len(chosen)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            _follow(average, student, min(_LONG_MEMORY, (step + 1) / (step + 10)))
            bar.at(step + 1)
    return average


@torch.no_grad()
def _guess(average: nn.Module, rows: Tensor, shares: Tensor | None, sure_above: float) -> tuple[Tensor, Tensor, Tensor]:
    """Labels, 1 where the model is sure of them, and how often it says each class of late."""
    chances = average(rows).softmax(dim=1)
    level = torch.full_like(chances[0], 1 / chances.shape[1])
    shares = (level if shares is None else shares).lerp(chances.mean(dim=0), 1 - _PRIOR_MEMORY)
    even = chances * level / shares
    surest, labels = (even / even.sum(dim=1, keepdim=True)).max(dim=1)
    return labels, (surest > sure_above).to(rows.dtype), shares


@torch.no_grad()
def _follow(average: nn.Module, student: nn.Module, memory: float) -> None:
    """Move the average of the weights, and of what batch normalisation keeps, a little towards the student."""
    for kept, new in zip(average.state_dict().values(), student.state_dict().values(), strict=True):
        if kept.dtype.is_floating_point:
            kept.lerp_(new, 1 - memory)
        else:
            kept.copy_(new)
