"""`hush doctor`: a row for each parameter, the refusal and its fix, the cost; nothing is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import call

CODE = """
import torch
from torch import nn
from torch.nn import functional

x, y = torch.rand(8, 6), torch.arange(8) % 3

def loss(model, x, y):
    return functional.cross_entropy(model(x), y, reduction="none")

def good():
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 3))
    model[0].bias.requires_grad_(False)
    return model, loss, (x, y)

def mixing():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)), loss, (x, y)

class Near(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.centres = nn.Linear(6, 4), nn.Parameter(torch.rand(3, 4))

    def forward(self, x):
        return -torch.cdist(self.layer(x), self.centres)

def near():
    return Near(), loss, (x, y)

def total():
    return nn.Linear(6, 3), lambda model, x, y: functional.cross_entropy(model(x), y), (x, y)

def two():
    return nn.Linear(6, 3), loss
"""


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made.py").write_text(CODE, encoding="utf-8")


def test_every_parameter_has_a_row_with_its_rule(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "doctor", "made.py:good", "--json")
    assert answer.code == 0, answer.err
    rows = {row["parameter"]: row for row in answer.data["parameters"]}
    assert set(rows) == {"0.weight", "0.bias", "2.weight", "2.bias", "3.weight", "3.bias"}
    assert "linear" in rows["0.weight"]["rule"]
    assert "norm" in rows["2.weight"]["rule"]
    assert (rows["0.bias"]["trainable"], rows["0.bias"]["rule"]) == (False, "frozen")
    assert (answer.data["fine"], answer.data["method"]) == (True, "tape")
    assert answer.data["time_ratio"] > 0
    assert answer.data["memory_ratio"] > 0


def test_text_says_that_it_can_be_trained_and_at_what_cost(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "doctor", "made.py:good")
    assert answer.code == 0
    for words in ("0.weight", "5 x 6", "can be trained as it is", "x the time", "x the memory"):
        assert words in answer.out


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_model_that_mixes_examples_ends_with_1_and_the_reason(
    capsys: pytest.CaptureFixture[str], as_json: tuple[str, ...]
) -> None:
    answer = call(capsys, "doctor", "made.py:mixing", *as_json)
    assert answer.code == 1
    fix = "use GroupNorm, or keep it in eval mode with statistics from public data."
    if not as_json:
        told = answer.out.splitlines()
        assert told[-2:] == ["Refused: 1 (BatchNorm1d) lets one example change another's result.", f"Fix: {fix}"]
        assert " ".join(told).count("use GroupNorm") == 2  # in the table and below it; not for each parameter anew
        return
    assert answer.data["fine"] is False
    assert answer.data["not_isolated"].startswith("1 (BatchNorm1d)")
    assert answer.data["fix"] == fix
    assert answer.data["time_ratio"] is None
    for row in answer.data["parameters"]:
        assert row["refused"] == "batch_norm in training mode mixes the examples of a batch"
        assert row["fix"] == fix


def test_a_refused_parameter_is_listed_with_its_fix(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "doctor", "made.py:near", "--json")
    assert (answer.code, answer.err) == (0, "")  # it can be trained, and the warning is a row
    rows = {row["parameter"]: row for row in answer.data["parameters"]}
    assert (answer.data["fine"], answer.data["method"], answer.data["fix"]) == (True, "vectorized", "")
    assert rows["centres"]["rule"] == ""
    assert rows["centres"]["refused"] == "centres: no rule for cdist."
    assert "functions that have a rule" in rows["centres"]["fix"]
    assert rows["centres"]["fix"].endswith("or leave it: vectorized serves it.")
    assert [(row["refused"], row["fix"]) for name, row in rows.items() if name != "centres"] == [("", "")] * 2


def test_the_table_has_refusal_and_fix_in_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "doctor", "made.py:near")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[1].split() == ["parameter", "shape", "served", "by", "refused", "fix"]
    (row,) = (line for line in lines if line.split()[:1] == ["centres"])
    places = [row.index(words) for words in ("vectorized", "no rule for cdist", "use functions that have a rule")]
    assert places == sorted(places)
    assert places[2] == lines[1].index("fix")


@pytest.mark.parametrize(
    ("factory", "told"),
    [
        ("made.py:two", "(model, loss_fn, batch)"),
        ("made.py:total", "one loss per example"),
        ("made:nothing", "nothing"),
    ],
)
def test_bad_input_is_one_clear_line(capsys: pytest.CaptureFixture[str], factory: str, told: str) -> None:
    answer = call(capsys, "doctor", factory)
    assert answer.is_refused(), answer
    assert told in answer.err
