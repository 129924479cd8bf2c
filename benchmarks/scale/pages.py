"""What the two benchmarks of this folder share: starting processes, keeping rows, and the page that shows both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "results"
GOAL = 1.3
Rows = list[dict[str, Any]]


def by_processes(module: str, sizes: list[int], repeats: int, place: Path) -> Rows:
    """Rows of each number of processes, beside those that `place` has of others; written there."""
    old: Rows = json.loads(place.read_text()) if place.exists() else []
    new = [row for size in sizes for row in _launch(module, size, repeats, place.with_suffix(f".{size}"))]
    rows = sorted([*(row for row in old if row["processes"] not in sizes), *new], key=lambda row: row["processes"])
    place.write_text(json.dumps(rows, indent=1) + "\n")
    return rows


def _launch(module: str, size: int, repeats: int, out: Path) -> Rows:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    arguments = ["-m", module, "--worker", "--repeats", str(repeats), "--out", str(out)]
    subprocess.run([*command, *arguments], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found: Rows = json.loads(out.read_text())
    out.unlink()
    return found


def table(columns: dict[str, Callable[[dict[str, Any]], object]], rows: Rows) -> str:
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [f"| {' | '.join(str(cell(row)) for cell in columns.values())} |" for row in rows]
    return "\n".join(lines)


STEPS: dict[str, Callable[[dict[str, Any]], object]] = {
    "model": lambda row: row["name"],
    "processes": lambda row: row["processes"],
    "DDP, ms": lambda row: f"{1e3 * row['seconds']['plain DDP']:.1f}",
    "Hush / DDP": lambda row: f"{row['over_ddp']:.2f}",
    "by processor time": lambda row: f"{row['over_ddp_processor']:.2f}",
    "Hush on FSDP2 / FSDP2": lambda row: f"{row['over_fsdp']:.2f}",
    "of it by processor time": lambda row: f"{row['over_fsdp_processor']:.2f}",
}
COSTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "model": lambda row: row["model"],
    "processes": lambda row: row["processes"],
    "engine": lambda row: row["engine"],
    "measured, ms": lambda row: f"{1e3 * row['measured']:.0f}",
    "formulas, ms": lambda row: f"{1e3 * row['said']:.0f}",
    "of it communication": lambda row: f"{1e3 * row['communication']:.0f}",
    "ratio": lambda row: f"{row['said'] / row['measured']:.2f}",
}


def write_page(steps: Rows, costs: Rows) -> str:
    """`scale.md`, from the rows of both benchmarks."""
    two = {row["name"].rpartition(",")[0]: row["over_ddp"] for row in steps if row["processes"] == 2}
    met = [name for name, ratio in two.items() if ratio <= GOAL]
    missed = [f"{name} ({ratio:.2f})" for name, ratio in two.items() if ratio > GOAL]
    verdict = f"With two processes the goal is met on {len(met)} of {len(two)} models"
    verdict += f"; missed: {', '.join(missed)}." if missed else "."
    page = f"""# Many processes

`python -m benchmarks.scale.ddp` (`scale_ddp.json`) and `python -m benchmarks.scale.cost_model --measure 1 2 4`
(`scale_cost.json`), on {os.cpu_count()} cores, one thread a process, Gloo over loopback.

## A private step beside plain DDP and plain FSDP2

Same model, same rows, interleaved round by round; medians of the rounds' ratios. The goal is {GOAL} times plain DDP
with two processes. {verdict}

{table(STEPS, steps)}

Most of what is left is the private gradient itself (`dpsgd_alone.md`): norms must be known before the sums are made.
The CNN is near plain DDP because Hush pools its maps in a layout in which torch is quicker, with the same results; that
is not a saving on privacy, and a plain model whose maps lie channels last has it too.

## The cost model beside real steps

The machine's figures (plain passes of the model, all-reduce, gather, scatter, noise, update, copies) are measured in
the same processes just before the step. The formulas leave out waiting for the slowest process.

{table(COSTS, costs)}

{chr(10).join(_apart(costs))}

`python -m benchmarks.scale.cost_model` prints the table for 1 to 1,000 workers and 1e6 to 1e11 parameters.
"""
    (RESULTS / "scale.md").write_text(page)
    return page


def _apart(costs: Rows) -> list[str]:
    lines = []
    for size in sorted({row["processes"] for row in costs}):
        ratios = [row["said"] / row["measured"] for row in costs if row["processes"] == size]
        busy = any(row.get("busy") for row in costs if row["processes"] == size)
        lines.append(
            f"- {size} processes: the formulas say {min(ratios):.2f} to {max(ratios):.2f} of the measured time"
            + ("; taken while other work filled the machine, to be taken anew." if busy else ".")
        )
    return lines


def read(name: str) -> Rows:
    """The rows of a result; none if it was never taken."""
    place = RESULTS / name
    found: Rows = json.loads(place.read_text()) if place.exists() else []
    return found
