"""The kept results of private gradients reach their goals, and the page about them says what they say."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
PEERS = ("opacus hooks", "opacus ghost", "jax-privacy")


def result(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def page() -> str:
    return " ".join((RESULTS / "README.md").read_text(encoding="utf-8").split())


def test_time_and_memory_of_a_private_gradient() -> None:
    found = result("dpsgd_alone.json")
    ratios = [row["hush"] for row in found["rows"].values()]
    assert len(ratios) == 7
    assert found["geometric_mean"] == pytest.approx(math.exp(statistics.fmean(map(math.log, ratios))))
    assert found["geometric_mean"] <= 1.2
    assert max(ratios) <= 1.6
    assert max(row["memory"]["ratio"] for row in found["rows"].values()) <= 1.25
    said = f"{found['geometric_mean']:.2f}x of an ordinary one in the geometric mean"
    assert said in page()
    assert f"{min(ratios):.2f}x to {max(ratios):.2f}x on the rows" in page()


def test_every_peer_is_slower_on_every_row() -> None:
    rows = result("dpsgd.json")["rows"]
    assert list(rows) == list(result("dpsgd_alone.json")["rows"])
    for row in rows.values():
        assert row["hush"] <= 1.6
        times = [row[peer] for peer in PEERS if isinstance(row[peer], float)]
        assert len(times) >= 2  # the others fail
        assert row["hush"] < min(times)


def test_a_whole_epoch_beside_a_plain_loop() -> None:
    rows = result("dpsgd_epoch.json")["rows"]
    assert set(rows) == {"MLP 784-1000-10", "tanh CNN"}
    for row in rows.values():
        assert row["ratio_beside_a_loader"] <= 1.5
        assert row["ledger_and_odometer"] <= 0.02
    mlp, cnn = rows["MLP 784-1000-10"], rows["tanh CNN"]
    assert cnn["ratio"] <= 1.5  # the MLP's is above, which the page says
    assert (
        f"takes {cnn['ratio']:.2f}x of the quickest plain loop with the tanh CNN and {mlp['ratio']:.2f}x with" in page()
    )
    loaded = [row["ratio_beside_a_loader"] for row in (cnn, mlp)]
    assert f"{loaded[0]:.2f}x and {loaded[1]:.2f}x" in page()
