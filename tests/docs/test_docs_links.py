"""Every link, path and command in the documents leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
THEORY = sorted(path for path in (ROOT / "docs" / "theory").glob("*.md") if path.stem not in {"index", "references"})
SECTIONS = ("Statement", "Assumptions", "Our variation", "Used in", "Checked by")
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]


def prose(text: str) -> str:
    """The text without its code blocks."""
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def links(text: str) -> list[str]:
    return re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(text))


def broken_links(text: str, folder: Path) -> Iterator[str]:
    for target in links(text):
        place, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = folder / place
        if not file.exists() or (anchor and file.is_file() and anchor not in anchors(file.read_text(encoding="utf-8"))):
            yield target


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", prose(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def code_paths(text: str) -> list[str]:
    """Backticked words that look like files of this repository."""
    return re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]+)`", text)


def missing_paths(text: str) -> list[str]:
    return [name for name in code_paths(text) if not (ROOT / name).exists()]


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_links_resolve(path: Path) -> None:
    assert list(broken_links(path.read_text(encoding="utf-8"), path.parent)) == []


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_paths_in_backticks_exist(path: Path) -> None:
    assert missing_paths(path.read_text(encoding="utf-8")) == []


def test_a_broken_link_or_path_would_be_seen() -> None:
    text = "[a](nowhere.md) [b](docs/glossary.md#no-such-title) [c](https://example.org) `src/hush/nowhere.py`"
    assert list(broken_links(text, ROOT)) == ["nowhere.md", "docs/glossary.md#no-such-title"]
    assert missing_paths(text) == ["src/hush/nowhere.py"]


@pytest.mark.parametrize("path", THEORY, ids=[path.stem for path in THEORY])
def test_theory_pages_are_complete(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert tuple(re.findall(r"^## (.*)$", prose(text), flags=re.MULTILINE)) == SECTIONS
    used, checked = text.split("## Used in")[1].split("## Checked by")
    assert any(name.startswith("src/") for name in code_paths(used))
    assert any(name.startswith("tests/") for name in code_paths(checked))
    assert f"({path.name})" in (path.parent / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", THEORY, ids=[path.stem for path in THEORY])
def test_names_of_tests_and_functions_on_theory_pages_exist(path: Path) -> None:
    """A name in brackets after a path must be defined in that file."""
    text = path.read_text(encoding="utf-8").split("## Used in")[1]
    for name, inside in re.findall(r"`((?:src|tests)/[\w./]+\.py)`\s+\(([^)]*)\)", text):
        for word in re.findall(r"`(\w+)`" if name.startswith("src/") else r"`(test_\w+)`", inside):
            assert re.search(rf"\b(def|class) {word}\b", (ROOT / name).read_text(encoding="utf-8")), (name, word)


def test_the_menu_lists_every_page() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if not re.search(rf": {re.escape(page)}$", menu, flags=re.MULTILINE)] == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/start/install.md"])
def test_make_commands_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    text = (ROOT / name).read_text(encoding="utf-8")
    commands = set(re.findall(r"(?:`|^)make ([a-z]+)", text, flags=re.MULTILINE))
    assert commands
    assert commands <= targets


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "docs" / "decisions").glob("0*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


def test_changelog_puts_privacy_first() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for version in text.split("\n## ")[1:]:
        assert re.findall(r"^### (.*)$", version, flags=re.MULTILINE)[0] == "Privacy"
