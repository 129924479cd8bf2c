"""Every row of the headline table on a fiftieth of its data: it runs, stays in its budget and learns something."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from benchmarks.headline import run
from benchmarks.headline.result import write

from hush.errors import DataMissing

CHANCE = {"adult": 0.7, "imdb": 0.45}
JOBS = run.jobs()


def case(number: int, row: str, data: str, job: run.Job) -> Any:
    long = data == "imdb" or (data == "cifar10" and "scatter" in row)
    return pytest.param(row, data, job, id=f"{number}-{row}-{data}", marks=[pytest.mark.slow] if long else [])


@pytest.mark.parametrize(("row", "data", "job"), [case(number, *one) for number, one in enumerate(JOBS)])
def test_a_row_runs_on_a_fiftieth(row: str, data: str, job: run.Job, tmp_path: Path) -> None:
    if "HUSH_DATA" not in os.environ:
        pytest.skip("HUSH_DATA is not set")
    try:
        results = job(0.02, (0,), 5)
    except DataMissing as error:
        pytest.skip(str(error))
    write(results, folder=tmp_path)
    written = json.loads((tmp_path / f"{row}-{data}.json").read_text())
    assert len(written) == len(results)
    for result in results:
        assert 0 < result.epsilon_lower <= result.epsilon < 8.01
        assert result.epsilon <= result.replace_one_epsilon
        assert result.rdp_epsilon is None or result.rdp_epsilon >= result.epsilon_lower
        assert result.mean > CHANCE.get(data, 0.05)
    if row == "4-patches":
        assert results[-1].mean > 0.2
