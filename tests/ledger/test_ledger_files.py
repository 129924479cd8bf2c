from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection

from hush import Budget, Ledger, events
from hush.errors import (
    AccountMissing,
    HushError,
    InvalidValue,
    LedgerError,
    LedgerTampered,
    MissingExtra,
    UnreadableFile,
)
from hush.ledger import store


def test_ledger_is_one_file_that_can_be_opened_again(path: Path) -> None:
    Ledger(path).account("hospital", cap=Budget(epsilon=1.0, delta=1e-5)).charge(events.Gaussian(20.0))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    for target in (str(path), path, f"sqlite:///{path}", f"sqlite+pysqlite:///{path}"):
        account = Ledger.open(target, create=False).account("hospital")
        assert account.cap == Budget(epsilon=1.0, delta=1e-5)
        assert len(account.rows()) == 2


def test_ledger_works_for_odd_file_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a b?c=1&mode=ro#x%20.db", "naïve.db", "file:x"):
        Ledger(name).account("hospital")
        assert (tmp_path / name).is_file()
    ledger = Ledger("here.db")
    monkeypatch.chdir("/")
    assert ledger.account("hospital").charge(events.Gaussian(1.0)).number == 1  # a later chdir changes nothing


def test_ledger_account_settings_are_fixed(ledger: Ledger) -> None:
    ledger.account("hospital", cap=Budget(epsilon=3.0, delta=1e-5), relation="replace_one")
    assert ledger.account("hospital").relation == "replace_one"
    assert ledger.account("hospital", cap=Budget(epsilon=3.0, delta=1e-5)).cap == Budget(epsilon=3.0, delta=1e-5)
    with pytest.raises(InvalidValue, match=r"epsilon=3\.0.*epsilon=4\.0"):
        ledger.account("hospital", cap=Budget(epsilon=4.0, delta=1e-5))
    with pytest.raises(InvalidValue, match=r"'replace_one'.*'add_remove'"):
        ledger.account("hospital", relation="add_remove")
    ledger.account("free")
    with pytest.raises(InvalidValue, match=r"cap None.*epsilon=3\.0"):
        ledger.account("free", cap=Budget(epsilon=3.0, delta=1e-5))


@pytest.mark.parametrize("name", ["", " x", "x\n", "a\0b", "\ud800", "x" * 201, None, 3])
def test_ledger_refuses_bad_account_names(ledger: Ledger, name: str) -> None:
    with pytest.raises(InvalidValue, match="name must be"):
        ledger.account(name)


def test_ledger_refuses_a_cap_that_is_no_budget(ledger: Ledger) -> None:
    with pytest.raises(InvalidValue, match="cap must be a Budget"):
        ledger.account("hospital", cap=3.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="relation must be one of"):
        ledger.account("hospital", relation="both")  # type: ignore[arg-type]
    assert ledger.accounts() == ()


def test_ledger_opened_without_create_makes_nothing(path: Path) -> None:
    with pytest.raises(UnreadableFile, match="there is no ledger"):
        Ledger.open(path, create=False)
    assert not path.exists()
    Ledger(path)
    with pytest.raises(AccountMissing, match="no account 'hospital'"):
        Ledger.open(path, create=False).account("hospital")
    assert Ledger(path).verify().accounts == 0


def test_ledger_refuses_what_is_not_a_ledger(tmp_path: Path) -> None:
    text, empty, other = tmp_path / "text.db", tmp_path / "empty.db", tmp_path / "other.db"
    text.write_text("a shopping list, long enough to hold a header " * 10)
    empty.touch()
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE shopping (item TEXT)")
    cases = {text: "not a ledger", empty: "is empty", other: "not a ledger of Hush", tmp_path: "is a folder"}
    for target, message in cases.items():
        before = target.read_bytes() if target.is_file() else None
        with pytest.raises(UnreadableFile, match=message):
            Ledger(target)
        assert (target.read_bytes() if target.is_file() else None) == before
    with pytest.raises(LedgerError, match="no folder"):
        Ledger(tmp_path / "missing" / "budget.db")


