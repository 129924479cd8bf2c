from __future__ import annotations

import math

import numpy
import pytest
from test_grid_curves import CURVES

from hush.accounting.grid import rounding


def polygon(masses: rounding.Masses, top: float, spacing: float, epsilon: float) -> float:
    losses = top - spacing * numpy.arange(len(masses.mass))
    over = losses > epsilon
    return math.fsum(masses.mass[over] * -numpy.expm1(epsilon - losses[over])) + masses.infinite


def grid_of(curve, spacing):
    where = rounding.span(curve, -60.0)
    return where, math.ceil((where.top - where.bottom) / spacing)


@pytest.mark.parametrize("curve", CURVES, ids=repr)
@pytest.mark.parametrize("spacing", [0.31, 0.02, 1e-3])
def test_curve_lies_between_its_polygons(curve, spacing):
    where, cells = grid_of(curve, spacing)
    above, below = (make(curve, where, spacing, cells) for make in (rounding.above, rounding.below))
    points = numpy.random.default_rng(5).uniform(where.bottom - 0.5, where.top + 0.2, 60)
    points = numpy.concatenate([points, where.top - spacing * numpy.arange(0, cells, max(1, cells // 30))])
    for epsilon in points:
        value = float(curve.finite(numpy.array([epsilon]))[0]) + curve.infinite_mass
        assert polygon(below, where.top, spacing, epsilon) <= value * (1 + 1e-15) + 1e-300
        assert polygon(above, where.top, spacing, epsilon) >= value * (1 - 1e-15)
    assert (above.mass >= 0).all()
    assert (below.mass >= 0).all()


@pytest.mark.parametrize("curve", [c for c in CURVES if not c.atoms], ids=repr)
def test_gap_is_second_order(curve):
    epsilon, gaps = 0.0625, []
    for spacing in (0.02, 0.01, 0.005):
        where, cells = grid_of(curve, spacing)
        if not where.closed:
            where = rounding.Span(math.ceil(where.top / spacing) * spacing, where.bottom, closed=False)
        value = float(curve.finite(numpy.array([epsilon]))[0])
        polygons = [make(curve, where, spacing, cells + 1) for make in (rounding.above, rounding.below)]
        gaps.append([abs(polygon(masses, where.top, spacing, epsilon) / value - 1) for masses in polygons])
    total = numpy.sum(gaps, axis=1)
    assert total[0] / total[2] > 8  # 16 at second order, 4 at first


def test_masses_on_the_lattice_are_exact():
    curve = CURVES[2]
    where = rounding.span(curve, -60.0)
    for make in (rounding.above, rounding.below):
        masses = make(curve, where, 0.8, 2)
        assert masses.mass == pytest.approx(numpy.array(curve.masses), rel=2e-12)


def test_scan_equals_the_direct_sum():
    rng = numpy.random.default_rng(1)
    mass, spacing = rng.uniform(size=50), 0.3
    curve, total = rounding.scan(mass, spacing)
    for k in range(50):
        direct = math.fsum(mass[j] * -math.expm1(-(k - j) * spacing) for j in range(k))
        assert curve[k] == pytest.approx(direct, rel=1e-14, abs=1e-300)
    assert total == pytest.approx(mass.sum(), rel=1e-14)
