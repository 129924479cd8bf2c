"""Events to JSON and back, through an explicit list of kinds: a file can name an event, never run code.

>>> to_json(kinds.Repeated(kinds.Gaussian(1.5), times=3))
'{"event":"Repeated","of":{"event":"Gaussian","noise_multiplier":1.5},"times":3}'
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from hush.errors import HushError, UnreadableFile
from hush.events import kinds

KINDS: dict[str, type[kinds.Event]] = {
    kind.__name__: kind
    for kind in (
        kinds.Gaussian,
        kinds.Laplace,
        kinds.RandomizedResponse,
        kinds.PureDP,
        kinds.ApproximateDP,
        kinds.ZeroConcentratedDP,
        kinds.GaussianDP,
        kinds.NotPrivate,
        kinds.MatrixGaussian,
        kinds.PoissonSampled,
        kinds.FixedSizeSampled,
        kinds.Repeated,
        kinds.Composed,
    )
}
DEEPEST = 64  # nesting beyond this is refused, so that a hostile file cannot exhaust the stack


def to_dict(event: kinds.Event) -> dict[str, Any]:
    """The event as plain values; the inner event of a sampled or repeated one is under "of"."""
    if isinstance(event, kinds.Composed):
        return {"event": "Composed", "of": [to_dict(part) for part in event.events]}
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    inner = values.pop("event", None)
    return {"event": type(event).__name__, **({} if inner is None else {"of": to_dict(inner)}), **values}


def from_dict(data: object, *, _depth: int = 0) -> kinds.Event:
    """The event that `to_dict` described; anything else is refused with the reason."""
    if _depth > DEEPEST:
        raise UnreadableFile(f"an event may be nested {DEEPEST} deep at most; this one goes deeper.")
    if not isinstance(data, dict) or not isinstance(data.get("event"), str):
        raise UnreadableFile(f'an event must be an object with a name under "event"; got {_short(data)}.')
    values = dict(data)
    name = values.pop("event")
    kind = KINDS.get(name)
    if kind is None:
        raise UnreadableFile(f"unknown event {name[:40]!r}; known are {', '.join(KINDS)}.")
    if kind is kinds.Composed:
        return kinds.Composed(*_inner_list(values, _depth))
    expected = {("of" if field.name == "event" else field.name) for field in fields(kind)}
    if set(values) != expected:
        raise UnreadableFile(
            f"{name} needs exactly the fields {sorted(expected) or 'none'}; got {_short(sorted(values))}."
        )
    if "of" in values:
        values["event"] = from_dict(values.pop("of"), _depth=_depth + 1)
    try:
        return kind(**values)
    except HushError as error:
        raise UnreadableFile(f"{name}: {error}") from None


def _inner_list(values: dict[str, Any], depth: int) -> list[kinds.Event]:
    if set(values) != {"of"} or not isinstance(values["of"], list):
        raise UnreadableFile('Composed needs exactly one field, "of", a list of events.')
    return [from_dict(part, _depth=depth + 1) for part in values["of"]]


def to_json(event: kinds.Event) -> str:
    """One line of JSON; the same event always gives the same text."""
    return json.dumps(to_dict(event), separators=(",", ":"), allow_nan=False)


def from_json(text: str | bytes) -> kinds.Event:
    """The event in a line of JSON."""
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError, TypeError) as error:
        raise UnreadableFile(f"this is not an event in JSON: {_short(str(error))}.") from None
    return from_dict(data)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
