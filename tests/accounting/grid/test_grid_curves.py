from __future__ import annotations

import mpmath
import numpy
import pytest
from grid_truth import laplace, normal, replace_normal, sampled_add, sampled_remove

from hush.accounting.grid.curves import RELATIVE_ERROR, Curve, Normal, TwoSidedExponential, response
from hush.accounting.grid.sampled import Add, Mirrored, Remove, ReplaceLaplace, ReplaceNormal

ULP = 2.0**-52


def close(curve: Curve, truth, epsilons) -> None:
    # Relative error of the value, at an epsilon that is off by a few units in the last place.
    for epsilon in epsilons:
        at = numpy.array([epsilon])
        value, slope = mpmath.mpf(float(curve.finite(at)[0])), float(curve.slope(at)[0])
        exact = truth(epsilon)
        assert abs(value - exact) <= RELATIVE_ERROR * exact + 8 * ULP * abs(epsilon) * slope + 1e-290, epsilon


@pytest.mark.parametrize("mu", [1e-3, 0.02, 0.3, 0.36, 1.0, 4.0, 25.0])
def test_normal(mu):
    close(Normal(mu), normal(mu), [mu * (mu / 2 + z) for z in (-30, -12, -5, -1, 0, 0.5, 3, 8, 11.9, 12.5, 20, 33)])


@pytest.mark.parametrize(("s", "q"), [(1.0, 0.01), (0.5, 0.3), (4.0, 0.01), (50.0, 1e-3), (0.6, 1e-5)])
def test_sampled_normal_both_directions(s, q):
    top = float(-mpmath.log(1 - mpmath.mpf(q)))
    close(
        Remove(Normal(1 / s), q),
        sampled_remove(s, q),
        [-2.0, -1.2 * top, -0.9 * top, -0.1 * top, 0.0, q, 5 * q, 0.5, 4.0],
    )
    with mpmath.workdps(400):  # the identity that gives the truth cancels
        close(Add(Normal(1 / s), q), sampled_add(s, q), [-2.0, -q, 0.0, 0.1 * top, 0.6 * top, 0.97 * top])
    assert Add(Normal(1 / s), q).finite(numpy.array([top * (1 + 1e-12), 3.0])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("s", "q"), [(1.0, 0.01), (0.5, 0.3), (4.0, 0.01), (0.1, 0.2), (2.0, 1.0)])
def test_replace_one_sampled_normal(s, q):
    with mpmath.workdps(80):
        close(Mirrored(ReplaceNormal(s, q)), replace_normal(s, q), [-3.0, -0.1, 0.01, 0.2, 1.0, 5.0])


@pytest.mark.parametrize("top", [0.01, 1.0, 7.0])
def test_laplace(top):
    close(TwoSidedExponential(top), laplace(top), [-2 * top, -top, -0.3 * top, 0.0, 0.99 * top, top, 2 * top])


@pytest.mark.parametrize(("scale", "q"), [(1.0, 0.1), (0.3, 0.7), (5.0, 0.01)])
def test_replace_laplace_by_quadrature(scale, q):
    curve = Mirrored(ReplaceLaplace(TwoSidedExponential(1 / scale), q))
    b, q_ = mpmath.mpf(scale), mpmath.mpf(q)

    def density(x, centre):
        return (1 - q_) * mpmath.exp(-abs(x) / b) / (2 * b) + q_ * mpmath.exp(-abs(x - centre) / b) / (2 * b)

    for epsilon in (-0.5 * curve.top, 0.0, 0.2 * curve.top, 0.9 * curve.top):
        t = mpmath.exp(epsilon)

        def excess(x, t=t):
            return density(x, 1) - t * density(x, -1)

        crossing = mpmath.findroot(excess, (-1, 1), solver="anderson", tol=1e-50)
        truth = mpmath.quad(excess, [crossing, *[k for k in (-1, 0, 1) if k > crossing], 1 + 10 * b, mpmath.inf])
        assert float(curve.finite(numpy.array([epsilon]))[0]) == pytest.approx(float(truth), rel=1e-12)


@pytest.mark.parametrize("angle", [0.3, 1.0, 2.2])
def test_replace_laplace_dominates_other_contributions_in_the_plane(angle):
    # Contributions a = (1, 0) and b anywhere on the L1 circle: no test beats the pair +1, -1.
    scale, q = 0.8, 0.4
    curve = Mirrored(ReplaceLaplace(TwoSidedExponential(1 / scale), q))
    grid = numpy.linspace(-14, 15, 1451)
    x, y = numpy.meshgrid(grid, grid)
    b = numpy.array([numpy.cos(angle), numpy.sin(angle)])
    b /= numpy.abs(b).sum()

    def noise(centre):
        return numpy.exp(-(abs(x - centre[0]) + abs(y - centre[1])) / scale) / (2 * scale) ** 2

    present, other = (1 - q) * noise((0, 0)) + q * noise((1, 0)), (1 - q) * noise((0, 0)) + q * noise(b)
    for epsilon in (-0.4, 0.0, 0.3, 0.8):
        other_delta = numpy.maximum(present - numpy.exp(epsilon) * other, 0).sum() * (grid[1] - grid[0]) ** 2
        assert other_delta <= float(curve.finite(numpy.array([epsilon]))[0]) * 1.002


CURVES = [
    Normal(0.7),
    TwoSidedExponential(1.3),
    response(0.8, 4),
    response(0.8, infinite_mass=0.01),
    *(
        kind(base, 0.2)
        for kind in (Remove, Add)
        for base in (Normal(0.7), TwoSidedExponential(1.3), response(0.8, 4, 0.01))
    ),
    Mirrored(Remove(Normal(2.0), 0.1)),
    Mirrored(Remove(response(0.8, infinite_mass=0.01), 0.1)),
    Mirrored(ReplaceNormal(1.2, 0.1)),
    Mirrored(ReplaceLaplace(TwoSidedExponential(1.3), 0.1)),
]


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_curve_is_a_convex_polygon_limit_with_that_slope(curve):
    epsilon = numpy.linspace(-3, 3, 1201)
    t, value = numpy.exp(epsilon), curve.finite(epsilon)
    chords = -numpy.diff(value) / numpy.diff(t)
    assert (numpy.diff(chords) <= 1e-11).all(), "convex in t"
    slope = curve.slope(epsilon) / t
    assert (chords <= slope[:-1] + 1e-11).all()
    assert (chords >= slope[1:] - 1e-11).all()
    assert value[0] <= 1 - curve.infinite_mass
    total = curve.finite(numpy.array([-30.0]))[0] + curve.slope(numpy.array([-30.0]))[0]
    assert total == pytest.approx(1 - curve.infinite_mass, abs=1e-12)


@pytest.mark.parametrize("curve", [c for c in CURVES if numpy.isfinite(c.top)], ids=repr)
def test_bounded_curve_ends_at_its_top_with_its_mass(curve):
    assert curve.finite(numpy.array([curve.top + 1e-9])).tolist() == [0.0]
    before = float(curve.finite(numpy.array([curve.top - 1e-6]))[0])
    assert before == pytest.approx(curve.top_mass * 1e-6, rel=1e-4, abs=1e-13)
