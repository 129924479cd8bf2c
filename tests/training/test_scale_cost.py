"""The cost model of many processes: its formulas against hand-made counts, and the guide's table against both."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.scale.cost_model import ACCELERATOR, ENGINES, SIZES, WORKERS, Job, cost, in_pieces, reference, tables

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guides" / "many-machines.md").read_text(encoding="utf-8")
FEW = (1, 2, 3, 4, 8, 64, 1000)
INSTANT = replace(ACCELERATOR, latency=0.0, copying=math.inf)  # what is left of communication is bytes on the wire


def ring(workers: int, length: int, rounds: int) -> int:
    """Numbers that one worker sends where parts of a row go once round a ring, `rounds` times, counted one by one.

    1: a gather, or a scatter of sums; 2: an all-reduce, which is a scatter and a gather.
    """
    parts = [length // workers + (part < length % workers) for part in range(workers)]
    return sum(parts[-(step + 1) % workers] for _ in range(rounds) for step in range(workers - 1))


@pytest.mark.parametrize("workers", FEW)
def test_bytes_on_the_wire_are_those_of_a_ring(workers: int) -> None:
    length = 840_000  # of which 1,000 workers have equal parts
    job = Job(length, lot=512)
    for engine, rounds in (("whole", 2), ("sharded", 3)):
        sent = cost(job, INSTANT, workers, engine).communication * INSTANT.bandwidth
        assert sent == pytest.approx(4 * ring(workers, length, rounds), rel=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("workers", FEW)
def test_work_is_shared_out(engine: str, workers: int) -> None:
    job = Job(1e8, lot=4096, tokens=256, layers=12, states=2)
    one, many = cost(job, ACCELERATOR, 1, engine), cost(job, ACCELERATOR, workers, engine)
    assert many.compute * workers == pytest.approx(one.compute)
    assert many.noise * workers == pytest.approx(one.noise)
    assert one.compute == pytest.approx(4096 * 256 * 6 * 1e8 * 1.25 / ACCELERATOR.operations)
    assert one.noise == pytest.approx(1e8 / ACCELERATOR.normals)
    assert many.update == pytest.approx(one.update / (workers if engine == "sharded" else 1))
    assert many.seconds == pytest.approx(many.compute + many.communication + many.noise + many.update)
    state = 4 * 1e8 * (2 + 2)  # weights, sums and Adam's two
    extra = state / workers + 2 * 4 * 1e8 / 12 if engine == "sharded" else state
    assert many.memory - 4096 / workers * job.activations == pytest.approx(extra, rel=1e-9)


def test_one_worker_sends_nothing_and_latency_grows_with_the_doublings() -> None:
    job = Job(1e6, lot=512, layers=5)
    assert cost(job, ACCELERATOR, 1, "whole").communication == 0
    slow, quick = replace(ACCELERATOR, latency=1.0), replace(ACCELERATOR, latency=0.0)
    for engine, collectives in (("whole", 3), ("sharded", 3 * 5 + 1)):  # a word of all, and the rows or the modules
        for workers in (2, 4, 1024):
            waits = (cost(job, machine, workers, engine).communication for machine in (slow, quick))
            assert next(waits) - next(waits) == pytest.approx(collectives * math.log2(workers))


def test_shares_that_do_not_fit_go_in_pieces() -> None:
    job = reference(1e10)
    whole, cut = cost(job, ACCELERATOR, 64, "sharded"), in_pieces(job, ACCELERATOR, 64, "sharded")
    pieces = round(cut.communication / whole.communication)
    assert pieces > 1
    assert whole.memory > ACCELERATOR.memory >= cut.memory
    rows = math.ceil(job.lot / 64 / pieces)
    fixed = whole.memory - job.lot / 64 * job.activations
    assert fixed + rows * job.activations <= ACCELERATOR.memory  # so many pieces are enough
    rows = math.ceil(job.lot / 64 / (pieces - 1))
    assert fixed + rows * job.activations > ACCELERATOR.memory  # and one fewer is not
    small = reference(1e6)
    assert in_pieces(small, ACCELERATOR, 64, "whole") == cost(small, ACCELERATOR, 64, "whole")


def test_the_table_has_every_size_by_every_number_of_workers() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables().splitlines()[2:]]
    assert {(float(size), int(workers), engine) for size, workers, engine, *_ in rows} == {
        (size, workers, engine) for size in SIZES for workers in WORKERS for engine in ENGINES
    }
    assert (min(SIZES), max(SIZES), min(WORKERS), max(WORKERS)) == (1e6, 1e11, 1, 1000)
    for size, workers, engine, *_, seconds, memory, fits in rows:
        found = in_pieces(reference(float(size)), ACCELERATOR, int(workers), engine)
        assert float(seconds) == pytest.approx(found.seconds, rel=6e-3)
        assert float(memory) == pytest.approx(found.memory / 1e9, rel=6e-3)
        assert fits == ("yes" if found.memory <= 8e10 else "no")


# The guide ----------------------------------------------------------------------------------------------------------


def said(size: float, workers: int, engine: str) -> Any:
    return in_pieces(reference(size), ACCELERATOR, workers, engine)


def test_the_guides_table_is_what_the_formulas_say() -> None:
    for name, step in (("1e8", "0.05 to 0.13 s"), ("1e9", "0.5 to 1.3 s"), ("1e10", "6 s"), ("1e11", "minutes")):
        assert re.search(rf"^\| {name} \|.*\| {step} \|", GUIDE, re.MULTILINE), name
    assert all(said(size, 64, "whole").seconds < 0.1 for size in (1e6, 1e7))
    assert said(1e7, 8, "whole").seconds < 0.1
    assert (said(1e8, 512, "whole").seconds, said(1e8, 64, "whole").seconds) == pytest.approx((0.05, 0.13), rel=0.1)
    assert said(1e8, 512, "whole").communication == pytest.approx(0.03, rel=0.1)
    assert (said(1e9, 512, "whole").seconds, said(1e9, 64, "whole").seconds) == pytest.approx((0.5, 1.3), rel=0.1)
    assert said(1e9, 512, "whole").memory <= ACCELERATOR.memory
    assert said(1e9, 512, "sharded").seconds / said(1e9, 512, "whole").seconds == pytest.approx(1.5, abs=0.15)
    assert said(1e10, 1000, "whole").memory > ACCELERATOR.memory >= said(1e10, 512, "sharded").memory
    assert said(1e10, 512, "sharded").seconds == pytest.approx(6, rel=0.1)
    assert said(1e10, 64, "sharded").communication > 4 * said(1e10, 64, "sharded").compute
    assert 60 < said(1e11, 512, "sharded").seconds < 3600
    assert said(1e11, 512, "sharded").communication > said(1e11, 512, "sharded").compute


def test_the_formulas_were_held_against_one_two_and_four_processes() -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "scale_cost.json").read_text())
    models = {row["model"] for row in rows}
    assert len(models) == 2
    assert {(row["model"], row["processes"], row["engine"]) for row in rows} == {
        (model, processes, engine) for model in models for processes in (1, 2, 4) for engine in ENGINES
    }
    assert not any(row.get("busy") for row in rows)
    for processes, words in ((1, "one process"), (2, "two"), (4, "four")):
        apart = [row["said"] / row["measured"] for row in rows if row["processes"] == processes]
        text = rf"{min(apart):.2f} to\s+{max(apart):.2f}( of the measured time)?\s+with\s+{words}"
        assert re.search(text.replace(" to", r"\s+to"), GUIDE), text
