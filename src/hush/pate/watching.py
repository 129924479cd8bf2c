"""A bar on the terminal while teachers and students learn; silent elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Bar:
    """How much of `total` is done. It never shows a loss or a vote: those are private."""

    def __init__(self, name: str, *, total: float, shown: bool) -> None:
        self._bar: Any = None
        if not shown:
            return
        from rich.console import Console

        console = Console(stderr=True)
        if console.is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=console)
            self._task = self._bar.add_task(name, total=total)

    def __enter__(self) -> Bar:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def at(self, done: float) -> None:
        """Show that so much is done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=int(done))

    def part(self, first: float, size: float) -> Callable[[float], None]:
        """A function that shows a share of the stretch from `first` on."""

        def show(share: float) -> None:
            self.at(first + share * size)

        return show