@pytest.mark.parametrize("target", ["", "a\0b", "sqlite:///a\0b", "x" * 5000, 3, None, b"x"])
def test_ledger_refuses_names_that_no_file_has(
    target: str, filled: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.export_jsonl(tmp_path / "out.jsonl")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(HushError):
        Ledger(target)
    with pytest.raises(HushError):
        Ledger.import_jsonl("../out.jsonl", target)
    assert list(Path.cwd().iterdir()) == []


def test_ledger_refuses_a_newer_format_triggers_and_truncation(filled: Ledger, path: Path) -> None:
    whole = path.read_bytes()

    def changed(script: str) -> None:
        path.write_bytes(whole)
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(script)

    changed("UPDATE hush_ledger SET version = 3")
    with pytest.raises(UnreadableFile, match="format 3 and this Hush reads format 2"):
        Ledger(path)
    changed("CREATE TRIGGER t AFTER INSERT ON hush_rows BEGIN DELETE FROM hush_rows WHERE number = 3; END")
    with pytest.raises(UnreadableFile, match="trigger 't'"):
        Ledger(path)
    changed("DELETE FROM hush_ledger")
    with pytest.raises(UnreadableFile, match="which version"):
        Ledger(path)
    for length in (10, 100, 4096, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises((UnreadableFile, LedgerTampered)):
            Ledger(path).verify()
    with pytest.raises((UnreadableFile, LedgerTampered)):
        filled.verify()


def test_ledger_that_vanished_is_not_made_again_by_a_charge(ledger: Ledger, path: Path) -> None:
    account = ledger.account("hospital")
    path.unlink()
    with pytest.raises(LedgerError, match="unable to open"):
        account.charge(events.Gaussian(1.0))
    assert not path.exists()


def test_ledger_read_only_can_be_read_and_says_so_on_a_charge(
    filled: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = store._file_engine
    monkeypatch.setattr(store, "_file_engine", lambda path, *, mode: engine(path, mode="ro"))
    reader = Ledger.open(path, create=False)
    assert reader.verify() == filled.verify()
    with pytest.raises(LedgerError, match="read-only"):
        reader.account("hospital").charge(events.PureDP(epsilon=0.01))


def test_ledger_waits_for_a_lock_and_then_says_who_is_to_blame(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = ledger.account("hospital")
    monkeypatch.setattr(store, "PATIENCE", 0.2)
    monkeypatch.setattr(store, "_BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="locked by another process"):
            account.charge(events.Gaussian(1.0))
    assert account.charge(events.Gaussian(1.0)).number == 1


def test_ledger_writes_nothing_when_a_charge_fails_half_way(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hush.ledger import queries

    account = ledger.account("hospital")
    append = queries.append

    def broken(connection: Connection, row: object) -> None:
        append(connection, row)  # type: ignore[arg-type]
        raise RuntimeError("power cut")

    monkeypatch.setattr(queries, "append", broken)
    with pytest.raises(RuntimeError, match="power cut"):
        account.charge(events.Gaussian(1.0))
    monkeypatch.undo()
    assert len(account.rows()) == 1
    assert account.charge(events.Gaussian(1.0)).number == 1
    assert ledger.verify().rows == 2


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///x.db?mode=ro", "://", "sqlite:/:x://"])
def test_ledger_refuses_urls_that_forget(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match=r"URL|outlive"):
        Ledger(url)
    assert list(tmp_path.iterdir()) == []


def test_ledger_names_the_missing_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"pip install 'hush\[postgres\]'"):
        Ledger("postgresql://host/db")


@pytest.mark.parametrize("url", ["nosuchbase://host/db", "mysql://host/db", "postgresql+psycopg2://host/db"])
def test_ledger_refuses_other_servers(url: str) -> None:
    with pytest.raises(InvalidValue, match="is neither"):
        Ledger(url)


def test_ledger_commits_are_durable(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # of the fixture quick_disk
    with ledger._store.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3  # EXTRA: the folder is synced as well
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"


def test_sqlalchemy_is_loaded_by_the_ledger_only() -> None:
    code = (
        "import sys, hush.events, hush.privacy; assert 'sqlalchemy' not in sys.modules; "
        "import hush.ledger; assert 'sqlalchemy' in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ, timeout=300)
