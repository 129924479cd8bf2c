"""Wall-clock from data on disk to printed accuracies, all epsilons together, and private training beside its twin.

    OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 python -m benchmarks.headline.clock run 4-patches mnist
    OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 python -m benchmarks.headline.clock ratio

Meant for a machine with nothing else to do. Adds to benchmarks/results/headline/figures/clock.json. The accuracies, of
seed 0 alone, are printed and not kept: the table has five seeds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.headline.result import DELTA, RESULTS

if TYPE_CHECKING:
    from benchmarks.headline import networks

OUT = RESULTS / "figures" / "clock.json"
GOALS = {"mnist": "120 s", "cifar10": "480 s"}


def keep(row: dict[str, Any]) -> None:
    """In the place of an earlier measurement of the same."""
    rows = json.loads(OUT.read_text()) if OUT.exists() else []
    rows = [*(other for other in rows if other["what"] != row["what"]), row]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(rows, indent=1) + "\n")
    print(row)


def run(row: str, data: str) -> None:
    words = [sys.executable, "-m", "benchmarks.headline.run", "--row", row, "--data", data, "--seeds", "1"]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run([*words, "--out", folder], check=True)
        seconds = time.perf_counter() - start
    what = f"{row} on {data}: features and softmax at five epsilons, and without privacy"
    keep({"what": what, "goal": GOALS.get(data, "-"), "measured": f"{seconds:.0f} s", **_machine()})


def ratios() -> None:
    """Softmax: rows of pictures, as many as CIFAR-10 has and fewer, and the words of IMDB. Then every network."""
    import numpy

    from benchmarks.headline import networks
    from benchmarks.headline.words_and_tables import SETTINGS, imdb, weighed

    draws = numpy.random.default_rng(0)
    for rows, columns, steps in ((10_000, 4_096, 20), (50_000, 4_608, 6)):
        x = draws.normal(size=(rows, columns)).astype(numpy.float32) / (2 * columns**0.5)
        softmax(x, draws.integers(0, 10, rows), 10, steps, f"{rows:,} rows, {columns:,} columns, ten classes")
    texts, labels, test, _ = imdb(1.0)
    softmax(weighed("imdb", texts, test, 0)[0], labels, 2, SETTINGS["imdb"]["steps"], "the words of IMDB, two classes")
    for setting in {one.row + one.data: one for one in networks.SETTINGS}.values():
        network(setting)


def softmax(x: Any, y: Any, num_classes: int, steps: int, what: str) -> None:
    """One private softmax beside the same without noise and clipping."""
    from hush import Rng
    from hush.linear import PrivateSoftmaxHead, softmax_head

    plan = PrivateSoftmaxHead(1.0, DELTA, classes=range(num_classes), data_norm=1.0, steps=steps).plan()
    twin = plan.without_privacy(x)

    def run(one: Any) -> None:
        softmax_head.descend(x, y, num_classes, [one], Rng.from_seed(0))

    in_turns(lambda: run(plan), lambda: run(twin), f"private softmax over its twin, {what}")


SHAPES = {  # of the rows that a network sees
    "components": (60,), "cropped": (3, 24, 24), "as_they_are": (1, 28, 28), "scattered": (81, 7, 7),
    "mixed": (120, 8, 8),
}  # fmt: skip


# Passes over the rows, or 20 lots. Where what is done once, for a run or for each row, would count more than in the
# row's own run, there are as many passes as that has, or the shortest of several; four lots of the largest network are
# enough.
PASSES = {"1-abadi": 60.0, "3-scatter-cnn": 24.0, "1-abadi-cifar": 2 / 3}
PASSES_OF = {("3-scatter-cnn", "fashion-mnist"): 39.0}


def network(setting: networks.Setting) -> None:
    """Some lots of a row's network on random rows, beside the same without noise and clipping."""
    import torch
    from torch.utils.data import TensorDataset

    from benchmarks.headline import networks

    draws = torch.Generator().manual_seed(0)
    rows = torch.randn(12_000, *SHAPES[setting.prepare.__name__], generator=draws)
    labels = torch.randint(10, (len(rows),), generator=draws)
    dataset = TensorDataset(rows, labels)
    passes = PASSES_OF.get((setting.row, setting.data), PASSES.get(setting.row))
    lots = 20 if passes is None else round(passes * len(rows) / setting.lot)
    plan = replace(networks.plan_of(setting, len(rows), None), steps=lots)

    def run(one: Any) -> None:
        networks.trained(setting, one, dataset, rows[:1], labels[:1], 0)

    what = f"{setting.row} on {setting.data}: private training over its twin, lots of {setting.lot}"
    in_turns(lambda: run(plan), lambda: run(plan.without_privacy()), what)


def in_turns(private: Callable[[], None], twin: Callable[[], None], what: str, rounds: int = 15) -> None:
    times: dict[str, list[float]] = {"private": [], "twin": []}
    for run in (private, twin):  # what is done once in a process
        run()
    for _ in range(rounds):
        for name, run in (("private", private), ("twin", twin)):
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    keep({"what": what, "goal": "1.3 times", "measured": f"{ratio(times):.2f} times", "times": times, **_machine()})


def ratio(times: dict[str, list[float]]) -> float:
    """The median over the turns: a machine that becomes slower on the way meets both sides of a turn."""
    return statistics.median(one / other for one, other in zip(times["private"], times["twin"], strict=True))


def _machine() -> dict[str, Any]:
    return {"threads": int(os.environ.get("OMP_NUM_THREADS", "0"))}


if __name__ == "__main__":
    if sys.argv[1] == "ratio":
        ratios()
    else:
        run(*sys.argv[2:4])
