"""epsilon so far, after every step of a run, at next to no cost.

    >>> from hush import events
    >>> step = events.PoissonSampled(events.Gaussian(noise_multiplier=4.0), sampling_prob=0.01)
    >>> odometer = Odometer(delta=1e-5)
    >>> for _ in range(3):
    ...     odometer.add(step)
    >>> odometer.steps, round(odometer.epsilon(), 6)
    (3, 0.01332)

The numbers hold for parameters fixed in advance. Where noise or sampling are chosen while the run goes on, in the light
of what it released, use a filter (`hush.accounting.filters`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hush import _check
from hush.accounting.exact.gauge import Gauge
from hush.accounting.exact.phases import Direction
from hush.accounting.exact.reading import read
from hush.accounting.guarantee import guarantee
from hush.errors import InvalidValue
from hush.events import Composed, Event, Gaussian, PoissonSampled, Repeated, flat
from hush.privacy import Guarantee, Relation, check_relation

_AHEAD = 1.01  # where no gauge serves, the answer for up to 1 % more steps is kept and given


class Odometer:
    """Adds up what a run has done and says what it costs so far."""

    def __init__(self, *, delta: float, relation: Relation = "add_remove") -> None:
        self.delta, self.relation = _check.delta(delta), check_relation(relation)
        self._counts: dict[Event, int] = {}
        self._gauges: list[Gauge] = []
        self._gauged: tuple[Event, ...] | None = None  # the events whose counts the gauges take, in order
        self._shown = np.zeros(0), 0.0  # counts up to which the other gauges were shown to be below this epsilon
        self._kept: tuple[dict[Event, int], float] = ({}, 0.0)
        self._next_try = 0  # where gauges did not serve, the number of steps from which they are tried again

    def add(self, event: Event, times: int = 1) -> None:
        """Count an event."""
        if not isinstance(event, Event):
            raise InvalidValue(f"event must be an event, such as events.Gaussian(noise_multiplier=1.0); got {event!r}.")
        counted = _check.whole("times", times)
        if event in self._counts:  # events that are counted have no parts
            self._counts[event] += counted
            return
        for part, count in flat(event, counted):
            self._counts[part] = self._counts.get(part, 0) + count

    @property
    def steps(self) -> int:
        """How many elementary events were counted."""
        return sum(self._counts.values())

    @property
    def event(self) -> Event:
        """Everything counted so far."""
        return _composed(self._counts)

    def guarantee(self) -> Guarantee:
        """What it costs so far, as the exact accountant's interval."""
        return guarantee(self.event, delta=self.delta, relation=self.relation)

    def epsilon(self) -> float:
        """A safe epsilon for everything so far: the exact one but for rounding, or that of up to 1 % more steps."""
        kept, epsilon = self._kept
        if self._counts.keys() == kept.keys() and all(self._counts[key] <= kept[key] for key in kept):
            return epsilon
        measured = self._measured()
        return self._look_ahead() if measured is None else measured

    def _measured(self) -> float | None:
        """By the gauges, where everything counted is a sampled Gaussian and there is more than one step."""
        if self.delta == 0 or not all(map(_is_phase, self._counts)) or self.steps < max(2, self._next_try):
            return None
        times = np.array(list(self._counts.values()), dtype=float)
        if not self._gauges or self._gauged != tuple(self._counts) or not self._gauges[0].serves(times):
            self._gauged, self._gauges = tuple(self._counts), self._fresh_gauges()
            self._shown = np.zeros_like(times), 0.0
        if not self._gauges:
            self._next_try = 2 * self.steps
            return None
        worst = self._gauges[0].upper_epsilon(times)
        counts, least = self._shown
        worst = self._worst(times, worst) if (times > counts).any() else max(worst, least)
        return worst if math.isfinite(worst) else None

    def _worst(self, times: NDArray[np.float64], epsilon: float) -> float:
        """The largest over the other directions too. delta only grows with the steps, so a look ahead can be kept."""
        ahead = np.minimum(np.floor(times * _AHEAD) + 1, np.floor(self._gauges[0].most))
        for counts in (ahead, times):
            if all(gauge.is_below(counts, epsilon) for gauge in self._gauges[1:]):
                self._shown = counts, epsilon
                return epsilon
        return max(epsilon, *(gauge.upper_epsilon(times) for gauge in self._gauges[1:]))

    def _fresh_gauges(self) -> list[Gauge]:
        phases = read(self.event, self.relation).phases
        if len(phases.times) != len(self._counts):
            return []
        directions: tuple[Direction, ...] = ("replace",) if self.relation == "replace_one" else ("remove", "add")
        gauges = [Gauge(phases, direction, self.delta) for direction in directions]
        return gauges if all(gauge.works for gauge in gauges) else []

    def _look_ahead(self) -> float:
        ahead = {event: max(count, math.floor(count * _AHEAD)) for event, count in self._counts.items()}
        epsilon = guarantee(_composed(ahead), delta=self.delta, relation=self.relation).epsilon
        self._kept = ahead, epsilon
        return epsilon


def _is_phase(event: Event) -> bool:
    match event:
        case PoissonSampled(Gaussian(), sampling_prob):
            return sampling_prob < 1
    return False


def _composed(counts: dict[Event, int]) -> Event:
    return Composed(*(Repeated(event, times) for event, times in counts.items()))
