"""Which charges of an account are those of one release, for which it was charged part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hush.events import Event, flat
from hush.ledger.chain import Row


class Covering:
    """Takes the rows that are parts of an event, one after another; of several alike the first."""

    def __init__(self, event: Event) -> None:
        self._left = Counter(dict(flat(event)))

    def takes(self, row: Row) -> bool:
        """Whether this row is a charge for a part that no row before was."""
        if row.kind != "charge" or row.event is None:
            return False
        parts = Counter(dict(flat(row.event, row.count)))
        if not parts <= self._left:
            return False
        self._left -= parts
        return True

    @property
    def complete(self) -> bool:
        """Whether no part is left."""
        return not self._left


def covers(rows: Iterable[Row], event: Event) -> bool:
    """Whether charges for all parts of the event are among the rows."""
    covering = Covering(event)
    for row in rows:
        covering.takes(row)
    return covering.complete
