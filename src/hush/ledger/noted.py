"""What the rows of an account with one note charged: a run's own part of a shared account."""

from __future__ import annotations

from collections.abc import Callable

from hush.events import Composed, Event, Repeated
from hush.ledger.account import Account
from hush.ledger.chain import Row


def charged_event(account: Account, note: str) -> Event:
    """Everything that rows of this account with this note charged, less what was given back."""
    return charged_by(account.rows(), lambda found: found == note)


def charged_by(rows: tuple[Row, ...], chosen: Callable[[str], bool]) -> Event:
    """Everything that rows with a chosen note charged, less what was given back; equal events are merged."""
    blocks: dict[int, tuple[Event, int]] = {}
    for row in rows:
        if row.kind == "release" and row.block in blocks:
            event, count = blocks[row.block]
            blocks[row.block] = event, count - row.count
        elif row.event is not None and row.kind != "release" and chosen(row.note):
            blocks[row.number] = row.event, row.count
    counts: dict[Event, int] = {}
    for event, count in blocks.values():
        counts[event] = counts.get(event, 0) + count
    return Composed(*(Repeated(event, count) for event, count in counts.items() if count))
