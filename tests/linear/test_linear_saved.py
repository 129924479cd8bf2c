"""Models in folders: what was saved is read back, and what was edited is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import safetensors.numpy

import hush
from hush.errors import HushError, InvalidValue, UnreadableFile
from hush.ledger import Ledger
from hush.linear import (
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateSoftmaxHead,
    PrivateTheilSen,
    load,
    repeats,
    save,
)

MODELS = {
    "two classes": PrivateLogisticRegression(1.0, data_norm=3.0, classes=["no", "yes"], random_state=1),
    "numbered classes": PrivateLogisticRegression(2.0, 1e-5, "gradient", 3.0, classes=[0, 1, 2], steps=3),
    "output": PrivateLogisticRegression(2.0, None, "output", 3.0, classes=[0, 1], relation="replace_one"),
    "adassp": PrivateLinearRegression(1.0, 1e-6, bounds=((0.0, numpy.array([1.0, 2.0])), (0, 3))),
    "ridge": PrivateLinearRegression(1.0, None, "output", (2.0, 3.0), fit_intercept=False),
    "theil-sen": PrivateTheilSen(1.0, (0, 1), (0, 3)),
    "softmax head": PrivateSoftmaxHead(
        1.0, 1e-5, classes=[0, 1, 2], data_norm=2.0, steps=3, spent=hush.events.Gaussian(20.0)
    ),
}


@pytest.fixture(params=MODELS, ids=str)
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path, numpy.ndarray]:
    repeats.forget()
    model = MODELS[request.param]
    x = numpy.random.default_rng(0).uniform(size=(200, 1 if request.param == "theil-sen" else 2))
    y: Any = x[:, 0]
    if isinstance(model, PrivateLogisticRegression | PrivateSoftmaxHead):
        known = numpy.asarray(model.classes)
        y = known[(y * len(known)).astype(int)]
    account = Ledger(tmp_path / "ledger.db").account("rows", cap=None, relation=model.relation)
    if getattr(model, "spent", None) is not None:
        account.charge(model.spent)
    save(model.fit(x, y, account=account), tmp_path, account=account)
    return model, tmp_path, x


def test_what_was_saved_is_read_back(saved: tuple[Any, Path, numpy.ndarray]) -> None:
    model, folder, x = saved
    found = load(folder)
    assert type(found) is type(model)
    assert (found.predict(x) == model.predict(x)).all()
    assert found.predict(x).dtype == model.predict(x).dtype
    assert found.guarantee_ == model.guarantee_
    assert found.event_ == model.event_
    assert getattr(found, "alpha_", None) == getattr(model, "alpha_", None)
    assert (found.epsilon, found.relation, found.n_features_in_) == (model.epsilon, model.relation, x.shape[1])
    assert found.random_state is None
    assert found.randomness_ == model.randomness_


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    facts = json.loads((folder / "run.json").read_text())
    change(facts)
    (folder / "run.json").write_text(json.dumps(facts))


def other_event(facts: dict[str, Any]) -> None:
    facts["event"] = facts["charged"] = hush.events.to_dict(hush.events.PureDP(0.01))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda facts: facts["guarantee"].update(epsilon=0.1), "is not that of its event"),
        (lambda facts: facts["guarantee"].update(delta=0.5), "is not that of its event"),
        (lambda facts: facts["settings"].update(relation="zero_out"), "relation|is not that of its event"),
        (other_event, "the ledger do not say the same"),
        (lambda facts: facts.update(charged=hush.events.to_dict(hush.events.PureDP(0.01))), "do not belong together"),
        (lambda facts: facts.update(account="nobody"), "nobody"),
        (lambda facts: facts.update(format=9), "format 9"),
        (lambda facts: facts.update(model="mlp"), "hush.Run.load"),
        (lambda facts: facts.pop("event"), "event"),
        (lambda facts: facts["settings"].update(lost=1), "lost"),
        (lambda facts: facts.update(weights_sha256="0" * 64), "is not the one"),
    ],
)
@pytest.mark.parametrize("saved", ["two classes"], indirect=True)
def test_an_edited_run_file_is_refused(
    saved: tuple[Any, Path, Any], change: Callable[[dict[str, Any]], None], words: str
) -> None:
    edit(saved[1], change)
    with pytest.raises(HushError, match=words) as caught:
        load(saved[1])
    assert "\n" not in str(caught.value)


def without_what_was_spent(facts: dict[str, Any]) -> None:
    """All of run.json says the same then, and less than was charged."""
    facts["settings"]["spent"] = None
    facts["event"] = facts["charged"]
    event = hush.events.from_dict(facts["event"])
    facts["guarantee"] |= hush.accounting.guarantee(event, delta=facts["guarantee"]["delta"]).to_dict()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_what_was_spent, "was edited"),
        (lambda facts: facts["classes"].reverse(), "was edited"),
        (lambda facts: facts["classes"].pop(), "was edited"),
        (lambda facts: facts["settings"].update(epsilon=0.5), "was edited"),
        (lambda facts: facts.update(randomness="a better source"), "was edited"),
        (lambda facts: facts.update(files={"run.json": "0"}), "is not the one"),
        (lambda facts: facts.update(files={"../elsewhere": "0"}), "is not the one"),
        (lambda facts: facts.update(settings=[]), "is not a model"),
        (lambda facts: facts.update(files=[]), "was edited"),
    ],
)
@pytest.mark.parametrize("saved", ["softmax head"], indirect=True)
def test_a_run_file_that_agrees_with_itself_alone_is_refused(
    saved: tuple[Any, Path, Any], change: Callable[[dict[str, Any]], None], words: str
) -> None:
    edit(saved[1], change)
    with pytest.raises(UnreadableFile, match=words) as caught:
        load(saved[1])
    assert "\n" not in str(caught.value)


def test_a_model_whose_features_were_not_charged_is_not_saved(tmp_path: Path) -> None:
    x, y = numpy.eye(3).repeat(50, axis=0), numpy.arange(3).repeat(50)
    account = Ledger(tmp_path / "ledger.db").account("rows", cap=None)
    model = MODELS["softmax head"].fit(x, y, account=account)
    with pytest.raises(InvalidValue, match="was not charged for all"):
        save(model, tmp_path / "run", account=account, ledger=str(tmp_path / "ledger.db"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("saved", ["softmax head"], indirect=True)
def test_files_that_belong_to_a_model_are_kept_with_it(saved: tuple[Any, Path, Any]) -> None:
    model, folder, x = saved
    (folder / "features.bin").write_bytes(b"sums")
    account = Ledger(folder / "ledger.db").account("rows")
    save(model, folder, account=account, files=["features.bin"])
    assert (load(folder).predict(x) == model.predict(x)).all()
    (folder / "features.bin").write_bytes(b"other sums")
    with pytest.raises(UnreadableFile, match=r"features\.bin is not the one"):
        load(folder)
    (folder / "features.bin").unlink()
    with pytest.raises(UnreadableFile, match=r"features\.bin is not the one"):
        load(folder)


@pytest.mark.parametrize("saved", ["two classes"], indirect=True)
def test_other_weights_broken_files_and_other_folders_are_refused(saved: tuple[Any, Path, Any]) -> None:
    folder = saved[1]
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    safetensors.numpy.save_file({key: value + 1 for key, value in weights.items()}, folder / "model.safetensors")
    with pytest.raises(UnreadableFile, match="is not the one"):
        load(folder)
    (folder / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UnreadableFile, match="cannot be read"):
        load(folder)
    (folder / "run.json").write_text("[")
    with pytest.raises(UnreadableFile, match="cannot be read"):
        load(folder)
    with pytest.raises(UnreadableFile, match="cannot be read"):
        load(folder / "nowhere")


@pytest.mark.parametrize("saved", ["ridge"], indirect=True)
def test_run_load_says_who_reads_it(saved: tuple[Any, Path, Any]) -> None:
    with pytest.raises(UnreadableFile, match=r"read it with hush\.linear\.load"):
        hush.Run.load(saved[1])


def test_only_fitted_models_are_saved(tmp_path: Path) -> None:
    account = Ledger(tmp_path / "ledger.db").account("rows", cap=None)
    with pytest.raises(InvalidValue, match="call fit first"):
        save(PrivateTheilSen(1.0, (0, 1), (0, 1)), tmp_path, account=account)
