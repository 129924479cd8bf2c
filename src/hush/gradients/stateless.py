"""Functions that must keep nothing from one call to the next: collations and augmentations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from hush.errors import NotIsolated
from hush.gradients.prints import Printer
from hush.gradients.reach import GONE, Reach, Table, attributes


def _counted(old: Any, new: Any) -> Any:
    """Return which whole numbers in a print were counted up by one; None where anything else has changed.

    Who counts calls keeps that. Any other number could be one that was read from the rows.
    """
    if type(old) is int and type(new) is int:
        return new == old + 1 if new - old in (0, 1) else None
    is_list = isinstance(old, tuple) and isinstance(new, tuple) and old[:2] == new[:2] and len(old) == len(new) == 3
    if is_list and old[1] is list and len(old[2]) == len(new[2]):
        steps = tuple([_counted(one, other) for one, other in zip(old[2], new[2], strict=True)])
        return None if None in steps else steps
    return False if old == new else None


class Stateless:
    """A function that keeps nothing from one call to the next, by check; it may count its calls, all or none."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function, self._name = function, name
        self._counts: dict[str, Any] | None = None  # what every call counts up

    def __call__(self, *args: Any) -> Any:
        """Call the function; raise `NotIsolated` if that changed what it can reach."""
        reach = Reach([], self._function, self._name)
        tables = [*reach.tables, *(table for path, module in reach.modules for table in _own_tables(path, module))]
        before = _printed(tables)
        result = self._function(*args)
        counts = {}
        for key, now in _printed(tables).items():
            if now != before.get(key, GONE) and (step := _counted(before.get(key, GONE), now)) is None:
                self._refuse(key)
            elif now != before[key]:
                counts[key] = step
        if self._counts is not None and counts != self._counts:
            self._refuse(next(key for key in {**counts, **self._counts} if counts.get(key) != self._counts.get(key)))
        self._counts = counts
        return result

    def _refuse(self, key: str) -> None:
        raise NotIsolated(
            f"{self._name} changes {key}, by which rows of one batch could reach the next; let it keep nothing between "
            "calls."
        )


def _own_tables(path: str, module: nn.Module) -> list[Table]:
    """Return the attributes of a module, and its parameters and buffers."""

    def read() -> dict[str, Any]:
        return {**module._parameters, **module._buffers}

    return [attributes(path, module), Table(f"{path}.", read, lambda key, value: None)]


def _printed(tables: list[Table]) -> dict[str, Any]:
    printer = Printer(in_full=True)
    return {f"{table.label}{key}": printer.of(value) for table in tables for key, value in table.read().items()}
