"""Every paper that the code cites is in the list of references."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "hush"
KEY = re.compile(r"\[([a-z]+\d{2})\]")
PAPER = re.compile(r"\b([A-Z][a-zé]+)(?:(?:, | and )[A-Z][a-zé]+)*(?: et al\.)? ((?:19|20)\d\d)\b")


def references() -> list[tuple[set[str], str]]:
    """(keys, authors and year) of each row."""
    text = (ROOT / "docs" / "theory" / "references.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return [(set(re.findall(r"`(\w+)`", row[0])), row[1].strip()) for row in rows]


def unlisted(text: str) -> list[str]:
    keys = {key for found, _ in references() for key in found}
    papers = [paper for _, paper in references()]
    missing = [key for key in KEY.findall(text) if key not in keys]
    for author, year in PAPER.findall(text):
        if not any(paper.endswith(year) and author in re.findall(r"\w+", paper) for paper in papers):
            missing.append(f"{author} {year}")
    return missing


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_citations_are_listed(path: Path) -> None:
    assert unlisted(path.read_text(encoding="utf-8")) == []


def test_an_unlisted_citation_would_be_seen() -> None:
    assert unlisted("[nobody99] and Balle, Wang 1999, Theorem 5") == ["nobody99", "Balle 1999"]
    assert unlisted("[zhu22]; Canonne, Kamath, Steinke 2020, Prop. 12; Abadi et al. 2016") == []
