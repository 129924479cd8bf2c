"""`hush train` killed by SIGKILL and resumed in a fresh process, as a user would after a power cut."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import SCRIPT, launch

from hush.errors import AccountMissing
from hush.ledger import Ledger
from hush.training import Run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a POSIX signal")

STEPS = 1200
COMMAND = ("train", "--data", "digits", "--epsilon", "3", "--model", "linear", "--steps", STEPS, "--no-twin", "--json")


def charged(ledger: Path) -> int:
    if not ledger.exists():
        return 0
    try:
        rows = Ledger(ledger, create=False).account("training").rows()[1:]
    except AccountMissing:  # killed, or looked at, between the file and its account
        return 0
    return sum(row.count if row.kind == "reserve" else -row.count for row in rows)


def kill_after(folder: Path, steps: int) -> None:
    """Start or resume the command, wait until so many steps more are charged, and kill it."""
    again = ("--resume",) if (folder / "ledger.db").exists() else ()
    command = [str(word) for word in (SCRIPT, *COMMAND, "--out", folder, *again)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline, before = time.monotonic() + 300, charged(folder / "ledger.db")
    while charged(folder / "ledger.db") < before + steps and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"


def test_a_killed_command_goes_on_and_says_all_that_was_spent(tmp_path: Path) -> None:
    place = tmp_path / "run"
    for _ in range(3):
        kill_after(place, 80)
    spent = charged(place / "ledger.db")
    assert 0 < spent < STEPS
    answer = launch(*COMMAND, "--out", place, "--resume")
    assert answer.code in (0, 1), answer.err
    run = Run.load(place)
    Ledger(place / "ledger.db", create=False).verify()
    assert run.guarantee.epsilon == answer.data["epsilon"] <= 3
    assert run.guarantee.epsilon == run.ledger.account("training").spent(delta=run.plan.delta).epsilon
    assert charged(place / "ledger.db") >= run.steps  # what was wasted by the kills is counted
