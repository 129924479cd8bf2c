"""Trainings of a moment, for reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import TensorDataset

import hush
from hush.training import AdaptiveClipping

# A fixture for each kind of run; all but `audited` are folders of runs.
KINDS = ("trained", "adaptive", "fitted", "voted", "prompts_voted", "generated", "soft_prompt", "audited")


def loss_fn(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(x), y, reduction="none")


def train(
    folder: Path,
    *,
    rng: hush.Rng | None = None,
    audit: Any = False,
    steps: int = 40,
    adaptive: AdaptiveClipping | None = None,
) -> hush.Run:
    plan = hush.TrainingPlan.for_budget(
        hush.Budget(epsilon=2.0, delta=1e-5),
        sampling_prob=0.1,
        expected_batch_size=20,
        steps=steps,
        clip_norm=1.0,
        adaptive=adaptive,
    )
    rows = TensorDataset(torch.randn(200, 5), torch.arange(200) % 2)
    model = torch.nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return hush.fit(
        plan, model, rows, loss_fn=loss_fn, optimizer=optimizer, folder=folder, progress=False, rng=rng, audit=audit
    )
