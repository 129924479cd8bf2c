"""Hush's interval beside dp-accounting's PLD, from both sides, on the settings of the sweep.

    python -m benchmarks.accounting.consistency [--least-delta 1e-30] [--settings 1000] [--out benchmarks/results]

Settings come in the order of their delta, the largest first: below about 1e-11 PLD's transforms round too coarsely for
its values to be bounds (see `run.py`). A contradiction is settled by the high-precision value, or, where that takes too
long, by PLD's own distributions in 80-bit arithmetic, or by one step alone in closed form. Writes
accounting_consistency.json after every setting; what it holds of PLD's answers is not asked again.
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

import mpmath as mp

from benchmarks.accounting import peers, pld_digits, truth_few
from benchmarks.accounting.run import MOST_MEMORY, MOST_PATIENCE, contradicts, interval, settled
from benchmarks.accounting.settings import Setting, sweep

DIGITS_OF_PLD = 1e-11  # above this delta its rounding does not show
logging.getLogger("absl").setLevel(logging.ERROR)


def compared(setting: Setting, known: dict[str, Any], allowance: float, patience: float) -> dict[str, Any]:
    low, high = interval(setting)
    row: dict[str, Any] = {"name": setting.name, "delta": setting.delta, "low": low, "high": high}
    if "pld" in known:
        row |= {side: known[side] for side in ("pld", "pld_optimistic")}
    else:
        _, row["pld"] = peers.quiet(peers.pld, setting, allowance)
        _, row["pld_optimistic"] = peers.quiet(peers.pld_optimistic, setting, allowance)
    row["contradiction"] = contradicts(row)
    if row["contradiction"]:
        row["truth"] = known["truth"] if "truth" in known else settled(setting, patience)
        if not isinstance(row["truth"], float):
            digits = "pld_with_more_digits"
            row[digits] = known[digits] if digits in known else pld_digits.interval(setting)
            if not agrees(row):
                row["truth"] = settled(setting, MOST_PATIENCE, start=high)
            if not isinstance(row["truth"], float):
                row["one_step_alone"] = one_step_exceeds(setting, row["pld"])
    return row


def one_step_exceeds(setting: Setting, epsilon: float) -> bool:
    """Whether one of the steps alone, in closed form, has more than delta at PLD's upper epsilon: then that is none."""
    direction = "replace" if setting.relation == "replace_one" else "remove"
    deltas = (truth_few.one_step(q, noise, direction, mp.mpf(epsilon)) for q, noise, _ in setting.phases)
    return bool(max(deltas) > setting.delta)


def is_held(row: dict[str, Any]) -> bool:
    """Whether the high-precision value was asked for and lies in Hush's interval."""
    truth = row.get("truth")
    return isinstance(truth, float) and row["low"] <= truth <= row["high"]


def agrees(row: dict[str, Any]) -> bool:
    """Whether PLD with more digits meets Hush's interval."""
    found = row.get("pld_with_more_digits")
    return not isinstance(found, str | None) and found[0] <= row["high"] and row["low"] <= found[1]


def counted(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {
        "asked": len(rows),
        "answered_from_both_sides": sum(isinstance(row["pld"], float) for row in rows),
        "contradictions": sum(row["contradiction"] for row in rows),
        "settled_for_hush": sum(is_held(row) for row in rows),
        "settled_for_hush_by_more_digits": sum(agrees(row) for row in rows),
        "settled_for_hush_by_one_step": sum(row.get("one_step_alone", False) for row in rows),
        "settled_against_hush": sum(isinstance(row.get("truth"), float) and not is_held(row) for row in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=20261115)
    parser.add_argument("--least-delta", type=float, default=DIGITS_OF_PLD, help="leave the settings below it out")
    parser.add_argument("--allowance", type=float, default=5.0, help="seconds PLD may take for one answer")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds for a true value where PLD lacks digits")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    file = options.out / "accounting_consistency.json"
    before = json.loads(file.read_text()) if file.exists() else {"rows": []}
    known = {row["name"]: row for row in before["rows"]} if before.get("seed") == options.seed else {}
    asked = [setting for setting in sweep(options.settings, options.seed) if setting.delta >= options.least_delta]
    rows: list[dict[str, Any]] = []
    for number, setting in enumerate(sorted(asked, key=lambda setting: -setting.delta), 1):
        patience = MOST_PATIENCE if setting.delta >= DIGITS_OF_PLD else options.patience
        rows.append(compared(setting, known.get(setting.name, {}), options.allowance, patience))
        known.pop(setting.name, None)
        if number % 20 == 0:
            print(f"{number} of {len(asked)}: {counted(rows)}", flush=True)
        above = [row for row in rows if row["delta"] >= DIGITS_OF_PLD]
        below = [row for row in rows if row["delta"] < DIGITS_OF_PLD]
        summary = {"settings": options.settings, "seed": options.seed}
        counts = {"delta_from_1e-11": counted(above), "delta_below_1e-11": counted(below)}
        kept = json.dumps({**summary, **counts, "rows": rows + list(known.values())}, indent=1) + "\n"
        whole = file.with_suffix(".part")
        whole.write_text(kept)
        whole.replace(file)


if __name__ == "__main__":
    main()
