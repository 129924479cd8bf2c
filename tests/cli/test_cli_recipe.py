"""`hush train --recipe`: features and a softmax by one command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
import torch
from torch.utils.data import TensorDataset

from hush import Budget, Ledger, accounting, events, features, linear
from hush.cli import feature_recipes, main
from hush.data import Dataset, LabelledTexts


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pictures of stripes, down or across, and few filters."""
    draws = numpy.random.default_rng(0)

    def part(count: int) -> TensorDataset:
        labels = draws.integers(2, size=count)
        pictures = draws.random((count, 1, 12, 12)) * 0.3
        pictures[labels == 0, :, :, ::2] += 0.7
        pictures[labels == 1, :, ::2] += 0.7
        return TensorDataset(torch.tensor(pictures, dtype=torch.float32), torch.tensor(labels))

    stripes = Dataset(
        name="stripes", train=part(6_000), test=part(300), num_classes=2, input_shape=(1, 12, 12), num_examples=6_000,
        source="none", licence="none",
    )  # fmt: skip
    monkeypatch.setattr("hush.data.load", lambda name, folder=None: stripes)
    made = feature_recipes._patches(8, patch_size=3, cells=2, mirror=False)
    monkeypatch.setitem(feature_recipes.RECIPES, "stripes", feature_recipes.FeatureRecipe("stripes", made, 80, 1.0))


def run(*words: str) -> int:
    return main.run(["train", "--recipe", *words])


def test_it_learns_charges_everything_and_can_be_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert run("stripes", "--epsilon", "2", "--out", str(out), "--json", "--seed", "5") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["test_accuracy"] > 0.9
    assert facts["epsilon"] <= 2.0
    rows = Ledger(out / "ledger.db").account("training").rows()
    charged = [row.event for row in rows if row.kind == "charge"]
    assert len(charged) == 2  # scaler, softmax: patches read nothing
    whole = accounting.guarantee(Ledger(out / "ledger.db").account("training").event, delta=1e-5)
    assert whole.epsilon == pytest.approx(facts["epsilon"], rel=1e-6)
    head, pipeline = linear.load(out), features.load(out / "features.safetensors")
    assert head.predict(pipeline.transform(torch.rand(3, 1, 12, 12))).shape == (3,)


def test_texts_have_a_recipe_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draws = numpy.random.default_rng(0)
    labels = draws.integers(2, size=4_000)
    rest = [" ".join(f"w{word}" for word in draws.integers(500, size=8)) for _ in labels]
    texts = [f"{other} {'fine' if label else 'dull'}" for other, label in zip(rest, labels, strict=True)]
    found = LabelledTexts(
        name="imdb", texts=tuple(texts), labels=tuple(labels.tolist()), label_names=("negative", "positive")
    )
    monkeypatch.setattr("hush.data.load_labelled_texts", lambda name, folder=None: found)
    assert run("imdb-words", "--epsilon", "8", "--out", str(tmp_path / "run"), "--json", "--seed", "5") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["test_accuracy"] > 0.9
    assert facts["epsilon"] <= 8.0
    rows = Ledger(tmp_path / "run" / "ledger.db").account("training").rows()
    assert len([row for row in rows if row.kind == "charge"]) == 2  # how much a column is used, softmax
    pipeline = features.load(tmp_path / "run" / "features.safetensors")
    assert linear.load(tmp_path / "run").predict(pipeline.transform(["so fine", "so dull"])).tolist() == [1, 0]


def test_a_shared_account_with_too_little_left_stops_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    books = tmp_path / "books.db"
    Ledger(books).account("stripes", cap=Budget(epsilon=0.5, delta=1e-5))
    assert run("stripes", "--epsilon", "2", "--out", str(tmp_path / "run"), "--ledger", str(books)) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing", "--epsilon", "1"), "--recipe must be one of"),
        (("stripes",), "--epsilon is needed"),
        (("stripes", "--epsilon", "1", "--data", "mnist"), "--data does not go with --recipe"),
        (("stripes", "--epsilon", "1", "--clip-norm", "0"), "clip_norm must be"),
        (("stripes", "--epsilon", "1", "--clip-norm", "-1"), "clip_norm must be"),
        (("stripes", "--epsilon", "1", "--steps", "0"), "steps"),
        (("stripes", "--epsilon", "1", "--relation", "zero_out"), "relation must be one of"),
        (("stripes", "--epsilon", "1", "--optimizer", "adam"), "--optimizer does not go with --recipe"),
        (("stripes", "--epsilon", "1", "--average", "ema"), "--average does not go with --recipe"),
        (("stripes", "--epsilon", "1", "--account", "foo"), "--account is an account of a shared ledger"),
        (("stripes", "--epsilon", "1", "--delta", "0.5"), "--delta must be above 0 and below 1 / 6,000"),
        (("stripes", "--epsilon", "1", "--delta", "0"), "--delta must be above 0"),
        (("stripes", "--epsilon", "nan"), "epsilon must be"),
    ],
)
def test_bad_words_get_one_line(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words, "--out", str(tmp_path / "run")) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert message in " ".join(lines)
    assert not (tmp_path / "run").exists()  # nothing was charged


def test_the_report_shows_every_charge_and_an_edited_run_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run("stripes", "--epsilon", "2", "--out", str(out), "--no-twin") == 0
    capsys.readouterr()
    assert main.run(["report", str(out), "--json"]) == 0
    ledger = json.loads(capsys.readouterr().out)["ledger"]
    assert (len([row for row in ledger["rows"] if row["kind"] == "charge"]), ledger["other_rows"]) == (2, 0)
    facts = json.loads((out / "run.json").read_text())
    facts["settings"]["spent"], facts["event"] = None, facts["charged"]
    event = events.from_dict(facts["event"])
    facts["guarantee"] |= accounting.guarantee(event, delta=facts["guarantee"]["delta"]).to_dict()
    (out / "run.json").write_text(json.dumps(facts))
    assert main.run(["report", str(out)]) != 0
    assert "was edited" in " ".join(capsys.readouterr().err.split())
