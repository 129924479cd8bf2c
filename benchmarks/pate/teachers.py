"""Teachers trained together against one after the other, and the memory of five thousand of them.

    python -m benchmarks.pate.teachers            # speed: the same modules, rows, steps and optimizer, in turns
    python -m benchmarks.pate.teachers --memory   # 5,000 teachers on all of MNIST: the largest memory ever held

Times are processor times of one thread; the two ways are run in turns, and the median of the ratios counts.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hush import Rng, data
from hush.pate import train_teachers
from hush.pate.batched import train_block
from hush.pate.recipe import Recipe
from hush.pate.shards import deal
from hush.pate.single import train_module
from hush.pate.strokes import strokes

RESULTS = Path(__file__).resolve().parents[1] / "results"
TEACHERS, BLOCK = 250, 125


def sixteen_cells(x: Tensor) -> Tensor:
    return strokes(x, cells=4)


def flat(x: Tensor) -> Tensor:
    return x.flatten(1)


def pictures(x: Tensor) -> Tensor:
    return x


def linear(inputs: int) -> nn.Module:
    return nn.Linear(inputs, 10)


def two_layers(inputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, 10))


def convolution(inputs: int) -> nn.Module:
    first, second = nn.Conv2d(1, 8, 5, stride=2, padding=2), nn.Conv2d(8, 16, 3, stride=2, padding=1)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(784, 10))


CASES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[int], nn.Module]]] = {
    "linear on 256 strokes": (sixteen_cells, linear),
    "two layers on 256 strokes": (sixteen_cells, two_layers),
    "linear on 784 strokes": (strokes, linear),
    "linear on 784 pixels": (flat, linear),
    "two layers on 784 pixels": (flat, two_layers),
    "small convolution": (pictures, convolution),
}


def compare(name: str, images: Tensor, labels: Tensor, epochs: int, turns: int) -> dict[str, Any]:
    look, make = CASES[name]
    x = look(images)
    rows = deal(len(x), num_teachers=TEACHERS, key=bytes(32)).all_rows()
    recipe = Recipe(steps=epochs * 30, rows_per_step=8)  # a shard has 240 rows
    seconds: dict[str, list[float]] = {"together": [], "one by one": []}
    few = [shard[:8] for shard in rows[:2]]  # the first pass of all loads and compiles
    train_block([make(x[0].numel()) for _ in few], x, labels, few, recipe, torch.Generator())
    train_module(make(x[0].numel()), x[few[0]], labels[few[0]], recipe, torch.Generator())
    for _ in range(turns):
        modules = [make(x[0].numel()) for _ in rows]
        for way, times in seconds.items():
            stream, mine = torch.Generator().manual_seed(0), copy.deepcopy(modules)
            start = time.process_time()
            if way == "together":
                for first in range(0, TEACHERS, BLOCK):
                    part = slice(first, first + BLOCK)
                    train_block(mine[part], x, labels, rows[part], recipe, stream)
            else:
                for module, shard in zip(mine, rows, strict=True):
                    train_module(module, x[shard], labels[shard], recipe, stream)
            times.append(time.process_time() - start)
    pairs = zip(seconds["one by one"], seconds["together"], strict=True)
    return {
        "teachers": TEACHERS,
        "architecture": name,
        "epochs": epochs,
        "rows_per_step": recipe.rows_per_step,
        "seconds": {way: round(statistics.median(times), 3) for way, times in seconds.items()},
        "times_faster": round(statistics.median(slow / quick for slow, quick in pairs), 2),
    }


def speed(cases: list[str], epochs: int, turns: int) -> Iterator[dict[str, Any]]:
    images, labels = data.load("mnist").train.tensors
    for name in cases:
        found = compare(name, images, labels, epochs, turns)
        print(json.dumps(found), flush=True)
        yield found


def memory(number: int, epochs: int) -> dict[str, Any]:
    images, labels = data.load("mnist").train.tensors
    rows, queries = sixteen_cells(images), sixteen_cells(images[:2_000])
    start = time.process_time()
    recipe = Recipe(steps=30 * epochs, rows_per_step=8, learning_rate=0.05)
    teachers = train_teachers(
        lambda: nn.Linear(rows.shape[1], 10), rows, labels, number, num_classes=10, recipe=recipe, queries=queries,
        rng=Rng.from_seed(0),
    )  # fmt: skip
    votes = teachers.votes()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found = {
        "teachers": votes.num_teachers,
        "queries": len(votes),
        "epochs": epochs,
        "peak_gib": round(peak, 2),
        "process_seconds": round(time.process_time() - start, 1),
    }
    print(json.dumps(found))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--teachers", type=int, default=5_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    given = parser.parse_args()
    torch.set_num_threads(1)
    path = RESULTS / "pate_teachers.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    if given.memory:
        kept["memory"] = memory(given.teachers, given.epochs)
    else:
        for found in speed(given.cases, given.epochs, given.turns):
            others = [row for row in kept.get("speed", []) if row["architecture"] != found["architecture"]]
            kept["speed"] = [*others, found]
            path.write_text(json.dumps(kept, indent=1) + "\n")
    path.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
