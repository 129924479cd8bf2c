"""The site is built without a warning, and the pages of the notebooks show what a run printed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_docs_notebooks import NAMES, NOTEBOOKS, left_behind, read

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("mkdocs", "material", "mkdocstrings", "nbclient", "nbformat", "ipykernel")
HOOKS = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
PRINTED = '<span class="filename">prints</span>'


class Node(dict[str, Any]):
    """As nbformat gives them: fields and keys are the same."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


@pytest.fixture(scope="module")
def hooks() -> Any:
    assert HOOKS is not None
    assert HOOKS.loader is not None
    module = importlib.util.module_from_spec(HOOKS)
    HOOKS.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, in a folder of its own. It takes some minutes: the notebooks are run."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed; make docs installs what the site needs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


def prints(path: Path) -> int:
    """How many cells of a notebook print something, by their code."""
    cells = [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]
    return sum(re.search(r"^\s*print\(", "".join(cell["source"]), flags=re.MULTILINE) is not None for cell in cells)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_pages_of_notebooks_show_their_outputs(path: Path, site: Path) -> None:
    page = (site / "notebooks" / path.stem / "index.html").read_text(encoding="utf-8")
    assert page.count(PRINTED) >= prints(path) >= 2
    assert "Traceback" not in page
    assert left_behind(read(path)) == []  # and the file itself holds none


@pytest.mark.slow
def test_the_site_has_guides_theory_and_a_reference_from_docstrings(site: Path) -> None:
    for name in (
        "guides/report",
        "guides/planner",
        "theory/contour",
        "sharp-edges",
        "comparison",
        "guides/from-opacus",
    ):
        assert (site / name / "index.html").is_file()
    reference = (site / "reference" / "report" / "index.html").read_text(encoding="utf-8")
    assert 'id="hush.report.about.describe"' in reference
    assert "Say beside a run what it was" in reference


@pytest.mark.slow
def test_pages_ask_nothing_of_another_place(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:)?//[^\"]*\"", page) == []


def test_cells_become_code_and_what_they_printed(hooks: Any) -> None:
    words = Node(output_type="stream", name="stdout", text="epsilon 3\n")
    noise = Node(output_type="stream", name="stderr", text="a warning\n")
    value = Node(output_type="execute_result", data={"text/plain": "42"})
    picture = Node(output_type="display_data", data={"image/png": "AAAA\n", "text/plain": "<Figure>"})
    cell = Node(cell_type="code", source="print(x)", outputs=[words, noise, value, picture])
    code, *outputs = hooks._parts(cell)
    assert code == "```python\nprint(x)\n```"
    assert outputs == [
        '```text title="prints"\nepsilon 3\n```',
        '```text title="prints"\n42\n```',
        '<img alt="picture" src="data:image/png;base64,AAAA">',
    ]
    assert hooks._parts(Node(cell_type="markdown", source="# A title")) == ["# A title"]


def test_links_lead_to_pages_and_the_reference_is_spelled_out(hooks: Any) -> None:
    assert hooks.on_page_markdown("[a](notebooks/pate.ipynb)") == "[a](notebooks/pate.md)"
    spelled = hooks.on_page_markdown("::: hush.report")
    assert "::: hush.report.about.describe" in spelled
    assert "::: hush.report\n" not in spelled


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_every_notebook_prints(path: Path) -> None:
    assert prints(path) >= 2
