"""What a ledger says about a run: its rows, the account's state, and that the chain is whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hush.errors import UnreadableFile
from hush.events import Event
from hush.ledger import Ledger
from hush.ledger.chain import Row
from hush.ledger.noted import charged_by
from hush.report.subject import Books

LEDGER_FILE = "ledger.db"


def read_books(
    folder: Path, place: str | None, name: str, chosen: Callable[[Row], bool], delta: float
) -> tuple[Books, Event]:
    """The ledger's part of a report, and everything that the chosen rows charged; a ledger with an edit is refused.

    `place` is that of a shared ledger, None for the run's own. `chosen` says which rows are the run's.
    """
    own = place is None
    ledger = Ledger.open(folder / LEDGER_FILE if place is None else place, create=False)
    verified = ledger.verify()
    account = ledger.account(name)
    rows = account.rows()
    charges = [row for row in rows if row.kind not in ("open", "cap")]
    numbers = {row.number for row in charges if chosen(row)}
    mine = [row for row in charges if row.number in numbers or (row.kind == "release" and row.block in numbers)]
    if not mine:
        raise UnreadableFile(f"the ledger has no charge of this run in account {name!r}.")
    books = Books(
        place=LEDGER_FILE if own else repr(ledger)[len("Ledger('") : -2],
        own=own,
        account=name,
        rows=tuple(_row(row) for row in mine),
        other_rows=len(charges) - len(mine),
        cap=account.cap,
        spent=account.spent(delta if account.cap is None else None),
        left=account.left(),
        account_head=verified.heads[name],
        head=verified.head,
    )
    notes = {row.note for row in mine}
    return books, charged_by(tuple(mine), lambda note: note in notes)


def _row(row: Row) -> dict[str, Any]:
    return {
        "number": row.number,
        "time": row.time,
        "kind": row.kind,
        "count": row.count,
        "event": row.content,
        "note": row.note,
        "hash": row.hash,
    }
