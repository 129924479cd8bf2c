"""A ledger on a database server: how this process is connected to it, and what the server must promise.

A process keeps one connection: starting one costs more than a charge. A forked child forgets its parent's, so that
two processes never speak on one line. Every connection asks for commits that wait for the disk, and gives up a lock
that somebody holds for too long.

A charge is two questions: `together` sends the lock of the account and the reading of its new rows as one, and the new
row with its commit as another. The driver itself starts no transactions; `hush.ledger.store` says when.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import ClauseElement, Connection, Dialect, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError

from hush.errors import InvalidValue, LedgerError, MissingExtra, UnreadableFile

POSTGRES = ("postgres", "postgresql", "postgresql+psycopg")  # what people write; the driver is psycopg 3
LOCK_SECONDS = 100  # to wait for another process's lock, in one go
IDLE_SECONDS = 60  # after which the server drops a client that vanished in the middle of a charge
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_WEAK_COMMITS = ("off", "local", "remote_write")
_LOCKED = "55P03"  # PostgreSQL: lock_not_available
_NO_RIGHT = "42501"  # PostgreSQL: insufficient_privilege
_RACED = ("23505", "42P07", "42710", "40001", "40P01")  # two that create or change the same thing at once

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _forget_connections() -> None:
    for engine in list(_engines):
        engine.dispose(close=False)  # the lines are the parent's: let go of them without a word


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_connections)


def server_engine(target: str) -> Engine:
    """The engine for a URL; `postgresql://` means psycopg 3."""
    try:
        url = make_url(target)
        if url.drivername not in POSTGRES:
            raise InvalidValue(f"a ledger is a SQLite file or on postgresql://...; {url.drivername!r} is neither.")
        url = url.set(drivername="postgresql+psycopg")
        engine = create_engine(url, pool_size=1, max_overflow=2, isolation_level="AUTOCOMMIT")
    except ImportError:
        raise MissingExtra("no driver for PostgreSQL; run: pip install 'hush[postgres]'") from None
    except ArgumentError:
        raise InvalidValue("this is not a database URL; write it like postgresql://user@host/database.") from None
    event.listen(engine, "connect", _prepare)
    _engines.add(engine)
    return engine


def _prepare(raw: Any, _record: object) -> None:
    """Settings of a new connection, in one question."""
    weak = ", ".join(f"'{name}'" for name in _WEAK_COMMITS)
    with raw.cursor() as cursor:
        cursor.execute(
            f"SELECT set_config('lock_timeout', '{LOCK_SECONDS}s', false),"
            f" set_config('idle_in_transaction_session_timeout', '{IDLE_SECONDS}s', false),"
            " set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit')"
            f" IN ({weak}) THEN 'on' ELSE current_setting('synchronous_commit') END, false)"
        )
    raw.commit()


def together(
    connection: Connection, questions: tuple[ClauseElement | str, ...], values: Mapping[str, Any], *, commits: bool
) -> list[Any]:
    """Ask several questions in one go; of each its rows, or how many it changed.

    The server takes them in order, and after one that fails none of the others. If the line breaks while it `commits`,
    the commit may have arrived: nobody may try again.
    """
    raw: Any = connection.connection.driver_connection
    driver: Any = connection.dialect.loaded_dbapi
    try:
        with driver.ClientCursor(raw) as cursor:
            cursor.execute(_words(questions, connection.dialect), values)
            return [found.fetchall() if found.pgresult.nfields else found.rowcount for found in cursor.results()]
    except driver.Error as error:
        if broken := bool(raw.closed):
            connection.invalidate(error)
        raise DBAPIError.instance(
            None, None, error, driver.Error, connection_invalidated=broken and not commits, dialect=connection.dialect
        ) from error


@lru_cache
def _words(questions: tuple[ClauseElement | str, ...], dialect: Dialect) -> str:
    return "; ".join(
        question if isinstance(question, str) else str(question.compile(dialect=dialect)) for question in questions
    )


def check_server(connection: Connection, tables: list[str], place: str) -> None:
    """Refuse a server that forgets, tables that are missing, and triggers or rules that could undo charges."""
    if connection.execute(text("SELECT current_setting('fsync')")).scalar() != "on":
        raise LedgerError(f"{place} runs with fsync off: a power cut would hide charges; switch it on.")
    known = "SELECT count(*) FROM unnest(CAST(:tables AS text[])) AS name WHERE to_regclass(name) IS NOT NULL"
    if connection.execute(text(known), {"tables": tables}).scalar() != len(tables):
        raise UnreadableFile(f"{place} holds no ledger of Hush.")
    strange = (
        "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgrelid IN"
        " (SELECT to_regclass(name) FROM unnest(CAST(:tables AS text[])) AS name)"
        " UNION SELECT rulename FROM pg_rewrite WHERE ev_class IN"
        " (SELECT to_regclass(name) FROM unnest(CAST(:tables AS text[])) AS name)"
    )
    if name := connection.execute(text(strange), {"tables": tables}).scalar():
        raise UnreadableFile(f"{place} holds a trigger or rule {str(name)!r} that a ledger of Hush does not have.")


def lock_schema(connection: Connection) -> None:
    """Keep every other process from creating or migrating until this transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('hush_ledger'))"))


def state_of(error: BaseException) -> str:
    """The five letters by which a server names an error; empty for others."""
    inner = error.orig if isinstance(error, DBAPIError) else error
    return str(getattr(inner, "sqlstate", "") or "")


def passes(error: BaseException) -> bool:
    """Whether the same transaction may succeed when it is tried again."""
    return state_of(error) in (*_RACED, _LOCKED)


def is_broken_line(error: BaseException) -> bool:
    """Whether the connection is gone: the server was restarted, or dropped a line that was silent for long."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


def explained(error: BaseException, place: str) -> LedgerError | None:
    """One clear line for the server's own reasons; None for the rest."""
    if state_of(error) == _LOCKED:
        return LedgerError(f"{place} was locked by another process for {LOCK_SECONDS} seconds; try again.")
    if state_of(error) == _NO_RIGHT:
        return LedgerError(f"{place}: your role may not do this; ask a keeper of the ledger (hush ledger grant).")
    return None
