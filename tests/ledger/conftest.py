from __future__ import annotations

from pathlib import Path

import pytest
from ledger_step import STEP

from hush import Budget, events
from hush.ledger import Ledger, store


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
