"""Real Flower: a simulation, two clients with a server on loopback, and a SuperLink with two SuperNodes.

Failing clients weaken nothing.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hush import Ledger, accounting, events

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'hush[federated]'")
HERE = Path(__file__).parent
QUIET = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
NOISE = 0.5  # the plans' noise multiplier; the clip norm is 1


class Script:
    """A command in processes of its own; what it says goes to a file."""

    def __init__(self, folder: Path, name: str, *command: object, **settings: object) -> None:
        self._log = folder / f"{name}.log"
        environment = QUIET | {name: str(value) for name, value in settings.items()}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*map(str, command)], env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def code(self) -> int:
        """Its exit code, once it has ended."""
        try:
            return self._process.wait(timeout=300)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.said) from None

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def stop(self) -> None:
        """End it, and what it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def check_books(path: Path, facts: Any, rounds: int, step: events.Event) -> None:
    """Every released round has its row, and the guarantee is that of the rows."""
    ledger = Ledger.open(path, create=False)
    assert ledger.verify().rows == rounds + 1
    assert ledger.account("clients").event == events.Composed(events.Repeated(step, rounds))
    truth = accounting.guarantee(events.Repeated(step, rounds), delta=1e-5, relation="add_remove")
    assert facts["epsilon"] == pytest.approx(truth.epsilon)


def test_simulation_with_a_failing_and_a_nan_client(tmp_path: Path) -> None:
    out, ledger = tmp_path / "facts.json", tmp_path / "budget.db"
    app = sys.executable, HERE / "flower_app.py"
    script = Script(tmp_path, "simulation", *app, LEDGER=ledger, OUT=out, CLIENTS=5)
    try:
        assert script.code() == 0, script.said
    finally:
        script.stop()
    assert out.exists(), script.said
    facts = json.loads(out.read_text())
    assert [report["number"] for report in facts["reports"]] == [1, 2, 3]
    assert facts["metrics"] == [0, 0]
    assert facts["longest"] == pytest.approx(20.0)  # as it is: the server clips it
    asked = sum(report["asked"] for report in facts["reports"])
    useful = sum(report["answered"] - report["refused"] for report in facts["reports"])
    assert 0 < useful < asked <= 15
    # Each of the others adds a vector of norm 1, so each round moves a coordinate by 1/2 a client over 4, and noise.
    expected, spread = useful * 0.5 / 4, math.sqrt(3) * NOISE / 4
    assert all(abs(value - expected) < 7 * spread for value in facts["weight"])  # clipped: unclipped would be 2.5 each
    check_books(ledger, facts, 3, events.PoissonSampled(events.Gaussian(NOISE), 0.8))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(address: str, server: Script) -> None:
    """Flower's clients do not wait for their server, so they start when it listens."""
    host, port = address.split(":")
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(server.said)


@pytest.mark.parametrize("second", ["lives", "dies"])
def test_two_real_clients_on_loopback(tmp_path: Path, second: str) -> None:
    address, out, ledger = f"127.0.0.1:{free_port()}", tmp_path / "facts.json", tmp_path / "budget.db"
    scripts = [Script(tmp_path, "server", sys.executable, HERE / "flower_server.py", address, ledger, out)]
    try:
        wait_for(address, scripts[0])
        for number, kind in enumerate(("lives", second)):
            scripts.append(
                Script(tmp_path, f"client {number}", sys.executable, HERE / "flower_client.py", address, kind)
            )
        codes = [script.code() for script in scripts]
    finally:
        for script in scripts:
            script.stop()
    assert out.exists(), scripts[0].said
    assert codes == [0, 0, -signal.SIGKILL if second == "dies" else 0]
    facts = json.loads(out.read_text())
    answered = [report["answered"] for report in facts["reports"]]
    assert answered == ([2, 1, 1, 1] if second == "dies" else [2, 2, 2, 2])
    assert facts["metrics"] == 0
    expected, spread = sum(answered) * 0.5 / 2, math.sqrt(4) * NOISE / 2
    assert all(abs(value - expected) < 7 * spread for value in facts["weight"])
    check_books(ledger, facts, 4, events.PoissonSampled(events.Gaussian(NOISE), 1.0))


APP = """
[project]
name = "hush-rounds"
version = "1.0.0"
description = "Private rounds"
license = "Apache-2.0"
dependencies = []

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.flwr.app]
publisher = "hush"

[tool.flwr.app.components]
serverapp = "flower_app:server_app"
clientapp = "flower_app:client_app"

[tool.flwr.app.config]
"""


@pytest.mark.slow
def test_superlink_with_two_supernodes_whose_clients_clip(tmp_path: Path) -> None:
    """Flower as it is deployed: an app that `flwr run` sends to a SuperLink, and two SuperNodes that come to it."""
    link, out, ledger = f"127.0.0.1:{free_port()}", tmp_path / "facts.json", tmp_path / "budget.db"
    app, programs = tmp_path / "app", Path(sys.executable).parent
    app.mkdir()
    (app / "pyproject.toml").write_text(APP)
    shutil.copy(HERE / "flower_app.py", app)
    (tmp_path / "config.toml").write_text(f'[superlink.here]\naddress = "{link}"\ninsecure = true\n')
    settings = {
        "FLWR_HOME": tmp_path, "LEDGER": ledger, "OUT": out, "CLIENTS": 2, "MOD": 1,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip

    def at(address: str) -> tuple[str, ...]:
        host, port = address.split(":")
        return "--insecure", "--host", host, "--port", port

    scripts = []
    try:
        words = (*at(link), "--disable-runtime-dependency-installation")
        scripts.append(Script(tmp_path, "link", programs / "flower-superlink", *words, **settings))
        wait_for(link, scripts[0])
        for number in (2, 3):
            words = (*at(f"127.0.0.1:{free_port()}"), "--superlink", link, "--node-config", f"partition-id={number}")
            scripts.append(Script(tmp_path, f"node {number}", programs / "flower-supernode", *words, **settings))
        run = Script(tmp_path, "run", programs / "flwr", "run", app, "here", "--stream", **settings)
        scripts.append(run)
        run.code()
    finally:
        for script in scripts:
            script.stop()
    assert out.exists(), run.said
    facts = json.loads(out.read_text())
    assert [report["number"] for report in facts["reports"]] == [1, 2, 3]
    assert sum(report["answered"] for report in facts["reports"]) > 0
    assert all(report["refused"] == 0 for report in facts["reports"])
    assert facts["longest"] == pytest.approx(1.0, rel=1e-5)  # clipped before it left the client
    check_books(ledger, facts, 3, events.PoissonSampled(events.Gaussian(NOISE), 0.8))
