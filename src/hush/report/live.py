"""A page that follows a training: the curves are known from the plan, and a small file beside it says how far it is.

`live.html` is written once, and asks for nothing but `live.js` in its own folder, which is replaced every second or so.
No server, no port. Only what may be shown is in them: the step, and epsilon so far. At the end the page goes on to the
report.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from markupsafe import Markup

from hush.events import Event
from hush.privacy import Budget, Relation
from hush.report.about import replace_text
from hush.report.content import plain
from hush.report.html import PLOTLY, environment, json_for_script, page_file
from hush.report.plots import steps_plot

PAGE_FILE, STATE_FILE = "live.html", "live.js"
_SECONDS_BETWEEN = 1.0


class Live:
    """The live page of a run in a folder.

    Args:
        folder: The run's folder.
        title: What is trained.
        event: Everything that the plan will do.
        steps: In how many steps.
        delta: The delta of the guarantee.
        relation: Which data sets are neighbours.
        budget: What is allowed; None for no line.
    """

    def __init__(
        self,
        folder: Path,
        *,
        title: str,
        event: Event,
        steps: int,
        delta: float,
        relation: Relation,
        budget: Budget | None = None,
    ) -> None:
        self._folder, self._steps = folder, steps
        self._next, self._start = 0.0, time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        plot = steps_plot(event, steps, delta, relation, "steps")
        content: dict[str, Any] = plain(
            {
                "title": title,
                "steps": steps,
                "delta": delta,
                "budget": None if budget is None else budget.epsilon,
                "plots": [] if plot is None else [asdict(plot)],
            }
        )
        self._state(0, 0.0, "training")
        text = (
            environment()
            .from_string(page_file("live.html"))
            .render(
                live=content,
                json=Markup(json_for_script(content)),
                style=Markup(page_file("report.css")),
                script=Markup(page_file("report.js")),
                follow=Markup(page_file("follow.js")),
                plotly=Markup(page_file(PLOTLY)),
            )
        )
        replace_text(self.page, text)

    @property
    def page(self) -> Path:
        """The file to open in a browser."""
        return self._folder / PAGE_FILE

    def __call__(self, progress: Any) -> None:
        """After each step of a training: a callback for `hush.fit`. Epsilon is worked out once a second at most."""
        now = time.monotonic()
        if now >= self._next or progress.step == self._steps:
            self._next = now + _SECONDS_BETWEEN
            self._state(progress.step, progress.epsilon, "training")

    def finish(self, steps: int, epsilon: float, report: Path | None) -> None:
        """The training has ended; the page goes on to the report, if there is one in the same folder."""
        self._state(steps, epsilon, "finished", None if report is None else report.name)

    def _state(self, step: int, epsilon: float, state: str, report: str | None = None) -> None:
        values = {
            "step": step,
            "epsilon": epsilon,
            "seconds": round(time.monotonic() - self._start, 1),
            "state": state,
            "report": report,
        }
        replace_text(self._folder / STATE_FILE, f"hushLive({json.dumps(plain(values), allow_nan=False)});\n")
