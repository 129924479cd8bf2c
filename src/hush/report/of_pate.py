"""A run of `hush pate` (and of prompts that vote) as the subject of a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hush import accounting
from hush.errors import UnreadableFile
from hush.ledger import Ledger
from hush.ledger.chain import Row
from hush.report import words
from hush.report.about import ABOUT_FILE, NOT_PRIVATE_FILE, guarantee_in, read_json, scores_in
from hush.report.books import LEDGER_FILE, read_books
from hush.report.plots import label_plot
from hush.report.subject import Subject

_SLACK = 1 + 1e-9
_NOT_COVERED = (
    "The public rows that were asked about: everybody may know them.",
    "The teachers and their votes, which were never released and must not be.",
    "The data-dependent epsilon, which is private itself and stands nowhere here.",
)


def subject_of_pate(folder: Path, data: Mapping[str, Any], *, include_private: bool) -> Subject:
    """The subject that a folder with a promise of votes in its run.json holds."""
    about, data = read_json(folder / ABOUT_FILE), _as_votes(data)
    promise = guarantee_in(data["promise"])
    place, name = data.get("ledger", about.get("ledger")), about.get("account")
    mine = f"run {data['run']}:"

    def chosen(row: Row) -> bool:
        return mine in row.note

    if name is None:
        name = _account_with(folder, place, chosen)
    books, event = read_books(folder, place, name, chosen, promise.delta)
    costs = accounting.guarantee(event, delta=promise.delta, relation=promise.relation)
    if costs.epsilon > promise.epsilon * _SLACK:
        raise UnreadableFile("run.json promises less epsilon than the ledger was charged: one of them was edited.")
    kept, randomness = read_json(folder / NOT_PRIVATE_FILE), str(data["randomness"])
    unit = str(about.get("unit", "example"))
    return Subject(
        kind="pate",
        title=f"{about.get('data', 'data without a name')}: labels by teachers' noisy votes",
        released="the labels and the student that learned from them",
        unit=unit,
        relation=promise.relation,
        guarantee=promise,
        event=event,
        steps=int(data["asked"]),
        step_word="queries",
        budget=books.cap,
        facts=_facts(data, about),
        scores=scores_in(about),
        private_scores=scores_in(kept) if include_private else None,
        books=books,
        plots=label_plot(data["labels"], about.get("labels", []), "queries"),
        assumptions=(
            "Each example went to one teacher only, and where it went did not depend on the others.",
            *words.of_everything(unit, randomness),
        ),
        not_covered=(*words.NOT_COVERED, *_NOT_COVERED),
        notes=tuple(dict.fromkeys([*promise.notes, *about.get("notes", [])])),
        warnings=words.warnings_of(randomness, promise, ()),
        left_out=("test results",) if kept.get("scores") and not include_private else (),
        recorded_versions=about.get("versions", {}),
    )


def _as_votes(data: Mapping[str, Any]) -> dict[str, Any]:
    """One form for `hush pate` and `hush prompt pate`: the latter promises what its labels cost."""
    if "promise" in data:
        return dict(data)
    cost = {"data_independent": data["data_independent"], "sanitised": data["sanitised"]}
    return {**data, "promise": data["data_independent"], "cost": cost}


def _account_with(folder: Path, place: str | None, chosen: Callable[[Row], bool]) -> str:
    """The account that was charged, where nobody wrote its name down."""
    for account in Ledger.open(folder / LEDGER_FILE if place is None else place, create=False).accounts():
        if any(chosen(row) for row in account.rows()):
            return account.name
    raise UnreadableFile("the ledger has no charge of this run.")


def _facts(data: Mapping[str, Any], about: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    sanitised = data["cost"]["sanitised"]
    labels = data["labels"]
    return (
        ("data", about.get("data", "not recorded")),
        ("student", about.get("model", "not recorded")),
        ("teachers", data.get("teachers", "not recorded")),
        ("vote", data["aggregator"]),
        ("queries asked", data["asked"]),
        ("queries answered", sum(label >= 0 for label in labels)),
        ("epsilon of the labels, whatever the votes", data["cost"]["data_independent"]["epsilon"]),
        *((("epsilon for these data, released with noise", sanitised["epsilon"]),) if sanitised else ()),
        ("randomness", words.source(str(data["randomness"]))),
        *about.get("facts", {}).items(),
    )
