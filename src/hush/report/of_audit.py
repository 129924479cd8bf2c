"""audit.json: what `hush audit --out` found, as the subject of a report or as evidence in a run's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hush import events
from hush.audit.result import AuditResult
from hush.errors import InvalidValue, UnreadableFile
from hush.privacy import Evidence, Guarantee, check_relation
from hush.report.about import guarantee_in, read_json, replace_text, versions
from hush.report.curves import equal_steps
from hush.report.subject import Subject

AUDIT_FILE = "audit.json"
FORMAT = 1


def save_audit(folder: Path, found: AuditResult | Evidence, *, source: str, event: events.Event | None = None) -> None:
    """Write what an audit found into a folder: one of its own, or that of the run that it speaks of."""
    if folder.exists() and not folder.is_dir():
        raise InvalidValue(f"{folder} is a file; name a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "format": FORMAT,
        "source": source,
        "event": None if event is None else events.to_dict(event),
        "audit": found.to_dict() if isinstance(found, AuditResult) else None,
        "evidence": found.to_dict() if isinstance(found, Evidence) else None,
        "versions": versions(),
    }
    replace_text(folder / AUDIT_FILE, json.dumps(content, indent=2, allow_nan=False) + "\n")


def evidence_in(folder: Path) -> tuple[dict[str, Any], ...]:
    """The evidence that a folder holds beside its run; empty if there is none."""
    data = read_json(folder / AUDIT_FILE)
    return () if not data else (_evidence(data)[0],)


def subject_of_audit(data: Mapping[str, Any]) -> Subject:
    """The subject that a folder with nothing but an audit holds."""
    item, guarantee = _evidence(data)
    event = None if data["event"] is None else events.from_dict(data["event"])
    relation = check_relation(item["evidence"]["relation"])
    return Subject(
        kind="audit",
        title=f"Audit of {data['source'].partition(',')[0]}",
        released="what this training releases",
        unit="example",
        relation=relation,
        guarantee=guarantee,
        event=event,
        steps=1 if event is None else equal_steps(event),
        facts=(("audited", data["source"]), ("method", item["evidence"]["method"])),
        evidence=(item,),
        assumptions=(
            *(("The claim is that of the plan: this report did not see the charges of a run.",) if guarantee else ()),
            "An audit refutes claims; it never proves one.",
        ),
        not_covered=("What a better attack would find: evidence is a lower end, and the truth may be far above it.",),
        notes=tuple(item["evidence"]["notes"]),
        warnings=("CONTRADICTION: the attack found more than the claim allows.",) if item.get("contradicts") else (),
        recorded_versions=data.get("versions", {}),
    )


def _evidence(data: Mapping[str, Any]) -> tuple[dict[str, Any], Guarantee | None]:
    """The evidence as plain values, judged anew, and the claim that it is held against."""
    try:
        if data["format"] != FORMAT:
            raise UnreadableFile(f"{AUDIT_FILE} has format {data['format']!r} and this Hush reads {FORMAT}.")
        if data["audit"] is None:
            own = {key: value for key, value in data["evidence"].items() if key != "confidence"}
            found = Evidence(**{**own, "notes": tuple(own["notes"])})
            return {"evidence": found.to_dict(), "source": str(data["source"]), "verdict": "nothing was claimed"}, None
        guarantee = guarantee_in(data["audit"]["guarantee"])
        result = AuditResult.from_dict(data["audit"], guarantee)
        return {**result.to_dict(), "source": str(data["source"])}, guarantee
    except (KeyError, TypeError) as error:
        raise UnreadableFile(f"{AUDIT_FILE} is not an audit of Hush: {str(error)[:80]}.") from None
