"""`hush pate` on the digits: what it prints, saves, charges and refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import Answer, call

from hush import Ledger

QUICK = ("pate", "--data", "digits", "--teachers", 20, "--student", "plain", "--student-steps", 60, "--seed", 1)


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
    assert found["data_independent"]["epsilon"] == found["epsilon"]
    assert found["sanitised"] is None
    assert "data_dependent" not in answer.out
    assert "do_not_publish" not in found
    files = {"run.json", "student.safetensors", "ledger.db", "about.json"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == files
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


def line_of(answer: Answer, name: str) -> str:
    (line,) = (line for line in answer.out.splitlines() if line.strip().startswith(name))
    return line


def test_text_shows_three_epsilons_and_hides_the_private_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answer = pate(capsys, tmp_path / "run", "--epsilon", 2, "--mechanism", "confident", "--plot", tmp_path / "plots")
    assert answer.code == 0, answer.err
    assert "yes" in line_of(answer, "data-independent")
    assert "hidden" in line_of(answer, "data-dependent")
    assert not re.search(r"\d", line_of(answer, "data-dependent"))
    assert "--sanitise" in line_of(answer, "sanitised")
    assert "never release" in answer.out
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["cost.png"]  # private ones on request only


def test_the_private_epsilon_is_shown_on_request_and_marked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ("--epsilon", 30, "--stddev", 2, "--queries", 12, "--show-private")
    text = pate(capsys, tmp_path / "text", *asked)
    assert text.code == 0, text.err
    assert "DO NOT PUBLISH" in line_of(text, "data-dependent")
    found = pate(capsys, tmp_path / "json", *asked, "--json").data
    private = found["do_not_publish"]["data_dependent_epsilon"]
    assert f"{private:.3f}" in line_of(text, "data-dependent")
    assert private < found["epsilon"]  # the teachers agree on the digits
    for path in (tmp_path / "json").glob("*.json"):
        assert "data_dependent" not in path.read_text()


def test_laplace_noise_has_nothing_to_sanitise(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = pate(capsys, tmp_path / "run", "--epsilon", 2, "--mechanism", "lnmax", "--queries", 10)
    assert answer.code == 0, answer.err
    assert "not possible" in line_of(answer, "sanitised")


@pytest.mark.parametrize("mechanism", ["gnmax", "confident"])
def test_a_sanitised_epsilon_is_paid_first_and_fits_the_budget(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mechanism: str
) -> None:
    asked = ("--epsilon", 3, "--sanitise", 0.5, "--stddev", 6, "--mechanism", mechanism)
    answer = pate(capsys, tmp_path / "run", *asked, "--json")
    assert answer.code == 0, answer.err
    found, account = answer.data, Ledger(tmp_path / "run" / "ledger.db").account("digits")
    assert 0.4 < found["sanitised_price"]["epsilon"] <= 0.5
    assert found["sanitised"]["epsilon"] > 0
    assert found["epsilon"] >= found["data_independent"]["epsilon"] + found["sanitised_price"]["epsilon"]
    assert found["epsilon"] <= 3
    assert found["delta"] <= 1e-5
    charged = [json.loads(row.content) for row in account.rows() if row.kind == "charge"]
    assert len(charged) == 2
    assert "ApproximateDP" in json.dumps(charged[0])
    assert account.spent().epsilon <= found["epsilon"]


def test_text_states_the_price_of_the_sanitised_epsilon(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = pate(capsys, tmp_path / "run", "--epsilon", 3, "--sanitise", 0.5, "--stddev", 6)
    assert answer.code == 0, answer.err
    assert "release cost 0.5" in line_of(answer, "sanitised")
    assert "together" in answer.out


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
        ((*QUICK, "--epsilon", 1, "--sanitise", 1), "--sanitise"),
        ((*QUICK, "--epsilon", 1, "--sanitise", 0), "--sanitise"),
        ((*QUICK, "--epsilon", 1, "--sanitise", 0.5, "--mechanism", "lnmax"), "Laplace"),
        ((*QUICK, "--epsilon", 3, "--resume"), "no run"),
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


def test_an_unknown_engine_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "pate", "--data", "digits", "--epsilon", 1, "--engine", "spark")
    assert answer.is_refused()
    assert "local, ray" in answer.err
