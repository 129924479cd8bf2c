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
from hush.planner.looks import FINE, ROUGH, Look, level_of
from hush.planner.question import Question
from hush.privacy import Guarantee, Relation

# What a line misses is about the square of the way along it, and less where the slopes' change is known: where that is
# well below the rise to the next place, no second guess is needed.
_STRAIGHT, _CURVED = 0.4, 2.0
_COARSE, _AFAR = 0.005, 0.1  # a level so near the target is near enough for a rough rule; and from so far it is not
_LEAST_DELTA = 1e-30  # a smaller delta is not told apart from this one, which promises as much to anybody
_LONGEST = 1.2  # stride, doubled with every exact look
_LARGE = 0.05  # a rise to the next place over which a line is not believed
_SURE, _UNSURE = 0.03, 0.2  # share of a step's rise by which the next place must be outside to be believed
_QUICK, _MOST_CHEAP, _MOST_LOOKS = 6, 12, 200  # looks along the line, at the saddle point, and in all


def settle(asked: Question) -> tuple[Question, Guarantee]:
    """The question with its unknown filled in, and what that training costs.

    Raises:
        Unreachable: no value of the unknown meets the target.
    """
    if asked.find == "delta":
        return _with_delta(asked)
    if asked.find == "epsilon":
        answer = cost(asked)
        _Search.remember(Look.at(asked, answer.epsilon))
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
    _Search.before = None


def _with_delta(asked: Question) -> tuple[Question, Guarantee]:
    answer = report.delta_guarantee(asked.event, epsilon=asked.epsilon, relation=asked.relation, least=_LEAST_DELTA)
    if answer.delta >= 1:
        raise Unreachable(
            f"at epsilon {asked.epsilon:g} delta is 1: that is no promise; change the target or the noise."
        )
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


class _Search:
    """The last place on an axis that is inside the target."""

    before: ClassVar[Look | None] = None  # the last look of all searches, for the next to start with

    def __init__(self, asked: Question) -> None:
        self.asked, self.axis = asked, axis_of(asked)
        self._goal = level_of(asked.epsilon, asked.delta)
        self._distances: dict[int, Distance] = {}

    @classmethod
    def remember(cls, look: Look) -> None:
        """Let the next search start from here."""
        if math.isfinite(look.level):
            cls.before = look

    def edge(self) -> int:
        """The place, itself looked at exactly and inside."""
        low, high, width = -1, self.axis.last + 1, math.inf
        place, look = self._aim()
        for count in range(_MOST_LOOKS):
            spent = cost(self.axis.at(place)).epsilon
            look = self._seen(place, spent, look)
            if spent <= self.asked.epsilon:
                low = place
                if high - low <= 1 or self._leaves(place, look):
                    return place
            else:
                high = place
            if high - low <= 1:
                break
            there = self._ahead(place, look, _LONGEST * 2**count)
            there = max(there, place + 1) if place == low else min(there, place - 1)
            if count >= _QUICK:  # a line that strays: halve what is left, every second time
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

    def _aim(self) -> tuple[int, Look | None]:
        """About where the edge is, by guesses, and the last of them: by the saddle point from far, then by a rule."""
        look = _Search.before
        place = self.axis.inside(self._goal) if look is None else max(self._ahead(-1, look), 0)
        if look is None or look.grade < FINE or abs(look.level - self._goal) > _AFAR:
            place, look = self._approach(self._saddle, _MOST_CHEAP, place, look)
        return self._approach(self._guess, _QUICK, place, look)

    def _approach(
        self, guess: Callable[[int, Look | None], Look | None], most: int, place: int, look: Look | None
    ) -> tuple[int, Look | None]:
        """The edge by guesses of one kind, until the line through the last is good enough for the next kind."""
        low, high = -1, self.axis.last + 1
        for count in range(most):
            found = guess(place, look)
            if found is None:
                break
            look, here = found, place
            low, high = (here, high) if look.level <= self._goal else (low, here)
            place = max(self._ahead(here, look, _LONGEST * 2**count), 0)
            if self._is_near(look, here, place):
                break
            if not low < place < high:  # where it was already: the slopes change too much for a line
                place = self.axis.between(max(low, 0), min(high, self.axis.last))
        return place, look

    def _is_near(self, look: Look, here: int, place: int) -> bool:
        """Whether the line through this look, which was taken here, surely hits the place."""
        if place == here or not math.isfinite(look.level):
            return True
        if look.grade < FINE:
            return abs(place - here) <= 1 or abs(look.level - self._goal) < _COARSE
        width = abs(look.rise_to(self._distance(min(place + 1, self.axis.last))) - look.rise_to(self._distance(place)))
        return (look.level - self._goal) ** 2 < (_CURVED if look.curve else _STRAIGHT) * width

    def _saddle(self, place: int, before: Look | None) -> Look | None:
        asked = self.axis.at(place)
        found = report.rough(asked.event, delta=asked.delta, relation=asked.relation)
        return None if found is None else Look.by(asked, found, ROUGH, before)

    def _guess(self, place: int, before: Look | None) -> Look:
        asked = self.axis.at(place)
        found = report.rough(asked.event, delta=asked.delta, relation=asked.relation, near=asked.epsilon)
        if found is None:
            return self._seen(place, cost(asked).epsilon, before)
        look = Look.by(asked, found, FINE, before)
        self.remember(look)
        return look

    def _seen(self, place: int, spent: float, before: Look | None) -> Look:
        """An exact look, with what is known of the slopes."""
        look = Look.at(self.axis.at(place), spent)
        look = look if before is None else look.after(before)
        self.remember(look)
        return look

    def _ahead(self, place: int, look: Look, longest: float = _LONGEST) -> int:
        """The edge as a line through this look sees it; -1 where it sees none. Steps are whole: the line has teeth."""
        rest, here = self._goal - look.level, sum(look.distance)
        if not math.isfinite(rest):
            return place // 2 if rest < 0 else (place + self.axis.last) // 2
        stride, slope = 0.0, 1.0
        for _ in range(3):
            stride = min(max(rest / slope, -longest), longest)
            start = self.axis.inside(here + stride)
            there = self._distance(start)
            far = sum(there) - here
            slope = look.rise_to(there) / far if abs(far) > 1e-9 else slope
        if abs(stride) >= longest or look.grade == ROUGH:
            return start
        return last_inside(lambda there: look.rise_to(self._distance(there)) <= rest, start, self.axis.last)

    def _leaves(self, place: int, look: Look) -> bool:
        """Whether the next place is clearly outside, or there is none."""
        if place == self.axis.last:
            return True
        rise = look.rise_to(self._distance(place + 1))
        share = _SURE if look.grade == FINE else _UNSURE
        return abs(rise) < _LARGE and look.level + rise - self._goal > share * abs(rise)

    def _distance(self, place: int) -> Distance:
        if place not in self._distances:
            self._distances[place] = Distance.of(self.axis.at(place))
        return self._distances[place]
