from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.ledger.postgres_server import PostgresServer, binaries
from ledger_step import STEP
from sqlalchemy import text

from hush import Budget, events
from hush.ledger import Ledger, store
from hush.ledger.server import server_engine

EARLY = (  # a ledger of format 1, as the first Hush made it
    "CREATE TABLE hush_ledger (version integer PRIMARY KEY)",
    "CREATE TABLE hush_heads (account varchar(200) PRIMARY KEY, last_row bigint NOT NULL, hash varchar(64) NOT NULL)",
    "CREATE TABLE hush_rows (account varchar(200), number bigint, kind varchar(16) NOT NULL, content text NOT NULL,"
    " count bigint NOT NULL, block bigint NOT NULL, note text NOT NULL, time varchar(40) NOT NULL,"
    " hash varchar(64) NOT NULL, PRIMARY KEY (account, number))",
    "INSERT INTO hush_ledger VALUES (1)",
)


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits that do not wait for the disk; the processes of test_ledger_processes.py do wait."""
    monkeypatch.setattr(store, "DURABLE", ("synchronous=OFF",))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    return Ledger(path)


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    """Two accounts with every kind of row: 9 in "hospital" (0 to 8), 2 in "bank"."""
    account = ledger.account("hospital", cap=Budget(epsilon=3.0, delta=1e-5))
    for index in range(5):
        account.charge(events.PureDP(epsilon=0.01 * (index + 1)), note=f"query {index}")
    with account.reserve(STEP, times=30, block=20, give_back=True) as reservation:
        for _ in range(25):
            reservation.step()
    ledger.account("bank", relation="replace_one").charge(events.Laplace(scale=2.0), note="naïve ☂")
    return ledger


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One real server for all tests, on a free loopback port."""
    if binaries() is None:
        pytest.skip("no PostgreSQL server on this machine; on Debian: apt install postgresql")
    with PostgresServer() as server:
        speak(server.url(), "CREATE DATABASE empty")
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database without a ledger; what a test makes there is gone after it."""
    yield from without_ledger(postgres_server.url())


@pytest.fixture
def empty_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A second database without a ledger."""
    yield from without_ledger(postgres_server.url("empty"))


@pytest.fixture
def early_postgres_url(empty_postgres_url: str) -> str:
    """A database with a ledger of format 1."""
    speak(empty_postgres_url, *EARLY)
    return empty_postgres_url


def without_ledger(url: str) -> Iterator[str]:
    yield url
    speak(url, "DROP TABLE IF EXISTS hush_rows, hush_heads, hush_ledger")


def speak(url: str, *statements: str) -> None:
    engine = server_engine(url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()
