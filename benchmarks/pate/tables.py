"""Put the accuracies of `benchmarks/results/pate_*.json` into the tables of the pages.

    python -m benchmarks.pate.tables

Replaced is the table whose head begins with `| data | teachers |`; the words around it stay.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (RESULTS / "pate.md", ROOT / "docs" / "guides" / "pate.md")
HEAD = "| data | teachers | epsilon | labels | right labels | student | tested on |"
NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "adult": "Adult"}


def rows() -> list[dict[str, Any]]:
    """Every run on a test part, in the order in which they were made."""
    found: list[dict[str, Any]] = []
    for path in sorted(RESULTS.glob("pate_*_test.json")):
        found += json.loads(path.read_text(encoding="utf-8"))
    adult = json.loads((RESULTS / "pate_adult.json").read_text(encoding="utf-8"))
    of_command = {"command": "hush pate", "folds": 1, "tested_on": f"last {adult['test_rows']:,} test rows"}
    accuracies = {"label_accuracy": [adult["label_accuracy"]], "student_accuracy": [adult["test_accuracy"]]}
    return [*sorted(found, key=lambda row: str(row["data"]) != "mnist"), {**adult, **of_command, **accuracies}]


def line(row: dict[str, Any]) -> str:
    """One row of the table; of several folds the mean, and the least and the most."""
    students, labels = row["student_accuracy"], row["label_accuracy"]
    mean = f"**{100 * sum(students) / len(students):.1f} %**"
    if len(students) > 1:
        mean += f" ({100 * min(students):.1f} to {100 * max(students):.1f})"
    tested = "all 10,000 test pictures, in 5 folds" if row["folds"] > 1 else "last 1,000 test pictures"
    name = NAMES[row["data"]] + (", `hush pate` as it is" if "command" in row else "")
    right = f"{100 * sum(labels) / len(labels):.1f} %"
    cells = name, row["teachers"], f"{row['epsilon']:.2f}", row["queries"], right, mean, row.get("tested_on", tested)
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    table = "\n".join([HEAD, "|---|---|---|---|---|---|---|", *map(line, rows())])
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        start = text.index(HEAD)
        page.write_text(text[:start] + table + text[text.index("\n\n", start) :], encoding="utf-8")


if __name__ == "__main__":
    main()
