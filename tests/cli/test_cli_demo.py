"""The demo: it trains, explains, refuses one step too many, and leaves its files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from hush.ledger import Ledger
from hush.training import Run

FILES = {"run", "epsilon.html", "epsilon.png", "report.txt", "report.json"}


def test_demo_runs_twice_and_leaves_a_whole_ledger(tmp_path: Path) -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "hush.cli.demo"], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
    assert "differential privacy" in done.stdout.splitlines()[-1]
    assert "One step more is refused: account" in done.stdout
    folder = tmp_path / "demo"
    assert {file.name for file in folder.iterdir()} == FILES
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert report["epsilon"] <= report["budget"]["epsilon"]
    assert report["test_accuracy"] > 0.88  # fresh noise: about 93 % on 359 rows, far more than five deviations above
    assert report["twin_test_accuracy"] > 0.93
    assert Ledger(folder / "run" / "ledger.db", create=False).verify().head == report["ledger_head"]
    assert Run.load(folder / "run").guarantee.epsilon == report["epsilon"]
