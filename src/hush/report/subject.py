"""What a report is about: the one form that trainings, fits, votes and audits fill in.

Everything here may be shown, except `not_private`, which is filled only when somebody asked for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from hush.events import Event
from hush.privacy import Budget, Guarantee, Relation

Style = Literal["solid", "dash", "dot", "points", "bars", "stairs"]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line, or one set of points or bars, of a plot."""

    name: str
    x: tuple[float | str | None, ...]
    y: tuple[float | None, ...]
    style: Style = "solid"
    colour: str = ""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One plot, as data."""

    key: str
    title: str
    caption: str
    x_title: str
    y_title: str
    lines: tuple[Line, ...]
    x_log: bool = False
    y_log: bool = False


@dataclass(frozen=True, kw_only=True)
class Scores:
    """How good the model is on test rows, which no guarantee covers; `twin` is the same without privacy."""

    name: str
    private: float
    twin: float | None = None


@dataclass(frozen=True, kw_only=True)
class Books:
    """What the ledger says: the run's own rows, and the whole account's state. `own`: it lies in the run's folder."""

    place: str
    own: bool
    account: str
    rows: tuple[dict[str, Any], ...]
    other_rows: int
    cap: Budget | None
    spent: Guarantee
    left: float
    account_head: str
    head: str


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What was done to which data, what that costs, and what is known beside it.

    Attributes:
        kind: "training", "linear", "pate", "generation" or "audit".
        title: What this is, in a few words.
        released: What left, in words that go on "whatever may come of releasing ...".
        unit: What a neighbour differs in: an "example" or a "person".
        relation: Which data sets are neighbours.
        guarantee: What is proven; None where there was only an attack.
        event: What was done; None where nobody knows.
        steps: Into how many equal steps the event can be cut, 1 for no curve.
        step_word: What such a step is called, in the plural.
        budget: What was allowed.
        facts: What was trained on what: (label, value).
        scores: Test results that may be shown.
        evidence: Attacks' results, each as plain values with a "source".
        made: What was written and released: (label, text).
        books: The ledger's part.
        plots: Plots of this kind's own.
        assumptions: On what the guarantee rests.
        not_covered: What it does not speak of.
        notes: What a reader should know.
        warnings: What a reader must know first.
        not_private: What was read from the data without noise: plots and numbers. Empty unless asked for.
        left_out: What is there and was not asked for.
        recorded_versions: Of the libraries that carried it out; empty if nobody recorded them.
    """

    kind: str
    title: str
    released: str
    unit: str
    relation: Relation
    guarantee: Guarantee | None
    event: Event | None
    steps: int = 1
    step_word: str = "steps"
    budget: Budget | None = None
    facts: tuple[tuple[str, Any], ...] = ()
    scores: Scores | None = None
    evidence: tuple[dict[str, Any], ...] = ()
    made: tuple[tuple[str, str], ...] = ()
    books: Books | None = None
    plots: tuple[Plot, ...] = ()
    assumptions: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    not_private: tuple[Plot, ...] = ()
    private_scores: Scores | None = None
    left_out: tuple[str, ...] = ()
    recorded_versions: dict[str, str] = field(default_factory=dict)
