"""The tables of the guides on prompts are made of the kept results, and what they say of goals is what came out."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
from benchmarks.prompts import tables

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"


def accuracy(way: str, epsilon: float | str) -> float:
    rows = [row for row in tables.read("prompts_sst2") if row["way"] == way and row["epsilon"] == epsilon]
    assert {row["seed"] for row in rows} == {0, 1, 2}
    assert len({(row["batch"], row["steps"], row["learning_rate"], row["clip_norm"]) for row in rows}) == 1
    return 100 * statistics.mean(row["accuracy"] for row in rows)


@pytest.mark.parametrize("guide", tables.TABLES)
def test_tables_are_those_of_the_results(guide: str) -> None:
    text = (GUIDES / guide).read_text(encoding="utf-8")
    for name in tables.TABLES[guide]:
        assert f"<!-- table {name} -->" in text
    assert tables.filled(guide, text) == text


@pytest.mark.parametrize("way", ["head", "lora", "soft"])
def test_private_and_twin_take_the_same_steps_within_the_budget(way: str) -> None:
    rows: list[dict[str, Any]] = [row for row in tables.read("prompts_sst2") if row["way"] == way]
    assert len({(row["batch"], row["steps"], row["learning_rate"], row["clip_norm"]) for row in rows}) == 1
    private = [row for row in rows if row["epsilon"] != "infinity"]
    assert private
    assert all(row["spent"] <= row["epsilon"] for row in private)


@pytest.mark.parametrize("way", ["head", "lora"])
def test_at_epsilon_3_sst2_is_within_two_points_of_the_twin(way: str) -> None:
    assert accuracy(way, 3.0) > accuracy(way, "infinity") - 2


def test_the_guide_tells_all_draws_of_the_noise_on_trec() -> None:
    first = tables.read("prompts_pate")[0]
    drawn = [one["student"]["calibrated"] for one in (first, *first["further_draws_of_the_noise"])]
    mean, base = statistics.mean(drawn), first["zero_shot"]["calibrated"]
    text = " ".join((GUIDES / "prompt-pate.md").read_text(encoding="utf-8").split())
    assert f"the students of five draws of the noise are {mean - base:.1f} points above it" in text
    rest = ", ".join(f"{one:.1f}" for one in drawn[1:-1])
    assert f"{drawn[0]:.1f} in the table, then {rest} and {drawn[-1]:.1f}" in text
