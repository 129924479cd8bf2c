"""A training in steps (`hush train`, `hush.fit`, soft prompts) as the subject of a report; torch is not needed.

What `hush.Run.load` checks is checked here too: the guarantee is computed anew from the charges, the ledger is whole,
and the weights are this run's. A file that was edited alone is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors

from hush import _digest, accounting, events
from hush.audit.result import AuditResult
from hush.errors import UnreadableFile
from hush.events import Composed, Repeated, flat
from hush.privacy import Budget, Guarantee, check_relation
from hush.report import words
from hush.report.about import ABOUT_FILE, NOT_PRIVATE_FILE, guarantee_in, read_json, scores_in
from hush.report.books import read_books
from hush.report.curves import equal_steps
from hush.report.plots import EXACT, GREEN, ORANGE, PINK
from hush.report.subject import Line, Plot, Subject

FORMAT = 2
MODEL_FILE = "model.safetensors"
_SLACK = 1 - 1e-9
_SETTINGS = (
    *(("noise_multiplier", "noise multiplier"), ("sampling", "sampling"), ("sampling_prob", "sampling probability")),
    *(("expected_batch_size", "expected batch size"), ("clip_norm", "clip norm"), ("clipping", "clipping")),
    *(("augmentations", "augmentations"), ("average", "average of the weights"), ("secure", "secure noise")),
)
_UNSAID = {"augmentations": 1, "average": "none"}  # what is usual is not said


def subject_of_training(folder: Path, data: Mapping[str, Any], *, include_private: bool) -> Subject:
    """The subject that a folder with a plan in its run.json holds."""
    if data["format"] != FORMAT:
        raise UnreadableFile(f"run.json has format {data['format']!r} and this Hush reads {FORMAT}.")
    plan, about = _plan(data), read_json(folder / ABOUT_FILE)
    event, relation = events.from_dict(data["event"]), check_relation(plan["relation"])
    note = data["note"]
    books, charged = read_books(folder, data["ledger"], data["account"], lambda row: row.note == note, plan["delta"])
    guarantee = _guarantee(event, plan["delta"], relation)
    if charged != event or not _may_be(data["guarantee"], guarantee):
        raise UnreadableFile("run.json and the ledger do not say the same: one of them was edited.")
    parameters = _parameters(folder / MODEL_FILE, data)
    evidence = _evidence(data)
    kept = read_json(folder / NOT_PRIVATE_FILE)
    plots, left_out = _not_private(kept, include_private)
    return Subject(
        kind="training",
        title=_title(about),
        released="the trained model and every noisy gradient that went into it",
        unit=plan["unit"],
        relation=relation,
        guarantee=guarantee,
        event=event,
        steps=equal_steps(event),
        budget=None if plan["budget"] is None else Budget(**plan["budget"]),
        facts=_facts(data, plan, about, parameters),
        scores=scores_in(about),
        private_scores=scores_in(kept) if include_private else None,
        evidence=evidence,
        books=books,
        plots=_clip_plot(data),
        assumptions=words.of_training(plan, data["randomness"]),
        not_covered=words.NOT_COVERED,
        notes=tuple(dict.fromkeys([*guarantee.notes, *data["notes"], *about.get("notes", [])])),
        warnings=words.warnings_of(data["randomness"], guarantee, evidence),
        not_private=plots,
        left_out=left_out,
        recorded_versions=about.get("versions", {}),
    )


def _title(about: Mapping[str, Any]) -> str:
    what = str(about.get("model", "unnamed"))
    thing = what if what.endswith("prompt") else f"{what} model"
    return f"{about.get('data', 'data without a name')}: {thing}, trained privately"


def _plan(data: Mapping[str, Any]) -> dict[str, Any]:
    plan = dict(data["plan"])
    text = json.dumps(plan, separators=(",", ":"), sort_keys=True, allow_nan=False)
    if hashlib.sha256(text.encode()).hexdigest() != data["plan_fingerprint"]:
        raise UnreadableFile("the plan in run.json is not the one of its fingerprint: one of them was edited.")
    return plan


def _guarantee(event: events.Event, delta: float, relation: Any) -> Guarantee:
    """As a run computes it: equal events merged."""
    merged = Composed(*(Repeated(part, times) for part, times in flat(event)))
    return accounting.guarantee(merged, delta=delta, relation=relation)


def _may_be(stated: Mapping[str, Any], found: Guarantee) -> bool:
    """Whether a written guarantee can be true. Another version of Hush may have had other last digits, or a looser end;
    the report shows what this one finds.
    """
    claim = guarantee_in(stated)
    same = all(getattr(claim, key) == getattr(found, key) for key in ("delta", "relation", "method", "proven"))
    return same and claim.epsilon >= found.epsilon_lower * _SLACK


def _parameters(path: Path, data: Mapping[str, Any]) -> int:
    """How many numbers the model has; the file must be this run's."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("note") != data["note"]:
                raise UnreadableFile(f"{path.name} belongs to another run.")
            _digest.check_pair(data, path, metadata)
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    except (safetensors.SafetensorError, OSError) as error:
        raise UnreadableFile(f"{path.name} cannot be read: {str(error)[:120]}.") from None


