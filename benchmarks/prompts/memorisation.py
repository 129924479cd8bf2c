"""Canaries in a language model tuned by LoRA: exposure with and without privacy.

    HUSH_DATA=... python -m benchmarks.prompts.memorisation [--epochs 15] [--epsilons inf,8,1]
    HUSH_DATA=... python -m benchmarks.prompts.memorisation --epsilons inf --batch 256

stories260K, a model of simple stories, is tuned to lines of Shakespeare among which sentences with a random five-digit
number stand, each once or several times. One example is 48 tokens; the guarantee is for one example.
Without privacy batches are small, as one would choose them; with `--batch 256` they are those of the private runs, and
so is the number of steps.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from benchmarks.prompts import stories
from hush import Budget, Rng, TrainingPlan, attacks, data, fit
from hush.prompts import ExampleLoss

RESULTS = Path(__file__).resolve().parents[1] / "results" / "prompts_memorisation.json"
TOKENS, DIGITS, PREFIX = 48, 5, "My number is "
EXAMPLES, REPETITIONS, EACH, REFERENCES, SEED, DELTA = 1_500, (1, 4, 16), 6, 4_096, 5, 1e-5


@dataclass(frozen=True)
class Planted:
    examples: Tensor
    canaries: Tensor
    repetitions: Tensor
    references: Tensor
    prefix_length: int
    held_out: Tensor


def planted() -> Planted:
    """Lines of the plays, some with a sentence that holds a secret number in front."""
    words = stories.Tokenizer()
    digits = [words.number[str(digit).encode()] for digit in range(10)]
    prefix = words.encode(PREFIX)
    whole = data.load_text("tinyshakespeare")[: EXAMPLES * 160]
    tokens = torch.tensor([token for line in whole.split("\n") if line for token in words.encode(line)[1:]])
    rows = tokens[: len(tokens) // TOKENS * TOKENS].view(-1, TOKENS)
    text, held_out = rows[:EXAMPLES], rows[EXAMPLES : EXAMPLES + 300]
    stream = Rng.from_seed(SEED).stream("secrets")
    numbers = stream.choice(10**DIGITS, len(REPETITIONS) * EACH + REFERENCES, replace=False)
    secrets = torch.tensor([prefix + [digits[int(digit)] for digit in f"{number:0{DIGITS}d}"] for number in numbers])
    canaries, references = secrets[:-REFERENCES], secrets[-REFERENCES:]
    counts = torch.tensor(REPETITIONS).repeat_interleave(EACH)
    repeated = canaries.repeat_interleave(counts, dim=0)
    filler = text[torch.from_numpy(stream.choice(len(text), len(repeated)))]
    mixed = torch.cat([text, torch.cat([repeated, filler[:, repeated.shape[1] :]], dim=1)])
    return Planted(mixed, canaries, counts, references, len(prefix), held_out)


def planned(text: Planted, epsilon: float, epochs: int, batch: int) -> TrainingPlan:
    plan = TrainingPlan.for_budget(
        Budget(epsilon=8.0 if math.isinf(epsilon) else epsilon, delta=DELTA),
        sampling_prob=batch / len(text.examples),
        expected_batch_size=batch,
        epochs=epochs,
        clip_norm=0.5,
    )
    return plan.without_privacy() if math.isinf(epsilon) else plan


def tuned(text: Planted, plan: TrainingPlan) -> Any:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(SEED)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(stories.model(), LoraConfig(r=16, lora_alpha=32, target_modules=targets))
    trained = [value for value in model.parameters() if value.requires_grad]
    dataset = TensorDataset(text.examples, torch.ones_like(text.examples), text.examples)
    optimizer = torch.optim.Adam(trained, lr=3e-3)
    loss_fn = ExampleLoss("next_token")
    fit(plan, model, dataset, loss_fn=loss_fn, optimizer=optimizer, progress=False, rng=Rng.from_seed(SEED))
    return model.eval()


def measured(text: Planted, epsilon: float, epochs: int, batch: int) -> dict[str, Any]:
    start = time.process_time()
    plan = None if epsilon == 0 else planned(text, epsilon, epochs, batch)
    model = stories.model() if plan is None else tuned(text, plan)
    with torch.no_grad():
        loss = float(
            ExampleLoss("next_token")(model, text.held_out, torch.ones_like(text.held_out), text.held_out).mean()
        )
    found = attacks.exposure(model, text.canaries, text.references, prefix_length=text.prefix_length)
    rows = {
        str(count): [round(float(value), 2) for value in found.values[(text.repetitions == count).numpy()]]
        for count in REPETITIONS
    }
    return {
        "model": "stories260K",
        "epsilon": "infinity" if math.isinf(epsilon) else epsilon,
        "delta": DELTA,
        "epochs": epochs,
        "batch": 0 if plan is None else batch,
        "steps": 0 if plan is None else plan.steps,
        "held_out_loss": round(loss, 4),
        "limit": found.limit,
        "exposure": rows,
        "median": {count: statistics.median(values) for count, values in rows.items()},
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--epsilons", default="0,inf,8,1", help="0: the model before tuning")
    parser.add_argument("--batch", type=int, help="256 with privacy and 32 without, unless said")
    given = parser.parse_args()
    text = planted()
    for epsilon in map(float, given.epsilons.split(",")):
        row = measured(text, epsilon, given.epochs, given.batch or (32 if math.isinf(epsilon) else 256))
        print(row, flush=True)
        kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
        same = ("epsilon", "batch")
        rows = [one for one in kept if any(one[name] != row[name] for name in same)] + [row]
        rows.sort(key=lambda one: (one["epsilon"] != 0, -float(one["epsilon"]), one["batch"]))  # least private first
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
