"""How long `make demo` takes once the environment is there: train on the digits, twin, report.

    python -m benchmarks.demo [--rounds 3]

Runs the same program in an empty folder; the goal is two minutes. Writes benchmarks/results/demo.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results" / "demo.json"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    seconds = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            subprocess.run([sys.executable, "-m", "hush.cli.demo"], cwd=folder, check=True)
            seconds.append(time.perf_counter() - start)
    found = {"rounds": options.rounds, "median_seconds": statistics.median(seconds), "at_most": 120}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(found)


if __name__ == "__main__":
    main()
