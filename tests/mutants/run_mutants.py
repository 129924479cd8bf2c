"""Plant each defect of the catalogue in a copy of the package, run its covering tests, and report what survives.

    python tests/mutants/run_mutants.py [--only TEXT] [--processes 2] [--json FILE]

The copy is in a temporary directory and comes first on PYTHONPATH; the working tree is not touched. A mutant is killed
if a covering test fails or takes far too long. One whose tests cannot be collected is broken, and says nothing. The
exit code is 1 if any mutant survives or is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from catalogue import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
MOST_PROCESSES = 2
LONGEST = 240.0  # seconds for the tests of one mutant: a loop that a defect made endless counts as noticed
KILLED, SURVIVED, BROKEN = "killed", "survived", "broken"
_FAILED = 1  # exit code of pytest where tests failed; 0 is all passed, others are errors of pytest itself


@dataclass(frozen=True)
class Result:
    """What became of one mutant."""

    mutant: Mutant
    outcome: str
    seconds: float
    output: str = ""


def copy_package(folder: Path) -> Path:
    """Copy the package, and return the directory that holds it."""
    target = folder / "src"
    shutil.copytree(ROOT / "src", target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return target


def apply(mutant: Mutant, source: Path) -> None:
    """Plant the defect in the package under `source`."""
    path = source / "hush" / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: the old text must occur once in {mutant.file}; got {text.count(mutant.old)}.")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def run_tests(source: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Return the exit code of pytest, and what it wrote; 124 if it took too long."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return 124, "took too long"
    return done.returncode, (done.stdout + done.stderr)[-2000:]


def try_mutant(mutant: Mutant) -> Result:
    """Plant one defect in a copy of its own and run its covering tests."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hush-mutant-") as folder:
        source = copy_package(Path(folder))
        apply(mutant, source)
        code, output = run_tests(source, mutant.tests)
    outcome = {0: SURVIVED, _FAILED: KILLED, 124: KILLED}.get(code, BROKEN)
    return Result(mutant, outcome, time.monotonic() - start, output)


def check_baseline(mutants: Sequence[Mutant]) -> str:
    """Run all covering tests on an unchanged copy: a test that fails anyway kills nothing. Return what is wrong."""
    with tempfile.TemporaryDirectory(prefix="hush-mutant-") as folder:
        source = copy_package(Path(folder))
        environment = {**os.environ, "PYTHONPATH": str(source)}
        place = subprocess.run(
            [sys.executable, "-c", "import hush; import sys; sys.stdout.write(hush.__file__)"],
            env=environment, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        if not place.startswith(str(source)):
            return f"the package is imported from {place}, not from the copy in {source}."
        files = sorted({test for mutant in mutants for test in mutant.tests})
        for test in files:  # one by one, as for a mutant
            code, output = run_tests(source, [test])
            if code:
                return f"{test} fails without any mutant (exit code {code}):\n{output}"
    return ""


def chosen(only: str | None) -> list[Mutant]:
    """Return the mutants whose name contains the text."""
    return [mutant for mutant in MUTANTS if only is None or only in mutant.name]


def report(results: Sequence[Result], path: str | None) -> None:
    """Write the outcome of each mutant as JSON."""
    if path is None:
        return
    rows = [
        {"name": found.mutant.name, "outcome": found.outcome, "seconds": round(found.seconds, 1)} for found in results
    ]
    Path(path).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Run the chosen mutants and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", help="run the mutants whose name contains this text (default: all)")
    parser.add_argument("--json", help="write the outcomes to this file")
    parser.add_argument("--processes", type=int, default=MOST_PROCESSES, help="runs at once (default and most: 2)")
    parser.add_argument("--no-baseline", action="store_true", help="skip the tests without a mutant")
    arguments = parser.parse_args()
    mutants = chosen(arguments.only)
    if not mutants:
        sys.stdout.write(f"no mutant's name contains {arguments.only!r}.\n")
        return 2
    if not arguments.no_baseline and (wrong := check_baseline(mutants)):
        sys.stdout.write(f"{wrong}\n")
        return 2
    start, results = time.monotonic(), []
    with ThreadPoolExecutor(max(1, min(arguments.processes, MOST_PROCESSES))) as pool:
        for result in pool.map(try_mutant, mutants):
            results.append(result)
            if result.outcome != KILLED:
                sys.stdout.write(f"{result.outcome.upper()}  {result.mutant.name}\n")
                sys.stdout.flush()
            if result.outcome == BROKEN:
                sys.stdout.write(result.output + "\n")
    report(results, arguments.json)
    killed = sum(result.outcome == KILLED for result in results)
    sys.stdout.write(f"{killed} of {len(results)} mutants killed in {time.monotonic() - start:.0f} s.\n")
    return 0 if killed == len(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
