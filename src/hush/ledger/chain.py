"""The hash chain: what a row is, how it is hashed, and what a sequence of rows adds up to. No database here.

Each account has its own chain. Row 0 opens the account and holds its cap and relation; the rows after it charge,
reserve, give back or change the cap. The hash of a row covers the hash before it, so that an edited, missing or
re-ordered row shows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

from hush.errors import HushError, LedgerTampered, UnreadableFile
from hush.events import Composed, Event, Repeated, flat, from_json
from hush.privacy import Budget, Relation, check_relation

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode

START = "0" * 64  # the hash before row 0
KINDS = ("open", "charge", "reserve", "release", "cap")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of an account's history.

    `kind` is "open" (row 0), "charge", "reserve" (a block of steps, ahead of their release), "release" (never-started
    steps of the reserve row number `block`, given back) or "cap" (a new cap from here on). `content` is the event in
    JSON, or for "open" and "cap" the cap and relation; `count` is how often the event counts. `time` is in UTC.
    """

    account: str
    number: int
    kind: str
    content: str
    count: int
    block: int
    note: str
    time: str
    hash: str

    @property
    def event(self) -> Event | None:
        """The event of this row; None for a row that sets the cap."""
        return None if self.kind in ("open", "cap") else _event(self.content)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, in the order that an export has them."""
        return dict(zip(FIELDS, _values(self), strict=True))

    def __str__(self) -> str:
        return f"row {self.number} of account {self.account!r}"


FIELDS = tuple(field.name for field in fields(Row))
_TYPES = tuple(int if name in {"number", "count", "block"} else str for name in FIELDS)
_values = attrgetter(*FIELDS)


@lru_cache(maxsize=1024)
def _event(content: str) -> Event:
    return from_json(content)


def next_row(history: History, *, kind: str, content: str, count: int = 1, block: int = 0, note: str = "") -> Row:
    """The row that continues a history, with its time and hash."""
    time = datetime.now(UTC).isoformat(timespec="microseconds")
    values = (history.account, history.last_row + 1, kind, content, count, block, note, time)
    return Row(*values, hash=_digest(history.hash, values))


def _digest(previous: str, values: tuple[Any, ...]) -> str:
    return hashlib.sha256(_encode([previous, *values]).encode()).hexdigest()


def joint_hash(heads: dict[str, tuple[int, str]]) -> str:
    """One hash for the state of several accounts, given (last row, hash) of each."""
    state = [[account, *heads[account]] for account in sorted(heads)]
    return hashlib.sha256(_encode(state).encode()).hexdigest()


def is_storable(text: str) -> bool:
    """Whether every database gives this text back unchanged: no NUL, no half of a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def opening(cap: Budget | None, relation: Relation) -> str:
    """The content of row 0."""
    limit = None if cap is None else {"epsilon": cap.epsilon, "delta": cap.delta}
    return _encode({"cap": limit, "relation": relation})


def composed(counts: Mapping[Event, int]) -> Composed:
    """All of these events as one."""
    return Composed(*(part if times == 1 else Repeated(part, times=times) for part, times in counts.items()))


class History:
    """What the rows of one account add up to, row by row; a row that does not continue the chain is refused."""

    def __init__(self, account: str) -> None:
        self.account = account
        self.last_row = -1
        self.hash = START
        self.cap: Budget | None = None
        self.relation: Relation = "add_remove"
        self._counts: dict[Event, int] = {}
        self._new_counts: dict[str, int] = {}  # by content, not yet in `_counts`: most rows repeat an event
        self._blocks: dict[
            int, tuple[str, int]
        ] = {}  # reserve row -> its content, and how many may still be given back

    def advance(self, row: Row) -> None:
        """Take the next row; on any error this history stays as it was."""
        self._check_place(row)
        try:
            self._apply(row)
        except UnreadableFile as error:
            raise UnreadableFile(f"{row}: {error}") from None
        self.last_row, self.hash = row.number, row.hash

    def counts(self, extra: Event | None = None, count: int = 1) -> dict[Event, int]:
        """How often each elementary event was charged; `extra` joins it `count` times."""
        for content, times in self._new_counts.items():
            _merge(self._counts, _event(content), times)
        self._new_counts.clear()
        counts = dict(self._counts)
        if extra is not None:
            _merge(counts, extra, count)
        return counts

    def _check_place(self, row: Row) -> None:
        values = _values(row)
        if tuple(map(type, values)) != _TYPES:
            raise LedgerTampered(f"row {row.number!r} of account {self.account!r} has a value of the wrong type.")
        expected = self.last_row + 1
        if row.account != self.account:
            raise LedgerTampered(f"row {expected} of account {self.account!r} belongs to account {row.account!r}.")
        if row.number > expected:
            raise LedgerTampered(
                f"row {expected} of account {self.account!r} is missing; the next one is {row.number}."
            )
        if row.number < expected:
            raise LedgerTampered(f"{row} comes again or out of order, where row {expected} was expected.")
        if row.hash != _digest(self.hash, values[:-1]):
            raise LedgerTampered(f"{row} was edited, moved or put in: its hash does not continue the chain.")

    def _apply(self, row: Row) -> None:
        if row.kind not in KINDS:
            raise UnreadableFile(f"unknown kind {row.kind[:40]!r}; known are {', '.join(KINDS)}.")
        if (row.number == 0) != (row.kind == "open") or row.count < 1:
            raise UnreadableFile(f"a row of kind {row.kind!r} with count {row.count} cannot stand here.")
        if row.kind == "open":
            self.cap, self.relation = _read_opening(row.content)
        elif row.kind == "cap":
            self._change_cap(row)
        elif row.kind == "release":
            self._give_back(row)
        else:
            self._add(row)

    def _change_cap(self, row: Row) -> None:
        cap, relation = _read_opening(row.content)
        if cap is None or relation != self.relation:
            raise UnreadableFile("a change of the cap names a new cap, and leaves the relation as it is.")
        self.cap = cap

    def _add(self, row: Row) -> None:
        _event(row.content)  # or an error
        self._new_counts[row.content] = self._new_counts.get(row.content, 0) + row.count
        if row.kind == "reserve":
            self._blocks[row.number] = (row.content, row.count)

    def _give_back(self, row: Row) -> None:
        content, left = self._blocks.get(row.block, ("", 0))
        if content != row.content or row.count > left:
            raise UnreadableFile(f"it gives back {row.count} steps, more than row {row.block} reserved of this event.")
        self._blocks[row.block] = (content, left - row.count)
        self._new_counts[row.content] = self._new_counts.get(row.content, 0) - row.count


def _merge(counts: dict[Event, int], event: Event, times: int) -> None:
    for part, number in flat(event, abs(times)):
        counts[part] = counts.get(part, 0) + (number if times > 0 else -number)
        if not counts[part]:
            del counts[part]


def _read_opening(content: str) -> tuple[Budget | None, Relation]:
    try:
        data = json.loads(content)
        limit, relation = data["cap"], data["relation"]
        cap = None if limit is None else Budget(epsilon=limit["epsilon"], delta=limit["delta"])
        return cap, check_relation(relation)
    except (HushError, ValueError, TypeError, KeyError, RecursionError):
        raise UnreadableFile(f"no cap and relation can be read from {content[:60]!r}.") from None
