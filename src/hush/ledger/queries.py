"""The few things a ledger asks of its database. Each runs inside a transaction that the caller opened.

On a server a charge begins and commits together with its questions, to save the time on the way there and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from hush.errors import AccountMissing, LedgerTampered
from hush.ledger import schema, server
from hush.ledger.chain import FIELDS, History, Row

Head = tuple[int, str]  # number and hash of an account's last row

# Built once: putting a statement together costs more than running it.
_HEAD = select(schema.heads.c.last_row, schema.heads.c.hash).where(schema.heads.c.account == bindparam("name"))
_HEAD_LOCKED = _HEAD.with_for_update()
_ALL_ROWS = (
    select(*(schema.rows.c[field] for field in FIELDS))
    .where(schema.rows.c.account == bindparam("name"))
    .order_by(schema.rows.c.number)
)
_NEW_ROWS = _ALL_ROWS.where(schema.rows.c.number > bindparam("after"))
_ADD_ROW = insert(schema.rows)
_ADD_HEAD = insert(schema.heads)
_MOVE_HEAD = (
    update(schema.heads)
    .where(schema.heads.c.account == bindparam("name"), schema.heads.c.last_row == bindparam("before"))
    .values(last_row=bindparam("new_last_row"), hash=bindparam("new_hash"))
)
_MOVED = _MOVE_HEAD.returning(schema.heads.c.account).cte("moved")
_MOVE_AND_ADD = insert(schema.rows).from_select(  # one statement, which SQLite does not know
    FIELDS, select(*(bindparam(field, type_=schema.rows.c[field].type) for field in FIELDS)).select_from(_MOVED)
)


def read_head(connection: Connection, account: str, *, lock: bool = False) -> Head | None:
    """Where the account's chain ends, or None if there is no such account.

    `lock` keeps every other writer off this account until the transaction ends. A server locks the head's row
    (SELECT ... FOR UPDATE). SQLite has no such words, and needs none: a writing transaction there already holds the
    only write lock.
    """
    return _head(account, connection.execute(_HEAD_LOCKED if lock else _HEAD, {"name": account}).first())


def _head(account: str, record: Sequence[Any] | None) -> Head | None:
    if record is None:
        return None
    if type(record[0]) is not int or type(record[1]) is not str:
        raise LedgerTampered(f"the head of account {account!r} was edited: it is not a row number and a hash.")
    return record[0], record[1]


def catch_up(connection: Connection, history: History, *, seen: Callable[[Row], None] | None = None) -> None:
    """Read and check the rows that `history` has not seen, and compare its end with the stored head."""
    head = _require(history, read_head(connection, history.account))
    _advance(history, head, connection.execute(_rows_after(history), _place(history)), seen)


def lock_and_catch_up(connection: Connection, history: History) -> None:
    """Keep every other writer off the account, and `catch_up`; on a server this begins the transaction."""
    place, rows_after = _place(history), _rows_after(history)
    if connection.dialect.name == "sqlite":
        head = _require(history, read_head(connection, history.account, lock=True))
        if head != (history.last_row, history.hash):  # a row put in after the head is in the way of the next one
            _advance(history, head, connection.execute(rows_after, place))
        return
    asked = (server.BEGIN, _HEAD_LOCKED, rows_after)
    _, found, rows = server.together(connection, asked, place, commits=False)
    head = _require(history, _head(history.account, found[0] if found else None))
    if head != (history.last_row, history.hash):
        _advance(history, head, rows)


def _rows_after(history: History) -> Select[Any]:
    return _ALL_ROWS if history.last_row < 0 else _NEW_ROWS


def _place(history: History) -> dict[str, Any]:
    return {"name": history.account, "after": history.last_row}


def _require(history: History, head: Head | None) -> Head:
    if head is None:
        raise AccountMissing(f"there is no account {history.account!r} in this ledger.")
    if head[0] < history.last_row:
        raise LedgerTampered(
            f"account {history.account!r} ended at row {history.last_row} and now ends at row {head[0]}: "
            "rows were cut off."
        )
    return head


def _advance(
    history: History, head: Head, records: Iterable[Sequence[Any]], seen: Callable[[Row], None] | None = None
) -> None:
    for record in records:
        row = Row(*record)
        history.advance(row)
        if seen is not None:
            seen(row)
    _compare(history, head)


def _compare(history: History, head: Head) -> None:
    if history.last_row < head[0]:
        raise LedgerTampered(
            f"row {history.last_row + 1} of account {history.account!r} is missing; the head says {head[0]} is last."
        )
    if history.last_row > head[0]:
        raise LedgerTampered(
            f"row {head[0] + 1} of account {history.account!r} was put in: the head says {head[0]} is last."
        )
    if history.hash != head[1]:
        raise LedgerTampered(f"row {head[0]} of account {history.account!r} does not match the head: one was edited.")


def append(connection: Connection, row: Row) -> None:
    """Add a row and move the head onto it; on a server a row after the first commits at once."""
    place = {"name": row.account, "before": row.number - 1, "new_last_row": row.number, "new_hash": row.hash}
    if row.number == 0:
        connection.execute(_ADD_HEAD, {"account": row.account, "last_row": 0, "hash": row.hash})
    elif connection.dialect.name == "sqlite":
        _require_moved(connection.execute(_MOVE_HEAD, place).rowcount, row)
    try:
        if row.number == 0 or connection.dialect.name == "sqlite":
            connection.execute(_ADD_ROW, row.to_dict())
        else:
            values = {**place, **row.to_dict()}
            _require_moved(server.together(connection, (_MOVE_AND_ADD, "COMMIT"), values, commits=True)[0], row)
    except IntegrityError:  # the head is ours until the end of the transaction, so no honest row can be there
        raise LedgerTampered(
            f"row {row.number} of account {row.account!r} was put in: the head says {row.number - 1} is last."
        ) from None


def _require_moved(count: int, row: Row) -> None:
    if count != 1:
        raise LedgerTampered(f"the head of account {row.account!r} moved during a charge; nothing was charged.")


def append_all(connection: Connection, rows: Sequence[Row], heads: dict[str, Head]) -> None:
    """Fill an empty ledger with checked rows."""
    if rows:
        connection.execute(_ADD_ROW, [row.to_dict() for row in rows])
        values = [{"account": account, "last_row": last, "hash": end} for account, (last, end) in heads.items()]
        connection.execute(_ADD_HEAD, values)


def account_names(connection: Connection) -> list[str]:
    """All accounts in order; rows of an account that has no head are refused."""
    # Heads come last: on a server an account that is opened meanwhile is then seen by its head, or not at all.
    found = set(connection.execute(select(schema.rows.c.account).distinct()).scalars())
    names = set(connection.execute(select(schema.heads.c.account)).scalars())
    orphans = found - names
    if orphans or not all(isinstance(name, str) for name in names):
        odd = next(iter(orphans or names))
        raise LedgerTampered(f"account {odd!r} has rows but no head: row 0 or the head was edited or removed.")
    return sorted(names)