def _facts(
    data: Mapping[str, Any], plan: Mapping[str, Any], about: Mapping[str, Any], parameters: int
) -> tuple[tuple[str, Any], ...]:
    steps = {"steps in the weights": data["steps"], "steps of the plan": plan["steps"]}
    adaptive = plan.get("adaptive")
    return (
        ("data", about.get("data", "not recorded")),
        ("model", about.get("model", "not recorded")),
        ("weights in the model", parameters),
        *steps.items(),
        *((label, plan[key]) for key, label in _SETTINGS if plan[key] != _UNSAID.get(key)),
        *((("quantile that the clip norm follows", adaptive["quantile"]),) if adaptive else ()),
        ("plan fingerprint", data["plan_fingerprint"]),
        ("randomness", words.source(data["randomness"])),
        *about.get("facts", {}).items(),
    )


def _evidence(data: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    if data.get("audit") is None:
        return ()
    result = AuditResult.from_dict(data["audit"], guarantee_in(data["guarantee"]))
    return ({**result.to_dict(), "source": "canaries inside this very training"},)


def _clip_plot(data: Mapping[str, Any]) -> tuple[Plot, ...]:
    """An adaptive clip norm is made from private releases, and may be shown."""
    values = data.get("clip_norms") or []
    if not values:
        return ()
    line = Line(name="clip norm", x=tuple(range(1, len(values) + 1)), y=tuple(values), colour=EXACT)
    caption = "It follows a quantile of the gradients' norms by noisy counts, which are part of the event."
    return (Plot(key="clip", title="Clip norm", caption=caption, x_title="steps", y_title="clip norm", lines=(line,)),)


# key of not_private.json -> title, axis, colour
_KEPT = {
    "loss": ("Loss of each batch", "mean loss", ORANGE),
    "norms": ("Gradient norms", "mean norm over the batch", PINK),
    "clipped": ("Clipped fraction", "share of the batch above the clip norm", GREEN),
}


def _not_private(kept: Mapping[str, Any], include: bool) -> tuple[tuple[Plot, ...], tuple[str, ...]]:
    """Plots of what was read without noise, if asked for; else the names of what is there."""
    there = [key for key in _KEPT if any(value is not None for value in kept.get(key) or ())]
    if not include:
        names = [_KEPT[key][0].lower() for key in there]
        return (), (*names, *(["test results"] if kept.get("scores") else []))
    return tuple(_private_plot(key, kept[key]) for key in there), ()


def _private_plot(key: str, values: list[float | None]) -> Plot:
    title, axis, colour = _KEPT[key]
    line = Line(name=axis, x=tuple(range(1, len(values) + 1)), y=tuple(values), colour=colour)
    caption = "NOT PRIVATE: read from the data without noise. Do not publish."
    return Plot(key=key, title=title, caption=caption, x_title="steps", y_title=axis, lines=(line,))
