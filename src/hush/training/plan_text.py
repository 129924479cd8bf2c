"""Plans to JSON and back. The text is canonical, so its sha256 says whether two plans are the same."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from hush.errors import HushError, UnreadableFile
from hush.privacy import Budget
from hush.training.clipping import AdaptiveClipping

if TYPE_CHECKING:
    from hush.training.plan import TrainingPlan

_INSIDE = {"budget": Budget, "adaptive": AdaptiveClipping}


def to_dict(plan: TrainingPlan) -> dict[str, Any]:
    """The plan as plain values; no clip norm is the text "infinity", since JSON has none."""
    values = asdict(plan)
    return {key: "infinity" if value == math.inf else value for key, value in values.items()}


def to_json(plan: TrainingPlan) -> str:
    """One line of JSON; the same plan always gives the same text."""
    return json.dumps(to_dict(plan), separators=(",", ":"), sort_keys=True, allow_nan=False)


def fingerprint(plan: TrainingPlan) -> str:
    """The sha256 of the plan's JSON."""
    return hashlib.sha256(to_json(plan).encode()).hexdigest()


def from_json(kind: type[TrainingPlan], text: str | bytes) -> TrainingPlan:
    """The plan in a line of JSON; anything else is refused with the reason."""
    try:
        return from_dict(kind, json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, HushError):
            raise
        raise UnreadableFile(f"this is not a plan in JSON: {str(error)[:80]}.") from None


def from_dict(kind: type[TrainingPlan], data: object) -> TrainingPlan:
    """The plan that `to_dict` described."""
    expected = {field.name for field in fields(kind)}
    if not isinstance(data, dict) or set(data) != expected:
        found = sorted(set(data) ^ expected) if isinstance(data, dict) else type(data).__name__
        raise UnreadableFile(f"a plan needs exactly its own fields; missing or unknown: {str(found)[:120]}.")
    values = dict(data)
    if values["clip_norm"] == "infinity":
        values["clip_norm"] = math.inf
    try:
        for name, inside in _INSIDE.items():
            if values[name] is not None:
                values[name] = inside(**values[name])
        return kind(**values)
    except (HushError, TypeError) as error:
        raise UnreadableFile(f"this plan cannot be read: {error}") from None
