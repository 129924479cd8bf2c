"""A ledger as lines of JSON, for outsiders to keep and check.

The first line counts the accounts and rows and holds the joint hash; then each account's rows in order. There is one
way to write a ledger: a file that differs in any byte is refused with the number of the line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hush.errors import HushError, LedgerError, LedgerTampered, UnreadableFile
from hush.ledger import atomic
from hush.ledger.chain import FIELDS, History, Row, joint_hash

VERSION = 1
Heads = dict[str, tuple[int, str]]


def write(path: str | os.PathLike[str], rows: Sequence[Row], heads: Heads) -> None:
    """Write checked rows to a new file, whole or not at all."""
    target = Path(os.path.abspath(path))
    try:
        with atomic.new_file(target) as scratch, scratch.open("xb") as file:
            file.write(_line(_first_line(len(rows), heads)))
            file.writelines(_line(row.to_dict()) for row in rows)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise LedgerError(f"{target} exists already; export to a new name.") from None
    except (OSError, ValueError) as error:
        raise LedgerError(f"{target!s:.200} cannot be written: {error}.") from None


def read(path: str | os.PathLike[str]) -> tuple[list[Row], Heads]:
    """The rows in a file and where each account ends, all checked."""
    try:
        with open(path, "rb") as file:
            lines = file.readlines()
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{path!s:.200} cannot be read: {error}.") from None
    first = _parse(path, 1, lines[0] if lines else b"")
    if first.get("hush_ledger") != VERSION:
        raise UnreadableFile(f"{path}, line 1: not a ledger export of version {VERSION} of Hush.")
    reader = _Reader(path)
    rows = [reader.take(number, line) for number, line in enumerate(lines[1:], start=2)]
    if _line(_first_line(len(rows), reader.heads())) != lines[0]:
        raise LedgerTampered(
            f"{path}, line {len(lines)}: line 1 describes another state than these {len(rows)} rows; "
            "lines are missing, or line 1 was edited."
        )
    return rows, reader.heads()


class _Reader:
    """Checks rows one after another: each account's chain, and the order of the accounts."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._histories: dict[str, History] = {}
        self._current = ""

    def take(self, number: int, line: bytes) -> Row:
        record = _parse(self._path, number, line)
        if tuple(record) != FIELDS:
            raise UnreadableFile(f"{self._path}, line {number}: a row needs the fields {', '.join(FIELDS)}.")
        row = Row(**record)
        try:
            self._history(row).advance(row)
        except HushError as error:
            raise type(error)(f"{self._path}, line {number}: {error}") from None
        return row

    def _history(self, row: Row) -> History:
        name = row.account
        if not isinstance(name, str) or name < self._current or (name > self._current and name in self._histories):
            raise LedgerTampered(f"account {name!r} is out of order.")
        self._current = name
        return self._histories.setdefault(name, History(name))

    def heads(self) -> Heads:
        return {name: (history.last_row, history.hash) for name, history in self._histories.items()}


def _parse(path: str | os.PathLike[str], number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if isinstance(record, dict) and _line(record) == line:
            return record
    except (ValueError, RecursionError):
        pass
    raise UnreadableFile(f"{path}, line {number}: cut off, edited or not a line of a ledger export.")


def _first_line(rows: int, heads: Heads) -> dict[str, Any]:
    return {"hush_ledger": VERSION, "accounts": len(heads), "rows": rows, "head": joint_hash(heads)}


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"
