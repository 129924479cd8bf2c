"""The bar: steps, loss and epsilon on a terminal, on stderr; silent elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from hush import Rng
from hush.training import Progress, TrainingPlan, fit

Make = Callable[..., TrainingPlan]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rich takes for a terminal, wide enough for one line."""
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm-256color"), ("COLUMNS", "160")):
        monkeypatch.setenv(name, value)


def trained(plan: TrainingPlan, model: nn.Module, data: TensorDataset, *, progress: bool) -> list[Progress]:
    """What callbacks were told during a run."""
    seen: list[Progress] = []

    def loss_fn(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(x), y, reduction="none")

    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    options: dict[str, Any] = {"callbacks": [seen.append], "progress": progress, "rng": Rng.from_seed(2)}
    fit(plan, model, data, loss_fn=loss_fn, optimizer=optimizer, **options)
    return seen


def lines(text: str) -> list[str]:
    """The states of the bar, one after the other, without colours."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return [line.strip() for line in re.split(r"[\r\n]+", plain) if line.strip()]


@pytest.mark.usefixtures("terminal")
def test_loss_steps_and_epsilon_are_shown_on_a_terminal(
    make_plan: Make,
    model: nn.Module,
    data: TensorDataset,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hush.training.progress._SECONDS_BETWEEN", 1e9)  # only the first and the last step are due
    plan = make_plan()
    seen = trained(plan, model, data, progress=True)
    out, err = capsys.readouterr()
    assert not out
    last, told = seen[-1], lines(err)[-1]
    assert told.startswith("training")
    assert "12/12" in told
    assert f"loss {last.report.loss:.4g}" in told
    shown = float(re.findall(r"epsilon (\S+)", told)[0])
    assert shown == pytest.approx(plan.guarantee().epsilon, rel=1e-3)


@pytest.mark.usefixtures("terminal")
def test_a_twin_has_no_finite_epsilon(
    make_plan: Make, model: nn.Module, data: TensorDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(make_plan(steps=3).without_privacy(), model, data, progress=True)
    told = lines(capsys.readouterr().err)[-1]
    assert "3/3" in told
    assert "epsilon inf" in told


@pytest.mark.usefixtures("terminal")
def test_nothing_is_shown_unless_asked_for(
    make_plan: Make, model: nn.Module, data: TensorDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(make_plan(steps=3), model, data, progress=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("terminal")
def test_nothing_is_shown_without_a_terminal(
    make_plan: Make,
    model: nn.Module,
    data: TensorDataset,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FORCE_COLOR")
    trained(make_plan(steps=3), model, data, progress=True)
    assert capsys.readouterr() == ("", "")
