"""`hush train`: what it asks for, what it trains, what it prints, what it leaves on disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_line import Answer, call

from hush import accounting, data
from hush.cli.recipes import default_delta, recipe_for
from hush.ledger import Ledger
from hush.training import Run

QUICK = ("--model", "linear", "--steps", 12, "--seed", 3)


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(capsys: pytest.CaptureFixture[str], *arguments: object) -> Answer:
    return call(capsys, "train", "--data", "digits", "--epsilon", 3, *QUICK, *arguments)


def test_digits_reach_nine_in_ten_inside_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    """The defaults. Over seeds 0 to 4 the test accuracy was 93 to 95 %, with 359 test rows."""
    answer = call(capsys, "train", "--data", "digits", "--epsilon", 3, "--seed", 0, "--json")
    assert answer.code == 0, answer.err
    found = answer.data
    assert found["test_accuracy"] > 0.90
    assert found["twin_test_accuracy"] > found["test_accuracy"] - 0.02
    assert found["epsilon"] <= 3
    assert (found["delta"], found["relation"], found["unit"], found["complete"]) == (
        1e-5,
        "add_remove",
        "example",
        True,
    )
    run = Run.load(found["out"])
    again = accounting.guarantee(run.event, delta=1e-5)
    assert again.epsilon == found["epsilon"]
    assert Ledger(Path(found["out"]) / "ledger.db", create=False).verify().rows > 1


def test_text_shows_accuracy_guarantee_and_place(capsys: pytest.CaptureFixture[str], desk: Path) -> None:
    answer = trained(capsys, "--out", "first")
    assert answer.code == 0, answer.err
    for words in ("test accuracy", "without privacy", "proven: (", "differential privacy", "saved: first"):
        assert words in answer.out
    assert "seed" in answer.out  # such a run must say that it may not be released
    assert {path.name for path in (desk / "first").iterdir()} >= {"run.json", "model.safetensors", "ledger.db"}


def test_no_twin_trains_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert "twin_test_accuracy" not in trained(capsys, "--no-twin", "--json").data


def test_same_seed_same_run_and_another_seed_another(capsys: pytest.CaptureFixture[str]) -> None:
    places = [trained(capsys, "--no-twin", "--json", *seed).data["out"] for seed in ((), (), ("--seed", 4))]
    assert len(set(places)) == 3  # each in a folder of its own
    first, second, third = ((Run.load(place)).weights for place in places)
    assert all(first[name].equal(second[name]) for name in first)
    assert not all(first[name].equal(third[name]) for name in first)


def test_settings_are_the_ones_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ("--expected-batch-size", 200, "--clip-norm", 0.25, "--learning-rate", 1.5, "--delta", 1e-6)
    found = trained(capsys, *wanted, "--relation", "replace_one", "--json", "--no-twin").data
    assert (found["expected_batch_size"], found["clip_norm"], found["learning_rate"]) == (200, 0.25, 1.5)
    assert (found["delta"], found["relation"], found["steps"]) == (1e-6, "replace_one", 12)
    assert found["sampling_prob"] == 200 / len(data.load("digits").train)
    assert found["epsilon"] <= 3


@pytest.mark.parametrize(
    ("model", "sampling"), [("linear", "full_batch"), ("mlp", "poisson"), ("cnn", "truncated_poisson")]
)
def test_every_model_trains_inside_the_budget(capsys: pytest.CaptureFixture[str], model: str, sampling: str) -> None:
    """Convolutions get batches of one shape: others would be compiled anew for every size."""
    found = call(capsys, "train", "--data", "digits", "--epsilon", 3, "--model", model, "--steps", 3, "--json")
    assert found.code == 0, found.err
    assert found.data["sampling"] == sampling
    assert found.data["epsilon"] <= 3


def test_secure_noise_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    found = trained(capsys, "--secure", "--no-twin", "--json")
    assert found.code == 0, found.err
    assert Run.load(found.data["out"]).plan.secure


def test_a_shared_ledger_refuses_the_second_run(capsys: pytest.CaptureFixture[str], desk: Path) -> None:
    assert trained(capsys, "--ledger", "team.db", "--no-twin").code == 0
    answer = trained(capsys, "--ledger", "team.db", "--no-twin")
    assert answer.code == 1
    assert "over the cap" in answer.err
    account = Ledger(desk / "team.db", create=False).account("digits")
    assert account.spent().epsilon <= 3


def test_a_folder_that_is_not_empty_is_refused_and_resume_needs_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert trained(capsys, "--out", "first", "--no-twin").code == 0
    assert trained(capsys, "--out", "first", "--no-twin").is_refused()
    assert trained(capsys, "--resume").is_refused()
    assert trained(capsys, "--resume", "--out", "nowhere").is_refused()


def test_resume_refuses_other_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert trained(capsys, "--out", "first", "--no-twin").code == 0
    answer = trained(capsys, "--out", "first", "--no-twin", "--resume", "--clip-norm", 0.9)
    assert answer.code == 2
    assert "clip_norm was 0.5 and is 0.9" in answer.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--data", "digits"), "--epsilon"),
        (("--epsilon", 3), "--data"),
        (("--data", "dogs", "--epsilon", 3), "digits, mnist"),
        (("--data", "digits", "--epsilon", 0), "epsilon"),
        (("--data", "digits", "--epsilon", 3, "--delta", 0.01), "1/num_examples"),
        (("--data", "digits", "--epsilon", 3, "--model", "huge"), "--model"),
        (("--data", "digits", "--epsilon", 3, "--optimizer", "magic"), "--optimizer"),
        (("--data", "digits", "--epsilon", 3, "--steps", 3, "--epochs", 1), "not both"),
        (("--data", "digits", "--epsilon", 3, "--expected-batch-size", 5000), "1438"),
        (("--data", "digits", "--epsilon", 3, "--unit", "person"), "person"),
        (("--data", "digits", "--epsilon", 3, "--target", "y"), "table"),
        (("--data", "digits", "--epsilon", 3, "--relation", "other"), "relation"),
        (("--module", "nowhere.py:make", "--epsilon", 3), "nowhere.py"),
        (("--data", "nowhere.csv", "--target", "y", "--epsilon", 3, "--public-schema"), "nowhere.csv"),
    ],
)
def test_bad_input_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[object, ...], told: str
) -> None:
    answer = call(capsys, "train", *arguments)
    assert answer.is_refused(), answer
    assert told in answer.err


# Tables ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(desk: Path) -> Path:
    rows = [f"{age},{'ab'[age % 2]},{'yes' if (age * 7) % 100 > 49 else 'no'}" for age in range(100)] * 4
    (desk / "my.csv").write_text("age,job,y\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return desk / "my.csv"


def test_a_table_without_a_schema_is_told_how_to_get_one(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    answer = call(capsys, "train", "--data", "my.csv", "--target", "y", "--epsilon", 3)
    assert answer.is_refused()
    assert "--write-schema" in answer.err
    assert "--public-schema" in answer.err


def test_template_then_schema_then_training(capsys: pytest.CaptureFixture[str], table: Path, desk: Path) -> None:
    command = ("train", "--data", "my.csv", "--target", "y")
    assert call(capsys, *command, "--write-schema", "schema.json").code == 0
    assert call(capsys, *command, "--write-schema", "schema.json").is_refused()  # never replaced
    asked = call(capsys, *command, "--schema", "schema.json", "--epsilon", 3)
    assert asked.is_refused()
    assert "schema.json" in asked.err
    assert "'age'" in asked.err
    schema = json.loads((desk / "schema.json").read_text(encoding="utf-8"))
    for column, facts in zip(
        schema["columns"], ({"low": 0, "high": 120}, {"values": ["a", "b"]}, {"values": ["no", "yes"]}), strict=True
    ):
        column.update(facts)
    (desk / "schema.json").write_text(json.dumps(schema), encoding="utf-8")
    asked = call(capsys, *command, "--schema", "schema.json", "--epsilon", 3)
    assert asked.is_refused()
    assert "--num-examples" in asked.err
    assert "--delta" in asked.err  # everything that is missing, at once
    numbers = ("--num-examples", 300, "--delta", 1e-4, "--steps", 5, "--json")
    found = call(capsys, *command, "--schema", "schema.json", "--epsilon", 3, *numbers)
    assert found.code == 0, found.err
    assert (found.data["expected_batch_size"], found.data["sampling_prob"]) == (300, 1.0)
    assert 0 <= found.data["test_accuracy"] <= 1


def test_ranges_read_from_the_rows_are_noted(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    numbers = ("--num-examples", 300, "--delta", 1e-4, "--steps", 5, "--no-twin", "--json")
    command = ("train", "--data", "my.csv", "--target", "y", "--public-schema", "--epsilon", 3)
    found = call(capsys, *command, *numbers).data
    assert any("declared public" in note for note in found["notes"])


@pytest.fixture
def parquet(desk: Path, table: Path) -> Path:
    """The same rows as a Parquet file, with columns of their own types."""
    import pyarrow
    from pyarrow import parquet

    head, *rows = (line.split(",") for line in table.read_text(encoding="utf-8").splitlines())
    columns = dict(zip(head, map(list, zip(*rows, strict=True)), strict=True))
    parquet.write_table(pyarrow.table({**columns, "age": [int(age) for age in columns["age"]]}), desk / "my.parquet")
    return desk / "my.parquet"


def test_a_parquet_file_is_trained_on_like_the_same_csv(capsys: pytest.CaptureFixture[str], parquet: Path) -> None:
    """DP-SGD from the rows of a file, with `--target`: the same seed gives the same weights from both."""
    numbers = ("--num-examples", 300, "--delta", 1e-4, "--expected-batch-size", 60, "--steps", 5, "--seed", 3)
    command = ("--target", "y", "--public-schema", "--epsilon", 3, "--model", "mlp", *numbers, "--json")
    answers = [call(capsys, "train", "--data", name, *command) for name in ("my.csv", parquet.name)]
    for answer in answers:
        assert answer.code == 0, answer.err
    found = answers[1].data
    assert (found["sampling"], found["sampling_prob"], found["steps"]) == ("poisson", 0.2, 5)
    assert 0 < found["epsilon"] <= 3
    assert found["test_accuracy"] == answers[0].data["test_accuracy"]
    runs = [Run.load(answer.data["out"]) for answer in answers]
    assert runs[1].guarantee == runs[0].guarantee
    assert all(value.equal(runs[1].weights[name]) for name, value in runs[0].weights.items())


def test_a_parquet_file_gets_a_schema_and_needs_its_target(
    capsys: pytest.CaptureFixture[str], parquet: Path, desk: Path
) -> None:
    command = ("train", "--data", parquet.name, "--epsilon", 3)
    asked = call(capsys, *command, "--public-schema")
    assert asked.is_refused()
    assert "--target" in asked.err
    asked = call(capsys, *command, "--public-schema", "--target", "wage")
    assert asked.is_refused()
    assert "wage" in asked.err
    assert call(capsys, *command, "--target", "y", "--write-schema", "schema.json").code == 0
    schema = json.loads((desk / "schema.json").read_text(encoding="utf-8"))
    assert [column["name"] for column in schema["columns"]] == ["age", "job", "y"]


def test_a_number_as_target_gives_an_error_in_its_unit(capsys: pytest.CaptureFixture[str], desk: Path) -> None:
    rows = "\n".join(f"{x},{1000 + 10 * x}" for x in range(100))
    (desk / "line.csv").write_text(f"x,y\n{rows}\n", encoding="utf-8")
    numbers = ("--num-examples", 80, "--delta", 1e-3, "--epsilon", 50, "--seed", 1, "--json")
    found = call(capsys, "train", "--data", "line.csv", "--target", "y", "--public-schema", *numbers).data
    assert 0 < found["twin_test_error"] < 100  # the targets go from 1000 to 1990; their mean alone is off by 250
    assert 0 < found["test_error"] < 1000


# The user's own code ---------------------------------------------------------------------------------------------

MODEL = """
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

