"""The comparison with other libraries, held against the packages themselves wherever they are installed."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "comparison.md"
# column -> distribution, package
PACKAGES = {
    "Hush": ("hush", "hush"),
    "Opacus": ("opacus", "opacus"),
    "JAX-Privacy": ("jax_privacy", "jax_privacy"),
    "dp-accounting": ("dp-accounting", "dp_accounting"),
    "diffprivlib": ("diffprivlib", "diffprivlib"),
    "OpenDP": ("opendp", "opendp"),
}


def folder(package: str) -> Path | None:
    spec = find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


@cache
def sources(package: str) -> dict[str, str]:
    place = folder(package)
    assert place is not None
    files = [path for path in place.rglob("*.py") if "test" not in path.relative_to(place).as_posix()]
    return {path.relative_to(place).as_posix(): path.read_text(encoding="utf-8", errors="replace") for path in files}


def has_file(words: str) -> Callable[[str], bool]:
    """Whether a module of the package is named so."""
    return lambda package: any(re.search(words, name) for name in sources(package))


def has_text(words: str) -> Callable[[str], bool]:
    """Whether some module of the package says so."""
    return lambda package: any(re.search(words, text, flags=re.MULTILINE) for text in sources(package).values())


def has_command(package: str) -> bool:
    name = next(name for name, module in PACKAGES.values() if module == package)
    return any(point.group == "console_scripts" for point in distribution(name).entry_points)


# Row of the table -> what must be true of a package where the cell says yes, and false where it says no.
CHECKS: dict[str, Callable[[str], bool]] = {
    "private gradients in PyTorch": has_text(r"max_grad_norm|TorchFunctionMode"),
    "private gradients in JAX": has_text(r"^import jax\b[\s\S]*clip"),
    "an accountant tighter than Rényi": has_text(r"\b(PLDAccountant|PRVAccountant|class Contour\w*|contour integral)"),
    "an epsilon that states its own lower end": has_text(r"^    epsilon_lower: float"),
    "estimators for scikit-learn": has_text(r"sklearn\.(base|decomposition|linear_model)|from sklearn import base"),
    "teachers and votes (PATE)": has_file(r"(^|/)pate(/|\.py)"),
    "audits of a training": has_file(r"(^|/)audit(ing)?(/|\.py)"),
    "membership attacks": has_file(r"(^|/)(lira|membership)"),
    "a ledger on disk": has_file(r"(^|/)ledger(/|\.py)"),
    "a report of a run": has_file(r"(^|/)report/"),
    "a command line": has_command,
}


def table() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def columns() -> dict[str, str]:
    """Column -> the version it is about; none for our own."""
    heads = [cell.rpartition(" ") if re.search(r" \d", cell) else (cell, "", "") for cell in table()[0][1:]]
    return {name: number for name, _, number in heads}


def test_the_table_has_these_rows_and_columns() -> None:
    assert [row[0] for row in table()[2:]] == list(CHECKS)
    assert list(columns()) == list(PACKAGES)
    assert {cell for row in table()[2:] for cell in row[1:]} == {"yes", "no"}


@pytest.mark.parametrize("column", PACKAGES)
def test_cells_are_true_of_the_package(column: str) -> None:
    name, package = PACKAGES[column]
    try:
        installed = version(name)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    said = columns()[column]
    if said and said != installed:
        pytest.skip(f"the page is about {name} {said}, and {installed} is installed")
    place = 1 + list(PACKAGES).index(column)
    wrong = [row[0] for row in table()[2:] if (row[place] == "yes") != CHECKS[row[0]](package)]
    assert wrong == []
