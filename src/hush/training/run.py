"""A run: one training that happened, on disk as safetensors and JSON.

run.json             the plan, the guarantee, what was charged; may be shown
model.safetensors    the weights; may be shown
ledger.db            the charges, unless a shared ledger was given
not_private.json     losses and the like, read from the data without noise: not for everybody
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hush import _digest, events
from hush.audit.result import AuditResult
from hush.errors import HushError, InvalidValue, UnreadableFile
from hush.ledger import Ledger
from hush.ledger.noted import charged_event
from hush.privacy import Evidence, Guarantee
from hush.training import checkpoint, plan_text
from hush.training.books import LEDGER_FILE
from hush.training.checkpoint import CHECKPOINT_FILE
from hush.training.costs import cost
from hush.training.earlier import Earlier, remember
from hush.training.files import load_weights, read_tensors, replaced, write_tensors, write_text
from hush.training.history import History
from hush.training.plan import TrainingPlan

RUN_FILE, MODEL_FILE, NOT_PRIVATE_FILE = "run.json", "model.safetensors", "not_private.json"
FORMAT = 2


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        plan: What was planned.
        guarantee: What everything charged for this run costs, repeats after a crash included.
        event: Everything charged for this run.
        ledger: Where it was charged, to `account`, in rows with the note `note`.
        steps: How many steps are in the weights.
        complete: Whether those are all steps of the plan.
        weights: The model's state.
        history: What was seen on the way. Not private.
        notes: What a reader of the guarantee should know.
        randomness: Where noise and sampling came from.
        is_copy: Whether another process of a distributed run keeps the books and the files; `save` does nothing then.
            Of a sharded model a copy has no weights.
        audit: What `fit(..., audit=True)` found; it was read from canaries and noise alone, so it may be shown.
    """

    plan: TrainingPlan
    guarantee: Guarantee
    event: events.Event
    ledger: Ledger
    account: str
    note: str
    steps: int
    weights: dict[str, Tensor] = field(repr=False)
    history: History = field(repr=False)
    notes: tuple[str, ...] = ()
    randomness: str = ""
    own_ledger: Path | None = field(default=None, repr=False)
    keep: object = field(default=None, repr=False)  # holds the temporary folder of a ledger that was not saved yet
    audit: AuditResult | None = None
    is_copy: bool = field(default=False, repr=False)

    @property
    def complete(self) -> bool:
        """Whether all steps of the plan were taken."""
        return self.steps == self.plan.steps

    @property
    def evidence(self) -> Evidence | None:
        """The audit's lower bound on epsilon, or None where there was no audit."""
        return None if self.audit is None else self.audit.evidence

    def load_into(self, model: nn.Module) -> None:
        """Give a model of the same shape these weights."""
        load_weights(model, self.weights)
        record = Earlier(
            self.note, (lambda: self.event) if self.plan.private else None, self.plan.relation, self.plan.delta
        )
        remember(dict(model.named_parameters()), record)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the run into a folder; `run.json` comes last, so a folder that has it is whole.

        Raises:
            InvalidValue: The folder holds another run, finished or not, or a ledger with charges that are not this
                run's. Nothing was written.
        """
        if self.is_copy:
            return
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        _check_free(folder, self)
        facts = self.to_dict()
        write_tensors(folder / MODEL_FILE, self.weights, {"note": self.note, _digest.RUN: _digest.of_facts(facts)})
        facts[_digest.WEIGHTS] = _digest.of_file(folder / MODEL_FILE)
        write_text(folder / NOT_PRIVATE_FILE, json.dumps(_history_dict(self.history)))
        if self.own_ledger is not None:
            _copy_ledger(self.ledger, self.own_ledger, folder / LEDGER_FILE)
        write_text(folder / RUN_FILE, json.dumps(facts, indent=2, allow_nan=False) + "\n")

    def to_dict(self) -> dict[str, Any]:
        """What may be shown of the run, as plain values under the glossary's words."""
        place = None if self.own_ledger is not None else repr(self.ledger)[len("Ledger('") : -2]
        return {
            "format": FORMAT,
            "note": self.note,
            "plan": plan_text.to_dict(self.plan),
            "plan_fingerprint": self.plan.fingerprint,
            "steps": self.steps,
            "complete": self.complete,
            "guarantee": self.guarantee.to_dict(),
            "event": events.to_dict(self.event),
            "ledger": place,
            "account": self.account,
            "randomness": self.randomness,
            "notes": list(self.notes),
            "audit": None if self.audit is None else self.audit.to_dict(),
            "clip_norms": [value for value in self.history.clip_norms if value < math.inf]
            if self.plan.adaptive is not None
            else [],
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Run:
        """The run in a folder. Its guarantee is computed anew from the charges and must be the written one."""
        folder = Path(path)
        data = _read_json(folder / RUN_FILE)
        try:
            return _from_dict(folder, data)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            if isinstance(error, HushError):
                raise
            raise UnreadableFile(f"{RUN_FILE} is not a run of Hush: {str(error)[:80]}.") from None


def _from_dict(folder: Path, data: dict[str, Any]) -> Run:
    if "plan" not in data and "model" in data:
        raise UnreadableFile(f"{RUN_FILE} is a model that was fitted at once: read it with hush.linear.load(folder).")
    if data["format"] != FORMAT:
        raise UnreadableFile(f"{RUN_FILE} has format {data['format']!r} and this Hush reads {FORMAT}.")
    plan = plan_text.from_dict(TrainingPlan, data["plan"])
    event = events.from_dict(data["event"])
    own = folder / LEDGER_FILE if data["ledger"] is None else None
    ledger = Ledger.open(own if own is not None else data["ledger"], create=False)
    ledger.verify()
    guarantee = cost(event, delta=plan.delta, relation=plan.relation)
    caveats = [note for note in data["notes"] if note in data["guarantee"]["notes"][len(guarantee.notes) :]]
    guarantee = replace(guarantee, notes=(*guarantee.notes, *caveats))  # seen in training, not in the event
    if charged_event(ledger.account(data["account"]), data["note"]) != event or not guarantee.agrees_with(
        data["guarantee"]
    ):
        raise UnreadableFile(f"{RUN_FILE} and the ledger do not say the same: one of them was edited.")
    weights, metadata = read_tensors(folder / MODEL_FILE)
    if metadata.get("note") != data["note"]:
        raise UnreadableFile(f"{MODEL_FILE} belongs to another run.")
    _digest.check_pair(data, folder / MODEL_FILE, metadata)
    return Run(
        plan=plan,
        guarantee=guarantee,
        event=event,
        ledger=ledger,
        account=data["account"],
        note=data["note"],
        steps=data["steps"],
        weights=weights,
        history=_read_history(folder / NOT_PRIVATE_FILE),
        notes=tuple(data["notes"]),
        randomness=data["randomness"],
        own_ledger=own,
        audit=None if data.get("audit") is None else AuditResult.from_dict(data["audit"], guarantee),
    )


def _check_free(folder: Path, run: Run) -> None:
    """Refuse a folder that holds the record of anything else: a run, one that was interrupted, or a ledger."""
    if (folder / RUN_FILE).exists() and _read_json(folder / RUN_FILE).get("note") != run.note:
        raise InvalidValue(f"{folder} holds another run; choose another folder.")
    if (folder / CHECKPOINT_FILE).exists() and checkpoint.read(folder / CHECKPOINT_FILE).run != run.note:
        raise InvalidValue(f"{folder} holds a run that was interrupted; go on with it, or choose another folder.")
    target = folder / LEDGER_FILE
    if target.exists() and run.own_ledger is not None and not target.samefile(run.own_ledger):
        try:
            run.ledger.verify(Ledger.open(target, create=False).verify().heads)
        except HushError:
            raise InvalidValue(
                f"{folder} holds a {LEDGER_FILE} with charges that are not this run's; choose another folder."
            ) from None


def _copy_ledger(ledger: Ledger, source: Path, target: Path) -> None:
    if target.exists() and target.samefile(source):
        return
    with tempfile.TemporaryDirectory(prefix="hush-") as folder, replaced(target) as scratch:
        export = Path(folder) / "ledger.jsonl"
        ledger.export_jsonl(export)
        Ledger.import_jsonl(export, scratch)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{path.name} cannot be read: {str(error)[:120]}.") from None
    if not isinstance(data, dict):
        raise UnreadableFile(f"{path.name} is not a JSON object.")
    return data


def _history_dict(history: History) -> dict[str, Any]:
    return {
        "warning": "read from the data without noise: not covered by the guarantee",
        "loss": [value if math.isfinite(value) else None for value in history.loss],
        "nonfinite": history.nonfinite,
        "clip_norms": [None if value == math.inf else value for value in history.clip_norms],
        "norms": [value if math.isfinite(value) else None for value in history.norms],
        "clipped": [value if math.isfinite(value) else None for value in history.clipped],
    }


def _read_history(path: Path) -> History:
    if not path.exists():  # somebody passed the run on without it, as they should
        return History()
    data = _read_json(path)
    return History(
        loss=[math.nan if value is None else float(value) for value in data.get("loss", [])],
        nonfinite=[int(value) for value in data.get("nonfinite", [])],
        clip_norms=[math.inf if value is None else float(value) for value in data.get("clip_norms", [])],
        norms=[math.nan if value is None else float(value) for value in data.get("norms", [])],
        clipped=[math.nan if value is None else float(value) for value in data.get("clipped", [])],
    )
