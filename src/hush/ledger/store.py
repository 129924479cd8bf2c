"""The database behind a ledger: where it is, how a transaction runs, and one clear line when it fails.

On a file every transaction opens its own connection and closes it, so that threads and forked processes share
nothing; for servers see `hush.ledger.server`.

SQLite keeps its rollback journal (the default) with synchronous=EXTRA: when a commit returns, the row is in the
one file and survives a power cut. Write-ahead logging would be faster, but a copy of the file without its -wal
companion would hide charges.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from hush.errors import HushError, InvalidValue, LedgerError, UnreadableFile
from hush.ledger import atomic, migrations, schema, server

T = TypeVar("T")

PATIENCE = 120.0  # seconds to wait for other processes before giving up
DURABLE = ("synchronous=EXTRA", "fullfsync=ON")  # a commit waits for the disk, the folder's entry included
_BUSY_SECONDS = 10.0  # of which SQLite waits this long in one go

# Held during every transaction and during every fork of this process: a child never inherits an open SQLite file,
# whose locks it would wrongly believe to own.
GUARD = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=GUARD.acquire, after_in_parent=GUARD.release, after_in_child=GUARD.release)


class Store:
    """A database that holds a ledger; `place` is how messages call it."""

    def __init__(self, engine: Engine, place: str) -> None:
        self.engine = engine
        self.place = place
        weakref.finalize(self, engine.dispose)

    def run(self, work: Callable[[Connection], T], *, write: bool = False, begin: bool = True) -> T:
        """Do `work` in one transaction, committed to disk when this returns; again from the start while others block.

        Without `begin`, on a server, `work` starts its transaction itself, with its first question.
        """
        deadline, fresh_line = time.monotonic() + PATIENCE, False
        with GUARD:
            while True:
                committing = False
                try:
                    with self.engine.connect() as connection:
                        with connection.begin():
                            if begin or not self.is_server:
                                connection.exec_driver_sql(self._beginning(write))
                            result = work(connection)
                            committing = True
                        return result
                except HushError:
                    raise
                except (SQLAlchemyError, sqlite3.Error, UnicodeError, OverflowError, MemoryError) as error:
                    if server.is_broken_line(error) and not committing and not fresh_line:
                        fresh_line = True  # nothing was committed on the old line, which may have been silent for long
                    elif not self._passes(error) or time.monotonic() > deadline:
                        raise _explained(error, self.place) from error

    @property
    def is_server(self) -> bool:
        """Whether this is PostgreSQL rather than a file."""
        return self.engine.dialect.name != "sqlite"

    def _beginning(self, write: bool) -> str:
        if not self.is_server:
            return "BEGIN IMMEDIATE" if write else "BEGIN"  # a writer takes the file's only write lock at once
        # A reader sees one moment of the ledger; a writer, once it has the lock, the newest rows.
        return server.BEGIN if write else "BEGIN ISOLATION LEVEL REPEATABLE READ"

    def _passes(self, error: BaseException) -> bool:
        if not self.is_server:
            return _sqlite_name(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
        # Two processes that open one account at once on a server: the later one finds it on its second try.
        return isinstance(error, IntegrityError) or server.passes(error)


def open_store(target: str | os.PathLike[str], *, create: bool) -> Store:
    """The ledger at a path or SQLAlchemy URL, checked; a missing one is made if `create`."""
    _check_target(target)
    if "://" in str(target):
        store = _server_store(str(target), create=create)
    else:
        store = _file_store(Path(target), create=create)
    store.run(lambda connection: check_format(connection, store.place))
    return store


def sqlite_path(target: str | os.PathLike[str]) -> Path | None:
    """The file that a path or sqlite:/// URL means; None for a server."""
    _check_target(target)
    if "://" not in str(target):
        return Path(target)
    try:
        url = make_url(str(target))
    except ArgumentError:
        raise InvalidValue(f"{str(target)!r} is not a database URL; write it like sqlite:///budget.db.") from None
    if url.get_backend_name() != "sqlite":
        return None
    if not url.database or url.database == ":memory:" or url.query:
        raise InvalidValue("a ledger must outlive its process: name a file, like sqlite:///budget.db, without options.")
    return Path(url.database)


def shown_place(target: str | os.PathLike[str]) -> str:
    """How a ledger is named in messages and files: a URL without its password, which PGPASSWORD or .pgpass can give."""
    if "://" not in str(target):
        return str(target)
    try:
        url = make_url(str(target))
    except ArgumentError:
        return str(target).split(":")[0]
    return url._replace(password=None).difference_update_query(["password"]).render_as_string()


