from __future__ import annotations

import math

import mpmath
import numpy
import pytest
from grid_truth import atoms_delta
from scipy import fft

from hush.accounting.grid import compose
from hush.accounting.grid.rounding import UNIT, Masses


def part(masses, top, count):
    mass = numpy.array(masses)
    return compose.Part(Masses(mass, 0.0, float(mass.sum())), top, count)


@pytest.fixture(scope="module")
def parts():
    rng = numpy.random.default_rng(3)
    first, second = rng.dirichlet(numpy.ones(5)), rng.dirichlet(numpy.ones(9))
    return [part(first, 0.5, 6), part(second, 0.75, 3)]


SPACING = 0.25  # a power of two: losses are exact


def truth(parts, epsilon):
    listed = [([(p.top - SPACING * j, m) for j, m in enumerate(p.masses.mass)], p.count) for p in parts]
    return atoms_delta(listed, epsilon)


def seen(parts, first, size, tilt):
    summit = sum(p.count * p.top for p in parts)
    window = compose.Window(summit - first * SPACING, SPACING, size, first, step_up=2.0, step_down=2.0)
    return compose.composed(parts, window, tilt, infinite=0.0)


@pytest.mark.parametrize("tilt", [0.3, 2.0, 20.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.5, 4.0, 5.2, 5.249])
def test_whole_support_is_exact(parts, tilt, epsilon):
    result, exact = seen(parts, 0, 64, tilt), truth(parts, epsilon)
    assert result.lower(epsilon) <= exact <= result.upper(epsilon)
    if tilt == 2.0 and epsilon < 4:
        assert result.upper(epsilon) - result.lower(epsilon) < 1e-9 * exact


@pytest.mark.parametrize(("first", "size"), [(4, 16), (8, 16), (10, 8), (0, 16), (12, 32)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 3.1])
def test_wrapping_around_stays_inside_the_bounds(parts, first, size, epsilon):
    for tilt in (0.5, 1.5, 4.0):
        result, exact = seen(parts, first, size, tilt), truth(parts, epsilon)
        assert result.lower(epsilon) <= exact <= result.upper(epsilon)


def test_wrapping_around_is_real(parts):
    result, exact = seen(parts, 8, 8, 1.5), truth(parts, 1.0)
    assert abs(result.finite(1.0) / exact - 1) > 1e-6  # so the tests above would notice missing error terms


@pytest.mark.parametrize("size", [64, 512])
def test_transform_rounding_is_within_the_stated_bound(size):
    rng = numpy.random.default_rng(size)
    worst = 0.0
    for spread in (1.0, 6.0):
        values = rng.dirichlet(numpy.ones(size)) ** spread
        values /= values.sum()
        computed = fft.rfft(values)
        with mpmath.workdps(30):
            for k in range(0, size // 2 + 1, size // 16):
                turns = [mpmath.expjpi(-2 * mpmath.mpf(j * k % size) / size) for j in range(size)]
                exact = mpmath.fsum(mpmath.mpf(float(v)) * w for v, w in zip(values, turns, strict=True))
                worst = max(worst, float(abs(mpmath.mpc(complex(computed[k])) - exact)))
    assert worst <= compose.BUTTERFLY * UNIT * math.log2(size) / 8  # eight times inside


def test_tilting_keeps_digits_of_tiny_deltas():
    rare = part([1e-9, 0.5, 0.5 - 1e-9], 1.0, 8)
    summit, first = 8.0, 0
    window = compose.Window(summit, SPACING, 64, first, 2.0, 2.0)
    result = compose.composed([rare], window, 80.0, infinite=0.0)
    exact = truth([rare], 7.3)  # only eight rare ones, or seven and one other
    assert exact < 1e-50
    assert result.lower(7.3) <= exact <= result.upper(7.3)
    assert result.upper(7.3) - result.lower(7.3) < 1e-6 * exact


def test_bisected_brackets():
    low, high = compose.bisected(lambda x: x * x >= 2, 0.0, 2.0)
    assert low * low < 2 <= high * high
    assert high - low < 1e-14
