"""A run of `hush prompt generate` as the subject of a report: the made-up texts left, so they are shown."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hush import accounting
from hush.errors import UnreadableFile
from hush.report import words
from hush.report.about import ABOUT_FILE, guarantee_in, read_json
from hush.report.books import read_books
from hush.report.curves import equal_steps
from hush.report.plots import label_plot
from hush.report.subject import Subject

FORMAT, TEXTS_FILE = 1, "demonstrations.json"
_SLACK = 1 + 1e-9
_SETTINGS = (
    *(("noise_multiplier", "noise multiplier"), ("sampling_prob", "sampling probability")),
    *(("num_prompts", "prompts for each token"), ("public_choices", "tokens to choose from")),
    ("max_tokens", "longest text, in tokens"),
)
_ASSUMPTIONS = (
    "For each token, each example joins by an independent coin that nobody sees (Poisson sampling), and stands in one "
    "prompt alone.",
    "Each example has one label and is read for texts of that label alone, so that a label more costs nothing.",
    "The template, the labels and the settings are public and were not read from these data; the tokens to choose from "
    "come from the language model without any example.",
)
_NOT_COVERED = "The prompts with private examples: they were shown to the language model, and to whoever runs it."
_ENDED = "the account's cap ended the list before all the texts that were asked for."


def subject_of_generation(folder: Path, data: Mapping[str, Any], *, include_private: bool) -> Subject:
    """The subject that a folder with a plan of generation in its run.json holds; nothing private is kept there."""
    if data["format"] != FORMAT:
        raise UnreadableFile(f"run.json has format {data['format']!r} and this Hush reads {FORMAT}.")
    about, promise, note = read_json(folder / ABOUT_FILE), guarantee_in(data["promise"]), data["note"]
    made = _made(folder / TEXTS_FILE, data["demonstrations_sha256"])
    books, event = read_books(folder, data["ledger"], data["account"], lambda row: row.note == note, promise.delta)
    costs = accounting.guarantee(event, delta=promise.delta, relation=promise.relation)
    if costs.epsilon > promise.epsilon * _SLACK:
        raise UnreadableFile("run.json promises less epsilon than the ledger was charged: one of them was edited.")
    tokens, randomness, labels = equal_steps(event), str(data["randomness"]), about.get("labels", [])
    numbers = [labels.index(label) for label, _ in made if label in labels]
    return Subject(
        kind="generation",
        title=f"{about.get('data', 'data without a name')}: made-up examples, written privately",
        released="the made-up examples",
        unit="example",
        relation=promise.relation,
        guarantee=promise,
        event=event,
        steps=tokens,
        step_word="tokens of each label",
        budget=books.cap,
        facts=_facts(data, about, len(made), tokens),
        made=made,
        books=books,
        plots=label_plot(numbers, labels, "made-up texts"),
        assumptions=(*_ASSUMPTIONS, *words.of_everything("example", randomness)),
        not_covered=(*words.NOT_COVERED, _NOT_COVERED),
        notes=(*promise.notes, *about.get("notes", []), *((_ENDED,) if data["stopped"] else ())),
        warnings=words.warnings_of(randomness, promise, ()),
        recorded_versions=about.get("versions", {}),
    )


def _made(path: Path, fingerprint: str) -> tuple[tuple[str, str], ...]:
    """The texts that left, as (label, text); the file must be this run's."""
    try:
        found = path.read_bytes()
    except OSError:
        raise UnreadableFile(f"{path.name} is not there.") from None
    if hashlib.sha256(found).hexdigest() != fingerprint:
        raise UnreadableFile(f"{path.name} is not the one that this run wrote: one of them was edited.")
    return tuple((str(label).strip(), str(text)) for text, label in read_json(path)["demonstrations"])


def _facts(data: Mapping[str, Any], about: Mapping[str, Any], made: int, tokens: int) -> tuple[tuple[str, Any], ...]:
    plan = data["generation"]
    return (
        ("written from", about.get("data", "not recorded")),
        ("language model", about.get("model", "not recorded")),
        ("made-up texts", made),
        ("texts asked for, each label", data["per_label"]),
        ("tokens charged, each label", tokens),
        *((label, plan[key]) for key, label in _SETTINGS),
        (f"{TEXTS_FILE}, sha256", data["demonstrations_sha256"]),
        ("randomness", words.source(str(data["randomness"]))),
        *about.get("facts", {}).items(),
    )
