"""How the rate of Abadi et al.'s CIFAR-10 network was chosen: on held-out training rows, with lots of a quarter.

    python -m benchmarks.headline.abadi_cifar_trials        # half an hour of one core

A quarter of the lot with a quarter of the noise has the same noise in each step's mean gradient, at a quarter of the
time (Sander et al. 2023, "TAN without a burn"). These trials are not private, and are not in any epsilon of the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from benchmarks.headline.data import pictures
from benchmarks.headline.networks import SETTINGS, Setting, abadi_cifar, plan_of, trained
from benchmarks.headline.result import RESULTS

SEED, EPSILON, SHRINK = 77, 4.0, 4
ROWS = 50_000  # those that the table's runs have; noise is chosen for them


def with_tanh(shape: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(*(nn.Tanh() if isinstance(layer, nn.ReLU) else layer for layer in abadi_cifar(shape)))


def averaging(shape: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(*(nn.AvgPool2d(2) if isinstance(layer, nn.MaxPool2d) else layer for layer in with_tanh(shape)))


Trial = tuple[str, Callable[[tuple[int, ...]], nn.Module], float, float, float, int, int]
TRIALS: tuple[Trial, ...] = (  # name, network, clip norm, rate, share of the rate at the end, lot, steps
    ("tanh, averages", averaging, 0.1, 2.0, 1.0, 2000, 190),
    ("tanh, averages", averaging, 0.1, 4.0, 1.0, 2000, 190),
    ("tanh", with_tanh, 0.1, 2.0, 1.0, 2000, 190),
    ("tanh", with_tanh, 0.1, 4.0, 1.0, 2000, 190),
    ("tanh", with_tanh, 0.1, 8.0, 1.0, 2000, 190),
    ("tanh", with_tanh, 0.1, 8.0, 0.1, 2000, 190),
    ("tanh", with_tanh, 0.1, 16.0, 1.0, 2000, 190),
    ("tanh", with_tanh, 0.1, 16.0, 0.2, 2000, 190),
    ("tanh", with_tanh, 0.1, 8.0, 0.3, 1000, 380),
    ("ReLU", abadi_cifar, 0.1, 2.0, 1.0, 2000, 190),
    ("ReLU", abadi_cifar, 0.1, 4.0, 1.0, 2000, 190),
    ("ReLU", abadi_cifar, 0.1, 8.0, 1.0, 2000, 190),
    ("ReLU", abadi_cifar, 0.1, 8.0, 0.1, 2000, 190),
    ("ReLU", abadi_cifar, 0.1, 16.0, 0.2, 2000, 190),
    ("ReLU", abadi_cifar, 0.1, 24.0, 0.1, 2000, 190),
    ("ReLU", abadi_cifar, 1.0, 1.6, 0.2, 2000, 190),
    ("ReLU", abadi_cifar, 3.0, 0.55, 0.2, 2000, 190),
)


def tried(base: Setting, trial: Trial, share: float, most_steps: int | None) -> float:
    """Accuracy on the held-out rows."""
    _, model, clip_norm, rate, falls_to, lot, steps = trial
    setting = replace(
        base, model=model, clip_norm=clip_norm, learning_rate=rate, falls_to=falls_to, lot=lot, steps=steps
    )
    x, y, other_x, other_y = pictures(base.data, share, validate=True)
    rows, held_out, _ = setting.prepare(x, other_x, SEED)
    whole = plan_of(setting, ROWS, None)
    few = min(lot // SHRINK, len(rows))
    plan = replace(
        whole, noise_multiplier=whole.noise_multiplier / SHRINK, sampling_prob=few / len(rows), expected_batch_size=few,
        steps=min(steps, most_steps or steps),
    )  # fmt: skip
    dataset = TensorDataset(rows, torch.from_numpy(y))
    return trained(setting, plan, dataset, held_out, torch.from_numpy(other_y), SEED)


def main(
    path: Path = RESULTS / "figures" / "1-abadi-cifar-trials.json",
    trials: tuple[Trial, ...] = TRIALS,
    share: float = 1.0,
    most_steps: int | None = None,
) -> None:
    base = next(one for one in SETTINGS if one.row == "1-abadi-cifar" and one.epsilon == EPSILON)
    names = "units", "clip_norm", "rate", "falls_to", "lot", "steps"
    found = []
    for trial in trials:
        accuracy = tried(base, trial, share, most_steps)
        found.append({**dict(zip(names, (trial[0], *trial[2:]), strict=True)), "held_out_accuracy": accuracy})
        print(found[-1], flush=True)
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
