"""The trapezoid rule on a line: every error it leaves out is inside its bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hush.accounting.exact import contour
from hush.accounting.exact.contour import Line, Sum
from hush.accounting.exact.decay import whole_reach
from hush.accounting.exact.layers import Ordinary
from hush.accounting.exact.phases import Direction, Phases

COMPOSITIONS = [
    (0.01, 4.0, 10_000, 1e-5),
    (0.3, 20.0, 400, 1e-9),
    (1e-4, 1.0, 1_000_000, 1e-6),
    (0.05, 2.0, 2_000, 1e-7),
]
LONG = 30.0  # so many powers of e below its start, a tail is nothing beside those of the short lines


def line_up_to(ordinary: Ordinary, epsilon: float, target: float) -> Line:
    """Return the line of an answer at epsilon, cut where the integrand has fallen by e^-target."""
    grid, constants = contour.from_zero(ordinary.orders, ordinary.constants)
    order, period = contour.abscissa(grid, constants, epsilon, ordinary.log_delta, LONG)
    log_moment = ordinary.part.tilt_to(order)
    reach = whole_reach(ordinary.part, target, 1e9, 10)
    assert reach is not None
    return contour._line(ordinary.part, grid, constants, log_moment, period, reach)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("prob", "noise", "steps", "delta"), COMPOSITIONS)
def test_nodes_left_out_are_inside_the_bound(
    prob: float, noise: float, steps: int, delta: float, direction: Direction
) -> None:
    """A rule that ends early differs from one that goes on by no more than it says, and by more than all else."""
    with np.errstate(all="ignore"):
        phases = Phases(np.array([prob]), np.array([1 / noise]), np.array([float(steps)]), 0.0)
        ordinary = Ordinary(phases, direction, math.log(delta))
        near = ordinary.saddle_epsilon()[0]
        whole = Sum([line_up_to(ordinary, near, LONG)])
        shares = []
        for target in (1.0, 2.0, 4.0, 7.0):
            line = line_up_to(ordinary, near, target)
            cut = Sum([line])
            for epsilon in np.linspace(0.9, 1.1, 41) * near:
                missing = abs(cut.value(epsilon)[0] - whole.value(epsilon)[0])
                other = cut.either_side(epsilon) - line.beyond(epsilon) + whole.either_side(epsilon)
                assert missing <= line.beyond(epsilon) + other
                shares.append(missing / other)
    assert max(shares) > 1e3  # what is left out is seen here, and no other error could hide it


def test_the_interval_of_a_short_rule_rests_on_that_bound() -> None:
    """Both ends of delta hold the truth although the rule itself misses it by far more than its other errors."""
    prob, noise, steps, delta = COMPOSITIONS[0]
    with np.errstate(all="ignore"):
        phases = Phases(np.array([prob]), np.array([1 / noise]), np.array([float(steps)]), 0.0)
        ordinary = Ordinary(phases, "remove", math.log(delta))
        near = ordinary.saddle_epsilon()[0]
        whole = Sum([line_up_to(ordinary, near, LONG)])
        truth, error = whole.value(near)[0], whole.above(near) + whole.below(near)
        assert error < 1e-6 * truth
        for target in (1.0, 2.0, 4.0, 7.0):
            cut = Sum([line_up_to(ordinary, near, target)])
            value = cut.value(near)[0]
            assert value - cut.below(near) <= truth + error
            assert truth - error <= value + cut.above(near)
            assert abs(value - truth) > 100 * error
