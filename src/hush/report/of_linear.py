"""A model of `hush.linear` as the subject of a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy

from hush.ledger.covering import Covering
from hush.privacy import Budget
from hush.report import words
from hush.report.about import ABOUT_FILE, NOT_PRIVATE_FILE, read_json, scores_in
from hush.report.books import read_books
from hush.report.plots import EXACT
from hush.report.subject import Line, Plot, Subject

_MOST_BARS = 40
_SETTINGS = (("method", "method"), ("data_norm", "longest row"), ("steps", "steps"), ("bounds", "bounds"))


def subject_of_linear(folder: Path, data: Mapping[str, Any], *, include_private: bool) -> Subject:
    """The subject that a folder of `hush.linear.save` holds; `hush.linear.load` checks it."""
    from hush import linear

    model, about = linear.load(folder), read_json(folder / ABOUT_FILE)
    guarantee, event, randomness = model.guarantee_, model.event_, str(model.randomness_)
    books, _ = read_books(folder, data["ledger"], data["account"], Covering(event).takes, guarantee.delta)
    kept = read_json(folder / NOT_PRIVATE_FILE)
    settings = data["settings"]
    return Subject(
        kind="linear",
        title=f"{about.get('data', 'data without a name')}: {data['model']} regression, fitted privately",
        released="the fitted coefficients" + ("" if event == model.charged_ else " and the features' noisy sums"),
        unit="example",
        relation=guarantee.relation,
        guarantee=guarantee,
        event=event,
        budget=Budget(epsilon=settings["epsilon"], delta=settings.get("delta") or 0.0),
        facts=_facts(data, about, model),
        scores=scores_in(about),
        private_scores=scores_in(kept) if include_private else None,
        books=books,
        plots=_coefficients(model),
        assumptions=(
            "Rows and targets beyond the public bounds were cut to them; the bounds were not read from these data.",
            *words.of_everything("example", randomness),
        ),
        not_covered=words.NOT_COVERED,
        notes=tuple(dict.fromkeys([*guarantee.notes, *about.get("notes", [])])),
        warnings=words.warnings_of(randomness, guarantee, ()),
        left_out=("test results",) if kept.get("scores") and not include_private else (),
        recorded_versions=about.get("versions", {}),
    )


def _facts(data: Mapping[str, Any], about: Mapping[str, Any], model: Any) -> tuple[tuple[str, Any], ...]:
    settings = data["settings"]
    return (
        ("data", about.get("data", "not recorded")),
        ("model", data["model"]),
        ("coefficients", int(numpy.size(model.coef_))),
        *((label, _text(settings[key])) for key, label in _SETTINGS if settings.get(key) is not None),
        ("weights, sha256", data["weights_sha256"]),
        ("randomness", words.source(str(data["randomness"]))),
        *about.get("facts", {}).items(),
    )


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, list | tuple) else value


def _coefficients(model: Any) -> tuple[Plot, ...]:
    """The largest coefficients: they were released, so they may be shown."""
    values = numpy.asarray(model.coef_)
    if values.ndim == 2 and len(values) > 1:
        return ()
    flat = values.ravel()
    largest = numpy.sort(numpy.argsort(-abs(flat))[:_MOST_BARS])
    line = Line(
        name="coefficient",
        x=tuple(f"x{place + 1}" for place in largest.tolist()),
        y=tuple(flat[largest].tolist()),
        style="bars",
        colour=EXACT,
    )
    shown = "the largest of all" if len(flat) > _MOST_BARS else "all"
    caption = f"What was released: {shown} coefficients, noise included, by the features' places."
    return (
        Plot(key="coefficients", title="Coefficients", caption=caption, x_title="feature", y_title="", lines=(line,)),
    )
