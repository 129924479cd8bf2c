"""The catalogue fits the package: `make mutants` runs the tests themselves."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent))

import run_mutants
from catalogue import MUTANTS, SECTIONS, Mutant

LEAST = 60


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_old_text_occurs_once_and_the_new_one_compiles(mutant: Mutant) -> None:
    text = (run_mutants.ROOT / "src" / "hush" / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1
    assert mutant.old != mutant.new
    compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
    for test in mutant.tests:
        assert (run_mutants.ROOT / test.split("::")[0]).exists()


def test_there_are_enough_of_them_and_no_two_have_one_name() -> None:
    assert len(MUTANTS) >= LEAST
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
    assert {"kernel", "accounting", "ledger", "mechanisms", "pate"} <= SECTIONS.keys()


def test_a_mutant_is_planted_in_a_copy(tmp_path: Path) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.file == "privacy.py")
    source = run_mutants.copy_package(tmp_path)
    run_mutants.apply(mutant, source)
    assert mutant.new in (source / "hush" / mutant.file).read_text(encoding="utf-8")
    assert mutant.old in (run_mutants.ROOT / "src" / "hush" / mutant.file).read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="must occur once"):
        run_mutants.apply(mutant, source)


def test_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    for code, outcome in ((0, "survived"), (1, "killed"), (2, "broken"), (4, "broken"), (124, "killed")):
        monkeypatch.setattr(run_mutants, "run_tests", lambda *_, code=code: (code, ""))
        assert run_mutants.try_mutant(MUTANTS[0]).outcome == outcome


def test_the_tool_fails_if_a_mutant_survives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "mutants.json"
    words = ["run_mutants", "--only", "privacy.py", "--no-baseline", "--json", str(path)]
    for code, wanted in ((1, 0), (0, 1), (3, 1)):
        monkeypatch.setattr(sys, "argv", words)
        monkeypatch.setattr(run_mutants, "run_tests", lambda *_, code=code: (code, ""))
        assert run_mutants.main() == wanted
    assert '"outcome": "broken"' in path.read_text(encoding="utf-8")
