"""Ways to mix examples, to keep private data and to flip state: each one is a small function that returns a case.

The name of the function is the name of the attack. This file keeps the register, and `MODULES` hold the attacks.

With what probability is an attack found? A check of every step finds it always. The spot check compares one random
example of the batch with the same example alone, at the first and the last step, and at each other step with
probability 1/64. So what mixes from some step on is found at the last step at the latest. Where mixing needs a rare
example or a random branch, the attack's docstring states the probability that both certain checks miss it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch
from isolation_truth import CLASSES, FEATURES, Case
from torch import Tensor, nn

WIDTH = 8
MODULES = (
    "mixing_functions",
    "hidden_mixing",
    "mixing_losses",
    "storing_models",
    "unequal_batches",
    "unequal_records",
    "indirect_routes",
)
ATTACKS: dict[str, Callable[[], Case]] = {}


def attack(make: Callable[[], Case]) -> Callable[[], Case]:
    """Register an attack under its name in plain words."""
    assert make.__doc__, f"{make.__name__} does not say what it does"
    ATTACKS[make.__name__.replace("_", " ")] = make
    return make


class LateFunction:
    """The identity for ten calls, and the function afterwards."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, h: Tensor) -> Tensor:
        self.calls += 1
        return self.function(h) if self.calls > 10 else h


def attack_at_any_time(make: Callable[[], Case]) -> Callable[[], Case]:
    """Register an attack, and a second one that begins after ten calls, when the first batches were checked."""

    def make_late() -> Case:
        case = make()
        return replace(case, model=Between(LateFunction(case.model.function)), steps=30)

    attack(make)
    ATTACKS[f"{make.__name__.replace('_', ' ')}, late"] = make_late
    return make


def all_attacks() -> dict[str, Callable[[], Case]]:
    for module in MODULES:
        import_module(module)
    return ATTACKS


def attacks_in(*modules: str) -> dict[str, Callable[[], Case]]:
    """Return the attacks of some modules, without those that begin late."""
    return {name: make for name, make in all_attacks().items() if make.__module__ in modules}


class Between(nn.Module):
    """Two layers with a function of the whole batch between them."""

    def __init__(self, function: Callable[[Tensor], Tensor], *, width: int = WIDTH) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Linear(FEATURES, width), nn.Linear(width, CLASSES), function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.function(self.first(x))))


def mixing(function: Callable[[Tensor], Tensor], **changes: Any) -> Case:
    return Case(Between(function), **changes)
