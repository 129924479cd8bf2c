"""Every example runs; a few steps show that, the accuracy is for whoever runs it whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NEEDS = {"mnist_cnn.py": "mnist", "mnist_own_loop.py": "mnist", "pate_mnist.py": "mnist", "people.py": "diabetes130"}
MOST_LINES = 150


def has_data(name: str) -> bool:
    return (Path(os.environ.get("HUSH_DATA", "nowhere")) / name).is_dir()


def test_there_are_examples() -> None:
    assert {path.name for path in EXAMPLES} >= {*NEEDS, "lora.py"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path: Path) -> None:
    needed = NEEDS.get(path.name)
    if needed and not has_data(needed):
        pytest.skip(f"{needed} is not under HUSH_DATA")
    words = [sys.executable, "-W", "error::UserWarning:hush", str(path), "2"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"proven \(.*\)-differential privacy", done.stdout)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_is_short(path: Path) -> None:
    assert path.read_text(encoding="utf-8").count("\n") <= MOST_LINES


def test_the_first_example_has_thirty_lines_of_code() -> None:
    text = (ROOT / "examples" / "mnist_cnn.py").read_text(encoding="utf-8")
    code = [line for line in text.split('"""', 2)[2].splitlines() if line.strip()]
    assert len(code) <= 30
