"""The demo: it trains, explains, refuses one step too many, audits, and leaves its files and the report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from hush.ledger import Ledger
from hush.training import Run

FILES = {"run", "epsilon.html", "epsilon.png"}
REPORT = {"report.html", "report.md", "report.json"}


def test_demo_runs_twice_and_leaves_a_whole_ledger(tmp_path: Path) -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "hush.cli.demo"], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
    assert "differential privacy" in done.stdout.splitlines()[-1]
    assert "One step more is refused: account" in done.stdout
    assert "no contradiction" in done.stdout
    folder = tmp_path / "demo"
    assert {file.name for file in folder.iterdir()} == FILES
    assert {file.name for file in (folder / "run").iterdir()} >= REPORT
    report = json.loads((folder / "run" / "report.json").read_text(encoding="utf-8"))
    assert report["guarantee"]["epsilon"] <= report["budget"]["epsilon"]
    assert report["scores"]["private"] > 0.88  # fresh noise: about 93 % on 359 rows, more than five deviations above
    assert report["scores"]["twin"] > 0.93
    assert 0 < report["evidence"][0]["evidence"]["epsilon_at_least"] <= report["guarantee"]["epsilon"]
    assert Ledger(folder / "run" / "ledger.db", create=False).verify().head == report["ledger"]["head"]
    assert Run.load(folder / "run").guarantee.epsilon == report["guarantee"]["epsilon"]
