"""The comparison with other libraries, held against what was found in them, and against themselves where installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from comparison_facts import CHECKS, PACKAGES, found, installed, kept

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "comparison.md"
PEERS = tuple(PACKAGES)[1:]
HOW = "make bench makes an environment with it: .venv-bench/bin/python -m pytest tests/docs/test_docs_comparison.py"


def table() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def columns() -> dict[str, str]:
    """Column -> the version it is about; none for our own."""
    heads = [cell.rpartition(" ") if re.search(r" \d", cell) else (cell, "", "") for cell in table()[0][1:]]
    return {name: number for name, _, number in heads}


def cells(column: str) -> dict[str, bool]:
    place = 1 + list(PACKAGES).index(column)
    return {row[0]: row[place] == "yes" for row in table()[2:]}


def test_the_table_has_these_rows_and_columns() -> None:
    assert [row[0] for row in table()[2:]] == list(CHECKS)
    assert list(columns()) == list(PACKAGES)
    assert {cell for row in table()[2:] for cell in row[1:]} == {"yes", "no"}


def test_cells_are_true_of_hush() -> None:
    assert cells("Hush") == {row: place is not None for row, place in found("Hush").items()}


@pytest.mark.parametrize("column", PEERS)
def test_cells_say_what_was_found_in_that_version(column: str) -> None:
    """Without the package: nobody changes a cell or a version unless somebody looked."""
    facts = kept()[column]
    assert columns()[column] == facts.pop("version")
    assert cells(column) == {row: place is not None for row, place in facts.items()}


@pytest.mark.parametrize("column", PEERS)
def test_what_was_found_is_there(column: str) -> None:
    here, facts = installed(column), kept()[column]
    if here is None:
        pytest.skip(f"{column} is not installed; {HOW}")
    if here != facts.pop("version"):
        pytest.skip(f"the page is about {column} {columns()[column]} and {here} is installed; {HOW}")
    assert found(column) == facts


def test_the_environment_of_make_bench_has_every_peer() -> None:
    [line] = re.findall(r'-e "\.\[dev\]" (\S.*)', (ROOT / "Makefile").read_text(encoding="utf-8"))
    with_tests = {"dp-accounting", "opendp"}  # of the extra dev
    wanted = {PACKAGES[column][0].replace("_", "-") for column in PEERS}
    assert wanted - with_tests <= set(line.split())
