"""The command is one that `hush train` carries out, and the Python lines run; both inside what the page says."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hush import Budget, TrainingPlan
from hush.cli.main import run
from hush.planner import answers
from hush.planner.question import FIELDS, read
from hush.privacy import round_up

DIGITS = {
    "num_examples": 1438,
    "expected_batch_size": 200,
    "epochs": 1.5,
    "noise_multiplier": 2.0,
    "delta": 1e-6,
    "epsilon": 2.5,
}


def numbers(**change: Any) -> dict[str, Any]:
    question, messages = read({**DIGITS, **change})
    assert question is not None, messages
    return answers.numbers(question)


@pytest.mark.parametrize(
    "change", [{"find": "epsilon"}, {"find": "noise_multiplier", "relation": "replace_one"}], ids=str
)
def test_the_command_trains_inside_the_cost_that_is_shown(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = numbers(**change)
    words = shlex.split(answer["command"])
    assert words[:2] == ["hush", "train"]
    assert run([*words[1:], "--no-twin", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    plan = answer["plan"]
    assert done["epsilon"] <= float(answer["epsilon_text"])
    assert (done["steps"], done["expected_batch_size"]) == (plan["steps"], plan["expected_batch_size"])
    assert (done["delta"], done["relation"]) == (plan["delta"], plan["relation"])
    assert done["noise_multiplier"] == pytest.approx(plan["noise_multiplier"], rel=1e-4)


@pytest.mark.parametrize("find", FIELDS)
@pytest.mark.parametrize("relation", ["add_remove", "zero_out"])
def test_the_python_lines_make_this_plan(find: str, relation: str) -> None:
    answer = numbers(find=find, relation=relation)
    shown, names = io.StringIO(), dict[str, Any]()
    with contextlib.redirect_stdout(shown):
        exec(answer["python"], names)
    plan = names["plan"]
    assert isinstance(plan, TrainingPlan)
    assert "differential privacy" in shown.getvalue()
    for name in ("steps", "sampling_prob", "expected_batch_size", "relation", "delta"):
        assert getattr(plan, name) == answer["plan"][name]
    noise, cost = answer["plan"]["noise_multiplier"], answer["guarantee"]["epsilon"]
    if find == "noise_multiplier":  # the page rounds the library's number up to the six digits that it shows
        assert plan.budget == Budget(epsilon=2.5, delta=1e-6)
        assert noise == float(round_up(plan.noise_multiplier))
        plan = replace(plan, noise_multiplier=noise)
    assert plan.noise_multiplier == noise
    assert plan.guarantee().epsilon == pytest.approx(cost, rel=1e-6)


def test_a_name_is_quoted_and_a_table_gets_its_schema() -> None:
    question, _ = read(DIGITS)
    assert question is not None
    words = shlex.split(answers.numbers(question, "my data; rm -rf *.csv")["command"])
    assert words[3] == "my data; rm -rf *.csv"
    assert words[-2:] == ["--schema", "schema.json"]
