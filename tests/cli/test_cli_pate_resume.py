"""`hush pate --resume`: an interrupted run goes on, and its queries are charged once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from command_line import Answer, call

from hush import Ledger
from hush.cli import pate_job, pate_progress
from hush.pate import GNMax

ASKED = ("pate", "--data", "digits", "--teachers", 20, "--student", "plain", "--student-steps", 60, "--seed", 1,
         "--epsilon", 3, "--queries", 12, "--json")  # fmt: skip
KILLED = """
import os, sys
from hush.cli import pate_job
from hush.cli.main import run
pate_job.train_student = lambda *arguments, **settings: os._exit(9)  # no clean-up, as when a machine goes down
run(sys.argv[1:])
"""


class Stopped(BaseException):
    """An interruption."""


def stop(*arguments: Any, **settings: Any) -> NoReturn:
    raise Stopped


def pate(capsys: pytest.CaptureFixture[str], folder: Path, *more: object) -> Answer:
    return call(capsys, *ASKED, "--out", folder, *more)


def interrupt(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str, capsys: pytest.CaptureFixture[str], *more: object
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(place, name, stop)
        with pytest.raises(Stopped):
            call(capsys, *ASKED, *more)


def charges(folder: Path) -> list[str]:
    rows = Ledger(folder / "ledger.db").account("digits").rows()
    return [row.content for row in rows if row.kind == "charge"]


def test_a_killed_run_goes_on_with_its_labels(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", KILLED, *map(str, ASKED), "--out", str(folder)]
    assert subprocess.run(command, capture_output=True, timeout=300).returncode == 9
    labels = json.loads((folder / "labels.json").read_text())["labels"]
    before = charges(folder)
    assert len(before) == 1
    assert "--resume" in pate(capsys, folder).err
    answer = pate(capsys, folder, "--resume")
    assert answer.code == 0, answer.err
    assert charges(folder) == before
    assert answer.data["answered"] == 12
    assert json.loads((folder / "run.json").read_text())["labels"] == labels
    assert {path.name for path in folder.iterdir()} == {"run.json", "student.safetensors", "ledger.db", "about.json"}
    again = pate(capsys, folder, "--resume")
    assert again.is_refused()
    assert "finished" in again.err


def test_a_run_stopped_before_the_charge_begins_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    interrupt(monkeypatch, pate_job, "train_teachers", capsys, "--out", folder)
    assert charges(folder) == []
    other = pate(capsys, folder, "--resume", "--teachers", 19)
    assert other.is_refused()
    assert "--teachers" in other.err
    answer = pate(capsys, folder, "--resume")
    assert answer.code == 0, answer.err
    assert len(charges(folder)) == 1


def test_charged_votes_without_labels_are_not_drawn_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    interrupt(monkeypatch, pate_progress.Progress, "keep", capsys, "--out", folder)
    before = charges(folder)
    assert len(before) == 1
    answer = pate(capsys, folder, "--resume")
    assert answer.is_refused()
    assert "charged" in answer.err
    assert "another --out" in answer.err
    assert charges(folder) == before
    assert not (folder / "student.safetensors").exists()


def test_a_paid_release_is_not_paid_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, more = tmp_path / "run", ("--sanitise", 0.5)
    interrupt(monkeypatch, GNMax, "answer", capsys, "--out", folder, *more)
    before = charges(folder)
    assert len(before) == 1  # the release, and no vote yet
    answer = pate(capsys, folder, "--resume", *more)
    assert answer.code == 0, answer.err
    assert charges(folder)[0] == before[0]
    assert len(charges(folder)) == 2


def test_the_private_epsilon_is_gone_after_an_interruption(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    interrupt(monkeypatch, pate_job, "train_student", capsys, "--out", folder)
    assert "data_dependent" not in (folder / "labels.json").read_text()
    assert "--show-private" in pate(capsys, folder, "--resume", "--show-private").err
    (folder / "labels.json").write_text("{")
    broken = pate(capsys, folder, "--resume")
    assert broken.is_refused()
    assert "labels.json" in broken.err
