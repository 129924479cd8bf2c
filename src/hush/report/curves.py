"""Epsilon against steps, for every method that bounds an event: the numbers behind the plots."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hush import accounting
from hush.accounting.explain import published_for
from hush.errors import UnsupportedEvent
from hush.events import Composed, Event, Repeated, flat
from hush.privacy import Guarantee, Relation

# method -> name in the picture, colour (readable with colour-blindness), dash
STYLES = {
    "basic": ("basic composition", "#999999", "solid"),
    "advanced": ("advanced composition", "#E69F00", "solid"),
    "optimal": ("optimal composition", "#8C6D1F", "solid"),
    "published": ("strong composition as published (not a theorem)", "#CC3311", "dash"),
    "moments": ("moments accountant", "#CC79A7", "solid"),
    "rdp": ("Rényi accountant", "#56B4E9", "solid"),
    "exact": ("exact", "#004C8C", "solid"),
    "gdp_clt": ("Gaussian limit (no bound)", "#009E73", "dot"),
}
_POINTS = 25
_DECADES = 3.0  # of steps, below the number asked for
_SLOW = ("advanced", "optimal")  # these take the time, and are straight lines on logarithmic axes: fewer points
_FEW = 6


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One method's epsilon at each number of steps; `lowers` are the lower ends of the exact interval."""

    method: str
    steps: tuple[int, ...]
    epsilons: tuple[float, ...]
    lowers: tuple[float, ...] = ()

    @property
    def label(self) -> str:
        """Its name in the picture."""
        return STYLES[self.method][0]

    @property
    def end(self) -> float:
        """Its epsilon at the last step."""
        return self.epsilons[-1]


def step_curves(
    event: Event, steps: int, delta: float, relation: Relation, advance: Callable[[int], object] = lambda jobs: None
) -> list[Curve]:
    """A curve for each method that bounds the event, the loosest at the end first.

    The event was done in `steps` equal steps; where its parts do not divide evenly, a part that was begun counts as a
    whole one. `advance` is told how many of `num_jobs(steps)` jobs are done.
    """
    found = (_curve(method, event, steps, delta, relation, advance) for method in STYLES)
    drawn = [curve for curve in found if curve is not None and 0 < curve.end < math.inf]
    return sorted(drawn, key=lambda curve: -curve.end)


def num_jobs(steps: int) -> int:
    """How many epsilons `step_curves` asks for."""
    return sum(len(_points(method, steps)) for method in STYLES)


def part_of(event: Event, done: int, steps: int) -> Event:
    """What of an event was done after so many of its steps; never less.

    >>> from hush.events import Gaussian
    >>> part_of(Repeated(Gaussian(1.0), 10), 3, 10)
    Composed(events=(Repeated(event=Gaussian(noise_multiplier=1.0), times=3),))
    """
    return Composed(*(Repeated(part, -(-count * done // steps)) for part, count in flat(event)))


def equal_steps(event: Event) -> int:
    """Into how many equal steps an event can be cut: the largest number that divides all its counts."""
    return math.gcd(*(count for _, count in flat(event)))


def step_points(most: int) -> list[int]:
    """Numbers of steps, evenly on a logarithmic scale, that end at `most`.

    >>> step_points(4)
    [1, 2, 3, 4]
    """
    least = max(1.0, most / 10**_DECADES)
    share = math.log(most / least) / (_POINTS - 1)
    return sorted({round(least * math.exp(share * index)) for index in range(_POINTS)} | {most})


def _points(method: str, steps: int) -> list[int]:
    points = step_points(steps)
    return sorted({points[0], *points[:: -max(1, len(points) // _FEW)]}) if method in _SLOW else points


def _curve(
    method: str, event: Event, steps: int, delta: float, relation: Relation, advance: Callable[[int], object]
) -> Curve | None:
    points = _points(method, steps)
    answers: list[Guarantee | float] = []
    for done in points:
        answer = _answer(method, part_of(event, done, steps), delta, relation)
        if answer is None:
            advance(len(points) - len(answers))
            return None
        answers.append(answer)
        advance(1)
    epsilons = [answer.epsilon if isinstance(answer, Guarantee) else answer for answer in answers]
    lowers = [answer.epsilon_lower for answer in answers if isinstance(answer, Guarantee)]
    return Curve(
        method=method,
        steps=tuple(points),
        epsilons=tuple(epsilons),
        lowers=tuple(lowers) if method == "exact" else (),
    )


def _answer(method: str, event: Event, delta: float, relation: Relation) -> Guarantee | float | None:
    """The method's answer; None where the method says nothing."""
    if method == "published":
        return published_for(event, delta, relation)
    try:
        return accounting.guarantee(event, delta=delta, relation=relation, method=method)
    except UnsupportedEvent:
        return None
