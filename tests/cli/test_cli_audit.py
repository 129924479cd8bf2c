"""`hush audit`: runs, plans carried out anew, the user's own code, contradictions and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from command_line import call
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from hush import Rng, TrainingPlan, fit
from hush.audit import WhiteBox
from hush.gradients.noise import NoiseSource

CODE = """
import numpy
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset
from hush import TrainingPlan

data = TensorDataset(torch.arange(240.0).reshape(60, 4) / 240, torch.arange(60) % 3)

def loss(model, x, y):
    return functional.cross_entropy(model(x), y, reduction="none")

def white_box():
    plan = TrainingPlan(noise_multiplier=2.0, sampling_prob=1.0, sampling="full_batch", expected_batch_size=60, steps=4,
                        clip_norm=1.0, delta=1e-5)
    return plan, nn.Linear(4, 3), loss, data

def remember(dataset):
    inside = {tuple(x.tolist()) + (int(y),) for x, y in dataset}
    return lambda rows: [float(tuple(x.tolist()) + (int(y),) in inside) for x, y in rows]

def telltale():
    return remember, data

def silent():
    return (lambda dataset: lambda rows: numpy.zeros(len(rows))), data

def wrong():
    return 3
"""


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made.py").write_text(CODE, encoding="utf-8")
    return tmp_path


def a_run(folder: Path, *, audit: bool | WhiteBox) -> None:
    def loss_fn(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(x), y, reduction="none")

    plan = TrainingPlan(
        noise_multiplier=2.0,
        sampling_prob=1.0,
        sampling="full_batch",
        expected_batch_size=30,
        steps=4,
        clip_norm=1.0,
        delta=1e-5,
    )
    model = nn.Linear(3, 2)
    data = TensorDataset(torch.rand(30, 3), torch.arange(30) % 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fit(plan, model, data, loss_fn=loss_fn, optimizer=optimizer, folder=folder, audit=audit, rng=Rng.from_seed(1))


def break_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    add = NoiseSource.add
    monkeypatch.setattr(NoiseSource, "add", lambda self, gradients, stddev: add(self, gradients, stddev / 3))


def test_the_plan_of_a_run_is_carried_out_anew(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(desk / "run", audit=False)
    answer = call(capsys, "audit", "run", "--seed", 1, "--json")
    assert answer.code == 0, answer.err
    assert (answer.data["contradicts"], answer.data["num_guesses"]) == (False, 1_000)
    assert 0 < answer.data["evidence"]["epsilon_at_least"] <= answer.data["guarantee"]["epsilon"]
    assert answer.data["evidence"]["confidence"] == 0.95
    assert "anew" in answer.data["source"]


def test_an_audited_run_shows_its_own_audit(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(desk / "run", audit=WhiteBox(num_canaries=321))
    answer = call(capsys, "audit", "run", "--json")
    assert (answer.code, answer.data["num_guesses"]) == (0, 321)
    text = call(capsys, "audit", "run")
    for words in ("claimed: (", "measured: epsilon at least", "of 321 right", "no contradiction", "when it ran"):
        assert words in text.out
    again = call(capsys, "audit", "run", "--again", "--num-canaries", 50, "--seed", 2, "--json")
    assert again.data["num_guesses"] == 50


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_contradiction_ends_with_1(
    desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, as_json: tuple[str, ...]
) -> None:
    break_the_noise(monkeypatch)
    a_run(desk / "run", audit=True)
    answer = call(capsys, "audit", "run", *as_json)
    assert answer.code == 1
    assert "CONTRADICTION" in answer.out
    anew = call(capsys, "audit", "run", "--again", "--seed", 1, *as_json)
    assert anew.code == 1
    own = call(capsys, "audit", "made.py:white_box", "--seed", 1, *as_json)
    assert own.code == 1


def test_own_model_and_data(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "audit", "made.py:white_box", "--num-canaries", 400, "--seed", 1, "--json")
    assert answer.code == 0, answer.err
    assert answer.data["num_guesses"] == 400
    assert "your model" in answer.data["source"]


def test_a_train_function(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("audit", "made.py:telltale", "--delta", "1e-5", "--num-canaries", 30, "--num-guesses", 30, "--seed", 1)
    answer = call(capsys, *asked, "--json")
    assert answer.code == 0
    assert answer.data["evidence"]["epsilon_at_least"] > 2
    assert answer.data["verdict"] == "nothing was claimed"
    claimed = call(capsys, *asked, "--epsilon", 1)
    assert (claimed.code, claimed.out.splitlines()[-1]) == (1, "CONTRADICTION")
    assert call(capsys, *asked, "--epsilon", 9).code == 0


def test_many_runs_of_a_train_function(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--delta", "1e-5", "--method", "clopper_pearson", "--num-runs", 80, "--epsilon", 1, "--seed", 1, "--json")
    assert call(capsys, "audit", "made.py:telltale", *asked).code == 1
    assert call(capsys, "audit", "made.py:silent", *asked).code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("nowhere",),
        ("made.py:wrong",),
        ("made.py:telltale",),  # no delta
        ("made.py:telltale", "--delta", "1e-5", "--method", "best"),
        ("made.py:telltale", "--delta", "1e-5", "--canaries", "yellow"),
        ("made.py:telltale", "--delta", "1e-5", "--epsilon", "-1"),
        ("made.py:white_box", "--significance", "0"),
        ("made.py:white_box", "--num-canaries", "many"),
        (".",),  # a folder without a run
    ],
    ids=str,
)
def test_bad_input_is_one_line_and_2(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert call(capsys, "audit", *arguments).is_refused()
