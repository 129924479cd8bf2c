"""`hush calibrate`: the found value is inside the budget, as printed and in JSON, and barely."""

from __future__ import annotations

import pytest
from command_line import call

from hush import accounting
from hush.accounting.calibrate import sampled_gaussian

BUDGET = ("calibrate", "--epsilon", "1", "--delta", "1e-5")
GIVEN = {"noise_multiplier": "4", "sampling_prob": "0.01", "steps": "10000"}
WORSE = {"noise_multiplier": 1 - 1e-6, "sampling_prob": 1 + 1e-6, "steps": 1 + 1e-3}


def arguments(left_out: str) -> list[str]:
    pairs = [(f"--{name.replace('_', '-')}", value) for name, value in GIVEN.items() if name != left_out]
    return [*BUDGET, *(word for pair in pairs for word in pair)]


def cost(values: dict[str, float]) -> float:
    event = sampled_gaussian(values["noise_multiplier"], values["sampling_prob"], int(values["steps"]))
    return accounting.guarantee(event, delta=1e-5).epsilon


@pytest.mark.parametrize("wanted", GIVEN)
def test_found_value_meets_the_budget_and_a_worse_one_does_not(capsys: pytest.CaptureFixture[str], wanted: str) -> None:
    data = call(capsys, *arguments(wanted), "--json").data
    assert data["found"] == wanted
    assert data["budget"] == {"epsilon": 1.0, "delta": 1e-5}
    values = {name: data[name] for name in GIVEN}
    assert data["epsilon"] == cost(values) <= 1
    assert data["slack"] == pytest.approx(1 - data["epsilon"], abs=1e-15)
    assert cost({**values, wanted: values[wanted] * WORSE[wanted]}) > 1


@pytest.mark.parametrize("wanted", GIVEN)
def test_printed_value_meets_the_budget_too(capsys: pytest.CaptureFixture[str], wanted: str) -> None:
    out = call(capsys, *arguments(wanted)).out
    row = next(line for line in out.splitlines() if line.endswith("found"))
    assert row.split()[0] == wanted
    printed = float(row.split()[1].replace(",", ""))
    values = {name: float(value) for name, value in GIVEN.items()}
    assert cost({**values, wanted: printed}) <= 1
    assert "slack" in out


def test_known_noise(capsys: pytest.CaptureFixture[str]) -> None:
    assert "3.81282" in call(capsys, *arguments("noise_multiplier")).out


def test_rdp_needs_more_noise(capsys: pytest.CaptureFixture[str]) -> None:
    exact = call(capsys, *arguments("noise_multiplier"), "--json").data
    rdp = call(capsys, *arguments("noise_multiplier"), "--json", "--method", "rdp").data
    assert rdp["method"] == "rdp"
    assert rdp["noise_multiplier"] > 1.05 * exact["noise_multiplier"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*arguments("noise_multiplier"), "--noise-multiplier", "4"], "leave out exactly one"),
        ([*BUDGET, "--steps", "100"], "missing --noise-multiplier, --sampling-prob"),
        (
            ["calibrate", "--epsilon", "0", *BUDGET[3:], "--steps", "9", "--sampling-prob", "1"],
            "epsilon must be above 0",
        ),
        (["calibrate", "--epsilon", "nan", *BUDGET[3:], "--steps", "9", "--sampling-prob", "1"], "epsilon must be"),
        (["calibrate", "--epsilon", "1", "--delta", "2", "--steps", "9", "--sampling-prob", "1"], "delta must be"),
        (
            ["calibrate", "--epsilon", "1", "--delta", "0", "--steps", "9", "--sampling-prob", "1"],
            "no noise_multiplier",
        ),
        ([*BUDGET, "--steps", "0", "--sampling-prob", "1"], "steps must be at least 1"),
        ([*BUDGET, "--steps", "9", "--sampling-prob", "1", "--method", "basic"], "method must be one of exact, rdp"),
        ([*BUDGET, "--noise-multiplier", "0.1", "--sampling-prob", "1"], "one step already exceeds"),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    answer = call(capsys, *words)
    assert answer.is_refused()
    assert message in answer.err
