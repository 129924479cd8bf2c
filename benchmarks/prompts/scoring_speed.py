"""How much a shared prefix saves: label scores with cache and batches, and prompt by prompt, in one process.

    python -m benchmarks.prompts.scoring_speed [--queries 30] [--rounds 3] [--model smollm2]

Needs HUSH_DATA and SmolLM2 (docs/start/install.md). Each round takes another teacher of eight TREC questions, so that
nothing of an earlier round is in the cache but the instruction. Process time, medians, and the largest difference.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy
import torch

from hush import data
from hush.prompts.known_models import load_language_model
from hush.prompts.language_model import TransformersModel
from hush.prompts.templates import TASKS

RESULTS = Path(__file__).resolve().parents[1] / "results" / "prompts_scoring_speed.json"
SHOWN = 8


def one_by_one(model: TransformersModel, prefix: str, questions: list[str], words: list[str]) -> numpy.ndarray:
    """Each prompt whole and alone, once: all words of one token come from one call, a longer word needs no other."""
    longest = max((model.tokens(word) for word in words), key=len)
    rows = []
    for question in questions:
        head = model.tokens(prefix) + model.tokens(question)
        with torch.no_grad():
            given = torch.tensor([head + longest[:-1]])
            logits = model.model(given, use_cache=False, logits_to_keep=len(longest)).logits[0]
        found = logits.double().log_softmax(-1)
        rows.append([sum(float(found[place, token]) for place, token in enumerate(model.tokens(w))) for w in words])
    return numpy.array(rows)


def measure(queries: int, rounds: int, name: str) -> dict[str, Any]:
    model, task, texts = load_language_model(name), TASKS["trec"], data.load_labelled_texts("trec")
    assert isinstance(model, TransformersModel)
    questions = [task.template.question(text) for text in texts.texts[-queries:]]
    words = list(task.labels)
    times: dict[str, list[float]] = {"shared": [], "one_by_one": []}
    farthest = 0.0
    for number in range(rounds + 1):
        rows = range(number * SHOWN, (number + 1) * SHOWN)
        prefix = task.template.prefix([(texts.texts[row], task.labels[texts.labels[row]]) for row in rows])
        start = time.process_time()
        shared = model.log_probs(prefix, questions, words)
        middle = time.process_time()
        alone = one_by_one(model, prefix, questions, words)
        end = time.process_time()
        summed = numpy.array([[sum(tokens) for tokens in row] for row in shared])
        farthest = max(farthest, float(numpy.abs(summed - alone).max()))
        if number:  # the first round warms up
            times["shared"].append(middle - start)
            times["one_by_one"].append(end - middle)
    ratios = [alone / shared for shared, alone in zip(times["shared"], times["one_by_one"], strict=True)]
    return {
        "model": name,
        "demonstrations": SHOWN,
        "queries": queries,
        "rounds": rounds,
        "times_faster": round(statistics.median(ratios), 2),
        "least": round(min(ratios), 2),
        "largest_difference": farthest,
        "process_seconds": {name: round(statistics.median(values), 3) for name, values in times.items()},
    }


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    found = measure(given.queries, given.rounds, given.model)
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
