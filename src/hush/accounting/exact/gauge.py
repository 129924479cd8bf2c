"""epsilon of a growing run, step by step: the transforms of one step are kept at fixed nodes and only multiplied.

A line chosen for n steps serves up to `ROOM` times as many: log M(z) per step is known at its nodes, aliases and
moments are linear in the steps, the tail only gets smaller, and the errors of the transform grow in proportion.
"""

from __future__ import annotations

import math

import numpy as np

from hush.accounting.exact import search
from hush.accounting.exact.contour import Line
from hush.accounting.exact.layers import Ordinary
from hush.accounting.exact.phases import Direction, Floats, Phases
from hush.accounting.exact.transforms import UNIT, Complexes, Whole

ROOM = 1.5
_DIGITS = 29.0  # more than one answer needs: aliases grow with the steps
_FAINT = 1e-6  # errors of a line that serves, over delta
_CLOSE = 1e-9  # how far below the delta given the bound may end, relatively
_MOST_ROUNDS = 12  # of Newton's method


class Gauge:
    """One direction of one composition, ready to answer for more steps of the same phases."""

    def __init__(self, phases: Phases, direction: Direction, delta: float) -> None:
        self.phases, self.delta = phases, delta
        self._line, self.epsilon = self._found(phases, direction)
        if self._line is None:
            return
        part, line = self._line.part, self._line
        assert isinstance(part, Whole)
        self._z, self._size = line.z, np.abs(line.z)
        self._axis = np.log(part.moment)
        self._along = part.step_log_along(line.z.imag) + self._axis
        self._fixed = part.rest(line.z) - np.log(line.z * (line.z + 1)) - math.log(line.period)
        self._fixed[1:] += math.log(2)
        self._log_errors = np.logaddexp(line.log_beyond, line.log_blur + math.log(ROOM))
        self._last = float(phases.steps), self.epsilon, 0.0  # steps, epsilon, and epsilon's growth with one step

    def _found(self, phases: Phases, direction: Direction) -> tuple[Line | None, float]:
        ordinary = Ordinary(phases, direction, math.log(self.delta))
        epsilon, trusted, interval = search.ordinary_answer(ordinary, ordinary.chernoff_epsilon())
        if not trusted or not interval[1] * (1 - 1e-6) <= interval[0]:
            return None, math.inf
        line = ordinary.line(epsilon, search.LITTLE_WORK, _DIGITS)
        line = None if line is None else ordinary.sharpened(line, epsilon, search.LITTLE_WORK)
        if line is None or not line.blur(epsilon) + line.beyond(epsilon) < _FAINT * self.delta:
            return None, math.inf
        return line, epsilon

    @property
    def works(self) -> bool:
        """Whether a line was found; where not, another way must answer."""
        return self._line is not None

    @property
    def most(self) -> Floats:
        """The largest counts in reach of the line."""
        return ROOM * self.phases.times

    def serves(self, times: Floats) -> bool:
        """Whether these counts are in reach of the line."""
        return bool((times >= self.phases.times).all() and (times <= self.most).all())

    def upper_epsilon(self, times: Floats) -> float:
        """A safe epsilon after these counts of steps: where delta with all its errors is a hair below the one given."""
        steps = float(times.sum())
        last_steps, last, growth = self._last
        epsilon, log_terms, log_errors = last + growth * (steps - last_steps), *self._after(times)
        for _ in range(_MOST_ROUNDS):
            bound, slope = self._bound(log_terms, log_errors, epsilon)
            if not (slope < 0 < bound < math.inf):
                break
            excess = math.log(bound / self.delta)
            if -_CLOSE < excess <= 0:
                self._last = steps, epsilon, (epsilon - last) / max(steps - last_steps, 1.0)
                return epsilon
            epsilon = epsilon + (excess + 0.5 * _CLOSE) * bound / -slope
        return math.inf

    def is_below(self, times: Floats, epsilon: float) -> bool:
        """Whether this direction surely costs no more than epsilon after these counts of steps."""
        return self._bound(*self._after(times), epsilon)[0] <= self.delta

    def _after(self, times: Floats) -> tuple[Complexes, float]:
        """The line's terms after these counts, and the log of its errors."""
        log_errors = self._log_errors + float(self._axis @ (times - self.phases.times))
        return self._along @ times + self._fixed, log_errors

    def _bound(self, log_terms: Complexes, log_errors: float, epsilon: float) -> tuple[float, float]:
        """An upper bound on delta(epsilon), and the slope of delta. Aliases only add to the rule."""
        assert self._line is not None
        terms = np.exp(log_terms - self._z * epsilon)
        value, slope, sizes = float(terms.real.sum()), -float((self._z @ terms).real), np.abs(terms)
        rounding = UNIT * (len(terms) * float(sizes.sum()) + 2 * abs(epsilon) * float(sizes @ self._size))
        errors = math.exp(min(log_errors - self._z[0].real * epsilon, 600.0))
        return value + rounding + errors + ROOM * self._line.far_mass, slope
