"""`hush attack`: what it asks for, what it prints, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import call

SMALL = ("--data", "digits", "--rows", 300, "--shadows", 4, "--seed", 1)

OWN_MODEL = """
import numpy as np, torch

def attacked():
    stream = np.random.default_rng(0)
    y = np.zeros(4000, dtype=np.int64)
    members = stream.random(4000) < 0.5
    logits = torch.from_numpy(np.stack([stream.normal(12.0 * members, 1.0), np.zeros(4000)], axis=1))
    return (lambda x: logits), torch.zeros(4000, 1), y, members

def wrong():
    return 3
"""

LANGUAGE = """
import torch

SECRET = torch.tensor([[0, 2, 8, 1, 2]])

def model(tokens):
    logits = torch.zeros(*tokens.shape, 10)
    places = torch.arange(tokens.shape[1]).clamp(max=3)
    logits[:, torch.arange(tokens.shape[1]), SECRET[0, places + 1]] = 9.0
    return logits

def secrets():
    stream = torch.Generator().manual_seed(0)
    others = torch.randint(0, 10, (256, 4), generator=stream)
    return model, SECRET, torch.cat([torch.zeros(256, 1, dtype=torch.int64), others], dim=1)

def writer():
    return model, torch.zeros(3, 1, dtype=torch.int64), lambda row: "".join(map(str, row)), "xx2812xx"

def stranger():
    return (*writer()[:3], "a text without digits")

def texts():
    return model, torch.cat([SECRET, torch.tensor([[0, 2, 8, 8, 8]])])
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN_MODEL)
    (tmp_path / "language.py").write_text(LANGUAGE)
    return tmp_path


def test_membership_without_privacy(capsys: pytest.CaptureFixture[str], desk: Path) -> None:
    answer = call(capsys, "attack", "membership", *SMALL, "--epochs", 3, "--json", "--plot", desk / "curves.svg")
    assert answer.code == 0, answer.err
    found = answer.data
    assert set(found["attacks"]) == {"loss_threshold", "shadow_models", "lira", "lira_offline", "rmia"}
    assert found["epsilon"] == "infinity"
    for attack in found["attacks"].values():
        assert attack["members"] + attack["nonmembers"] == 600  # both models of the pair
        assert set(attack["tpr_at_fpr"]) == {"0.001", "0.01"}
        assert attack["tpr_at_fpr"]["0.01"]["low"] <= attack["tpr_at_fpr"]["0.01"]["high"]
    assert (desk / "curves.svg").stat().st_size > 1000


def test_membership_of_a_private_model(capsys: pytest.CaptureFixture[str], desk: Path) -> None:
    answer = call(
        capsys, "attack", "membership", *SMALL, "--epsilon", 1, "--model", "linear", "--method", "lira", "--json"
    )
    assert answer.code == 0, answer.err
    assert (answer.data["epsilon"], answer.data["above_the_limit"]) == (1.0, [])
    assert answer.data["delta"] < 1 / 150


def test_a_leak_above_the_epsilon_is_a_contradiction(capsys: pytest.CaptureFixture[str], desk: Path) -> None:
    """The made-up model gives every member away: at epsilon 1 that cannot be."""
    claimed = ("attack", "membership", "--module", "own.py:attacked", "--epsilon", 1, "--delta", "1e-5")
    answer = call(capsys, *claimed)
    assert answer.code == 1
    assert "CONTRADICTION: loss_threshold" in answer.out
    assert "TPR at FPR 0.1 %" in answer.out
    assert call(capsys, "attack", "membership", "--module", "own.py:attacked").code == 0  # nothing was claimed


@pytest.mark.parametrize(
    "arguments",
    [
        ("membership",),
        ("membership", "--data", "digits", "--module", "own.py:attacked"),
        ("membership", "--data", "digits", "--method", "guess"),
        ("membership", "--data", "digits", "--shadows", "5"),
        ("membership", "--data", "digits", "--plot", "curve.txt"),
        ("membership", "--module", "own.py:wrong"),
        ("membership", "--module", "own.py:attacked", "--epsilon", "1"),
        ("exposure", "own.py:wrong"),
        ("extract", "own.py:wrong", "--prefix-length", "2"),
        ("extract", "language.py:texts", "--prefix-length", "9"),
        ("extract", "language.py:texts"),
        ("extract", "language.py:writer", "--prefix-length", "2", "--samples", "9"),
        ("extract", "language.py:texts", "--samples", "9"),
        ("extract", "language.py:writer", "--samples", "0"),
        ("link", "--released", "nowhere.csv"),
        ("link", "--released", "own.py", "--auxiliary", "own.py"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], desk: Path, arguments: tuple[str, ...]) -> None:
    answer = call(capsys, "attack", *arguments)
    assert answer.is_refused(), answer


def test_exposure_and_extraction(capsys: pytest.CaptureFixture[str], desk: Path) -> None:
    found = call(capsys, "attack", "exposure", "language.py:secrets", "--json").data
    assert found["exposure"] == [8.0]
    assert found["limit"] == 8.0
    assert "largest 8.00 bits" in call(capsys, "attack", "exposure", "language.py:secrets").out
    exact = call(capsys, "attack", "extract", "language.py:texts", "--prefix-length", 3, "--json").data["exact"]
    assert (exact["count"], exact["total"]) == (1, 2)


def test_extraction_by_sampling(capsys: pytest.CaptureFixture[str], desk: Path) -> None:
    settings = ("--samples", 50, "--length", 4, "--match-length", 4, "--seed", 1)
    found = call(capsys, "attack", "extract", "language.py:writer", *settings, "--json").data
    assert set(found) == {"perplexity", "zlib"}
    for ranked in found.values():
        assert (ranked["samples"], ranked["memorised"]) == (50, 1)  # all copies of the secret are one text
        assert ranked["precision"]["count"] == 1
    plain = call(capsys, "attack", "extract", "language.py:writer", *settings).out
    assert "50 texts written" in plain
    assert "2812" not in plain  # what was found is private
    other = call(capsys, "attack", "extract", "language.py:stranger", *settings, "--json").data
    assert [ranked["memorised"] for ranked in other.values()] == [0, 0]


def test_linkage_of_files(capsys: pytest.CaptureFixture[str], desk: Path) -> None:
    Path("released.csv").write_text("record,item,rating\n0,10,5\n0,11,1\n1,10,4\n1,12,2\n2,10,1\n2,13,3\n")
    Path("known.csv").write_text("item,record,rating\n10,7,4\n12,7,2\n")
    files = ("--released", "released.csv", "--auxiliary", "known.csv", "--eccentricity", 1)
    assert call(capsys, "attack", "link", *files, "--json").data["matches"] == {"7": 1}
    assert "1 named" in call(capsys, "attack", "link", *files).out
