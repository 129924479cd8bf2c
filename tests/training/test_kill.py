"""A real training process, killed by SIGKILL at random moments, goes on until its model is complete."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import training_worker

from hush import Ledger, accounting
from hush.training import Run

WORKER = Path(__file__).with_name("training_worker.py")
KILLS = 24

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a POSIX signal")


class Host:
    """The process that forks attempts. A killed attempt keeps its id until `wait`, so no other process can be hit."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, str(WORKER), str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, word: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=300)


def released(folder: Path) -> list[int]:
    path = folder / "released"
    return [int(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def wait_for_steps(folder: Path, wanted: int) -> None:
    deadline = time.monotonic() + 300
    while len(released(folder)) < wanted and time.monotonic() < deadline:
        time.sleep(0.001)


def test_killed_training_loses_no_spend_and_ends_with_a_whole_model(tmp_path: Path) -> None:
    rng, host, killed = random.Random(7), Host(tmp_path), 0
    for _ in range(KILLS):
        attempt, before = host.ask("start"), len(released(tmp_path))
        wait_for_steps(tmp_path, before + rng.choice([0, 0, 1, 3, 5, 6]))
        time.sleep(rng.uniform(0.0, 0.03))
        os.kill(attempt, signal.SIGKILL)
        killed += host.ask("wait") == -signal.SIGKILL
    assert killed >= 20, "the run ended before it was killed often enough"
    host.ask("start")
    assert host.ask("wait") == 0
    host.close()
    check(tmp_path)


def check(folder: Path) -> None:
    plan, lines = training_worker.PLAN, released(folder)
    ledger = Ledger.open(folder / "run" / "ledger.db", create=False)
    ledger.verify()
    account = ledger.account("training")
    charged = sum(row.count if row.kind == "reserve" else -row.count for row in account.rows()[1:])
    assert charged >= len(lines) >= plan.steps  # a step may be charged and never released, not the other way
    assert set(lines) == set(range(1, plan.steps + 1))
    assert len(lines) > plan.steps, "no step was repeated, so the kills tested nothing"
    assert charged <= len(lines) + KILLS * training_worker.EVERY  # a kill wastes a block at most
    run = Run.load(folder / "run")
    assert run.complete
    assert run.guarantee.epsilon == account.spent(delta=plan.delta).epsilon
    assert run.guarantee.epsilon == accounting.guarantee(plan.event_of(charged), delta=plan.delta).epsilon
    assert len(run.history.loss) == plan.steps
    model = training_worker.network()
    run.load_into(model)
    x, y = training_worker.digits().tensors
    assert float((model(x).argmax(1) == y).double().mean()) > 0.7
    assert all(bool(torch.isfinite(value).all()) for value in run.weights.values())
    strays = [path.name for path in (folder / "run").iterdir() if not path.name.endswith(".tmp")]
    assert sorted(strays) == [
        "checkpoint.safetensors",
        "ledger.db",
        "model.safetensors",
        "not_private.json",
        "run.json",
    ]
