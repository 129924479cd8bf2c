"""A fitted model in a folder: run.json and model.safetensors, beside the ledger that was charged.

`run.json` has the settings, the event, the guarantee, the account, and digests of the weights and of other files that
belong to the model; the weights have a digest of `run.json`. Reading computes the guarantee anew from the event, looks
for all of that event in the ledger, and compares the digests: a file that was edited alone is refused. Whoever edits
all of them can write what they like.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import safetensors
import safetensors.numpy
from safetensors import SafetensorError

from hush import _digest, accounting, events
from hush.errors import HushError, InvalidValue, UnreadableFile
from hush.ledger import Account, Ledger
from hush.ledger.covering import covers
from hush.linear.estimator import PrivateEstimator
from hush.linear.head import PrivateSoftmaxHead
from hush.linear.logistic import PrivateLogisticRegression
from hush.linear.regression import PrivateLinearRegression
from hush.linear.theil_sen import PrivateTheilSen
from hush.privacy import Guarantee

RUN_FILE, MODEL_FILE, LEDGER_FILE = "run.json", "model.safetensors", "ledger.db"
FORMAT = 2
_NOT_KEPT = ("classes", "random_state")  # the former is kept as the learned classes, the latter must not be
_CLASSES: dict[str, Any] = {
    "logistic": PrivateLogisticRegression,
    "softmax-head": PrivateSoftmaxHead,
    "linear": PrivateLinearRegression,
    "theil-sen": PrivateTheilSen,
}


def save(
    model: PrivateEstimator,
    path: str | os.PathLike[str],
    *,
    account: Account,
    ledger: str | None = None,
    files: Sequence[str] = (),
) -> None:
    """Write a fitted model into a folder.

    Args:
        model: The model, fitted with `account`.
        path: The folder.
        account: What the fit was charged to, and what was `spent` before it.
        ledger: Where that account's ledger is; None means `ledger.db` in the folder itself.
        files: Names of files in the folder that belong to the model, such as its features: `load` refuses other ones.
    """
    fitted: Any = model
    name = next((name for name, kind in _CLASSES.items() if type(model) is kind), None)
    if name is None or not hasattr(model, "coef_"):
        raise InvalidValue("only a fitted model of hush.linear can be saved: call fit first.")
    if not covers(account.rows(), model.event_):
        raise InvalidValue(
            f"account {account.name!r} was not charged for all that the model cost: fit it, and the features before "
            "it, with account=..."
        )
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"coef": numpy.atleast_2d(fitted.coef_), "intercept": numpy.atleast_1d(fitted.intercept_)}
    whole = {key: numpy.ascontiguousarray(value, dtype=numpy.float64) for key, value in tensors.items()}
    settings = {key: value for key, value in model.get_params(deep=False).items() if key not in _NOT_KEPT}
    facts = {
        "format": FORMAT,
        "model": name,
        "settings": settings,
        "classes": numpy.asarray(getattr(model, "classes_", [])).tolist(),
        "alpha": getattr(model, "alpha_", None),
        "guarantee": model.guarantee_.to_dict(),
        "event": events.to_dict(model.event_),
        "charged": events.to_dict(model.charged_),
        "ledger": ledger,
        "account": account.name,
        "randomness": model.randomness_,
        "files": {file: _digest.of_file(folder / file) for file in files},
    }
    weights = safetensors.numpy.save(whole, metadata={_digest.RUN: _digest.of_facts(facts, _plain)})
    facts[_digest.WEIGHTS] = _digest.of_bytes(weights)
    (folder / MODEL_FILE).write_bytes(weights)
    (folder / RUN_FILE).write_text(json.dumps(facts, indent=2, default=_plain) + "\n", encoding="utf-8")


def _plain(value: object) -> Any:
    """Arrays of bounds, numbers of numpy's kinds, and what was spent before."""
    if isinstance(value, numpy.ndarray | numpy.generic):
        return value.tolist()
    if isinstance(value, events.Event):
        return events.to_dict(value)
    raise InvalidValue(f"a setting of type {type(value).__name__} cannot be written as JSON.")


