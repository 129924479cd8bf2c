"""What one look at a place says about the places around it.

A training has a distance by the central limit theorem, and its epsilon speaks of one too, the level. The two rise
nearly alike, each part of the distance with its own slope: the slopes of a rough rule, where it has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from hush.accounting.exact.rough import Rough
from hush.planner.axes import Distance
from hush.planner.question import Question

_FLATTEST, _STEEPEST = 0.02, 5.0  # of a slope that is believed
_CLOSE = 0.02  # a predicted rise over which slopes change little
_APART = 1e-5  # the least predicted rise from which a slope is learned
_SHORT, _LONG = 3e-3, 0.3  # rises between which the slopes' change is seen
_MOST_CURVED = 5.0
_NONE, ROUGH, FINE = 0, 1, 2  # where slopes come from: a rise that was seen, the saddle point, a rule


def level_of(epsilon: float, delta: float) -> float:
    """log of about the mu at which one Gaussian release costs epsilon: epsilon = mu^2 / 2 + mu sqrt(2 log 1/delta).

    The difference of roots is written as a quotient, which keeps its digits.
    """
    if not 0 < epsilon < math.inf:
        return math.inf if epsilon else -math.inf
    tail = math.sqrt(-2 * math.log(delta))
    return math.log(2 * epsilon / (tail + math.sqrt(tail**2 + 2 * epsilon)))


class Look(NamedTuple):
    """Where was looked, the level there, and its slopes by the parts of the distance."""

    distance: Distance
    level: float
    slopes: Distance = Distance(1.0, 1.0, 1.0)
    grade: int = _NONE
    curve: float = 0.0  # how much the slopes grow with the level, in proportion; 0 where that is not known

    @classmethod
    def at(cls, asked: Question, epsilon: float) -> Look:
        """A look that saw this epsilon, and no slopes."""
        return cls(Distance.of(asked), level_of(epsilon, asked.delta))

    @classmethod
    def by(cls, asked: Question, found: Rough, grade: int, before: Look | None) -> Look:
        """A look by a rough rule; from the look before it, how the slopes change."""
        root = math.sqrt(2 * found.epsilon - 2 * math.log(asked.delta))
        level = level_of(found.epsilon, asked.delta)
        by_epsilon = 1 / (math.exp(level) * root)
        by_noise = found.by_noise / Distance.noise_slope(asked.noise_multiplier)
        slopes = _bounded(by_epsilon * by_part for by_part in (found.by_prob, 2 * found.by_steps, by_noise))
        look = cls(Distance.of(asked), level, slopes, grade)
        return look if before is None else look._replace(curve=look._curve_from(before))

    def _curve_from(self, before: Look) -> float:
        """The change of the slopes on the way from that look to this one."""
        rise = self.level - before.level
        first, last = (look._straight(before.distance, self.distance) for look in (before, self))
        if before.grade != self.grade or not _SHORT < abs(rise) < _LONG or first * last <= 0:
            return before.curve
        return max(min((1 - first / last) / rise, _MOST_CURVED), -_MOST_CURVED)

    def _straight(self, here: Distance, there: Distance) -> float:
        return sum(slope * (b - a) for slope, a, b in zip(self.slopes, here, there, strict=True))

    def rise_to(self, there: Distance) -> float:
        """How much higher the level should be there."""
        straight = self._straight(self.distance, there)
        return straight * (1 + min(max(self.curve * straight, -0.5), 0.5) / 2)

    def after(self, before: Look) -> Look:
        """This look, with the slopes of the one before it, so stretched that they lead here."""
        predicted, seen = before.rise_to(self.distance), self.level - before.level
        if before.grade and abs(predicted) < _CLOSE:
            return self._replace(slopes=before.slopes, grade=before.grade, curve=before.curve)
        stretch = seen / predicted if abs(predicted) > _APART and math.isfinite(seen) else 1.0
        return self._replace(slopes=_bounded(stretch * slope for slope in before.slopes))


def _bounded(slopes: Iterable[float]) -> Distance:
    return Distance(*(min(max(slope, _FLATTEST), _STEEPEST) for slope in slopes))
