"""The format of a ledger, version by version.

| version | what it brought |
|---|---|
| 1 | accounts, heads and hash-chained rows |
| 2 | rows of kind "cap", which change an account's cap; on PostgreSQL, row rules that leave them to keepers |

A ledger of an older version is read and charged as it is. What is new in a version needs it: `Ledger.migrate` takes
the steps in order, in one transaction. A ledger of a newer version is refused: its rows may mean what this code cannot
know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, insert, select, text, update

from hush.errors import LedgerError, UnreadableFile
from hush.ledger import schema, server

# Whoever may insert heads may open accounts, so the same right decides who may change a cap.
_ROW_RULES = (
    "ALTER TABLE hush_rows ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY hush_read ON hush_rows FOR SELECT USING (true)",
    "CREATE POLICY hush_append ON hush_rows FOR INSERT WITH CHECK (kind IN ('charge', 'reserve', 'release')"
    " OR has_table_privilege('hush_heads'::regclass, 'INSERT'))",
)


def _to_2(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        for statement in _ROW_RULES:
            connection.execute(text(statement))


STEPS: dict[int, Callable[[Connection], None]] = {2: _to_2}  # the version that a step leads to


def create(connection: Connection) -> None:
    """The tables of a new ledger, in the newest version; one that exists is left as it is."""
    server.lock_schema(connection)
    schema.metadata.create_all(connection)
    if connection.execute(select(schema.info.c.version)).first() is None:
        connection.execute(insert(schema.info).values(version=1))
        migrate(connection)


def migrate(connection: Connection) -> tuple[int, int]:
    """Take the steps that a checked ledger lacks; the version before and after."""
    server.lock_schema(connection)
    before = int(connection.execute(select(schema.info.c.version)).scalar_one())
    for version in range(before + 1, schema.VERSION + 1):
        STEPS[version](connection)
        connection.execute(update(schema.info).values(version=version))
    return before, max(before, schema.VERSION)


def check_version(connection: Connection, place: str) -> int:
    """The version of a ledger, if this Hush can read it."""
    versions: Sequence[object] = connection.execute(select(schema.info.c.version)).scalars().all()
    version = versions[0] if len(versions) == 1 else None
    if type(version) is not int or version < 1:
        raise UnreadableFile(f"{place} does not say which version of the ledger format it has.")
    if version > schema.VERSION:
        raise UnreadableFile(
            f"{place} has ledger format {version} and this Hush reads format {schema.VERSION}; use a newer Hush."
        )
    return version


def require(connection: Connection, version: int, place: str) -> None:
    """Refuse what an older format does not have."""
    if (found := check_version(connection, place)) < version:
        raise LedgerError(f"{place} has ledger format {found} and this needs {version}; run: hush ledger migrate")