def load(path: str | os.PathLike[str]) -> Any:
    """The fitted model in a folder that `save` or `hush train --model logistic|linear|theil-sen` wrote.

    It predicts as before, and has `guarantee_` and `event_`.

    Raises:
        UnreadableFile: The folder holds something else, or files that do not say the same.
    """
    folder = Path(path)
    facts = _facts(folder)
    try:
        return _model(folder, facts)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, HushError):
            raise
        raise UnreadableFile(f"{RUN_FILE} is not a model of hush.linear: {str(error)[:80]}.") from None


def _facts(folder: Path) -> dict[str, Any]:
    try:
        facts = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{RUN_FILE} cannot be read: {str(error)[:120]}.") from None
    if not isinstance(facts, dict) or facts.get("model") not in _CLASSES:
        raise UnreadableFile(f"{RUN_FILE} is not a model of hush.linear; a run of steps is read by hush.Run.load.")
    if facts.get("format") != FORMAT:
        raise UnreadableFile(f"{RUN_FILE} has format {facts.get('format')!r} and this Hush reads {FORMAT}.")
    return facts


def _model(folder: Path, facts: dict[str, Any]) -> Any:
    model = _CLASSES[facts["model"]](**{key: _setting(key, value) for key, value in facts["settings"].items()})
    event, charged = (events.from_dict(facts[key]) for key in ("event", "charged"))
    spent = getattr(model, "spent", None)
    if event != (charged if spent is None else events.Composed(spent, charged)):
        raise UnreadableFile(f"the events in {RUN_FILE} do not belong together: one of them was edited.")
    _check_charge(folder, facts, event)
    guarantee = _guarantee(facts, event)
    tensors = _tensors(folder, facts)
    coef, intercept = tensors["coef"], tensors["intercept"]
    if facts["classes"]:
        model.classes_ = numpy.array(facts["classes"])
        model.coef_, model.intercept_ = coef, intercept
    else:
        model.coef_, model.intercept_ = coef.ravel(), float(intercept[0])
    if facts["alpha"] is not None:
        model.alpha_ = float(facts["alpha"])
    model.n_features_in_ = coef.shape[1]
    model.event_, model.charged_, model.randomness_ = event, charged, facts["randomness"]
    model.guarantee_ = guarantee
    return model


def _setting(key: str, value: Any) -> Any:
    return events.from_dict(value) if key == "spent" and value is not None else _pairs(value)


def _pairs(value: Any) -> Any:
    """Lists of JSON as the tuples that they were."""
    return tuple(_pairs(part) for part in value) if isinstance(value, list) else value


def _guarantee(facts: dict[str, Any], event: events.Event) -> Guarantee:
    """The guarantee, computed anew; the notes are the written ones."""
    written = facts["guarantee"]
    found = accounting.guarantee(event, delta=written["delta"], relation=written["relation"])
    result = Guarantee(**{**found.to_dict(), "notes": tuple(str(note) for note in written["notes"])})
    if not result.agrees_with(written) or written["relation"] != facts["settings"]["relation"]:
        raise UnreadableFile(f"the guarantee in {RUN_FILE} is not that of its event: one of them was edited.")
    return result


def _check_charge(folder: Path, facts: dict[str, Any], event: events.Event) -> None:
    place = folder / LEDGER_FILE if facts["ledger"] is None else Path(facts["ledger"])
    ledger = Ledger.open(place, create=False)
    ledger.verify()
    if not covers(ledger.account(facts["account"]).rows(), event):
        raise UnreadableFile(f"{RUN_FILE} and the ledger do not say the same: one of them was edited.")


def _tensors(folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """The weights, if they, `run.json` and the files beside them were written together."""
    try:
        with safetensors.safe_open(folder / MODEL_FILE, framework="numpy") as file:
            notes, tensors = file.metadata() or {}, {name: file.get_tensor(name) for name in ("coef", "intercept")}
    except (OSError, SafetensorError) as error:
        raise UnreadableFile(f"{MODEL_FILE} cannot be read: {str(error)[:120]}.") from None
    _digest.check_pair(facts, folder / MODEL_FILE, notes)
    for name, digest in facts["files"].items():
        if Path(name).name != name or not (folder / name).is_file() or _digest.of_file(folder / name) != digest:
            raise UnreadableFile(f"{Path(name).name} is not the one that {RUN_FILE} was written for.")
    return tensors
