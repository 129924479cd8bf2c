"""Epsilon against steps, for every method: the numbers behind `hush epsilon --plot`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hush.cli.output import console
from hush.errors import UnsupportedEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from hush.events import Repeated
    from hush.privacy import Relation

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
_PATIENCE = 2.0  # seconds before a progress bar appears


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One method's epsilon at each number of steps."""

    method: str
    steps: tuple[int, ...]
    epsilons: tuple[float, ...]

    @property
    def label(self) -> str:
        """Its name in the picture."""
        return STYLES[self.method][0]

    @property
    def end(self) -> float:
        """Its epsilon at the last step."""
        return self.epsilons[-1]


def curves(event: Repeated, delta: float, relation: Relation) -> list[Curve]:
    """A curve for each method that bounds the event, the loosest at the end first."""
    points = step_points(event.times)
    jobs = [(method, steps) for method in STYLES for steps in points]
    found: dict[str, list[float]] = {method: [] for method in STYLES}
    with _progress(len(jobs)) as advance:
        for method, steps in jobs:
            value = _epsilon(method, event, steps, delta, relation)
            if value is not None:
                found[method].append(value)
            advance()
    drawn = [
        Curve(method=method, steps=tuple(points), epsilons=tuple(values))
        for method, values in found.items()
        if len(values) == len(points) and all(0 < value < math.inf for value in values[-1:])
    ]
    return sorted(drawn, key=lambda curve: -curve.end)


def step_points(most: int) -> list[int]:
    """Numbers of steps, evenly on a logarithmic scale, that end at `most`.

    >>> step_points(4)
    [1, 2, 3, 4]
    """
    least = max(1.0, most / 10**_DECADES)
    share = math.log(most / least) / (_POINTS - 1)
    return sorted({round(least * math.exp(share * index)) for index in range(_POINTS)} | {most})


def _epsilon(method: str, event: Repeated, steps: int, delta: float, relation: Relation) -> float | None:
    """The method's epsilon at so many steps; None where the method says nothing."""
    from hush import accounting, events
    from hush.accounting.explain import published_for

    repeated = events.Repeated(event.event, steps)
    if method == "published":
        return published_for(repeated, delta, relation)
    try:
        return accounting.guarantee(repeated, delta=delta, relation=relation, method=method).epsilon
    except UnsupportedEvent:
        return None


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """Counts jobs; a bar appears on stderr once they take long, and only on a terminal."""
    from rich.progress import Progress

    bar = Progress(console=console(stderr=True), transient=True)
    task = bar.add_task("epsilon against steps", total=total)
    start, shown = time.monotonic(), False

    def advance() -> None:
        nonlocal shown
        bar.advance(task)
        if not shown and bar.console.is_terminal and time.monotonic() - start > _PATIENCE:
            bar.start()
            shown = True

    try:
        yield advance
    finally:
        if shown:
            bar.stop()


def spread(places: Sequence[float], gap: float) -> list[float]:
    """The places (falling), moved apart as little as needed to be `gap` from each other.

    >>> spread([1.0, 0.5], gap=1.0)
    [1.25, 0.25]
    """
    groups: list[tuple[float, int]] = []  # the middle of a group of labels, and how many it has
    for place in places:
        groups.append((place, 1))
        while len(groups) > 1 and groups[-2][0] - groups[-1][0] < gap * (groups[-2][1] + groups[-1][1]) / 2:
            (upper, many), (lower, few) = groups[-2:]
            groups[-2:] = [((upper * many + lower * few) / (many + few), many + few)]
    return list(_unpacked(groups, gap))


def _unpacked(groups: Iterable[tuple[float, int]], gap: float) -> Iterator[float]:
    for middle, count in groups:
        for index in range(count):
            yield middle + gap * ((count - 1) / 2 - index)
