"""The README's way from an installed package to an opened report, with nothing but the package's own dependencies."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
# Extras are refused; a browser leaves the address that it was given.
PROGRAM = """
import sys, webbrowser
EXTRAS = {"plotly", "matplotlib", "fastapi", "uvicorn", "PIL", "pyarrow", "transformers", "peft", "ray", "flwr"}
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ImportError(name, name=name)
sys.meta_path.insert(0, Refused())
webbrowser.open = lambda address: print("opened", address) or True
from hush.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def commands() -> list[list[str]]:
    """The block with `pip install` first."""
    [block] = re.findall(r"```text\n(pip install hush\n.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def test_there_are_three() -> None:
    assert [words[:2] for words in commands()] == [["pip", "install"], ["hush", "train"], ["hush", "report"]]


@pytest.mark.slow
def test_they_end_with_an_opened_report(tmp_path: Path) -> None:
    for _, *words in commands()[1:]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    page = tmp_path / words[1] / "report.html"
    assert f"opened {page.as_uri()}" in done.stdout
    assert page.stat().st_size < 5_000_000
