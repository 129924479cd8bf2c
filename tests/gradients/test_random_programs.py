"""Random models on the tape: equal to the loop, or refused; never silently something else."""

from __future__ import annotations

import pytest
from naive_loop import TIGHT, naive, relative_error
from random_programs import Program

from hush.errors import NoRule
from hush.gradients import clipped_sum


def served(seed: int) -> bool:
    """Whether the tape served this program; fails where it gave anything but the loop's gradients."""
    program = Program(seed, length=4 + seed % 6)
    batch = program.batch((2, 3, 4, 1, 4)[seed % 5])
    truth = naive(program, program.loss, batch)
    clip_norm = 0.8 * float(truth.norms.median()) or 1.0  # some programs end in a constant
    try:
        got = clipped_sum(program, program.loss, batch, clip_norm, method="tape")
    except NoRule:
        return False
    steps = [name for name, _ in program.steps]
    assert relative_error(got.gradients, truth.clipped(clip_norm)) < TIGHT, (seed, steps)
    assert float((got.norms - truth.norms).abs().max()) < TIGHT * (1 + float(truth.norms.max())), (seed, steps)
    return True


def share_served(seeds: range) -> float:
    return sum(served(seed) for seed in seeds) / len(seeds)


def test_random_programs() -> None:
    assert share_served(range(500)) > 0.7  # refusing everything would be no proof


@pytest.mark.slow
def test_many_random_programs() -> None:
    assert share_served(range(10_000, 22_000)) > 0.7