def _check_target(target: object) -> None:
    # SQLite would end a name at its first NUL, and open another file.
    if not isinstance(target, str | os.PathLike) or not str(target) or "\0" in str(target):
        raise InvalidValue(f"a ledger needs a path or a database URL; got {str(target)[:60]!r}.")


def create_file(path: Path, fill: Callable[[Connection], None]) -> None:
    """A new ledger file with what `fill` writes, whole or not at all; `FileExistsError` if it is there already."""
    if not path.parent.is_dir():
        raise LedgerError(f"{path} cannot be created: there is no folder {path.parent}.")

    def build(connection: Connection) -> None:
        migrations.create(connection)
        fill(connection)

    with atomic.new_file(path) as scratch:
        Store(_file_engine(scratch, mode="rwc"), str(path)).run(build, write=True)


def _file_store(path: Path, *, create: bool) -> Store:
    try:
        path = Path(os.path.abspath(path))
        if path.is_dir():
            raise UnreadableFile(f"{path} is a folder; a ledger is a file.")
        if not path.exists():
            if not create:
                raise UnreadableFile(f"there is no ledger at {path}.")
            with suppress(FileExistsError):  # another process was faster; its file is whole
                create_file(path, lambda connection: None)
        if path.stat().st_size == 0:
            raise UnreadableFile(f"{path} is empty, which a ledger never is; bring back a copy, or remove the file.")
    except (OSError, ValueError) as error:
        if isinstance(error, HushError):
            raise
        raise UnreadableFile(f"{path!s:.200} cannot be opened: {error}.") from None
    return Store(_file_engine(path, mode="rw"), str(path))


def _file_engine(path: Path, *, mode: str) -> Engine:
    uri = f"{path.absolute().as_uri()}?mode={mode}"  # "rw" never creates: a file that vanished is an error

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.text_factory = _text
        try:
            for pragma in (*DURABLE, "trusted_schema=OFF", "cell_size_check=ON"):
                connection.execute(f"PRAGMA {pragma}")
        except BaseException:
            connection.close()
            raise
        return connection

    return create_engine("sqlite://", creator=connect, poolclass=NullPool)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")  # bytes that are no text fail later, at the hash of their row


def _server_store(target: str, *, create: bool) -> Store:
    path = sqlite_path(target)
    if path is not None:
        return _file_store(path, create=create)
    engine = server.server_engine(target)
    store = Store(engine, shown_place(target))
    if create:
        store.run(migrations.create, write=True)
    return store


def check_format(connection: Connection, place: str) -> None:
    """Refuse a broken file, another program's database, and a ledger of a newer Hush."""
    if connection.dialect.name == "sqlite":
        _check_sqlite_file(connection, place)
    else:
        server.check_server(connection, list(schema.metadata.tables), place)
    migrations.check_version(connection, place)


def _check_sqlite_file(connection: Connection, place: str) -> None:
    verdict = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalars().all()
    if verdict != ["ok"]:
        raise UnreadableFile(f"{place} is damaged: {_one_line(verdict[0] if verdict else 'no answer')}")
    found = {(kind, name) for kind, name in connection.exec_driver_sql("SELECT type, name FROM sqlite_master")}
    expected = {("table", name) for name in schema.metadata.tables}
    strange = sorted(f"{kind} {name!r}" for kind, name in found - expected if not str(name).startswith("sqlite_auto"))
    if not expected <= found:
        raise UnreadableFile(f"{place} is a SQLite database, but not a ledger of Hush.")
    if strange:  # a trigger could undo charges
        raise UnreadableFile(f"{place} holds a {strange[0]} that a ledger of Hush does not have.")


def _explained(error: BaseException, place: str) -> HushError:
    name = _sqlite_name(error)
    reason = _one_line(str(getattr(error, "orig", None) or error))
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return LedgerError(f"{place} was locked by another process for {PATIENCE:.0f} seconds; try again.")
    if name.startswith("SQLITE_READONLY"):
        return LedgerError(f"{place} is read-only: {reason}")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")) or not isinstance(error, SQLAlchemyError):
        return UnreadableFile(f"{place} is damaged or not a ledger: {reason}")
    return server.explained(error, place) or LedgerError(f"{place}: {reason}")


def _sqlite_name(error: BaseException) -> str:
    inner = error.orig if isinstance(error, DBAPIError) else error
    return str(getattr(inner, "sqlite_errorname", ""))


def _one_line(text: object) -> str:
    line = " ".join(str(text).split())
    return line[:200].rstrip(".") + "."
