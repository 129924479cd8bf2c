"""`hush train --model logistic|linear|theil-sen`: what it asks for, prints, charges and saves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy
import pytest
import safetensors.numpy
from command_line import Answer, call

from hush import Budget, accounting, events
from hush.ledger import Ledger
from hush.linear import load, repeats


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    repeats.forget()
    return tmp_path


@pytest.fixture
def table(desk: Path) -> dict[str, numpy.ndarray]:
    """A table as CSV and as Parquet: two features, a class and a number."""
    import pyarrow
    from pyarrow import parquet

    rng = numpy.random.default_rng(0)
    a, b = rng.uniform(0, 10, (2, 3000)).round(3)
    columns = {"a": a, "b": b, "number": (3 * a - b + rng.normal(size=3000)).round(3)}
    label = numpy.where(a + rng.normal(size=3000) > b, "yes", "no")
    lines = [f"{p},{q},{r},{s}" for p, q, r, s in zip(*columns.values(), label, strict=True)]
    (desk / "table.csv").write_text("a,b,number,label\n" + "\n".join(lines) + "\n", encoding="utf-8")
    parquet.write_table(pyarrow.table({**columns, "label": label}), desk / "table.parquet")
    return columns


LOGISTIC = ("--model", "logistic", "--target", "label", "--features", "a,b", "--data-norm", 15, "--classes", "no,yes")
LINEAR = ("--model", "linear", "--target", "number", "--features", "a,b", "--x-bounds", "0,10", "--y-bounds=-10,30")
THEIL_SEN = ("--model", "theil-sen", "--target", "number", "--features", "a", "--x-bounds", "0,10", "--y-bounds=-10,30")


def fitted(capsys: pytest.CaptureFixture[str], *arguments: object) -> Answer:
    answer = call(capsys, "train", "--epsilon", 2, *arguments)
    assert answer.code == 0, answer.err
    return answer


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("options", "score", "least"),
    [
        ((*LOGISTIC,), "test_accuracy", 0.85),
        ((*LOGISTIC, "--delta", 1e-6, "--method", "gradient"), "test_accuracy", 0.85),
        ((*LINEAR, "--delta", 1e-6), "test_r2", 0.8),
        ((*LINEAR, "--method", "output"), "test_r2", 0.0),
        (THEIL_SEN, "test_r2", 0.5),
    ],
    ids=["logistic", "gradient", "linear", "output", "theil-sen"],
)
def test_tables_are_fitted_charged_and_saved(
    capsys: pytest.CaptureFixture[str],
    table: object,
    ending: str,
    options: tuple[object, ...],
    score: str,
    least: float,
) -> None:
    found = fitted(capsys, "--data", f"table.{ending}", *options, "--json").data
    assert least < found[score] <= found[f"twin_{score}"] + 0.05
    assert found["epsilon"] <= 2
    folder = Path(found["out"])
    saved = json.loads((folder / "run.json").read_text())
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    assert weights["coef"].ravel().tolist() == numpy.ravel(found["coef"]).tolist()
    assert numpy.ravel(load(folder).coef_).tolist() == numpy.ravel(found["coef"]).tolist()
    account = Ledger(folder / "ledger.db", create=False).account(saved["account"])
    assert [events.to_dict(part) for part in (events.from_dict(saved["event"]),)] == [saved["event"]]
    assert account.spent().epsilon <= 2
    again = accounting.guarantee(events.from_dict(saved["event"]), delta=found["delta"])
    assert again.epsilon == found["epsilon"]


def test_text_shows_scores_guarantee_and_place(capsys: pytest.CaptureFixture[str], table: object) -> None:
    answer = fitted(capsys, "--data", "table.csv", *LOGISTIC, "--out", "first", "--seed", 1)
    for words in ("test accuracy", "without privacy", "proven: (2, 0)-differential privacy", "saved: first", "seed 1"):
        assert words in answer.out
    again = call(capsys, "train", "--epsilon", 2, "--data", "table.csv", *LOGISTIC, "--out", "first")
    assert again.is_refused()


def test_shared_ledger_is_charged_and_its_cap_kept(capsys: pytest.CaptureFixture[str], table: object) -> None:
    Ledger("budget.db").account("rows", cap=Budget(epsilon=3.0, delta=0.0))
    shared = ("--data", "table.csv", *THEIL_SEN, "--ledger", "budget.db", "--account", "rows", "--no-twin", "--json")
    fitted(capsys, *shared)
    refused = call(capsys, "train", "--epsilon", 2, *shared)
    assert refused.code in (1, 2)
    assert "over the cap" in refused.err
    assert not refused.out
    assert len([row for row in Ledger("budget.db").account("rows").rows() if row.kind == "charge"]) == 1


def test_a_schema_takes_the_place_of_bounds(capsys: pytest.CaptureFixture[str], table: object) -> None:
    for target, model, score in (("label", "logistic", "test_accuracy"), ("number", "linear", "test_r2")):
        more = ("--method", "adassp", "--delta", 1e-6) if model == "linear" else ()
        options = ("--target", target, "--public-schema", "--model", model, *more, "--json")
        found = fitted(capsys, "--data", "table.csv", *options).data
        assert found[score] > 0.5
        assert any("declared public" in note for note in found["notes"])


def test_named_data(capsys: pytest.CaptureFixture[str]) -> None:
    found = fitted(capsys, "--data", "digits", "--model", "logistic", "--no-twin", "--json").data
    assert found["test_accuracy"] > 0.6
    assert (found["delta"], found["relation"]) == (1e-5, "add_remove")


@pytest.mark.slow
def test_adult_reaches_its_goal(capsys: pytest.CaptureFixture[str]) -> None:
    if "HUSH_DATA" not in os.environ:
        pytest.skip("HUSH_DATA is not set")
    answer = call(capsys, "train", "--data", "adult", "--model", "logistic", "--epsilon", 1, "--no-twin", "--json")
    assert answer.data["test_accuracy"] > 0.84


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--model", "logistic", "--target", "label"), "--data-norm"),
        (("--model", "logistic", "--target", "label", "--features", "a", "--data-norm", 5), "--classes is needed"),
        (("--model", "linear", "--target", "number", "--x-bounds", "0,10"), "--y-bounds"),
        (("--model", "theil-sen", "--target", "number"), "--x-bounds and --y-bounds"),
        ((*LINEAR[:-1], "--y-bounds=1"), "two numbers with a comma"),
        ((*LINEAR, "--method", "adassp"), "delta above 0"),
        ((*LINEAR, "--steps", 5), "--steps is for models that are trained in steps"),
        ((*LOGISTIC[:2], "--target", "lost", *LOGISTIC[4:]), "no column 'lost'"),
        ((*LOGISTIC[:-1], "no,maybe"), "not in classes"),
        ((*THEIL_SEN[:4], *THEIL_SEN[6:]), "numbers only"),
        (("--model", "mlp", "--target", "label", "--data-norm", 3), "--data-norm, --x-bounds"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], table: object, options: tuple[object, ...], words: str
) -> None:
    answer = call(capsys, "train", "--epsilon", 1, "--data", "table.csv", *options)
    assert answer.is_refused(), answer
    assert words in answer.err
