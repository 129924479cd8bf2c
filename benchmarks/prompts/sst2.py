"""SST-2 with MiniLM: a head, LoRA and a soft prompt, privately and without privacy, on the development set.

    python -m benchmarks.prompts.sst2 head|lora|soft [--epsilons 1,3,8,inf] [--seeds 0,1,2] [--steps N] [--held-out]

Needs HUSH_DATA and the extra `weights`. Each number is kept as soon as it is there; a second call does only what is
missing. LoRA and the soft prompt begin with a private head on the frozen features, which are computed once: that phase
is cheap and may spend SHARE of epsilon; both phases together are what the stated epsilon pays for. `--held-out` is how
the settings were chosen: trained without 3,000 of the training rows and judged on those; it prints and keeps nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Subset, TensorDataset

from benchmarks.prompts import minilm
from benchmarks.prompts.minilm_models import (
    Head,
    LastLayers,
    MeanClassifier,
    Sentences,
    Tokens,
    accuracy,
    padded,
    trimmed_loss,
)
from hush import Budget, Rng, TrainingPlan, accounting, fit
from hush.events import Composed, Event
from hush.prompts import SoftPrompt, fit_soft_prompt

RESULTS = Path(__file__).resolve().parents[1] / "results" / "prompts_sst2.json"
DELTA, SHARE, HELD_OUT = 1e-5, 0.4, 3_000


@dataclass(frozen=True)
class Settings:
    batch: int
    steps: int
    learning_rate: float
    clip_norm: float


SETTINGS = {
    "head": Settings(batch=4_096, steps=300, learning_rate=0.05, clip_norm=0.5),
    "lora": Settings(batch=512, steps=30, learning_rate=3e-3, clip_norm=0.2),
    "soft": Settings(batch=64, steps=12, learning_rate=3e-3, clip_norm=0.2),
}


@dataclass(frozen=True)
class Case:
    """What one number is measured with; `train` are rows of the training part, `tried` of `part`."""

    settings: Settings
    epsilon: float
    rng: Rng
    train: list[int]
    part: str
    tried: list[int]


# Plans: the noise of the second phase fits what the first one left ------------------------------------------------


def plan_for(case: Case, settings: Settings, epsilon: float) -> TrainingPlan:
    plan = TrainingPlan.for_budget(
        Budget(epsilon=epsilon if math.isfinite(epsilon) else 8.0, delta=DELTA),
        sampling_prob=settings.batch / len(case.train),
        expected_batch_size=settings.batch,
        steps=settings.steps,
        clip_norm=settings.clip_norm,
        physical_batch_size=128 if settings.batch < 4_096 else None,
    )
    return plan if math.isfinite(epsilon) else plan.without_privacy()


def two_plans(case: Case) -> tuple[TrainingPlan, TrainingPlan]:
    """A head for SHARE of epsilon, then the case's settings with the least noise that keeps both within epsilon."""
    first = plan_for(case, SETTINGS["head"], SHARE * case.epsilon)
    second = plan_for(case, case.settings, case.epsilon)
    if not math.isfinite(case.epsilon):
        return first, second
    low, high = second.noise_multiplier, 4 * second.noise_multiplier
    while high - low > 1e-3:
        middle = (low + high) / 2
        fits = spent(first, replace(second, noise_multiplier=middle)) <= case.epsilon
        low, high = (low, middle) if fits else (middle, high)
    return first, replace(second, noise_multiplier=high)


def spent(*plans: TrainingPlan) -> float:
    events: list[Event] = [plan.event for plan in plans]
    return accounting.guarantee(Composed(*events), delta=DELTA).epsilon


# A head on the mean of the last layer -------------------------------------------------------------------------------


def train_head(plan: TrainingPlan, pooled: Tensor, labels: Tensor, rng: Rng) -> Head:
    model = Head()

    def loss_fn(model: nn.Module, rows: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(rows), labels, reduction="none")

    optimizer = torch.optim.Adam(model.parameters(), lr=SETTINGS["head"].learning_rate)
    fit(plan, model, TensorDataset(pooled, labels), loss_fn=loss_fn, optimizer=optimizer, progress=False, rng=rng)
    return model


