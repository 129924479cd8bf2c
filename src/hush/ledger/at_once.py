"""A charge on a server in one question, for the usual case that its fit under the cap is known beforehand.

The process knows the account up to some row, and that so many more of one event fit. The server locks the account and
looks at the rows since then: if all of them charged the same event and there is room left, it adds the new row itself,
hash and time included, and commits. Otherwise nothing is written, and the process has to look (`Account._append`). So
nobody waits for a process while the account is locked, and processes that race for one account wait only for the disk.

The rows since then come back with the new one, and `History.advance` checks all of them before the charge counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from hush.ledger import server
from hush.ledger.chain import FIELDS, History, Row

_READY = "hush_charge is prepared"  # a note on the connection
_FIELDS = ", ".join(FIELDS)
_LOCK = "SELECT 1 FROM hush_heads WHERE account = %(account)s FOR UPDATE"
# The hash is that of `chain._digest`: the process gives the parts of its text in JSON, and the server puts the hash
# before, the number and the time between them. It sees what was committed while `_LOCK` waited. Planned once for a
# connection, which is a third of the server's work. $1 to $9: account, known, kind, content, count, note, room, and the
# text before and after the number.
_PREPARE = f"""
PREPARE hush_charge (text, bigint, text, text, bigint, text, bigint, text, text) AS
WITH others AS MATERIALIZED (
    SELECT coalesce(sum(count), 0) AS steps,
        count(*) FILTER (WHERE content <> $4 OR kind NOT IN ('charge', 'reserve')) AS odd
    FROM hush_rows WHERE account = $1 AND number > $2
), place AS MATERIALIZED (
    SELECT head.last_row + 1 AS number, head.hash AS previous,
        to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"') AS time
    FROM others, hush_heads AS head
    WHERE head.account = $1 AND head.last_row >= $2 AND others.odd = 0 AND others.steps + $5 <= $7
        AND head.hash = (SELECT hash FROM hush_rows WHERE account = $1 AND number = head.last_row)
), made AS MATERIALIZED (
    SELECT number, time, encode(sha256(convert_to(
        '["' || previous || '",' || $8 || number || $9 || time || '"]', 'UTF8'
    )), 'hex') AS hash FROM place
), moved AS (
    UPDATE hush_heads SET last_row = made.number, hash = made.hash FROM made WHERE account = $1 RETURNING 1
)
INSERT INTO hush_rows ({_FIELDS}) SELECT $1, number, $3, $4, $5, 0, $6, time, hash FROM made, moved
"""
_CHARGE = """EXECUTE hush_charge (%(account)s, %(known)s, %(kind)s, %(content)s, %(count)s, %(note)s, %(room)s,
    %(before)s, %(after)s)"""
_SINCE = f"SELECT {_FIELDS} FROM hush_rows WHERE account = %(account)s AND number > %(known)s ORDER BY number"


@dataclass(frozen=True)
class Wish:
    """A row that a process wants; `room` is how many steps of this event are known to fit, its own included."""

    kind: str
    content: str
    count: int
    note: str
    room: int


def charge(connection: Connection, history: History, wish: Wish) -> Row | None:
    """Charge and commit; None if the server could not know that it fits, and nothing was written."""
    quoted = [json.dumps(value) for value in (history.account, wish.kind, wish.content, wish.note)]
    values = {
        "account": history.account, "known": history.last_row, "kind": wish.kind, "content": wish.content,
        "count": wish.count, "note": wish.note, "room": wish.room, "before": f"{quoted[0]},",
        "after": f',{quoted[1]},{quoted[2]},{wish.count},0,{quoted[3]},"',
    }  # fmt: skip
    try:
        if not connection.info.get(_READY):
            server.together(connection, (_PREPARE,), {}, commits=False)
            connection.info[_READY] = True
        _, _, added, rows, _ = server.together(
            connection, (server.BEGIN, _LOCK, _CHARGE, _SINCE, "COMMIT"), values, commits=True
        )
    except IntegrityError:  # a row was put in after the head; whoever looks will find it
        return None
    if added != 1:
        return None
    for record in rows:
        row = Row(*record)
        history.advance(row)
    return row
