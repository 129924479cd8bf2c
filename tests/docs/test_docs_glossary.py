"""The glossary is the only vocabulary: its banned spellings name no public parameter, field or option."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "hush"


def banned_spellings() -> set[str]:
    table = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("## Other words")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return {word for row in rows[2:] for word in re.findall(r"`(\w+)`", row[2])}


def public_words(tree: ast.Module) -> Iterator[str]:
    """Parameters of public functions and fields of public classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name == "__init__"):
            arguments = node.args
            yield from (item.arg for item in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            fields = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
            yield from (target.id for target in fields if isinstance(target, ast.Name))


def test_glossary_has_the_spellings() -> None:
    assert {"eps", "sigma", "sample_rate", "q", "max_grad_norm", "iterations"} <= banned_spellings()


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_banned_spelling_in_public_signatures(path: Path) -> None:
    words = set(public_words(ast.parse(path.read_text(encoding="utf-8"))))
    assert words & banned_spellings() == set()


def test_a_banned_spelling_would_be_seen() -> None:
    planted = ast.parse("class A:\n    sigma: float\n\n    def f(self, *, q: float) -> None: ...\n\ndef _f(eps): ...")
    assert set(public_words(planted)) & banned_spellings() == {"sigma", "q"}
