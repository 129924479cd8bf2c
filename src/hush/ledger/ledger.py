"""The ledger: one database that remembers everything done to private data, one account per data set.

>>> import tempfile
>>> from hush import Budget, Ledger, events
>>> folder = tempfile.TemporaryDirectory()
>>> ledger = Ledger(folder.name + "/budget.db")
>>> account = ledger.account("hospital", cap=Budget(epsilon=3.0, delta=1e-5))
>>> _ = account.charge(events.PureDP(epsilon=1.0), note="mean age")     # before the mean is released
>>> account.would_exceed(events.PureDP(epsilon=2.5))
True
>>> ledger.verify().rows
2
>>> folder.cleanup()
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from hush.errors import AccountMissing, InvalidValue, LedgerError, LedgerTampered
from hush.ledger import jsonl, migrations, queries, roles
from hush.ledger.account import Account
from hush.ledger.chain import History, Row, is_storable, joint_hash, next_row, opening
from hush.ledger.store import Store, check_format, create_file, open_store, sqlite_path
from hush.privacy import Budget, Relation, check_relation

LONGEST_NAME = 200
ENVIRONMENT = "HUSH_LEDGER"  # the place of the ledger that people and programs share


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What `Ledger.verify` found to be whole.

    Keep `heads` (each account's last hash) where nobody who can write the ledger can change them: a later
    `verify(expected_head=heads)` then shows that the ledger still holds all of today's rows. `head` is one hash for
    the present state of all accounts together.
    """

    accounts: int
    rows: int
    head: str
    heads: Mapping[str, str]


class Ledger:
    """Accounts in a SQLite file, or in a PostgreSQL database that a team shares (`postgresql://user@host/name`).

    Without a target it is the ledger that the environment variable HUSH_LEDGER names.

    The rows of an account are hash-chained and a head says where each chain ends. That shows every edit by somebody
    who does not recompute the hashes. Whoever can rewrite the whole file can rewrite history, unless somebody else
    kept a head (`verify(expected_head=...)`) or an export.
    """

    def __init__(self, target: str | os.PathLike[str] | None = None, *, create: bool = True) -> None:
        self._store: Store = open_store(_shared_place() if target is None else target, create=create)
        self._create = create

    @classmethod
    def open(cls, target: str | os.PathLike[str] | None = None, *, create: bool = True) -> Ledger:
        """The ledger at a path or URL. With `create=False` neither a ledger nor an account is made."""
        return cls(target, create=create)

    @classmethod
    def import_jsonl(cls, path: str | os.PathLike[str], target: str | os.PathLike[str]) -> Ledger:
        """A new ledger at `target` from an export, checked line by line; all or nothing."""
        rows, heads = jsonl.read(path)

        def fill(connection: Connection) -> None:
            if queries.account_names(connection):
                raise LedgerError(f"{target} already holds accounts; import into a new ledger.")
            queries.append_all(connection, rows, heads)

        file = sqlite_path(target)
        if file is None:
            ledger = cls(target)
            ledger._store.run(fill, write=True)
            return ledger
        try:
            create_file(Path(os.path.abspath(file)), fill)
        except FileExistsError:
            raise LedgerError(f"{target} exists already; import into a new file.") from None
        return cls(target, create=False)

    def migrate(self) -> tuple[int, int]:
        """Bring the ledger to the newest format; the version before and after."""

        def work(connection: Connection) -> tuple[int, int]:
            check_format(connection, self._store.place)
            return migrations.migrate(connection)

        return self._store.run(work, write=True)

    def grant(self, right: str, role: str) -> None:
        """On PostgreSQL: let a database role "read", "spend" (charge under the caps) or "keep" (open, change caps).

        The role has exactly this right afterwards. Only the owner of the tables may say so.
        """
        self._store.run(lambda connection: roles.grant(connection, right, role, self._store.place), write=True)

    def revoke(self, role: str) -> None:
        """On PostgreSQL: take every right on this ledger away from a database role."""
        self._store.run(lambda connection: roles.revoke(connection, role, self._store.place), write=True)

    def account(self, name: str, cap: Budget | None = None, relation: Relation | None = None) -> Account:
        """The account of a data set, opened on first use; its rows are checked from row 0.

        Relation ("add_remove" unless said) is fixed when the account is opened, and the cap until `change_cap`. Later
        they may be left out; different ones are refused.
        """
        _check_account(name, cap)
        wanted = None if relation is None else check_relation(relation)
        history = History(name)

        def look(connection: Connection) -> bool:
            if queries.read_head(connection, name) is None:
                return False
            queries.catch_up(connection, history)
            return True

        if not self._store.run(look):
            if not self._create:
                raise AccountMissing(f"there is no account {name!r} in {self._store.place}.")
            history = self._open_account(name, cap, wanted or "add_remove")
        _check_same(history, cap, wanted)
        return Account(self._store, history)

    def accounts(self) -> tuple[Account, ...]:
        """All accounts, by name, each checked from row 0."""

        def look(connection: Connection) -> tuple[Account, ...]:
            result = []
            for name in queries.account_names(connection):
                history = History(name)
                queries.catch_up(connection, history)
                result.append(Account(self._store, history))
            return tuple(result)

        return self._store.run(look)

    def verify(self, expected_head: str | Mapping[str, str] | None = None) -> Verified:
        """Check the file and every row of every account.

        Args:
            expected_head: a hash that somebody kept, or one for each account by name. A kept hash must still be
                the hash of a row (rows after it are growth); a single one may also be the joint `head` of today.

        Raises:
            LedgerTampered: a row was edited, removed, put in or re-ordered, or a kept hash is gone.
        """
        rows, heads = self._read_all()
        head = joint_hash(heads)
        if expected_head is not None:
            _check_kept(expected_head, rows, head)
        last_hashes = {name: end for name, (_, end) in heads.items()}
        return Verified(accounts=len(heads), rows=len(rows), head=head, heads=last_hashes)

    def export_jsonl(self, path: str | os.PathLike[str]) -> Verified:
        """Write every row to a new file of JSON lines, after checking all of them."""
        rows, heads = self._read_all()
        jsonl.write(path, rows, heads)
        last_hashes = {name: end for name, (_, end) in heads.items()}
        return Verified(accounts=len(heads), rows=len(rows), head=joint_hash(heads), heads=last_hashes)

    def __repr__(self) -> str:
        return f"Ledger({self._store.place!r})"

    def _read_all(self) -> tuple[list[Row], jsonl.Heads]:
        def look(connection: Connection) -> tuple[list[Row], jsonl.Heads]:
            check_format(connection, self._store.place)
            rows: list[Row] = []
            heads: jsonl.Heads = {}
            for name in queries.account_names(connection):
                history = History(name)
                queries.catch_up(connection, history, seen=rows.append)
                heads[name] = (history.last_row, history.hash)
            return rows, heads

        return self._store.run(look)

    def _open_account(self, name: str, cap: Budget | None, relation: Relation) -> History:
        def work(connection: Connection) -> History:
            history = History(name)
            if queries.read_head(connection, name, lock=True) is not None:  # another process was faster
                queries.catch_up(connection, history)
                return history
            queries.account_names(connection)  # refuses rows that lost their head
            row = next_row(history, kind="open", content=opening(cap, relation))
            queries.append(connection, row)
            history.advance(row)
            return history

        return self._store.run(work, write=True)


