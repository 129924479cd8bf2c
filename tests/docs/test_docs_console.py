"""Commands shown in the documents print what the documents say."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hush import Budget, Ledger, events

ROOT = Path(__file__).resolve().parents[2]


def examples() -> list[tuple[str, str, str]]:
    """(page, command, expected output) of every `$ hush ...` in a console block."""
    found = []
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]):
        for block in re.findall(r"```console\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                if command.startswith("hush "):
                    found.append((path.relative_to(ROOT).as_posix(), command, output))
    return found


def plain(output: str) -> list[str]:
    """Lines without trailing blanks; hashes, which hold the time, made equal."""
    return [re.sub(r"\b[0-9a-f]{64}\b", "HASH", line).rstrip() for line in output.strip().splitlines()]


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with the ledger that the pages speak of."""
    account = Ledger(tmp_path / "budget.db").account("hospital", cap=Budget(epsilon=3.0, delta=1e-6))
    for scale in (2.0, 4.0, 4.0):
        account.charge(events.Laplace(scale))
    account.charge(events.Gaussian(noise_multiplier=5.0))
    return tmp_path


def test_there_are_examples() -> None:
    assert len(examples()) >= 4


@pytest.mark.parametrize(("page", "command", "output"), examples(), ids=lambda value: value[:50])
def test_console_blocks_show_real_output(page: str, command: str, output: str, desk: Path) -> None:
    words = [sys.executable, "-m", "hush.cli.main", *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=desk, capture_output=True, text=True, encoding="utf-8", check=False)
    assert plain(done.stdout + done.stderr) == plain(output), page
