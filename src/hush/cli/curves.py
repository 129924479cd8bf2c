"""The curves of `hush epsilon --plot`, with a bar where they take long, and room between their labels."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hush.cli.output import console
from hush.report.curves import Curve, num_jobs, step_curves

if TYPE_CHECKING:
    from collections.abc import Callable

    from hush.events import Repeated
    from hush.privacy import Relation

_PATIENCE = 2.0  # seconds before a progress bar appears


def curves(event: Repeated, delta: float, relation: Relation) -> list[Curve]:
    """A curve for each method that bounds the event, the loosest at the end first."""
    with _progress(num_jobs(event.times)) as advance:
        return step_curves(event, event.times, delta, relation, advance)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Counts jobs; a bar appears on stderr once they take long, and only on a terminal."""
    from rich.progress import Progress

    bar = Progress(console=console(stderr=True), transient=True)
    task = bar.add_task("epsilon against steps", total=total)
    start, shown = time.monotonic(), False

    def advance(jobs: int) -> None:
        nonlocal shown
        bar.advance(task, jobs)
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
