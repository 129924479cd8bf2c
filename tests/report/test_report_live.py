"""`hush train --live` without a browser: what the page asks for says how far the training is, while it is on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hush.cli.main import run
from hush.report import live

STEPS = 8


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Every state that the command wrote, and whether the run was finished by then."""
    folder, found = tmp_path_factory.mktemp("runs") / "run", []
    plain = live.replace_text

    def kept(target: Path, text: str) -> None:
        plain(target, text)
        if target.name == live.STATE_FILE:
            values = json.loads(text.removeprefix("hushLive(").removesuffix(");\n"))
            found.append({**values, "run_is_there": (folder / "run.json").exists()})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "replace_text", kept)
        patch.setattr(live, "_SECONDS_BETWEEN", 0.0)
        words = ("train", "--data", "digits", "--epsilon", "3", "--model", "linear", "--steps", str(STEPS))
        assert run([*words, "--no-twin", "--live", "--out", str(folder)]) == 0
    return found


def test_each_step_is_told_while_it_trains(states: list[dict[str, Any]]) -> None:
    training = [state for state in states if state["state"] == "training"]
    assert [state["step"] for state in training] == list(range(STEPS + 1))
    assert not any(state["run_is_there"] for state in training)


def test_epsilon_grows_to_the_guarantee(states: list[dict[str, Any]]) -> None:
    epsilons = [state["epsilon"] for state in states if state["state"] == "training"]
    assert epsilons == sorted(epsilons)
    assert 0 == epsilons[0] < epsilons[1] < epsilons[-1] <= 3
    assert states[-1]["epsilon"] == pytest.approx(epsilons[-1], rel=1e-6)


def test_the_end_names_the_report(states: list[dict[str, Any]]) -> None:
    assert [state["state"] for state in states].index("finished") == len(states) - 1
    assert states[-1]["report"] == "report.html"
    assert states[-1]["run_is_there"]


def test_nothing_private_is_told(states: list[dict[str, Any]]) -> None:
    assert set().union(*states) == {"step", "epsilon", "seconds", "state", "report", "run_is_there"}
