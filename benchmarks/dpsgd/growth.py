"""How the cost of a private gradient grows with parameters (1e4 to 1e8) and with the batch: a straight line.

python -m benchmarks.dpsgd.growth
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path

import torch
from torch import nn

from benchmarks.dpsgd.models import cross_entropy
from hush.gradients import clipped_sum


def network(parameters: float) -> nn.Module:
    """Two square layers with about that many weights."""
    width = round(math.sqrt(parameters / 2))
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def seconds(model: nn.Module, count: int, repeats: int) -> tuple[float, float]:
    """Median seconds of an ordinary and of a private gradient."""
    width = model[0].in_features
    inputs, labels = torch.randn(count, width), torch.randint(0, width, (count,))
    plain, private = [], []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        model.zero_grad(set_to_none=True)
        cross_entropy(model, inputs, labels).mean().backward()
        middle = time.perf_counter()
        clipped_sum(model, cross_entropy, (inputs, labels), 1.0, method="tape")
        plain.append(middle - start)
        private.append(time.perf_counter() - middle)
    return statistics.median(plain[1:]), statistics.median(private[1:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    torch.set_num_threads(2)
    rows = []
    for parameters, count in [(10**power, 64) for power in (4, 5, 6, 7, 8)] + [
        (10**6, 2**k) for k in (4, 6, 8, 10, 12)
    ]:
        plain, private = seconds(network(parameters), count, options.repeats)
        row = {"parameters": parameters, "batch": count, "ordinary_ms": 1e3 * plain, "hush_ms": 1e3 * private}
        rows.append(row)
        print(json.dumps(row), flush=True)
    (options.out / "dpsgd_growth.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
