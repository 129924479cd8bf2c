"""`hush pate` on the digits: what it prints, saves, charges and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Answer, call

from hush import Ledger

QUICK = ("pate", "--data", "digits", "--teachers", 20, "--student", "plain", "--seed", 1)


def pate(capsys: pytest.CaptureFixture[str], folder: Path, *more: object) -> Answer:
    return call(capsys, *QUICK, "--out", folder, *more)


def test_json_has_the_facts_and_nothing_private(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = pate(capsys, tmp_path / "run", "--epsilon", 3, "--queries", 30, "--json")
    assert answer.code == 0, answer.err
    found = answer.data
    assert found["teachers"] == 20
    assert found["queries"] == found["asked"] == found["answered"] == 30
    assert found["epsilon"] <= 3
    assert found["delta"] == 1e-5
    assert found["relation"] == "add_remove"
    assert 0 <= found["label_accuracy"] <= 1
    assert 0 <= found["test_accuracy"] <= 1
    assert not any("dependent" in key or "votes" in key for key in found)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"run.json", "student.safetensors", "ledger.db"}
    saved = json.loads((tmp_path / "run" / "run.json").read_text())
    assert len(saved["labels"]) == len(saved["rows_asked"]) == 30
    assert "never release" in saved["randomness"]


def test_the_charge_is_in_the_ledger_and_a_second_run_does_not_fit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shared = tmp_path / "budget.db"
    first = pate(
        capsys, tmp_path / "a", "--epsilon", 1, "--queries", 20, "--ledger", shared, "--account", "d", "--json"
    )
    assert first.code == 0, first.err
    spent = Ledger(shared).account("d").spent()
    assert spent.epsilon == pytest.approx(first.data["epsilon"], rel=1e-6)
    second = pate(capsys, tmp_path / "b", "--epsilon", 1, "--queries", 20, "--ledger", shared, "--account", "d")
    assert second.code == 1
    assert not (tmp_path / "b" / "student.safetensors").exists()


def test_text_shows_three_epsilons_and_marks_the_private_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answer = pate(capsys, tmp_path / "run", "--epsilon", 2, "--mechanism", "confident", "--plot", tmp_path / "plots")
    assert answer.code == 0, answer.err
    assert "data-independent" in answer.out
    assert "do not publish" in answer.out
    assert "sanitised" in answer.out
    assert "never release" in answer.out
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["cost.png"]  # private ones on request only


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pate", "--epsilon", 1), "--data"),
        (("pate", "--data", "digits"), "--epsilon"),
        ((*QUICK, "--epsilon", 1, "--mechanism", "loud"), "--mechanism"),
        ((*QUICK, "--epsilon", 1, "--teacher", "parrot"), "--teacher"),
        ((*QUICK, "--epsilon", 1, "--threshold", 10), "--threshold"),
        ((*QUICK, "--epsilon", 1, "--scale", 10), "--scale"),
        ((*QUICK, "--epsilon", 1, "--delta", 0.5), "delta"),
        ((*QUICK, "--epsilon", 0.001, "--stddev", 1), "not one query"),
        ((*QUICK, "--epsilon", 1, "--show-private"), "--plot"),
        ((*QUICK, "--epsilon", 1, "--relation", "both"), "relation"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[object, ...], words: str
) -> None:
    answer = call(capsys, *arguments, "--out", tmp_path / "run")
    assert answer.is_refused(), answer
    assert words in answer.err
    assert not (tmp_path / "run").exists()


def test_a_folder_with_something_in_it_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "note").write_text("mine")
    assert pate(capsys, tmp_path, "--epsilon", 1).is_refused()
