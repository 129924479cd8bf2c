"""An interrupted run of `hush pate` goes on without paying twice.

The folder of a run holds `started.json` (what was asked for) from the start, `labels.json` as soon as the labels are
paid for, and `run.json` at the end, when the other two go. Where the labels are there, only the student is trained.
Where nothing was charged, nothing has left, and the run begins again. Where the votes were charged and no labels are
there, going on is refused: fresh noise on the same votes would be a second release under one charge.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from hush.errors import ResumeRefused, UnreadableFile
from hush.events import Event
from hush.ledger import Account
from hush.pate.votes import Integers
from hush.privacy import Budget, Guarantee, Relation

STARTED, LABELS, FINISHED = "started.json", "labels.json", "run.json"
VOTES, RELEASE = "votes", "sanitised epsilon"


@dataclass(frozen=True, eq=False)
class Released:
    """What left the vote and was paid for: all of it may be published."""

    rows: Integers
    labels: Integers
    asked: int
    data_independent: Guarantee
    sanitised: Guarantee | None

    @property
    def answered(self) -> numpy.ndarray[Any, numpy.dtype[numpy.bool_]]:
        """Which queries have a label."""
        found: numpy.ndarray[Any, numpy.dtype[numpy.bool_]] = self.labels >= 0
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "rows_asked": self.rows.tolist(),
            "labels": self.labels.tolist(),
            "asked": self.asked,
            "data_independent": self.data_independent.to_dict(),
            "sanitised": None if self.sanitised is None else self.sanitised.to_dict(),
        }


@dataclass(frozen=True)
class Payer:
    """The run's account, with the run's name at each charge."""

    account: Account
    run: str

    @property
    def cap(self) -> Budget | None:
        """The account's cap."""
        return self.account.cap

    @property
    def relation(self) -> Relation:
        """The account's relation."""
        return self.account.relation

    def would_exceed(self, event: Event, /) -> bool:
        """Whether the event does not fit into what is left."""
        return self.account.would_exceed(event)

    def charge(self, event: Event, /, what: str = VOTES) -> None:
        """Charge the event under the run's name."""
        self.account.charge(event, note=self._note(what))

    def has_paid(self, what: str) -> bool:
        """Whether this run has charged that before."""
        return any(row.note == self._note(what) for row in self.account.rows())

    def _note(self, what: str) -> str:
        return f"hush pate, run {self.run}: {what}"


class Progress:
    """How far the run in a folder has come."""

    def __init__(self, folder: Path, request: Mapping[str, Any], *, resume: bool) -> None:
        self.folder = folder
        wanted = json.loads(json.dumps(dict(request)))
        if resume:
            self.run = _agreed(folder, wanted)
            return
        self.run = secrets.token_hex(8)
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / STARTED, {"run": self.run, "request": wanted})

    @property
    def has_labels(self) -> bool:
        """Whether the labels are paid for and kept."""
        return (self.folder / LABELS).exists()

    def released(self, payer: Payer) -> Released | None:
        """The labels that are paid for; None if nothing was charged for them yet."""
        if self.has_labels:
            return _read(self.folder / LABELS)
        if payer.has_paid(VOTES):
            raise ResumeRefused(
                f"the votes of the run in {self.folder} were charged, but it ended before its labels were kept; "
                "start again with another --out, which charges again."
            )
        return None

    def keep(self, released: Released) -> None:
        """Write the labels: from here on the run can go on without its votes."""
        write(self.folder / LABELS, released.to_dict())

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write what the run promises, and remove what was only needed to go on."""
        write(self.folder / FINISHED, {"run": self.run, **facts})
        for name in (LABELS, STARTED):
            (self.folder / name).unlink(missing_ok=True)


def write(path: Path, content: Mapping[str, Any]) -> None:
    """A JSON file, whole or not at all."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with scratch.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)


def _agreed(folder: Path, wanted: dict[str, Any]) -> str:
    """The name of the run in the folder, if it was asked for the same."""
    if (folder / FINISHED).exists():
        raise ResumeRefused(f"the run in {folder} is finished; choose another --out for a new one.")
    try:
        found = json.loads((folder / STARTED).read_text(encoding="utf-8"))
        run, request = str(found["run"]), dict(found["request"])
    except FileNotFoundError:
        raise ResumeRefused(f"{folder} holds no run of hush pate to go on with; leave out --resume.") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise UnreadableFile(f"{folder / STARTED} cannot be read; start again with another --out.") from None
    changed = sorted(name for name in {*wanted, *request} if wanted.get(name) != request.get(name))
    if changed:
        names = ", ".join("--" + name.replace("_", "-") for name in changed)
        raise ResumeRefused(f"the run in {folder} was started with another {names}; go on with the same options.")
    return run


def _read(path: Path) -> Released:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Released(
            rows=numpy.array(found["rows_asked"], dtype=numpy.int64),
            labels=numpy.array(found["labels"], dtype=numpy.int64),
            asked=int(found["asked"]),
            data_independent=_guarantee(found["data_independent"]),
            sanitised=None if found["sanitised"] is None else _guarantee(found["sanitised"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        raise UnreadableFile(f"{path} cannot be read; start again with another --out, which charges again.") from None


def _guarantee(values: dict[str, Any]) -> Guarantee:
    return Guarantee(**{**values, "notes": tuple(values["notes"])})
