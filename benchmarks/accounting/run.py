"""The accountant beside its peers: exactness over a random sweep, speed on the classic rows, calibration, memory.

    python -m benchmarks.accounting.run [--settings 1000] [--pld 150] [--seed 20261115] [--out benchmarks/results]

Hush and each peer run in this one process, turn by turn, single-threaded; times are medians. Where a peer takes longer
than its allowance, the row says so. In the sweep a setting's time is the best of seven passes over all settings: what
else the machine does only adds to it. Writes accounting.json and accounting.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import logging
import math
import platform
import resource
import statistics
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accounting import peers
from benchmarks.accounting.report import markdown
from benchmarks.accounting.settings import BUDGETS, CLASSIC, Setting, sweep
from hush import Budget, accounting

logging.getLogger("absl").setLevel(logging.ERROR)

PASSES = 7  # over the sweep; other work on the machine can only add to a time, so the best of them counts
MOST_PATIENCE = 2000.0  # about how many seconds the high-precision value may take
MOST_MEMORY = 8 * 2**30  # some of PLD's answers want more than the machine has; then "MemoryError" is its answer


def interval(setting: Setting) -> tuple[float, float]:
    found = accounting.guarantee(setting.event, delta=setting.delta, relation=setting.relation)  # type: ignore[arg-type]
    return found.epsilon_lower, found.epsilon


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def width(low: float, high: float) -> float:
    return 0.0 if high == 0 else (high - low) / high if math.isfinite(high) else math.inf


def sweep_rows(settings: list[Setting], with_pld: int, allowance: float) -> list[dict[str, Any]]:
    """Every setting by Hush, the first `with_pld` also by dp-accounting's PLD from both sides."""
    answers = [one_pass(settings) for _ in range(PASSES)]
    rows = []
    for index, (setting, *found) in enumerate(zip(settings, *answers, strict=True)):
        row: dict[str, Any] = {"phases": setting.phases, "delta": setting.delta, "relation": setting.relation}
        row |= min(found, key=lambda answer: answer.get("seconds", 0.0))
        if index < with_pld and "low" in row:
            row["pld_seconds"], row["pld"] = peers.quiet(peers.pld, setting, allowance)
            _, row["pld_optimistic"] = peers.quiet(peers.pld_optimistic, setting, allowance)
            row["contradiction"] = contradicts(row)
            if row["contradiction"]:
                row["truth"] = settled(setting)
        rows.append(row)
        if index % 50 == 49:
            print(f"  {index + 1} of {len(settings)}", flush=True)
    return rows


def one_pass(settings: list[Setting]) -> list[dict[str, Any]]:
    """One pass over all settings: an answer and its time, or the exception."""
    rows: list[dict[str, Any]] = []
    for setting in settings:
        try:
            interval(setting)
            seconds, (low, high) = timed(lambda: interval(setting))  # noqa: B023
            rows.append({"low": low, "high": high, "seconds": seconds, "width": width(low, high)})
        except Exception as error:  # the point of the sweep is that there is none
            rows.append({"exception": repr(error)})
    return rows


def contradicts(row: dict[str, Any]) -> bool:
    """PLD's upper value below our lower end, or its optimistic value above our upper end (1e-9: its own rounding).

    Its transforms round at about 1e-15 of the total mass, so neither of its values is a bound at a delta near that;
    the page counts those settings apart, with the high-precision value that decides (see `truth.py`).
    """
    above, below = row["pld"], row["pld_optimistic"]
    over = isinstance(above, float) and math.isfinite(above) and above < row["low"] * (1 - 1e-9) - 1e-12
    under = isinstance(below, float) and math.isfinite(below) and below > row["high"] * (1 + 1e-9) + 1e-12
    return over or under


