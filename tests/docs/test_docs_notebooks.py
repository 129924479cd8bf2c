"""Notebooks are stored without outputs, use embedded data, and run; each room of the package has its reference."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS, PACKAGE = ROOT / "docs", ROOT / "src" / "hush"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
JOBS = {"first-private-model", "choose-a-budget", "pate", "private-regression", "audit-a-model"}
PRIVATE_ROOMS = {"cli"}  # it explains itself by hush --help


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def code(notebook: dict[str, Any]) -> str:
    return "\n\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")


def left_behind(notebook: dict[str, Any]) -> list[str]:
    """What a run would leave in the file."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    found = [f"outputs of {cell['id']}" for cell in cells if cell["outputs"]]
    found += [f"count of {cell['id']}" for cell in cells if cell["execution_count"] is not None]
    found += [f"metadata of {cell['id']}" for cell in notebook["cells"] if cell["metadata"]]
    return found + sorted(set(notebook["metadata"]) - {"kernelspec", "language_info"})


def test_there_is_a_notebook_for_each_job() -> None:
    assert set(NAMES) == JOBS
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = (DOCS / "notebooks" / "index.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"notebooks/{name}.md" in menu
        assert f"({name}.ipynb)" in listed


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_notebooks_hold_no_outputs(path: Path) -> None:
    assert left_behind(read(path)) == []


def test_outputs_would_be_seen() -> None:
    cell = {"cell_type": "code", "id": "x", "metadata": {}, "source": [], "outputs": [{}], "execution_count": 3}
    assert left_behind({"cells": [cell], "metadata": {"widgets": {}}}) == ["outputs of x", "count of x", "widgets"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_notebooks_parse_and_use_embedded_data(path: Path) -> None:
    text = code(read(path))
    compile(text, path.name, "exec")
    assert set(re.findall(r"data\.load\((.*?)\)", text)) <= {'"digits"'}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_links_of_notebooks_lead_somewhere(path: Path) -> None:
    prose = "\n".join("".join(cell["source"]) for cell in read(path)["cells"] if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\(([^)#]+)\)", prose)
    assert links
    assert [link for link in links if not (path.parent / link).is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_notebooks_run(path: Path, tmp_path: Path) -> None:
    """As plain programs, without a data folder; `make docs` runs them as notebooks."""
    environment = {name: value for name, value in os.environ.items() if name != "HUSH_DATA"}
    done = subprocess.run(
        [sys.executable, "-c", code(read(path))],
        cwd=tmp_path,
        env={**environment, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def rooms() -> set[str]:
    """Public modules and packages."""
    found = {path.stem for path in PACKAGE.glob("[a-z]*.py")} | {
        path.parent.name for path in PACKAGE.glob("*/__init__.py")
    }
    return found - PRIVATE_ROOMS


def test_every_room_has_its_reference() -> None:
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md")}
    listed = pages.pop("index")
    assert rooms() - set(pages) == set()
    for name, text in pages.items():
        assert re.search(rf"^::: hush\.{name}$", text, flags=re.MULTILINE), name
        assert f"[hush.{name}]({name}.md)" in listed
