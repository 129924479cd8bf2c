"""The runs in a ledger: an account's charges by the note that each run gives them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hush import accounting
from hush.events import Event, flat, to_json
from hush.ledger import Account, Row
from hush.ledger.noted import charged_by
from hush.privacy import Guarantee, round_up

COLUMNS = ("account", "note", "first", "last", "rows", "releases", "epsilon alone", "delta")


@dataclass(frozen=True)
class LedgerRun:
    """The charges of one account under one note; `alone` is their cost as if nothing else had been charged."""

    account: str
    note: str
    first: str
    last: str
    rows: int
    event: Event
    alone: Guarantee | None

    @property
    def releases(self) -> int:
        """How many elementary releases stay charged."""
        return sum(times for _, times in flat(self.event))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        moments = {"first": self.first, "last": self.last, "rows": self.rows, "releases": self.releases}
        alone = None if self.alone is None else self.alone.to_dict()
        event = json.loads(to_json(self.event))
        return {"account": self.account, "note": self.note, **moments, "event": event, "alone": alone}

    def cells(self) -> tuple[str, ...]:
        """A line of the table."""
        moments = (text[:19].replace("T", " ") for text in (self.first, self.last))
        cost = ("-", "give --delta") if self.alone is None else (round_up(self.alone.epsilon), f"{self.alone.delta:g}")
        return (self.account, self.note, *moments, f"{self.rows:,}", f"{self.releases:,}", *cost)


def runs_of(account: Account, delta: float | None) -> list[LedgerRun]:
    """The runs of an account, in the order of their first charge; at the cap's delta, or at the one asked for."""
    rows = account.rows()
    notes = list(dict.fromkeys(row.note for row in rows if row.kind in ("charge", "reserve")))
    return [_run(account, rows, note, account.cap.delta if account.cap is not None else delta) for note in notes]


def _run(account: Account, rows: tuple[Row, ...], note: str, delta: float | None) -> LedgerRun:
    mine = [row for row in rows if row.kind in ("charge", "reserve") and row.note == note]
    event = charged_by(rows, lambda found: found == note)
    alone = None if delta is None else accounting.guarantee(event, delta=delta, relation=account.relation)
    return LedgerRun(account.name, note, mine[0].time, mine[-1].time, len(mine), event, alone)
