"""Real processes, real kill -9. Every charge that was acknowledged must be in the ledger, and the cap must hold."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hush import Budget, Ledger, events
from hush.ledger import Row, queries

WORKER = Path(__file__).with_name("ledger_worker.py")
RACING, KILLED = 16, 8
FIT = 160  # charges of epsilon 0.01 under the cap, at delta 0 where epsilons add
CAP = Budget(epsilon=0.01 * FIT + 0.005, delta=0.0)
STEPS_FIT = 700
STEPS_CAP = Budget(epsilon=0.01 * STEPS_FIT + 0.005, delta=0.0)

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a POSIX signal"),
    pytest.mark.xdist_group("postgres"),  # one server serves all
]


class Workers:
    """Processes that have loaded everything and do one task each, started together."""

    def __init__(self, task: str, target: str | Path, folder: Path, number: int) -> None:
        self._notes = folder / "heard"
        self._notes.mkdir()
        command = [sys.executable, str(WORKER), task, str(target), str(self._notes), str(number)]
        self._host = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self._ids = [int(word) for word in self._hear().split()]
        self._tell("go")

    def kill(self, number: int, *, seed: int) -> None:
        """SIGKILL the first `number`, each at a random moment after a random number of acknowledgements.

        A process that ended stays known until `finish`, so no other can be hit.
        """
        rng = random.Random(seed)
        waiting = {index: rng.randrange(1, 8) for index in range(number)}
        deadline = time.monotonic() + 300
        while waiting and time.monotonic() < deadline:
            for index, least in list(waiting.items()):
                heard = self._heard(index)
                if len(heard) >= least or heard[-1:] == ["refused"]:
                    time.sleep(rng.uniform(0.0, 0.004))
                    os.kill(self._ids[index], signal.SIGKILL)
                    del waiting[index]

    def _heard(self, index: int) -> list[str]:
        text = self._notes / f"worker-{index}"
        return text.read_text().split("\n")[:-1] if text.exists() else []

    def finish(self) -> tuple[list[list[str]], list[int]]:
        """What each process acknowledged, in whole lines, and its exit code."""
        self._tell("wait")
        codes = [int(word) for word in self._hear().split()]
        self._host.communicate()
        return [self._heard(index) for index in range(len(codes))], codes

    def _tell(self, line: str) -> None:
        assert self._host.stdin is not None
        self._host.stdin.write(f"{line}\n")

    def _hear(self) -> str:
        assert self._host.stdout is not None
        return self._host.stdout.readline()


def by_worker(rows: tuple[Row, ...], index: int) -> list[Row]:
    return [row for row in rows if row.note == f"worker-{index}"]


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, path: Path) -> str:
    """A file, and a database on a real server."""
    return str(path) if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def test_processes_charging_one_account_lose_nothing_and_keep_the_cap(target: str, tmp_path: Path) -> None:
    Ledger(target).account("hospital", cap=CAP)
    workers = Workers("charge_until_refused", target, tmp_path, RACING)
    workers.kill(KILLED, seed=1)
    heard, codes = workers.finish()
    assert codes[KILLED:] == [0] * (RACING - KILLED)
    ledger = Ledger.open(target, create=False)
    rows = ledger.account("hospital").rows()
    assert ledger.verify().rows == len(rows) == FIT + 1  # the survivors spent all that fits, and not one more
    assert ledger.account("hospital").spent().epsilon <= CAP.epsilon
    for index, lines in enumerate(heard):
        mine = [row.number for row in by_worker(rows, index)]
        told = [int(line.split()[1]) for line in lines if line.startswith("charged")]
        assert told == mine[: len(told)]
        assert len(mine) - len(told) <= (1 if index < KILLED else 0)  # a killed one may have missed its last answer
    assert all(lines[-1] == "refused" for lines in heard[KILLED:])
    assert any(lines[-1] != "refused" for lines in heard[:KILLED]), "the kills came too late to test anything"


def test_processes_reservations_waste_at_most_a_block_and_hide_nothing(target: str, tmp_path: Path) -> None:
    Ledger(target).account("hospital", cap=STEPS_CAP)
    workers = Workers("step_until_refused", target, tmp_path, 8)
    workers.kill(4, seed=3)
    heard, codes = workers.finish()
    assert codes[4:] == [0] * 4
    assert any(lines[-1] != "refused" for lines in heard[:4]), "the kills came too late to test anything"
    ledger = Ledger.open(target, create=False)
    rows = ledger.account("hospital").rows()
    ledger.verify()
    assert all(row.kind == "reserve" for row in rows[1:])  # nothing is given back
    assert sum(row.count for row in rows[1:]) == STEPS_FIT
    for index, lines in enumerate(heard):
        steps = sum(line.startswith("stepped") for line in lines)
        reserved = sum(row.count for row in by_worker(rows, index))
        assert steps <= reserved <= steps + (9 + 1 if index < 4 else 0)


def test_processes_that_open_one_ledger_at_once_agree(target: str, tmp_path: Path, path: Path) -> None:
    heard, codes = Workers("open_at_once", target, tmp_path, 8).finish()
    assert codes == [0] * 8
    assert sorted(lines[0] for lines in heard) == [f"opened {number}" for number in range(1, 9)]
    assert Ledger(target).verify().rows == 9
    assert sorted({entry.name for entry in tmp_path.iterdir()} | {path.name}) == [path.name, "heard"]


class Opening:
    """A connection to a server on which another process opens one account more between any two questions."""

    def __init__(self) -> None:
        self.accounts = ["first"]

    def execute(self, _: object) -> Opening:
        return self

    def scalars(self) -> list[str]:
        seen = list(self.accounts)
        self.accounts.append(f"account-{len(seen)}")
        return seen


def test_an_account_that_is_opened_meanwhile_is_no_sign_of_tampering() -> None:
    assert queries.account_names(Opening()) == ["account-1", "first"]  # type: ignore[arg-type]


def test_processes_killed_before_commit_charge_nothing(target: str, tmp_path: Path) -> None:
    account = Ledger(target).account("hospital", cap=CAP)
    account.charge(events.PureDP(epsilon=0.01))
    assert Workers("die_before_commit", target, tmp_path, 1).finish() == ([[]], [-9])
    assert len(account.rows()) == 2
    assert account.charge(events.PureDP(epsilon=0.01)).number == 2
    assert Ledger(target).verify().rows == 3


def test_processes_killed_after_commit_stay_charged(target: str, tmp_path: Path) -> None:
    account = Ledger(target).account("hospital", cap=CAP)
    assert Workers("die_after_commit", target, tmp_path, 1).finish() == ([[]], [-9])
    assert [row.note for row in account.rows()] == ["", "worker-0"]
