"""The one number that is to be found, so that the training stays inside its target. Never over it.

The search is steered by guesses, which are cheap, and ends at a place whose exact cost is inside. That the next place
is outside is read off the slope there, unless it is too near to tell.

>>> from hush.planner.question import Question
>>> asked = Question(num_examples=60_000, expected_batch_size=600, epochs=30, noise_multiplier=1.0, delta=1e-5,
...                  epsilon=3.0, find="expected_batch_size")
>>> found, answer = settle(asked)
>>> found.expected_batch_size, answer.epsilon <= 3.0
(539, True)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

from hush import accounting
from hush.accounting.calibrate import sampled_gaussian
from hush.accounting.exact import report
from hush.errors import Unreachable
from hush.planner.axes import Distance, axis_of
from hush.planner.question import Question
from hush.privacy import Guarantee, Relation

_NEAR = 1e-5  # a guess so near the target needs no second one
_FAR = 1e-2  # distance over which whole steps do not count
_LEVEL = 1e-9  # difference of whole steps that is none
_LONGEST = 1.2  # stride, doubled with every exact look
_LARGE = 0.05  # a rise to the next place over which a line is not believed
_SURE = 0.2  # share of a step's rise by which the next place must be outside to be believed
_QUICK, _MOST_LOOKS = 6, 200  # looks along the secant, and in all
_FLATTEST, _STEEPEST = 0.02, 5.0  # of the search's slope


def settle(asked: Question) -> tuple[Question, Guarantee]:
    """The question with its unknown filled in, and what that training costs.

    Raises:
        Unreachable: no value of the unknown meets the target.
    """
    if asked.find == "delta":
        return _with_delta(asked)
    if asked.find == "epsilon":
        answer = cost(asked)
        _Search.remember(Distance.of(asked), _level(answer.epsilon, asked.delta))
        return asked, answer
    search = _Search(asked)
    found = search.axis.at(search.edge())
    answer = cost(found)
    if answer.epsilon > found.epsilon:  # cannot be: the search has looked
        raise Unreachable(f"{found.find} was found outside the target of {found.epsilon:g}; please report this.")
    return found, answer


def cost(asked: Question) -> Guarantee:
    """What the training costs at its delta, exactly."""
    return exact_cost(asked.noise_multiplier, asked.sampling_prob, asked.steps, asked.delta, asked.relation)


@lru_cache(maxsize=4096)
def exact_cost(
    noise_multiplier: float, sampling_prob: float, steps: int, delta: float, relation: Relation
) -> Guarantee:
    """The same from plain numbers; what was asked before is remembered."""
    event = sampled_gaussian(noise_multiplier, sampling_prob, steps)
    return accounting.guarantee(event, delta=delta, relation=relation)


def forget() -> None:
    """Answer the next question as if it were the first. Answers do not depend on that, only the time they take."""
    exact_cost.cache_clear()
    _Search.lag = 0.0
    _Search.slopes.clear()


def _with_delta(asked: Question) -> tuple[Question, Guarantee]:
    answer = accounting.delta(asked.event, epsilon=asked.epsilon, relation=asked.relation)
    if not 1e-300 <= answer.delta < 1:
        where = "1: that is no promise" if answer.delta >= 1 else "below 1e-300"
        raise Unreachable(f"at epsilon {asked.epsilon:g} delta is {where}; change the target or the noise.")
    return replace(asked, delta=answer.delta), answer


def last_inside(is_inside: Callable[[int], bool], start: int, last: int) -> int:
    """A place that is inside while the next is not, or the last one; -1 if place 0 is outside. Strides double.

    >>> last_inside(lambda place: place**2 < 200, 3, 1000)
    14
    """
    low, high, stride = -1, last + 1, 1
    place = min(max(start, 0), last)
    while high - low > 1:
        if is_inside(place):
            low, there = place, place + stride
        else:
            high, there = place, place - stride
        is_between = low >= 0 and high <= last
        place = (low + high) // 2 if is_between else min(max(there, 0), last)
        stride *= 2
    return low


def _level(epsilon: float, delta: float) -> float:
    """log of about the mu at which one Gaussian release costs epsilon: epsilon = mu^2 / 2 + mu sqrt(2 log 1/delta).

    The difference of roots is written as a quotient, which keeps its digits.
    """
    if not 0 < epsilon < math.inf:
        return math.inf if epsilon else -math.inf
    tail = math.sqrt(-2 * math.log(delta))
    return math.log(2 * epsilon / (tail + math.sqrt(tail**2 + 2 * epsilon)))


class _Search:
    """The last place on an axis that is inside the target.

    A place has a distance by the central limit theorem, and its epsilon speaks of one too, the level. The two rise
    nearly alike, so that a secant through them needs few looks.
    """

    # What the last searches saw, for the next to start with: how far a distance lies above its level, and the slopes.
    lag = 0.0
    slopes: ClassVar[dict[str, float]] = {}

    def __init__(self, asked: Question) -> None:
        self.asked, self.axis = asked, axis_of(asked)
        self._goal = _level(asked.epsilon, asked.delta)
        # Of the level, by the smooth distance; and at a fixed number of steps.
        self._slope, self._tooth = _Search.slopes.get(asked.find, 1.0), math.nan
        self._last: tuple[int, Distance, float] | None = None  # steps, distance and level of the last look

    @classmethod
    def remember(cls, distance: Distance, level: float) -> None:
        """Let the next search start from here."""
        if math.isfinite(level):
            cls.lag = distance.smooth - level

    def edge(self) -> int:
        """The place, itself looked at exactly and inside."""
        low, high, place, width = -1, self.axis.last + 1, self._aim(), math.inf
        for look in range(_MOST_LOOKS):
            spent = cost(self.axis.at(place)).epsilon
            self._learn(place, spent)
            if spent <= self.asked.epsilon:
                low = place
                if high - low <= 1 or self._leaves(place, spent):
                    return place
            else:
                high = place
            if high - low <= 1:
                break
            there = self._ahead(place, spent, _LONGEST * 2**look)
            there = max(there, place + 1) if place == low else min(there, place - 1)
            if look >= _QUICK:  # a secant that strays: halve what is left, every second time
                there = self.axis.between(max(low, 0), min(high, self.axis.last)) if high - low > width / 2 else there
                width = high - low
            place = min(max(there, low + 1), high - 1)
        if low >= 0:
            return low
        cheapest = getattr(self.axis.at(0), self.asked.find)
        raise Unreachable(
            f"not even {self.asked.find} {cheapest:.6g} stays inside epsilon {self.asked.epsilon:g}; "
            "choose a larger target or change another setting."
        )

    def _aim(self) -> int:
        """About where the edge is, by guesses."""
        place = self.axis.inside(self._goal + _Search.lag)
        for _ in range(_QUICK):
            spent = self._guess(place)
            self._learn(place, spent)
            here, place = place, max(self._ahead(place, spent), 0)
            if place == here or abs(spent / self.asked.epsilon - 1) < _NEAR or not math.isfinite(spent):
                break
        return place

    def _learn(self, place: int, spent: float) -> None:
        """The slopes from the last look to this one, where they differ by enough."""
        asked, before = self.axis.at(place), self._last
        self._last = asked.steps, Distance.of(asked), _level(spent, self.asked.delta)
        self.remember(*self._last[1:])
        if before is None or not math.isfinite(rise := self._last[2] - before[2]):
            return
        far, teeth = self._last[1].smooth - before[1].smooth, self._last[1].teeth - before[1].teeth
        if abs(far) > _FAR or (abs(teeth) < _LEVEL and abs(far) > _NEAR):
            self._slope = _Search.slopes[asked.find] = min(max(rise / far, _FLATTEST), _STEEPEST)
        elif asked.steps == before[0] and abs(far) > _NEAR / 2:
            self._tooth = min(max(rise / (far + teeth), _FLATTEST), _STEEPEST)

    def _rise(self, here: Distance, there: Distance) -> float:
        """How much higher the level should be there."""
        by_steps = max(2 * self._tooth - self._slope, 0.0) if self._tooth == self._tooth else self._slope
        return self._slope * (there.smooth - here.smooth) + by_steps * (there.teeth - here.teeth)

    def _guess(self, place: int) -> float:
        asked = self.axis.at(place)
        found = report.guess(asked.event, delta=asked.delta, relation=asked.relation, near=asked.epsilon)
        return found if found > 0 else cost(asked).epsilon

    def _ahead(self, place: int, spent: float, longest: float = _LONGEST) -> int:
        """The edge as a line through this place sees it; -1 where it sees none. Steps are whole: the line has teeth."""
        level, here = _level(spent, self.asked.delta), self._distance(place)
        if not math.isfinite(level):
            return place // 2 if level > 0 else (place + self.axis.last) // 2
        rest = self._goal - level
        start = self.axis.inside(here.smooth + min(max(rest / self._slope, -longest), longest))
        if abs(rest) > longest * self._slope:
            return start
        return last_inside(lambda there: self._rise(here, self._distance(there)) <= rest, start, self.axis.last)

    def _leaves(self, place: int, spent: float) -> bool:
        """Whether the next place is clearly outside, or there is none."""
        if place == self.axis.last:
            return True
        rise = self._rise(self._distance(place), self._distance(place + 1))
        return abs(rise) < _LARGE and _level(spent, self.asked.delta) + rise - self._goal > _SURE * abs(rise)

    def _distance(self, place: int) -> Distance:
        return Distance.of(self.axis.at(place))
