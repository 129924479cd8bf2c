"""`hush plan`: prints an address that answers, refuses what it cannot serve, ends with Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from command_line import call

from hush.planner import address, server


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_an_address_that_answers_and_ends_quietly(end: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hush.cli.main", "plan", str(tmp_path / "runs"), "--no-open", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdout is not None
        lines = []
        while not lines or lines[-1] != "}\n":
            lines.append(process.stdout.readline())
            assert lines[-1], process.communicate()
        place = json.loads("".join(lines))
        with urllib.request.urlopen(place["address"], timeout=20) as answer:
            assert b"Hush planner" in answer.read()
        assert "methods" in _asked_of_the_helper(place["address"])
        process.send_signal(end)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")
    assert place["address"].startswith("http://127.0.0.1:")
    assert not (tmp_path / "runs").exists()  # looking makes no folder


def _asked_of_the_helper(address: str) -> dict[str, object]:
    plan = {"num_examples": 1000, "expected_batch_size": 100, "epochs": 1, "noise_multiplier": 1, "delta": 1e-5}
    question = json.dumps({**plan, "epsilon": 1, "kind": "methods"}).encode()
    headers = {"origin": address[: address.index("/", 7)], "content-type": "application/json"}
    request = urllib.request.Request(f"{address}api/later", question, headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        found: dict[str, object] = json.load(answer)
    return found


def test_a_taken_port_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with server.listen(0) as door:
        answer = call(capsys, "plan", tmp_path, "--no-open", "--port", door.getsockname()[1])
    assert answer.is_refused()
    assert "try another, or 0" in answer.err


@pytest.mark.parametrize("port", ["-1", "70000", "x"])
def test_a_bad_port_is_refused(capsys: pytest.CaptureFixture[str], port: str) -> None:
    assert call(capsys, "plan", "--no-open", "--port", port).is_refused()


def test_a_file_is_no_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = call(capsys, "plan", tmp_path / "file", "--no-open")
    assert answer.is_refused()
    assert "is not a folder" in answer.err


def test_a_missing_extra_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.delitem(sys.modules, "hush.planner.server")
    monkeypatch.delattr("hush.planner.server")
    answer = call(capsys, "plan", "--no-open")
    assert answer.is_refused()
    assert "pip install 'hush[planner]'" in answer.err


def test_the_browser_gets_the_token_in_a_file_that_only_the_user_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process list shows what a browser was started with."""
    opened: list[str] = []
    monkeypatch.setattr(address.webbrowser, "open", opened.append)
    with address._opened("http://127.0.0.1:1/token/", wanted=True):
        assert "token" not in opened[0]
        path = Path(opened[0].removeprefix("file://"))
        assert "http://127.0.0.1:1/token/" in path.read_text()
        assert os.name == "nt" or path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()
