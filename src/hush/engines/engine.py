"""The one thing that an engine does: call a function on many items, and hand over each result as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from hush.errors import InvalidValue

ENGINES = ("local", "ray")
Task = Callable[..., Any]  # task(item, *shared) -> a result
Done = Callable[[int, Any], None]  # the number of the item, from 0, and its result


@runtime_checkable
class Engine(Protocol):
    """Runs tasks that know nothing of each other.

    A task must depend on its arguments alone: then its result is the same on every engine, and when it is tried again.
    """

    def run(self, task: Task, items: Iterable[Any], *, shared: tuple[Any, ...] = (), done: Done) -> None:
        """Call `task(item, *shared)` for every item, and `done(number, result)` here for each, in whatever order.

        Items are taken one by one as there is room for them. The first error of a task ends the run.
        """


class Local:
    """One after the other, in this process."""

    def run(self, task: Task, items: Iterable[Any], *, shared: tuple[Any, ...] = (), done: Done) -> None:
        """Each result is handed over before the next item is taken."""
        for number, item in enumerate(items):
            done(number, task(item, *shared))

    def __repr__(self) -> str:
        return "Local()"


def engine_of(engine: str | Engine) -> Engine:
    """The engine that a name means.

    >>> engine_of("local")
    Local()
    >>> engine_of("ray")
    Ray(address=None, retries=3, cpus_per_task=1)
    """
    if engine == "local":
        return Local()
    if engine == "ray":
        from hush.engines.on_ray import Ray

        return Ray()
    if not isinstance(engine, Engine) or isinstance(engine, str | type):
        raise InvalidValue(f"engine must be one of {', '.join(ENGINES)}, or Ray(address=...); got {engine!r}.")
    return engine
