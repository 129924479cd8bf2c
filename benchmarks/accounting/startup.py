"""How long `hush epsilon` takes from a cold start, beside the interpreter with numpy and scipy.special alone.

python -m benchmarks.accounting.startup [--turns 15] [--out benchmarks/results]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

QUESTION = ["epsilon", "--noise-multiplier", "4", "--sampling-prob", "0.01", "--steps", "10000", "--delta", "1e-5"]
COMMANDS = {
    "hush epsilon": [str(Path(sys.executable).with_name("hush")), *QUESTION],
    "python with numpy and scipy.special": [sys.executable, "-c", "import numpy, scipy.special"],
    "python alone": [sys.executable, "-c", "pass"],
}


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    turns = [{name: seconds(command) for name, command in COMMANDS.items()} for _ in range(arguments.turns)]
    result = {name: statistics.median(turn[name] for turn in turns) for name in COMMANDS}
    best = {f"{name}, quickest": min(turn[name] for turn in turns) for name in COMMANDS}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "startup.json").write_text(json.dumps(result | best, indent=1) + "\n")
    print(json.dumps(result | best, indent=1))


if __name__ == "__main__":
    main()
