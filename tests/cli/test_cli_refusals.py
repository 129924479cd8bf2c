"""What cannot be done is refused by one line, before anything is charged or left on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import safetensors.torch
from command_line import call, launch

from hush import Budget, Ledger

SCHEMA = {
    "format": "hush schema 1", "target": "outcome", "person": None, "num_examples": 400,
    "columns": [
        {"name": "age", "type": "number", "low": 0, "high": 100},
        {"name": "sector", "type": "category", "values": ["a", "b"]},
        {"name": "outcome", "type": "category", "values": ["no", "yes"]},
    ],
}  # fmt: skip
TABLE = ("train", "--data", "my.csv", "--schema", "full.json", "--epsilon", 3)
CODE = """
import torch
from torch import nn

def shapes():
    return nn.Linear(3, 2), lambda model, x, y: nn.functional.cross_entropy(model(x), y, reduction="none"), \
        torch.utils.data.TensorDataset(torch.rand(50, 4), torch.arange(50) % 2)

def secret(dataset):
    raise RuntimeError("row 7 is Ada, aged 36")

def black_box():
    return secret, torch.utils.data.TensorDataset(torch.rand(50, 4), torch.arange(50) % 2)
"""


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUSH_LEDGER", raising=False)
    draws = numpy.random.default_rng(0)
    rows = [
        f"{age},{'ab'[sector]},{('no', 'yes')[age > 50]}"
        for age, sector in draws.integers([0, 0], [100, 2], size=(400, 2)).tolist()
    ]
    (tmp_path / "my.csv").write_text("age,sector,outcome\n" + "\n".join(rows) + "\n")
    (tmp_path / "head.csv").write_text("age,sector,outcome\n")
    (tmp_path / "full.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "mine.py").write_text(CODE)
    return tmp_path


def left(desk: Path) -> set[str]:
    return {path.name for path in desk.iterdir()} - {"my.csv", "head.csv", "full.json", "mine.py", "__pycache__"}


@pytest.mark.parametrize("model", [("--model", "logistic"), ("--model", "linear", "--method", "adassp")])
def test_a_schema_goes_with_models_that_are_fitted_at_once(
    capsys: pytest.CaptureFixture[str], desk: Path, model: tuple[str, ...]
) -> None:
    if "linear" in model:
        of_age = {**SCHEMA, "target": "age"}
        (desk / "full.json").write_text(json.dumps(of_age))
    answer = call(capsys, *TABLE, *model, "--json", "--out", "run")
    assert answer.code == 0, answer.err
    assert answer.data["epsilon"] <= 3


def test_a_run_that_does_not_fit_a_shared_account_is_refused_whole(
    capsys: pytest.CaptureFixture[str], desk: Path
) -> None:
    account = Ledger("cap.db").account("team", cap=Budget(epsilon=2, delta=1e-3))
    answer = call(capsys, *TABLE, "--no-twin", "--ledger", "cap.db", "--account", "team", "--out", "b")
    assert answer.code == 1
    assert "would be over the cap" in answer.err
    assert not account.event.events
    assert left(desk) <= {"cap.db", "cap.db-shm", "cap.db-wal"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--features", "age"), "--features is for --model logistic"),
        (("--method", "nonsense"), "--method is for --model logistic"),
        (("--classes", "a,b"), "--classes is for --model logistic"),
        (("--account", "team"), "--account is an account of a shared ledger"),
        (("--model", "logistic", "--features", "age"), "--features is for a table without a schema"),
        (("--model", "logistic", "--method", "foo"), "--method must be one of objective"),
        (("--model", "logistic", "--secure"), "--secure is for models that are trained in steps"),
        (("--model", "logistic", "--num-examples", 7), "--num-examples is for models that are trained in steps"),
        (("--model", "logistic", "--optimizer", "adam"), "--optimizer is for models that are trained in steps"),
        (("--steps", "1" + "0" * 400), "whole number"),
    ],
)
def test_options_that_do_not_apply_are_refused(
    capsys: pytest.CaptureFixture[str], desk: Path, words: tuple[Any, ...], message: str
) -> None:
    answer = call(capsys, *TABLE, *words, "--out", "run")
    assert answer.is_refused(), answer
    assert message in answer.err
    assert left(desk) == set()


@pytest.mark.parametrize("more", [(), ("--model", "logistic"), ("--live",), ("--ledger", "s.db")])
def test_a_table_without_rows_opens_no_account_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str], desk: Path, more: tuple[str, ...]
) -> None:
    answer = call(capsys, "train", "--data", "head.csv", "--schema", "full.json", "--epsilon", 3, *more, "--out", "run")
    assert answer.is_refused(), answer
    assert "has no rows" in answer.err
    assert left(desk) == set()


@pytest.mark.parametrize("change", [{"person": "patient"}, {"target": "Outcome"}])
def test_a_column_that_is_not_there_is_named_beside_those_that_are(
    capsys: pytest.CaptureFixture[str], desk: Path, change: dict[str, str]
) -> None:
    text = json.dumps({**SCHEMA, **change})
    (desk / "full.json").write_text(
        text.replace('"name": "outcome"', '"name": "Outcome"') if "target" in change else text
    )
    answer = call(capsys, *TABLE, "--out", "run")
    assert answer.is_refused(), answer
    assert "age, sector, outcome" in answer.err


def test_teachers_with_defaults_leave_rows_for_the_student(capsys: pytest.CaptureFixture[str]) -> None:
    """The budget would hold all 323 public rows, and the student learns from some without a label."""
    quick = ("--teachers", 20, "--epsilon", 60, "--student-steps", 5, "--json")
    answer = call(capsys, "pate", "--data", "digits", *quick, "--out", "run")
    assert answer.code == 0, answer.err
    assert answer.data["queries"] == 322


def test_a_seed_below_zero_leaves_nothing(capsys: pytest.CaptureFixture[str], desk: Path) -> None:
    answer = call(capsys, "pate", "--data", "digits", "--epsilon", 5, "--seed", -1, "--out", "run")
    assert answer.is_refused(), answer
    assert left(desk) == set()


def test_errors_of_the_users_code_are_one_line_without_their_text(capsys: pytest.CaptureFixture[str]) -> None:
    code = ("mine.py:black_box", "--delta", "1e-5", "--epsilon", 1, "--num-canaries", 20, "--num-guesses", 10)
    answer = call(capsys, "audit", *code)
    assert answer.is_refused(), answer
    assert "your code raised RuntimeError (mine.py, line 9)" in answer.err
    assert "Ada" not in answer.err
    assert call(capsys, "doctor", "mine.py:shapes").is_refused()


def test_a_fault_is_neither_a_contradiction_nor_bad_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hush.cli.audit._of_run", lambda *_: 1 / 0)
    answer = call(capsys, "audit", ".")
    assert answer.code == 70
    assert "ZeroDivisionError" in answer.err


@pytest.mark.parametrize("words", [("--epsilon", "1e-9"), ("--method", "nonsense"), ("--num-runs", 3)])
def test_an_audit_of_a_run_takes_no_claim_but_the_runs(
    capsys: pytest.CaptureFixture[str], words: tuple[Any, ...]
) -> None:
    answer = call(capsys, "audit", ".", *words)
    assert answer.is_refused(), answer
    assert words[0] in answer.err


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"record,item,rating\n1,2,\xe9\n", "not a CSV file in UTF-8"), (b"record,item,rating\n", "has no rows")],
)
def test_ratings_that_cannot_be_read_are_one_line(
    capsys: pytest.CaptureFixture[str], desk: Path, content: bytes, message: str
) -> None:
    (desk / "ratings.csv").write_bytes(content)
    answer = call(capsys, "attack", "link", "--released", "ratings.csv", "--auxiliary", "ratings.csv")
    assert answer.is_refused(), answer
    assert message in answer.err


def test_numbers_beyond_floats_are_one_line(capsys: pytest.CaptureFixture[str], desk: Path) -> None:
    (desk / "big.json").write_text('{"event": "Gaussian", "noise_multiplier": 1' + "0" * 400 + "}")
    assert call(capsys, "epsilon", "--event", "big.json", "--delta", "1e-5").is_refused()


def overwritten(folder: Path) -> None:
    with safetensors.safe_open(folder / "model.safetensors", framework="pt") as file:
        notes, tensors = file.metadata(), {name: file.get_tensor(name).fill_(7.0) for name in file.keys()}  # noqa: SIM118
    safetensors.torch.save_file(tensors, folder / "model.safetensors", notes)


def edited(folder: Path, **changes: object) -> None:
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(facts | changes))


@pytest.mark.parametrize(
    "change",
    [
        overwritten,
        lambda folder: edited(folder, steps=5, complete=False),
        lambda folder: edited(folder, randomness="operating-system entropy", notes=[]),
        lambda folder: edited(folder, guarantee="x"),
        lambda folder: edited(folder, weights_sha256="0"),
        lambda folder: (folder / "about.json").write_text('{"format": 1, "facts": "x"}'),
    ],
    ids=["weights", "steps", "randomness", "guarantee", "digest", "facts"],
)
def test_an_edited_run_has_no_report(capsys: pytest.CaptureFixture[str], desk: Path, change: Any) -> None:
    done = call(capsys, *TABLE, "--no-twin", "--steps", 3, "--seed", 1, "--out", "run", "--json")
    assert done.code == 0, done.err
    assert call(capsys, "report", "run", "--json").code == 0
    change(desk / "run")
    assert call(capsys, "report", "run", "--json").is_refused()


def test_the_teams_ledger_is_taken_by_prompts_too(desk: Path) -> None:
    for command in ("pate", "generate", "soft"):
        assert "HUSH_LEDGER" in launch("prompt", command, "--help").out


def test_every_command_takes_json_and_help_has_no_backslash(capsys: pytest.CaptureFixture[str], desk: Path) -> None:
    answer = call(capsys, "train", "--data", "my.csv", "--target", "outcome", "--write-schema", "s.json", "--json")
    assert answer.data["schema"] == "s.json"
    Ledger("budget.db").account("a", cap=None)
    found = call(capsys, "ledger", "migrate", "budget.db", "--json").data
    assert found["format_before"] == found["format"]
    for words in (("train",), ("epsilon",), ("ledger", "show")):
        assert "\\[" not in launch(*words, "--help").out
