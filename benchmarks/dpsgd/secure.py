"""What `secure=True` costs: a private step with secure noise beside one with plain noise, interleaved.

    python -m benchmarks.dpsgd.secure [--rounds 60]

A step is all that `PrivateGradients.backward` does, and the optimizer's step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import hush
from benchmarks.dpsgd.models import cross_entropy, small_mlp, tanh_cnn

BATCH, LIMIT = 600, 1.3


def step_of(
    make: Callable[[], torch.nn.Module], shape: tuple[int, ...], *, secure: bool, steps: int
) -> Callable[[], float]:
    """A function that takes one private step and gives its seconds."""
    model = make()
    plan = hush.TrainingPlan(
        noise_multiplier=1.0, sampling_prob=0.01, expected_batch_size=BATCH, steps=steps, clip_norm=1.0, delta=1e-5,
        secure=secure,
    )  # fmt: skip
    private, optimizer = hush.PrivateGradients(model, plan), torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.rand(BATCH, *shape), torch.randint(0, 10, (BATCH,))

    def step() -> float:
        start = time.perf_counter()
        private.backward(cross_entropy, batch)
        optimizer.step()
        return time.perf_counter() - start

    return step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = {}
    for name, make, shape in (("MLP 784-1000-10", small_mlp, (784,)), ("tanh CNN", tanh_cnn, (1, 28, 28))):
        plain, secure = (step_of(make, shape, secure=kind, steps=options.rounds + 3) for kind in (False, True))
        for _ in range(3):
            plain(), secure()
        ratios = [secure() / plain() for _ in range(options.rounds)]
        rows[name] = {"ratio": statistics.median(ratios), "at_most": LIMIT}
        print(json.dumps({name: rows[name]}), flush=True)
    (options.out / "dpsgd_secure.json").write_text(
        json.dumps({"rounds": options.rounds, "rows": rows}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
