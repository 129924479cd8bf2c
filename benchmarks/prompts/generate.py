"""Private generation of TREC questions with SmolLM2-135M: what comes out, and how good it is as a prompt.

    python -m benchmarks.prompts.generate [--epsilon 8] [--prompts 20] [--sampled 40] [--tokens 12] [--per-label 1]
        [--test 200] [--model smollm2]

Needs HUSH_DATA and SmolLM2 (docs/start/install.md). A label's demonstrations see that label's questions alone.
`--sampled` is how many questions of an average label join in expectation. The test part tells how good the made-up
prompt is.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy
import torch

from hush import Budget, data
from hush.prompts.generate import GenerationPlan, generate_demonstrations
from hush.prompts.known_models import load_language_model
from hush.prompts.pate import PromptPATE
from hush.prompts.templates import TASKS, Template

RESULTS = Path(__file__).resolve().parents[1] / "results" / "prompts_generate.json"
DELTA = 1e-5
FRAME = Template(instruction="Each question is followed by another one whose answer is of the same type.\n\n")


def measure(given: argparse.Namespace) -> dict[str, Any]:
    train, test, task = data.load_labelled_texts("trec"), data.load_labelled_texts("trec", "test"), TASKS["trec"]
    plan = GenerationPlan.for_budget(
        Budget(epsilon=given.epsilon, delta=DELTA),
        sampling_prob=given.sampled * len(task.labels) / len(train),
        num_prompts=given.prompts,
        max_tokens=given.tokens,
        per_label=given.per_label,
        public_choices=given.choices,
    )
    print(plan, flush=True)
    model, start = load_language_model(given.model), time.process_time()
    made = generate_demonstrations(
        model, FRAME, task.labels, train.texts, train.labels, plan=plan, per_label=given.per_label
    )
    print(*made.demonstrations, sep="\n", flush=True)
    tried = numpy.random.default_rng(1).permutation(len(test))[: given.test].tolist()
    texts, right = [test.texts[row] for row in tried], numpy.array([test.labels[row] for row in tried])
    pate = PromptPATE(model, task.template, task.labels)
    prompts = {"zero_shot": pate.prompt(), "made_up": pate.prompt(made.demonstrations)}
    scores = {name: float((prompt.predict(texts) == right).mean()) for name, prompt in prompts.items()}
    return {
        "model": given.model,
        **{name: getattr(plan, name) for name in ("sampling_prob", "num_prompts", "max_tokens", "noise_multiplier")},
        "public_choices": given.choices,
        "per_label": given.per_label,
        "epsilon": made.guarantee(delta=DELTA).epsilon,
        "delta": DELTA,
        "demonstrations": [list(pair) for pair in made.demonstrations],
        "test_texts": len(texts),
        **{name: round(100 * value, 2) for name, value in scores.items()},
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--sampled", type=float, default=40.0)
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--per-label", type=int, default=1)
    parser.add_argument("--choices", type=int, default=50)
    parser.add_argument("--test", type=int, default=200)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    found = measure(given)
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