def _shared_place() -> str:
    if not (place := os.environ.get(ENVIRONMENT, "")):
        raise InvalidValue(f"a ledger needs a path or a database URL, or one in the variable {ENVIRONMENT}.")
    return place


def _check_account(name: object, cap: object) -> None:
    fine = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable() and name == name.strip()
    if not fine or not is_storable(str(name)):
        raise InvalidValue(f"an account's name must be 1 to {LONGEST_NAME} printable characters; got {name!r}.")
    if cap is not None and not isinstance(cap, Budget):
        raise InvalidValue(f"cap must be a Budget, such as Budget(epsilon=3.0, delta=1e-5); got {cap!r}.")


def _check_same(history: History, cap: Budget | None, relation: Relation | None) -> None:
    if cap is not None and cap != history.cap:
        raise InvalidValue(f"account {history.account!r} has the cap {history.cap}, and this asks for {cap}.")
    if relation is not None and relation != history.relation:
        raise InvalidValue(
            f"account {history.account!r} was opened with relation {history.relation!r}, "
            f"and this asks for {relation!r}."
        )


def _check_kept(expected: str | Mapping[str, str], rows: list[Row], head: str) -> None:
    if isinstance(expected, str):
        if expected != head and all(row.hash != expected for row in rows):
            raise LedgerTampered(
                f"the expected head {expected[:12]!r} is neither the joint head nor the hash of any row: "
                "history was rewritten or cut, or a joint head was kept before the ledger grew."
            )
        return
    known = {(row.account, row.hash) for row in rows}
    for name, kept in expected.items():
        if (name, kept) not in known:
            raise LedgerTampered(f"account {name!r} has no row with the expected head {kept[:12]!r}: history changed.")
