"""Which report a folder holds the makings of."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from hush.errors import HushError, UnreadableFile
from hush.report import words
from hush.report.about import read_json
from hush.report.content import content_of
from hush.report.of_audit import AUDIT_FILE, evidence_in, subject_of_audit
from hush.report.of_generation import subject_of_generation
from hush.report.of_linear import subject_of_linear
from hush.report.of_pate import subject_of_pate
from hush.report.of_training import subject_of_training
from hush.report.subject import Subject

RUN_FILE = "run.json"
_UNFINISHED = {"checkpoint.safetensors": "hush train", "started.json": "hush pate"}
_KINDS = {
    "plan": subject_of_training,
    "aggregator": subject_of_pate,
    "generation": subject_of_generation,
    "settings": subject_of_linear,
}


def read_subject(
    folder: str | os.PathLike[str], *, include_private: bool = False, ledger: str | None = None
) -> Subject:
    """What the folder's report is about; files that do not say the same are refused.

    Raises:
        UnreadableFile: The folder holds no run or audit of Hush, or one that was edited.
    """
    place = Path(folder)
    data = read_json(place / RUN_FILE)
    if data and ledger is not None:
        data["ledger"] = ledger
    try:
        if data:
            return _with_audit(place, _of_run(place, data, include_private))
        if audit := read_json(place / AUDIT_FILE):
            return subject_of_audit(audit)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, HushError):
            raise
        raise UnreadableFile(f"{place} is not a run of Hush: {str(error)[:80]}.") from None
    raise UnreadableFile(_reason(place))


def read(folder: str | os.PathLike[str], *, include_private: bool = False, ledger: str | None = None) -> dict[str, Any]:
    """The report on the run in a folder, as plain values.

    Args:
        folder: What `hush train`, `pate`, `prompt` or `audit --out`, `hush.fit` or `hush.linear.save` wrote.
        include_private: Also what was read from the data without noise. Such a report is not for publication.
        ledger: Where the ledger is, if not where the run says: it was moved, or its address needs a password.
    """
    return content_of(read_subject(folder, include_private=include_private, ledger=ledger))


def _of_run(place: Path, data: dict[str, Any], include_private: bool) -> Subject:
    for key, subject_of in _KINDS.items():
        if key in data:
            return subject_of(place, data, include_private=include_private)
    raise UnreadableFile(f"{place / RUN_FILE} is not of a kind that this Hush knows; a newer one may have written it.")


def _with_audit(place: Path, subject: Subject) -> Subject:
    known = [{**item, "source": ""} for item in subject.evidence]
    found = tuple(item for item in evidence_in(place) if {**item, "source": ""} not in known)
    if not found:
        return subject
    contradiction = words.warnings_of("", None, found)
    return replace(
        subject,
        evidence=(*subject.evidence, *found),
        warnings=tuple(dict.fromkeys([*subject.warnings, *contradiction])),
    )


def _reason(place: Path) -> str:
    if not place.is_dir():
        return f"there is no folder {place}."
    for name, command in _UNFINISHED.items():
        if (place / name).exists():
            return f"the run in {place} is not finished; go on with it by {command} --resume."
    return f"{place} holds no run of Hush: neither {RUN_FILE} nor {AUDIT_FILE} is there."