def settled(setting: Setting, patience: float = MOST_PATIENCE, start: float | None = None) -> float | str:
    """epsilon in high precision, which imports nothing from hush; or why there is none."""
    from benchmarks.accounting import truth, truth_few

    try:
        same = truth_few.Setting(setting.phases, setting.delta, setting.relation)
        return float(truth.truth(same, patience, start)[0])
    except ArithmeticError as error:
        return str(error)


def classic_rows(allowance: float, turns: int) -> list[dict[str, Any]]:
    rows = []
    for setting in CLASSIC:
        interval(setting)
        row: dict[str, Any] = {"name": setting.name, "relation": setting.relation}
        names = peers.PEERS if setting.relation == "add_remove" else ("dp-accounting PLD",)
        seconds: dict[str, list[float]] = {"hush": [], **{name: [] for name in names}}
        for turn in range(turns):
            seconds["hush"] += [timed(lambda: interval(setting))[0] for _ in range(7)]  # noqa: B023
            for name in names:
                if turn and seconds[name][0] > allowance / 8:
                    continue
                took, answer = peers.quiet(peers.PEERS[name], setting, allowance)
                seconds[name].append(took)
                row[name] = answer
        row["interval"] = interval(setting)
        row["width"] = width(*row["interval"])
        row["seconds"] = {name: statistics.median(values) for name, values in seconds.items()}
        row["memory_mb"] = memory(setting)
        rows.append(row)
        print(f"  {setting.name}: {1e3 * row['seconds']['hush']:.2f} ms", flush=True)
    return rows


def memory(setting: Setting) -> float:
    """Peak of what one question allocates, in MB."""
    tracemalloc.start()
    interval(setting)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def pld_noise(epsilon: float, delta: float, prob: float, steps: int, _: Setting) -> float:
    from dp_accounting import calibrate_dp_mechanism, mechanism_calibration
    from dp_accounting.pld import PLDAccountant

    from hush.accounting.calibrate import sampled_gaussian
    from hush.events import to_dp_accounting

    return float(
        calibrate_dp_mechanism(
            PLDAccountant,
            lambda noise: to_dp_accounting(sampled_gaussian(float(noise), prob, steps)),
            epsilon,
            delta,
            mechanism_calibration.ExplicitBracketInterval(0.5, 10.0),
        )
    )


def calibration_rows(allowance: float) -> list[dict[str, Any]]:
    rows = []
    for epsilon, delta, prob, steps in BUDGETS:
        budget = Budget(epsilon, delta)
        call = lambda b=budget, q=prob, n=steps: accounting.noise_for(b, sampling_prob=q, steps=n)  # noqa: E731
        call()
        ours = [timed(call) for _ in range(9)]
        theirs = peers.quiet(partial(pld_noise, epsilon, delta, prob, steps), CLASSIC[0], allowance)
        spent = accounting.guarantee(
            accounting.calibrate.sampled_gaussian(ours[0][1], prob, steps), delta=delta
        ).epsilon
        rows.append(
            {
                "budget": (epsilon, delta, prob, steps),
                "noise": ours[0][1],
                "slack": epsilon - spent,
                "seconds": statistics.median(took for took, _ in ours),
                "pld_noise": theirs[1],
                "pld_seconds": theirs[0],
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=int, default=1000)
    parser.add_argument("--pld", type=int, default=150, help="how many of the settings PLD answers too")
    parser.add_argument("--seed", type=int, default=20261115)
    parser.add_argument("--allowance", type=float, default=20.0, help="seconds a peer may take for one answer")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    print("classic rows", flush=True)
    result: dict[str, Any] = {
        "seed": arguments.seed,
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "classic": classic_rows(arguments.allowance, 3),
        "calibration": calibration_rows(60.0),
    }
    print("random sweep", flush=True)
    result["sweep"] = sweep_rows(sweep(arguments.settings, arguments.seed), arguments.pld, arguments.allowance / 4)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "accounting.json").write_text(json.dumps(result, indent=1) + "\n")
    (arguments.out / "accounting.md").write_text(markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
