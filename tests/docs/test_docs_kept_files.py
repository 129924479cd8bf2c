"""What the repository keeps speaks of the project alone: no path of anybody's machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MACHINE_PATH = re.compile(r"(?<![\w.<>:/])/(?:work|root|tmp|home)(?:/|\b)")


def kept_files() -> list[Path]:
    """What version control keeps or would keep; without it, everything but environments, caches and data bases."""
    listing = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(listing, capture_output=True, text=True, check=False) if (ROOT / ".git").exists() else None
    if done is not None and done.returncode == 0:
        return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    folders = (".ci", "src", "tests", "docs", "benchmarks", "examples")
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [*inside, *(path for path in ROOT.iterdir() if path.is_file())]


def machine_paths(text: str) -> list[str]:
    return MACHINE_PATH.findall(text)


def test_no_machine_paths() -> None:
    named = {}
    for path in kept_files():
        if path.suffix in {".png", ".db", ".pyc", ".gz", ".npz"}:
            continue
        if found := machine_paths(path.read_text(encoding="utf-8", errors="replace")):
            named[path.relative_to(ROOT).as_posix()] = found
    assert named == {}


def test_a_machine_path_would_be_seen() -> None:
    assert machine_paths("open('/" + "tmp/budget.db')")
    assert machine_paths("cd /" + "work")
    assert not machine_paths("https://example.org/" + "home/page and docs/work/notes")
