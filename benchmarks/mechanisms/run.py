"""The time of a draw beside OpenDP's: `python -m benchmarks.mechanisms.run`, a minute on one core.

Every row is the median of some rounds in which both libraries take turns, by processor time, for a draw.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp

from hush import mechanisms

RESULTS = Path(__file__).resolve().parent.parent / "results"
ROUNDS = 7
OURS_AT_ONCE, THEIRS_AT_ONCE = 200_000, 2_000
ROWS = [
    ("integer Laplace", 1.0), ("integer Laplace", 1e3), ("integer Laplace", 1e6),
    ("integer Gaussian", 1.0), ("integer Gaussian", 1e3), ("integer Gaussian", 1e6),
    ("float Laplace", 1.0), ("float Gaussian", 1.0),
]  # fmt: skip


def ours(kind: str, scale: float, count: int) -> Callable[[], Any]:
    whole, zeros = np.zeros(count, int), np.zeros(count)
    return {
        "integer Laplace": lambda: mechanisms.discrete_laplace(whole, sensitivity=1, epsilon=1 / scale),
        "integer Gaussian": lambda: mechanisms.discrete_gaussian(whole, stddev=scale),
        "float Laplace": lambda: mechanisms.laplace(zeros, sensitivity=scale, epsilon=1.0),
        "float Gaussian": lambda: mechanisms.gaussian(zeros, sensitivity=scale, noise_multiplier=1.0),
    }[kind]


def theirs(kind: str, scale: float, count: int) -> Callable[[], Any]:
    number = int if kind.startswith("integer") else float
    atoms = dp.atom_domain(T=int) if number is int else dp.atom_domain(T=float, nan=False)
    distance = dp.l1_distance(T=number) if kind.endswith("Laplace") else dp.l2_distance(T=float)
    make: Any = dp.m.make_laplace if kind.endswith("Laplace") else dp.m.make_gaussian
    measurement = make(dp.vector_domain(atoms), distance, scale=scale)
    zeros = [number(0)] * count
    return lambda: measurement(zeros)


def microseconds(draw: Callable[[], Any], count: int) -> float:
    start = time.process_time()
    draw()
    return (time.process_time() - start) / count * 1e6


def measure(kind: str, scale: float) -> dict[str, Any]:
    sides = {
        "hush": (ours(kind, scale, OURS_AT_ONCE), OURS_AT_ONCE),
        "hush, one call for each": (ours(kind, scale, 1), 1),
        "opendp": (theirs(kind, scale, THEIRS_AT_ONCE), THEIRS_AT_ONCE),
    }
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, (draw, count) in sides.items():
            found[name].append(statistics.median(microseconds(draw, count) for _ in range(200 // count or 1)))
    return {"noise": kind, "scale": scale, **{name: statistics.median(times) for name, times in found.items()}}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Draws for released numbers",
        "",
        f"Microseconds a draw, median of {ROUNDS} interleaved rounds, one thread, on a shared machine. "
        f"OpenDP {version('opendp')}.",
        "",
        "| noise | scale | Hush, in an array | Hush, one call for each | OpenDP, in an array | OpenDP / Hush |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = row["opendp"] / row["hush"]
        lines.append(
            f"| {row['noise']} | {row['scale']:g} | {row['hush']:.2f} | {row['hush, one call for each']:.0f} "
            f"| {row['opendp']:.1f} | {ratio:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    dp.enable_features("contrib", "idealized-numerics")
    rows = [measure(kind, scale) for kind, scale in ROWS]
    (RESULTS / "mechanisms.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    (RESULTS / "mechanisms.md").write_text(table(rows), encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
