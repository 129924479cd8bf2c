"""A private gradient beside an ordinary one, and beside other libraries: time and memory, interleaved in one process.

    python -m benchmarks.dpsgd.run [--repeats 15] [--threads 2] [--out benchmarks/results]

Times are medians over rounds of the ratio to the ordinary forward and backward pass of the same round. Memory is the
largest resident size of a fresh process that does nothing else, less that of one that only builds model and batch.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
PEERS = ("opacus hooks", "opacus ghost", "jax-privacy")


def ordinary(row: Any) -> Callable[[], None]:
    import torch

    from hush.gradients.batches import call

    torch.manual_seed(0)
    model, batch = row.make().train(), row.batch()

    def step() -> None:
        model.zero_grad(set_to_none=True)
        call(row.loss_fn, model, batch).mean().backward()

    return step


def hush(row: Any) -> Callable[[], None]:
    import torch

    from hush.gradients import clipped_sum

    torch.manual_seed(0)
    model, batch = row.make().train(), row.batch()

    def step() -> None:
        clipped_sum(model, row.loss_fn, batch, 1.0, method="tape")

    return step


def _step(library: str, row: Any) -> Callable[[], None]:
    if library == "ordinary":
        return ordinary(row)
    if library == "hush":
        return hush(row)
    if library == "jax-privacy":
        from benchmarks.dpsgd.peers_jax import step_of

        return step_of(row.name)
    from benchmarks.dpsgd import peers_opacus

    return peers_opacus.hooks(row) if library == "opacus hooks" else peers_opacus.ghost(row)


def _ready(library: str, row: Any) -> Callable[[], None] | str:
    """The step after two rehearsals, or why it fails."""
    try:
        step = _step(library, row)
        step()
        step()
    except Exception as error:  # whatever a peer raises is its result
        return f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
    return step


def time_row(row: Any, repeats: int) -> dict[str, Any]:
    steps = {library: _ready(library, row) for library in ("ordinary", "hush", *PEERS)}
    working = {library: step for library, step in steps.items() if not isinstance(step, str)}
    times: dict[str, list[float]] = {library: [] for library in working}
    for _ in range(repeats):
        for library, step in working.items():
            start = time.perf_counter()
            step()
            times[library].append(time.perf_counter() - start)
    result: dict[str, Any] = {"ordinary_ms": 1e3 * statistics.median(times["ordinary"])}
    for library, step in steps.items():
        if library != "ordinary":
            pairs = zip(times.get(library, []), times["ordinary"], strict=False)
            ratios = [own / plain for own, plain in pairs]
            result[library] = statistics.median(ratios) if ratios else step
    return result


def memory_row(index: int) -> dict[str, float]:
    sizes = {mode: _resident(index, mode) for mode in ("nothing", "ordinary", "hush")}
    base = sizes["nothing"]
    return {
        "ordinary_mb": sizes["ordinary"] - base,
        "hush_mb": sizes["hush"] - base,
        "ratio": (sizes["hush"] - base) / (sizes["ordinary"] - base),
    }


def _resident(index: int, mode: str) -> float:
    """Megabytes at the peak of a fresh process; the median of three."""
    found = []
    for _ in range(3):
        command = [sys.executable, "-m", "benchmarks.dpsgd.resident", str(index), mode]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found.append(float(text.split()[-1]))
    return statistics.median(found)


def main() -> None:
    import torch

    from benchmarks.dpsgd.models import ROWS

    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--rows", type=int, nargs="*", default=range(len(ROWS)))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = {}
    for index in options.rows:
        row = ROWS[index]
        results[row.name] = {**time_row(row, options.repeats), "memory": memory_row(index)}
        print(json.dumps({row.name: results[row.name]}), flush=True)
    mean = math.exp(statistics.fmean(math.log(found["hush"]) for found in results.values()))
    options.out.mkdir(parents=True, exist_ok=True)
    summary = {"threads": options.threads, "repeats": options.repeats, "geometric_mean": mean, "rows": results}
    (options.out / "dpsgd.json").write_text(json.dumps(summary, indent=2) + "\n")
    (options.out / "dpsgd.md").write_text(_table(summary))
    print(_table(summary))


def _table(summary: dict[str, Any]) -> str:
    lines = [
        "# A private gradient, as a multiple of the ordinary forward and backward pass",
        "",
        f"{summary['threads']} threads, median of {summary['repeats']} interleaved rounds. "
        f"Geometric mean for Hush: {summary['geometric_mean']:.3f}x.",
        "",
        f"| model | ordinary, ms | Hush | {' | '.join(PEERS)} | memory |",
        "|---" * (4 + len(PEERS)) + "|",
    ]
    for name, row in summary["rows"].items():
        cells = [f"{row[peer]:.2f}x" if isinstance(row[peer], float) else f"fails ({row[peer]})" for peer in PEERS]
        lines.append(
            f"| {name} | {row['ordinary_ms']:.1f} | {row['hush']:.2f}x | {' | '.join(cells)} | "
            f"{row['memory']['ratio']:.2f}x |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
