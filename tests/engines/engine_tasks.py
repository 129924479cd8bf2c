"""Tasks that the tests of engines run, and teachers that die once.

A Ray worker imports this module, so what is costly is imported by the tasks that need it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any


def square(number: int, offset: int) -> int:
    return number * number + offset


def fail_on_three(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return number


def die_once(number: int, folder: str) -> int:
    """The worker is killed at its first try of each second number."""
    mark = Path(folder) / f"tried-{number}"
    if number % 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_always(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def ratio(setting: dict[str, float], numerator: int) -> dict[str, float]:
    return {"ratio": numerator / (setting["epsilon"] + setting["seed"])}


def with_dropout() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


def fit_logistic(rows: Any, classes: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=50).fit(rows, classes).predict_proba


class DyingTree:
    """A tree whose worker is killed the first time that it sees the shard with `victim` in its first column."""

    def __init__(self, folder: str, victim: float) -> None:
        self.folder, self.victim = folder, victim

    def __call__(self, X: Any, y: Any) -> Any:
        import numpy
        from sklearn.tree import DecisionTreeClassifier

        rows = numpy.asarray(X)
        if self.victim in rows[:, 0]:
            with (Path(self.folder) / "seen").open("a") as file:
                file.write(f"{sorted(rows[:, 0].tolist())}\n")
            if not (Path(self.folder) / "died").exists():
                (Path(self.folder) / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return DecisionTreeClassifier(random_state=0).fit(rows, y)
