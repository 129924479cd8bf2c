"""How much of a guarantee an audit inside the training finds, and what the canaries cost.

python -m benchmarks.audit.run [REPETITIONS]

Writes benchmarks/results/audit.json and audit.md. Each row is a plan calibrated to an epsilon, trained on 200 made-up
rows with a linear model, audited with fresh coins and noise in every repetition. `share` is evidence over guarantee.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from hush import Budget, Rng, TrainingPlan
from hush.audit import AuditResult, WhiteBoxAudit
from hush.training import PrivateGradients

RESULTS = Path(__file__).resolve().parents[1] / "results"
EPSILONS = {1.0: 60_000, 2.0: 20_000, 4.0: 12_000, 8.0: 8_000}
SAMPLING: dict[str, dict[str, Any]] = {
    "full batch, 4 steps": {"sampling_prob": 1.0, "sampling": "full_batch", "steps": 4},
    "sampling 0.1, 20 steps": {"sampling_prob": 0.1, "sampling": "poisson", "steps": 20},
}


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), y, reduction="none")


def audited(plan: TrainingPlan, data: TensorDataset, num_canaries: int) -> AuditResult:
    audit = WhiteBoxAudit(
        noise_multiplier=plan.noise_multiplier,
        sampling_prob=plan.sampling_prob,
        steps=plan.steps,
        clip_norm=plan.clip_norm,
        delta=plan.delta,
        num_canaries=num_canaries,
    )
    model, rows, loss = audit.model(nn.Linear(8, 3)), audit.dataset(data), audit.loss(loss_fn)
    private = PrivateGradients(model, plan)
    for batch in plan.batches(rows):
        report = private.backward(loss, batch)
        audit.see(model.noisy_sum(plan.expected_batch_size), report.clip_norm)
    return audit.result(guarantee=private.guarantee())


def row(epsilon: float, num_canaries: int, name: str, repetitions: int) -> dict[str, Any]:
    stream = Rng.from_seed(1).torch_stream("data")
    data = TensorDataset(torch.randn(200, 8, generator=stream), torch.randint(0, 3, (200,), generator=stream))
    budget = Budget(epsilon=epsilon, delta=1e-5)
    plan = TrainingPlan.for_budget(budget, expected_batch_size=200, clip_norm=1.0, **SAMPLING[name])
    start = time.process_time()
    found = [audited(plan, data, num_canaries) for _ in range(repetitions)]
    seconds = (time.process_time() - start) / repetitions
    shares = sorted(result.evidence.epsilon_at_least / result.guarantee.epsilon for result in found)
    return {
        "epsilon": epsilon,
        "plan": name,
        "num_canaries": num_canaries,
        "repetitions": repetitions,
        "confidence": 0.95,
        "share_median": statistics.median(shares),
        "share_least": shares[0],
        "share_most": shares[-1],
        "above_guarantee": sum(share > 1 for share in shares),
        "contradictions": sum(result.contradicts for result in found),
        "seconds": seconds,
    }


def table(rows: list[dict[str, Any]]) -> str:
    head = "| epsilon | plan | canaries | runs | share, median | least | most | above | CONTRADICTION | seconds |"
    lines = [
        f"| {item['epsilon']:g} | {item['plan']} | {item['num_canaries']:,} | {item['repetitions']} | "
        f"{item['share_median']:.3f} | {item['share_least']:.3f} | {item['share_most']:.3f} | "
        f"{item['above_guarantee']} | {item['contradictions']} | {item['seconds']:.2f} |"
        for item in rows
    ]
    return "\n".join([head, "|---|---|---|---|---|---|---|---|---|---|", *lines])


TEXT = """# Audits

By `python -m benchmarks.audit.run`. `share` is evidence (confidence 95 %) over the guarantee's epsilon; delta is 1e-5.
`above` counts runs whose evidence is above the guarantee, which chance does in one of 20 where an audit is
perfectly tight. A CONTRADICTION needs significance 1e-6. Seconds are processor time of one audited training of a linear
model.

"""


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    rows = [row(epsilon, number, name, repetitions) for name in SAMPLING for epsilon, number in EPSILONS.items()]
    RESULTS.joinpath("audit.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    RESULTS.joinpath("audit.md").write_text(TEXT + table(rows) + "\n", encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
