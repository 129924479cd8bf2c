"""How far a run is, for callbacks and for the bar on the terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hush.accounting import Odometer
from hush.events import Composed, Event
from hush.privacy import round_up
from hush.training.step import StepReport

if TYPE_CHECKING:
    from hush.training.plan import TrainingPlan

_SECONDS_BETWEEN, _SECONDS_BETWEEN_COSTS = 0.5, 1.0  # a cost takes some milliseconds to work out


class Meter:
    """Epsilon after each step, worked out only when somebody asks."""

    def __init__(self, plan: TrainingPlan, spent: Event) -> None:
        self._plan = plan
        self._odometer = Odometer(delta=plan.delta, relation=plan.relation)
        self._counted = 0
        if spent != Composed():
            self._odometer.add(spent)

    def epsilon(self, steps: int) -> float:
        """What was spent before, and this many steps of the present process, cost; infinity for a twin."""
        if not self._plan.private:
            return math.inf
        if steps > self._counted:
            if self._plan.sampling != "ordered":
                self._odometer.add(self._plan.step_event, steps - self._counted)
            elif not self._counted:
                self._odometer.add(self._plan.event)
            self._counted = steps
        return self._odometer.epsilon()


@dataclass(frozen=True)
class Progress:
    """What a callback gets after each step. `report.loss` is not private."""

    step: int
    steps: int
    report: StepReport
    meter: Meter
    taken: int

    @property
    def epsilon(self) -> float:
        """A safe epsilon for what was done so far."""
        return self.meter.epsilon(self.taken)


Callback = Callable[[Progress], object]


class Bar:
    """Loss, steps and epsilon on a terminal; silent elsewhere."""

    def __init__(self, *, shown: bool) -> None:
        self._bar: Any = None
        self._next = self._next_cost = 0.0
        self._epsilon = ""
        if shown:
            from rich.console import Console

            console = Console(stderr=True)
            if console.is_terminal:
                self._bar = _rich_bar(console)
                self._task = self._bar.add_task("training", total=1, loss="", epsilon="")

    def __enter__(self) -> Bar:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Show a step, twice a second at most; what is shown of epsilon may be a second old."""
        now = time.monotonic()
        if self._bar is None or (now < self._next and progress.step < progress.steps):
            return
        self._next = now + _SECONDS_BETWEEN
        loss = "" if progress.report.loss is None else f"loss {progress.report.loss:.4g}"
        if now >= self._next_cost or progress.step == progress.steps:
            self._epsilon, self._next_cost = f"epsilon {round_up(progress.epsilon, 4)}", now + _SECONDS_BETWEEN_COSTS
        self._bar.update(
            self._task, total=progress.steps, completed=progress.step, loss=loss, epsilon=self._epsilon, refresh=True
        )


def _rich_bar(console: Any) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TextColumn("{task.fields[epsilon]}"),
        TimeRemainingColumn(),
    )
    return RichProgress(*columns, console=console, auto_refresh=False)  # no thread of its own beside the training
