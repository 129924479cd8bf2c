"""Every row of the headline table on a fiftieth of its data: it runs, stays in its budget and learns something."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.headline import abadi_cifar_trials, abadi_figures, held_out, regressions, run, table
from benchmarks.headline.result import SEEDS, Result, write

from hush.errors import DataMissing
from hush.features import evened

CHANCE = {"adult": 0.7, "imdb": 0.45}
JOBS = run.jobs()
SLOW = {("3-scatter-cnn", "cifar10"), ("6-words-tables", "imdb")}
STEPS = {("1-abadi-cifar", "cifar10"): 2, ("3-scatter-cnn", "cifar10"): 2, ("6-words-tables", "imdb"): 4}  # or 10
FEW = {"CURVES": {2.0: 2_000}, "CLIP_NORMS": (4.0,), "LOTS": (600,), "NOISES": (2.0,), "DELTAS": (1e-5,)}


def case(number: int, row: str, data: str, job: run.Job) -> Any:
    marks = [pytest.mark.slow] if (row, data) in SLOW else []
    return pytest.param(row, data, job, id=f"{number}-{row}-{data}", marks=marks)


@pytest.mark.parametrize(("row", "data", "job"), [case(number, *one) for number, one in enumerate(JOBS)])
def test_a_row_runs_on_a_fiftieth(
    row: str, data: str, job: run.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "HUSH_DATA" not in os.environ:
        pytest.skip("HUSH_DATA is not set")
    monkeypatch.setattr(evened, "_PICTURES", 100)
    try:
        results = job(0.02, (0,), STEPS.get((row, data), 10))
    except DataMissing as error:
        pytest.skip(str(error))
    write(results, folder=tmp_path)
    written = json.loads((tmp_path / f"{row}-{data}.json").read_text())
    assert len(written) == len(results)
    for result in results:
        assert 0 < result.epsilon_lower <= result.epsilon < 8.01
        assert result.epsilon <= result.replace_one_epsilon
        assert result.moments_epsilon is not None
        assert result.moments_epsilon >= result.epsilon_lower
        assert result.mean > CHANCE.get(data, 0.05)
    if row == "4-patches":
        assert results[-1].mean > 0.2


def test_the_page_has_the_numbers_of_the_files() -> None:
    page = table.PAGE.read_text(encoding="utf-8")
    for part in table.parts():
        assert part in page, "python -m benchmarks.headline.table makes the page anew"


def test_seeds_are_added_to_those_of_the_same_setting_only(tmp_path: Path) -> None:
    first = Result(
        row="x", data="y", track="none", method="m", epsilon=1.0, epsilon_lower=1.0, moments_epsilon=None,
        replace_one_epsilon=2.0, tuning="paid", seeds=(1,), accuracies=(0.5,), twin=None, seconds=1.0,
    )  # fmt: skip
    write([first], folder=tmp_path)
    write([replace(first, seeds=(0,), accuracies=(0.7,), twin=0.9)], folder=tmp_path, add=True)
    found = Result.from_dict(json.loads((tmp_path / "x-y.json").read_text())[0])
    assert (found.seeds, found.accuracies, found.twin, found.seconds) == ((0, 1), (0.7, 0.5), 0.9, 2.0)
    with pytest.raises(SystemExit, match="other settings"):
        write([replace(first, epsilon=1.1)], folder=tmp_path, add=True)
    write([replace(first, epsilon=0.5, published=90.0)], folder=tmp_path, add=True)  # another row of the file
    epsilons = [(row["epsilon"], len(row["seeds"])) for row in json.loads((tmp_path / "x-y.json").read_text())]
    assert epsilons == [(0.5, 1), (1.0, 2)]


def test_networks_can_be_chosen_by_their_epsilon() -> None:
    assert [(row, data) for row, data, _ in run.jobs(8.0)] == [
        ("1-abadi", "mnist"), ("1-abadi-cifar", "cifar10"), ("5-pate", "mnist"),
    ]  # fmt: skip
    assert {row for row, _, _ in run.jobs(3.0)} == {"3-scatter-cnn"}


def test_the_figures_run_on_a_fiftieth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FEW.items():
        monkeypatch.setattr(abadi_figures, name, value)
    if "HUSH_DATA" not in os.environ:
        pytest.skip("HUSH_DATA is not set")
    try:
        regressions.main(tmp_path / "7.json", (0,), 0.02)
        abadi_figures.main(tmp_path / "1.json", 0.02, 1_000)
    except DataMissing as error:
        pytest.skip(str(error))
    losses = json.loads((tmp_path / "7.json").read_text())
    assert {point["task"] for point in losses} == {"logistic", "linear"}
    assert all(point["mean"] > 0 for point in losses)
    accuracies = json.loads((tmp_path / "1.json").read_text())
    assert {point["figure"] for point in accuracies} == {"clip norm", "lot size", "noise", "epsilon"}
    assert all(0 < point["accuracy"] < 1 for point in accuracies)


def test_the_trials_run_on_a_fiftieth(tmp_path: Path) -> None:
    if "HUSH_DATA" not in os.environ:
        pytest.skip("HUSH_DATA is not set")
    try:
        abadi_cifar_trials.main(tmp_path / "trials.json", abadi_cifar_trials.TRIALS[::8], 0.02, 2)
    except DataMissing as error:
        pytest.skip(str(error))
    found = json.loads((tmp_path / "trials.json").read_text())
    assert [one["units"] for one in found] == ["tanh, averages", "tanh", "ReLU"]
    assert all(0 < one["held_out_accuracy"] < 1 for one in found)


def test_variants_of_the_recipes_run_on_a_fiftieth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "HUSH_DATA" not in os.environ:
        pytest.skip("HUSH_DATA is not set")
    monkeypatch.setattr(evened, "_PICTURES", 100)
    few = ("as it is", "whitened by private pictures", "patches of 7")
    monkeypatch.setattr(held_out, "VARIANTS", {name: held_out.VARIANTS[name] for name in few})
    try:
        held_out.main("fashion-mnist", tmp_path / "found.json", 0.02, 10)
    except DataMissing as error:
        pytest.skip(str(error))
    found = json.loads((tmp_path / "found.json").read_text())
    assert [one["what"] for one in found] == list(few)
    assert all(max(one["held_out_percent"]) > 15 for one in found)
    assert len({tuple(one["held_out_percent"]) for one in found}) == len(few)


def test_what_is_missing_is_told() -> None:
    planned = {(row, data) for row, data, _ in JOBS}
    whole = [
        {"row": row, "data": data, "epsilon": 1.0, "seeds": list(SEEDS)} for row, data, _ in JOBS
    ]  # as many as there are jobs
    assert table.missing(whole) is None
    told = table.missing([{**whole[0], "seeds": [0, 1]}, *whole[1:]])
    assert told is not None
    assert told.splitlines()[2:] == [f"- {table.TITLES['1-abadi']}: mnist at epsilon 1 has seeds 0, 1 only"]
    assert str(table.missing(whole[1:])).endswith("mnist at some epsilons")
    assert len(str(table.missing([])).splitlines()) == 2 + len(planned)
