"""Calls of the command line, in this process or in a fresh one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hush.cli.main import run

CLASSIC = ("--noise-multiplier", "4", "--sampling-prob", "0.01", "--steps", "10000", "--delta", "1e-5")
SCRIPT = Path(sys.executable).with_name("hush")


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The one JSON object on stdout; anything beside it fails here."""
        return json.loads(self.out)

    def is_refused(self) -> bool:
        """Exit code 2, nothing on stdout and exactly one line on stderr, by name."""
        lines = self.err.splitlines()
        return self.code == 2 and not self.out and len(lines) == 1 and lines[0].startswith("hush: ")


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> Answer:
    """The command in this process."""
    capsys.readouterr()
    code = run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return Answer(code, out, err)


def launch(*arguments: object, stdin: str = "", **environment: str) -> Answer:
    """The installed console script in a fresh process; `python -m` where it is not installed."""
    command = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "hush.cli.main"]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        env={**os.environ, **environment},
    )
    return Answer(done.returncode, done.stdout, done.stderr)
