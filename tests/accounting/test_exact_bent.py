"""The bent contour by itself: it serves heavy tails, but must hold the truth wherever it answers at all."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path as FilePath

import mpmath
import numpy as np
import pytest

from hush import events
from hush.accounting.exact import search
from hush.accounting.exact.bent import bent
from hush.accounting.exact.layers import Ordinary
from hush.accounting.exact.nodes import Nodes
from hush.accounting.exact.path import Path
from hush.accounting.exact.phases import Phases
from hush.accounting.exact.reading import read

VECTORS = json.loads((FilePath(__file__).parents[1] / "reference" / "exact_truth.json").read_text())["vectors"]
SAMPLED = [
    pytest.param(row, id=row["name"])
    for row in VECTORS
    if float(row["epsilon"]) > 0 and any(prob < 1 for prob, _, _ in row["phases"])
]
DIGITS = 17.0


def ordinary_of(row: dict) -> Ordinary:
    parts = [
        events.Repeated(events.PoissonSampled(events.Gaussian(noise), prob), steps)
        for prob, noise, steps in row["phases"]
    ]
    direction = "replace" if row["relation"] == "replace_one" else "remove"
    return Ordinary(read(events.Composed(*parts), row["relation"]).phases, direction, math.log(row["delta"]))


def interval_near(row: dict, guess: float) -> tuple[float, float]:
    """What the bent contour says when it is laid out for an answer near the guess."""
    with np.errstate(all="ignore"):
        ordinary = ordinary_of(row)
        total = bent(ordinary.part, guess, DIGITS, ordinary.saddle(guess))
        if total is None:
            return 0.0, math.inf
        return search._enclose(total, total.solve(row["delta"], guess), row["delta"])


def holds(row: dict, guess: float) -> bool:
    low, high = interval_near(row, guess)
    truth = Fraction(row["epsilon"])
    return Fraction(low) <= truth and (high == math.inf or truth <= Fraction(high))


@pytest.mark.parametrize("row", SAMPLED)
def test_the_interval_holds_the_truth(row):
    assert holds(row, float(row["epsilon"]))


@pytest.mark.parametrize("off", [0.8, 1.15])
@pytest.mark.parametrize("row", SAMPLED[::4])
def test_a_contour_laid_elsewhere_still_holds_the_truth(row, off):
    assert holds(row, off * float(row["epsilon"]))


def test_most_intervals_are_narrow():
    """Those that are not have so few steps, or so rare losses, that rounding would spoil the sum."""
    ends = [interval_near(row.values[0], float(row.values[0]["epsilon"])) for row in SAMPLED]
    narrow = sum(high * (1 - 1e-6) <= low for low, high in ends)
    assert narrow >= 0.5 * len(ends), (narrow, len(ends))


def transform(prob: float, shift: float, far: float, z: complex, *, is_replace: bool) -> complex:
    """E e^{zL} - 1 of a step with the far window, whose lost mass counts as loss 0, along the real line."""
    with mpmath.workdps(25):
        q, m = mpmath.mpf(prob), mpmath.mpf(shift)  # 1 - q must not be rounded

        def weight(u):
            return mpmath.log(1 - q + q * mpmath.exp(m * u - m**2 / 2))

        def integrand(u):
            loss = weight(u) - weight(-u) if is_replace else weight(u)
            return mpmath.npdf(u) * mpmath.exp(weight(u)) * mpmath.ncdf(far - u) * mpmath.expm1(z * loss)

        return complex(mpmath.quad(integrand, [-12, -4, 0, 2, 4, 6, 8, 10, 12, 15, far + 9]))


@pytest.mark.parametrize("direction", ["remove", "replace"])
@pytest.mark.parametrize("top", [0.0, 12.0])
@pytest.mark.parametrize(("prob", "shift"), [(1e-3, 1.0), (0.2, 2.0), (1e-4, 0.4)])
def test_transforms_on_a_path_are_those_on_the_real_line(prob, shift, top, direction):
    phases = Phases(np.array([prob]), np.array([shift]), np.array([100.0]))
    nodes = Nodes(phases, direction, math.log(1e-6), digits=20.0)
    path = Path(nodes, top, np.array([34.0]), np.array([6.0]))
    z = np.array([0.5 + 0.0j, 1.5 + 4.0j])
    found, noise = path.excess(z)
    bound = noise + path.quadrature(z)
    for value, error, point in zip(found[:, 0], bound[:, 0], z, strict=True):
        true = transform(prob, shift, float(nodes.far[0]), complex(point), is_replace=direction == "replace")
        assert abs(value - true) <= error + 1e-22
        assert error <= 1e-10 * (1 + abs(true)), error


def test_heights_above_a_point_are_bounded_from_there():
    phases = Phases(np.array([1e-2]), np.array([1.0]), np.array([50.0]))
    nodes = Nodes(phases, "remove", math.log(1e-6), digits=20.0)
    path = Path(nodes, 10.0, np.array([34.0]), np.array([0.0]))
    heights = np.array([10.0, 11.0, 14.0, 20.0])
    excess, _ = path.excess(2.0 + 1j * heights)
    sizes = 50 * np.log(np.abs(1 + excess[:, 0]))
    assert (sizes <= path.log_bound(2.0 + 10.0j)).all()
