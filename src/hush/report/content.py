"""A report as plain values: everything that its page, its Markdown and its JSON say, computed once.

The page and the Markdown read nothing but this, so every number in them is the JSON's.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from typing import Any

from hush import accounting, events
from hush.accounting.explain import Explanation
from hush.errors import UnsupportedEvent
from hush.report import words
from hush.report.about import versions
from hush.report.person import OnePerson, for_one_person
from hush.report.plots import delta_plot, steps_plot, trade_off_plot
from hush.report.subject import Books, Plot, Scores, Subject

FORMAT = 1
THEOREMS = (
    "Best guess: (1 + delta at epsilon zero) / 2, by the total variation between neighbours (Balle, Barthe, "
    "Gaboardi 2018, Theorem 1).",
    "Chances and attacks: TPR ≤ e^epsilon FPR + delta and FNR ≥ e^-epsilon (1 - delta - FPR) for every pair on the "
    "delta curve (Kairouz, Oh, Viswanath 2015, Theorem 2.1; Dong, Roth, Su 2022, Section 2.3).",
    "Odds: Bayes' rule multiplies them by e^loss, and P(loss > t) ≤ delta(epsilon) / (1 - e^(epsilon - t)) by the "
    "definition of delta(epsilon); the factor is the least e^t over the curve.",
)


def content_of(subject: Subject) -> dict[str, Any]:
    """The report on a subject."""
    person = _person(subject)
    story = _story(subject)
    found: dict[str, Any] = plain(
        {
            "format": FORMAT,
            "kind": subject.kind,
            "title": subject.title,
            "warnings": list(subject.warnings),
            "claim": _claim(subject),
            "guarantee": None if subject.guarantee is None else subject.guarantee.to_dict(),
            "budget": None if subject.budget is None else asdict(subject.budget),
            "facts": [{"label": label, "value": value} for label, value in subject.facts],
            "event": None if subject.event is None else events.to_dict(subject.event),
            "person": None if person is None else _person_dict(person),
            "methods": [] if story is None else _methods(story),
            "scores": _scores(subject.scores),
            "made": [{"label": label, "text": text} for label, text in subject.made],
            "evidence": sorted(subject.evidence, key=_strength, reverse=True),
            "ledger": None if subject.books is None else _books(subject.books),
            "plots": [_plot(plot) for plot in _plots(subject, person)],
            "assumptions": list(subject.assumptions),
            "not_covered": list(subject.not_covered),
            "notes": list(subject.notes),
            "not_private": _not_private(subject),
            "left_out": list(subject.left_out),
            "versions": {"run": subject.recorded_versions, "report": versions()},
            "check": _checks(subject),
        }
    )
    return found


def _claim(subject: Subject) -> dict[str, Any]:
    guarantee, tested = subject.guarantee, subject.kind == "audit"
    return {
        "sentence": words.sentence(guarantee, subject.relation, subject.unit, subject.released, tested=tested),
        "symbols": words.symbols(guarantee),
        "unit": subject.unit,
        "relation": subject.relation,
        "neighbours": words.neighbours(subject.relation, subject.unit),
        "proven": not tested and guarantee is not None and guarantee.proven and math.isfinite(guarantee.epsilon),
    }


def _strength(item: dict[str, Any]) -> float:
    return float(item["evidence"]["epsilon_at_least"])


def _is_finite(subject: Subject) -> bool:
    return subject.event is not None and subject.guarantee is not None and math.isfinite(subject.guarantee.epsilon)


def _person(subject: Subject) -> OnePerson | None:
    if not _is_finite(subject):
        return None
    assert subject.event is not None
    assert subject.guarantee is not None
    try:
        return for_one_person(
            subject.event,
            epsilon=subject.guarantee.epsilon,
            delta=subject.guarantee.delta,
            relation=subject.relation,
        )
    except UnsupportedEvent:
        return None


def _person_dict(person: OnePerson) -> dict[str, Any]:
    return {
        "best_guess": person.best_guess,
        "guess_by_chance": 0.5,
        "odds_factor": person.odds_factor,
        "odds_failure": person.odds_failure,
        "outcomes": [{"without": without, "with_at_most": at_most} for without, at_most in person.outcomes],
        "theorems": list(THEOREMS),
    }


def _story(subject: Subject) -> Explanation | None:
    if not _is_finite(subject):
        return None
    assert subject.event is not None
    assert subject.guarantee is not None
    try:
        return accounting.explain(subject.event, subject.guarantee.delta, subject.relation)
    except UnsupportedEvent:
        return None


def _methods(story: Explanation) -> list[dict[str, Any]]:
    kept = ("method", "title", "theorem", "epsilon", "epsilon_lower", "proven", "looseness", "reason")
    links = [link.to_dict() for link in (*story.chain, story.approximation)]
    return [{key: link.get(key) for key in kept} for link in links]


def _plots(subject: Subject, person: OnePerson | None) -> list[Plot]:
    found = list(subject.plots)
    guarantee = subject.guarantee
    if subject.event is not None and guarantee is not None and math.isfinite(guarantee.epsilon):
        drawn = steps_plot(subject.event, subject.steps, guarantee.delta, subject.relation, subject.step_word)
        found = [*([] if drawn is None else [drawn]), *found]
    if person is not None:
        assert guarantee is not None
        found += [delta_plot(person.curve, guarantee), trade_off_plot(person.trade_off, subject.evidence)]
    return found


def _plot(plot: Plot) -> dict[str, Any]:
    return asdict(plot)


def _scores(scores: Scores | None) -> dict[str, Any] | None:
    return None if scores is None else {**asdict(scores), "label": scores.name.replace("_", " ")}


def _books(books: Books) -> dict[str, Any]:
    return {
        "place": books.place,
        "own": books.own,
        "account": books.account,
        "rows": list(books.rows),
        "other_rows": books.other_rows,
        "cap": None if books.cap is None else asdict(books.cap),
        "spent": books.spent.to_dict(),
        "left": books.left,
        "account_head": books.account_head,
        "head": books.head,
    }


def _not_private(subject: Subject) -> dict[str, Any] | None:
    if not subject.not_private and subject.private_scores is None:
        return None
    return {"scores": _scores(subject.private_scores), "plots": [_plot(plot) for plot in subject.not_private]}


def _checks(subject: Subject) -> list[str]:
    """Commands by which somebody else can check the report."""
    if subject.books is None:
        return []
    place = shlex.quote(subject.books.place)
    head = shlex.quote(f"{subject.books.account}={subject.books.account_head}")
    return [f"hush ledger verify {place} --head {head}", f"hush ledger show {place}"]


def plain(value: Any) -> Any:
    """JSON's values; infinity is the text "infinity", and what is no number is nothing."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "infinity" if value == math.inf else None
    return value