def model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

def loss(model, x, y):
    return functional.cross_entropy(model(x), y, reduction="none")

def everything():
    x = torch.arange(40.0).reshape(20, 2) / 40
    return nn.Linear(2, 2), loss, TensorDataset(x, torch.arange(20) % 2)

def broken():
    raise KeyError("lost")

def wrong():
    return 3

def mixing():
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))
"""
OWN = ("--epsilon", 3, "--clip-norm", 1, "--learning-rate", 0.1, "--steps", 3, "--json")


@pytest.fixture
def code(desk: Path) -> Path:
    (desk / "own.py").write_text(MODEL, encoding="utf-8")
    return desk / "own.py"


def test_own_model_on_known_data(capsys: pytest.CaptureFixture[str], code: Path) -> None:
    found = call(capsys, "train", "--module", "own.py:model", "--data", "digits", *OWN)
    assert found.code == 0, found.err
    assert found.data["parameters"] == 650
    assert "twin_test_accuracy" in found.data


def test_own_model_loss_and_data(capsys: pytest.CaptureFixture[str], code: Path) -> None:
    asked = call(capsys, "train", "--module", "own.py:everything", "--epsilon", 3)
    assert asked.is_refused()
    for name in ("--num-examples", "--delta", "--clip-norm", "--learning-rate", "--steps"):
        assert name in asked.err
    numbers = ("--num-examples", 20, "--delta", 1e-3, "--expected-batch-size", 5)
    found = call(capsys, "train", "--module", "own.py:everything", *numbers, *OWN)
    assert found.code == 0, found.err
    assert found.data["sampling_prob"] == 0.25
    assert "test_accuracy" not in found.data


@pytest.mark.parametrize(
    ("factory", "told"),
    [("own.py:broken", "KeyError"), ("own.py:wrong", "int"), ("own.py:nothing", "nothing"), ("own.py", "file.py:")],
)
def test_own_code_that_fails_is_one_line(
    capsys: pytest.CaptureFixture[str], code: Path, factory: str, told: str
) -> None:
    answer = call(capsys, "train", "--module", factory, "--data", "digits", *OWN)
    assert answer.is_refused()
    assert told in answer.err


def test_a_model_that_mixes_examples_is_refused_before_anything_is_charged(
    capsys: pytest.CaptureFixture[str], code: Path, desk: Path
) -> None:
    answer = call(capsys, "train", "--module", "own.py:mixing", "--data", "digits", "--out", "first", *OWN)
    assert answer.is_refused()
    assert "BatchNorm1d" in answer.err
    rows = Ledger(desk / "first" / "ledger.db", create=False).account("training").rows()
    assert [row.kind for row in rows] == ["open"]


# Recipes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "delta"), [(10, 1e-5), (60_000, 1e-5), (100_000, 1e-6), (999_999, 1e-6)])
def test_default_delta_is_below_one_over_the_size(size: int, delta: float) -> None:
    assert default_delta(size) == delta
    assert default_delta(size) < 1 / size


@pytest.mark.parametrize("name", data.NAMES)
@pytest.mark.parametrize("model", [None, "linear", "kernel", "mlp", "cnn"])
def test_every_data_set_has_a_recipe(name: str, model: str | None) -> None:
    recipe = recipe_for(name, 30_000, 3.0, model)
    assert recipe.steps >= 1
    assert recipe.clip_norm > 0
    assert recipe.learning_rate > 0
    assert recipe.expected_batch_size is None or 1 <= recipe.expected_batch_size <= 30_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "adult", "location30", "diabetes130"])
def test_every_named_data_set_trains(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """A few steps with the defaults; accuracy is for the benchmarks."""
    if "HUSH_DATA" not in os.environ:
        pytest.skip("HUSH_DATA is not set")
    answer = call(capsys, "train", "--data", name, "--epsilon", 3, "--steps", 4, "--no-twin", "--json")
    assert answer.code == 0, answer.err
    assert answer.data["epsilon"] <= 3
    assert 0 < answer.data["test_accuracy"] < 1
