"""Hush's interval beside dp-accounting's PLD, from both sides, on every setting of the sweep where PLD has the digits.

    python -m benchmarks.accounting.consistency [--settings 1000] [--seed 20261115] [--out benchmarks/results]

Below a delta of 1e-11 PLD's transforms round too coarsely to contradict anything (see `run.py`); those settings are
counted and left out. A contradiction is settled by the high-precision value. Writes accounting_consistency.json.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import logging
import resource
from pathlib import Path
from typing import Any

from benchmarks.accounting import peers
from benchmarks.accounting.run import MOST_MEMORY, contradicts, interval, settled
from benchmarks.accounting.settings import Setting, sweep

LEAST_DELTA = 1e-11
logging.getLogger("absl").setLevel(logging.ERROR)


def compared(setting: Setting, allowance: float) -> dict[str, Any]:
    low, high = interval(setting)
    row: dict[str, Any] = {"name": setting.name, "low": low, "high": high}
    _, row["pld"] = peers.quiet(peers.pld, setting, allowance)
    _, row["pld_optimistic"] = peers.quiet(peers.pld_optimistic, setting, allowance)
    row["contradiction"] = contradicts(row)
    if row["contradiction"]:
        row["truth"] = settled(setting)
    return row


def is_held(row: dict[str, Any]) -> bool:
    """Whether the high-precision value was asked for and lies in Hush's interval."""
    truth = row.get("truth")
    return isinstance(truth, float) and row["low"] <= truth <= row["high"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=20261115)
    parser.add_argument("--allowance", type=float, default=5.0, help="seconds PLD may take for one answer")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    asked = [setting for setting in sweep(options.settings, options.seed) if setting.delta >= LEAST_DELTA]
    rows = []
    for number, setting in enumerate(asked, 1):
        rows.append(compared(setting, options.allowance))
        if number % 20 == 0:
            print(f"{number} of {len(asked)}: {sum(row['contradiction'] for row in rows)} contradictions", flush=True)
        summary = {
            "settings": options.settings, "seed": options.seed, "least_delta": LEAST_DELTA, "asked": len(rows),
            "answered_from_both_sides": sum(isinstance(row["pld"], float) for row in rows),
            "contradictions": sum(row["contradiction"] for row in rows),
            "settled_for_hush": sum(is_held(row) for row in rows),
        }  # fmt: skip
        text = json.dumps({**summary, "rows": rows}, indent=1) + "\n"
        (options.out / "accounting_consistency.json").write_text(text)


if __name__ == "__main__":
    main()
