"""epsilon of a growing run, step by step: the transforms of one step are kept at fixed nodes and only multiplied.

A line chosen for n steps serves up to `ROOM` times as many: log M(z) per step is known at its nodes, aliases and
moments are linear in the steps, the tail only gets smaller, and the errors of the transform grow in proportion.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from hush.accounting.exact import search
from hush.accounting.exact.contour import Line, Sum, log_chernoff
from hush.accounting.exact.layers import Ordinary
from hush.accounting.exact.phases import Direction, Floats, Phases
from hush.accounting.exact.transforms import Whole

ROOM = 1.5


class Gauge:
    """One direction of one composition, ready to answer for more steps of the same phases."""

    def __init__(self, phases: Phases, direction: Direction, delta: float) -> None:
        self.phases, self.delta = phases, delta
        self._line, self.epsilon = self._found(phases, direction)
        if self._line is None:
            return
        part, line = self._line.part, self._line
        assert isinstance(part, Whole)
        self._along = part.step_log_along(line.z.imag)
        self._moments = part.step_log_moments(line.orders)
        self._kernel = np.log(line.z * (line.z + 1)) + math.log(line.period)
        self._kernel[1:] -= math.log(2)
        self._axis = np.log(part.moment)
        self._rest, self._rest_orders = part.rest(line.z), np.real(part.rest(line.orders))
        self._constant = log_chernoff(line.orders, np.zeros_like(line.orders))

    def _found(self, phases: Phases, direction: Direction) -> tuple[Line | None, float]:
        ordinary = Ordinary(phases, direction, math.log(self.delta))
        epsilon, trusted, interval = search.ordinary_answer(ordinary, ordinary.chernoff_epsilon())
        if not trusted or not interval[1] * (1 - 1e-6) <= interval[0]:
            return None, math.inf
        line = ordinary.line(epsilon, search.LITTLE_WORK)
        return None if line is None else ordinary.sharpened(line, epsilon, search.LITTLE_WORK), epsilon

    @property
    def works(self) -> bool:
        """Whether a line was found; where not, another way must answer."""
        return self._line is not None

    def serves(self, times: Floats) -> bool:
        """Whether these counts are in reach of the line."""
        return bool((times >= self.phases.times).all() and (times <= ROOM * self.phases.times).all())

    def upper_epsilon(self, times: Floats) -> float:
        """A safe epsilon after these counts of steps."""
        total = Sum([self._scaled(times)])
        self.epsilon = total.solve(self.delta, self.epsilon)
        return search.upper_end(total, self.epsilon, self.delta)

    def is_below(self, times: Floats, epsilon: float) -> bool:
        """Whether this direction surely costs no more than epsilon after these counts of steps."""
        total = Sum([self._scaled(times)])
        return total.value(epsilon)[0] + total.above(epsilon) <= self.delta

    def _scaled(self, times: Floats) -> Line:
        line = self._line
        assert line is not None
        axis, extra = float(self._axis @ times), times - self.phases.times
        shift = float(self._axis @ extra)
        return dataclasses.replace(
            line,
            log_terms=self._along @ times + axis + self._rest - self._kernel,
            log_chernoff=self._moments @ times + self._rest_orders + self._constant,
            log_beyond=line.log_beyond + shift,
            log_blur=line.log_blur + shift + math.log(ROOM),
            far_mass=line.far_mass * ROOM,
        )
