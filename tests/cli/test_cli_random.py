"""Random valid questions: each is answered, or refused in one line, in bounded time, and no interval is absurd."""

from __future__ import annotations

import math
import os
import random
import secrets
import time
from typing import Any

import pytest
from command_line import Answer, call
from random_questions import command_line

FEW, MANY, AT_ONCE = 60, 1_500, 20
# The slowest of 3,000 took 6.3 s of CPU time; a machine under load may need several times as long.
MOST_SECONDS = 60.0
REFUSALS = (
    "cannot bound PoissonSampled under replace_one",
    "gdp_clt has no formula for PoissonSampled of Gaussian under replace_one",
    "no noise_multiplier up to",
    "one step already exceeds",
    "no sampling_prob down to",
    "delta must be at least 1e-300 where epsilon is so small",
)


def check(line: list[str], answer: Answer, seconds: float) -> None:
    assert seconds < MOST_SECONDS, line
    if answer.code == 2:
        assert answer.is_refused(), (line, answer)
        assert any(reason in answer.err for reason in REFUSALS), (line, answer)
        return
    assert answer.code == 0, (line, answer)
    given = dict(zip(line[1:-1:2], line[2:-1:2], strict=True))
    data = answer.data
    guarantees = [one for one in data.get("methods", [data]) if one["epsilon"] is not None]
    for one in guarantees:
        low, high = number(one["epsilon_lower"]), number(one["epsilon"])
        assert 0 <= low <= high, (line, one)
        assert one["delta"] == float(given["--delta"])
        assert one["relation"] == given["--relation"]
    check_methods_agree(line, guarantees)
    if line[0] == "calibrate":
        assert number(data["epsilon"]) <= float(given["--epsilon"])
        assert 0 < data["sampling_prob"] <= 1
        assert data["noise_multiplier"] > 0
        assert data["steps"] >= 1


def check_methods_agree(line: list[str], guarantees: list[dict[str, Any]]) -> None:
    """No proven upper bound of one method lies below the lower bound of another."""
    proven = [one for one in guarantees if one["proven"]]
    lowest = min((number(one["epsilon"]) for one in proven), default=math.inf)
    highest = max((number(one["epsilon_lower"]) for one in proven), default=0.0)
    assert highest <= lowest * (1 + 1e-12), (line, proven)


def number(value: Any) -> float:
    """Return the number of a JSON value; infinity is written as a word."""
    return float(value)


def ask(capsys: pytest.CaptureFixture[str], seed: object, count: int) -> None:
    rng = random.Random(str(seed))
    for _ in range(count):
        line = command_line(rng)
        start = time.perf_counter()
        answer = call(capsys, *line)
        check(line, answer, time.perf_counter() - start)


def test_random_questions(capsys: pytest.CaptureFixture[str]) -> None:
    ask(capsys, "questions", FEW)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(AT_ONCE))
def test_many_random_questions(capsys: pytest.CaptureFixture[str], part: int) -> None:
    """With HUSH_TEST_ENTROPY=fresh other questions each time; the message of a failure has the command line."""
    seed = secrets.token_hex(8) if os.environ.get("HUSH_TEST_ENTROPY") == "fresh" else part
    ask(capsys, seed, MANY // AT_ONCE)


# Each of these took more than 12 seconds, more memory than there is, or ended in a traceback.
@pytest.mark.parametrize(
    "line",
    [
        "explain --delta 1e-5 --noise-multiplier 1 --sampling-prob 0.001 --steps 1e12",
        "explain --delta 0.9999995996259113 --noise-multiplier 1.08 --sampling-prob 1.0 --steps 1550000000",
        "explain --delta 1.64e-208 --relation zero_out --noise-multiplier 2.04 --sampling-prob 4.31e-09 --steps 1570",
        "explain --delta 1e-5 --noise-multiplier 2e-175 --sampling-prob 0.003 --steps 6",
        "epsilon --delta 1e-5 --noise-multiplier 1e-250 --sampling-prob 0.1 --steps 40 --method all",
        "epsilon --delta 1e-5 --noise-multiplier 1e250 --sampling-prob 1 --steps 1e12 --method all",
        "epsilon --delta 1e-5 --noise-multiplier 10 --sampling-prob 0.5 --steps 1e12 --method optimal",
        "calibrate --delta 0.00169 --relation zero_out --epsilon 0.076 --sampling-prob 3.78e-10 --steps 8560000000",
        "calibrate --delta 3.73e-126 --epsilon 0.000211 --sampling-prob 1.47e-08 --steps 23",
        "calibrate --delta 0.98 --relation replace_one --epsilon 0.0134 --sampling-prob 1.62e-286 --steps 22",
        "calibrate --delta 2.61e-250 --relation zero_out --epsilon 224 --sampling-prob 2.54e-55 --steps 666695",
        "calibrate --delta 1.38e-127 --epsilon 0.303 --sampling-prob 4.83e-58 --steps 119413",
        "explain --delta 0.999 --noise-multiplier 5.94e-154 --sampling-prob 5.47e-06 --steps 460775756",
        "calibrate --delta 1e-5 --epsilon 1 --noise-multiplier 1e242 --sampling-prob 0.08",
        "calibrate --delta 1e-5 --epsilon 1e-300 --sampling-prob 0.01 --steps 1000",
    ],
)
def test_questions_that_were_not_answered(capsys: pytest.CaptureFixture[str], line: str) -> None:
    arguments = line.split()
    arguments += [] if "--relation" in arguments else ["--relation", "add_remove"]
    start = time.perf_counter()
    answer = call(capsys, *arguments, "--json")
    check([*arguments, "--json"], answer, time.perf_counter() - start)