def head(case: Case) -> tuple[float, list[TrainingPlan]]:
    train, tried = minilm.cached("train"), minilm.cached(case.part)
    plan = plan_for(case, case.settings, case.epsilon)
    model = train_head(plan, train.pooled[case.train], train.labels[case.train], case.rng)
    with torch.no_grad():
        found = model(tried.pooled[case.tried]).argmax(1)
    return float((found == tried.labels[case.tried]).double().mean()), [plan]


# LoRA in the last layer, on the kept output of the others ----------------------------------------------------


def lora(case: Case) -> tuple[float, list[TrainingPlan]]:
    from peft import LoraConfig, get_peft_model

    rows, (first, second), cached = Sentences("train"), two_plans(case), minilm.cached("train")
    model = LastLayers()
    model.head = train_head(first, cached.pooled[case.train], cached.labels[case.train], case.rng)
    config = LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"], modules_to_save=["head"])
    model = get_peft_model(model, config).eval()  # no dropout
    trained = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=case.settings.learning_rate)
    dataset = Subset(rows, case.train)
    fit(
        second,
        model,
        dataset,
        loss_fn=trimmed_loss,
        optimizer=optimizer,
        collate=padded,
        progress=False,
        rng=case.rng.child("second phase"),
    )
    return accuracy(model, Sentences(case.part), case.tried), [first, second]


# A soft prompt before each of the six layers, and the head ------------------------------------------------------------


def soft(case: Case) -> tuple[float, list[TrainingPlan]]:
    rows, (first, second), cached = Tokens("train"), two_plans(case), minilm.cached("train")
    prompt = SoftPrompt(MeanClassifier(), 8, per_layer=True, train_too=["head"], rng=case.rng.child("prompt"))
    start = train_head(first, cached.pooled[case.train], cached.labels[case.train], case.rng)  # without the prompt
    prompt.model.head.load_state_dict(start.state_dict())
    fit_soft_prompt(
        second,
        prompt,
        Subset(rows, case.train),
        learning_rate=case.settings.learning_rate,
        loss_fn=trimmed_loss,
        collate=padded,
        progress=False,
        rng=case.rng.child("second phase"),
    )
    return accuracy(prompt, Tokens(case.part), case.tried), [first, second]


WAYS: dict[str, Callable[[Case], tuple[float, list[TrainingPlan]]]] = {"head": head, "lora": lora, "soft": soft}


def kept(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def keep(path: Path, row: dict[str, Any]) -> None:
    rows = sorted([*kept(path), row], key=lambda one: (one["way"], str(one["epsilon"]), one["seed"], one["steps"]))
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def case_of(settings: Settings, epsilon: float, seed: int, held_out: bool) -> Case:
    every = numpy.random.default_rng(5).permutation(len(minilm.cached("train").labels)).tolist()
    if held_out:
        return Case(settings, epsilon, Rng.from_seed(seed), every[HELD_OUT:], "train", every[:HELD_OUT])
    tried = list(range(len(minilm.cached("dev").labels)))
    return Case(settings, epsilon, Rng.from_seed(seed), sorted(every), "dev", tried)


def measured(way: str, wanted: dict[str, Any], case: Case) -> dict[str, Any]:
    start = time.process_time()
    torch.manual_seed(wanted["seed"])
    found, plans = WAYS[way](case)
    return {
        **wanted,
        "model": "all-MiniLM-L6-v2",
        "delta": DELTA,
        "noise_multipliers": [plan.noise_multiplier for plan in plans],
        "spent": spent(*plans) if math.isfinite(case.epsilon) else "infinity",
        "accuracy": found,
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--epsilons", default="3,inf,8,1")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    for name, kind in (("batch", int), ("steps", int), ("learning-rate", float), ("clip-norm", float)):
        parser.add_argument(f"--{name}", type=kind)
    given = parser.parse_args()
    changed = {name: value for name, value in vars(given).items() if name in Settings.__annotations__ and value}
    settings = replace(SETTINGS[given.way], **changed)
    for seed in map(int, given.seeds.split(",")):
        for epsilon in map(float, given.epsilons.split(",")):
            word = epsilon if math.isfinite(epsilon) else "infinity"
            wanted = {"way": given.way, "epsilon": word, "seed": seed, **asdict(settings)}
            if not given.held_out and any(wanted.items() <= row.items() for row in kept(given.out)):
                continue
            row = measured(given.way, wanted, case_of(settings, epsilon, seed, given.held_out))
            print(row, flush=True)
            if not given.held_out:
                keep(given.out, row)


if __name__ == "__main__":
    main()
