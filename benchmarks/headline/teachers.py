"""Row 5: PATE on MNIST. Test pictures without labels are public, but for the last 1,000: the student is tested on them.

The papers' epsilons, 2.04 and 8.03, depend on the data and are no promise. These do not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from benchmarks.headline.result import SEEDS, Result, cost
from benchmarks.pate import mnist
from hush import events


@dataclass(frozen=True)
class Setting:
    """One of the papers' rows, and what is asked of how many teachers here."""

    epsilon: float
    published: float
    teachers: int
    queries: int
    steps: tuple[int, ...] = (250, 350, 700)  # of the student's rounds


SETTINGS = (Setting(2.0, 98.0, 250, 220), Setting(8.0, 98.1, 250, 1000))
FEW = {"teachers": 40, "queries": 20}


def run(
    setting: Setting, *, share: float = 1.0, seeds: tuple[int, ...] = SEEDS, most_steps: int | None = None
) -> Result:
    """A vote and a student for each seed. With `most_steps`, a short trial with few teachers and questions."""
    start = time.perf_counter()
    task = _part(mnist.load("mnist", validate=False), share)
    if most_steps is not None:
        setting = replace(setting, **FEW, steps=(most_steps,) * len(setting.steps))
    found = []
    for seed in seeds:
        how = setting.teachers, setting.epsilon, setting.queries, 1, seed, setting.steps
        found.append(mnist.run(task, *how, twin=seed == SEEDS[0]))
    return Result(
        row="5-pate", data="mnist", track="public unlabelled", method=f"{setting.teachers} teachers, GNMax, student",
        **cost(events.from_dict(found[0]["event"])), tuning="field convention", seeds=seeds,
        accuracies=tuple(one["student_accuracy"][0] for one in found), twin=found[0].get("twin_accuracy"),
        seconds=time.perf_counter() - start, share=share, published=setting.published,
        notes=(f"{setting.queries} questions, noise {found[0]['stddev']:.4g}",),
    )  # fmt: skip


def _part(task: mnist.Task, share: float) -> mnist.Task:
    few, some = max(200, int(len(task.private) * share)), max(200, int(len(task.pool) * share))
    return replace(
        task, private=task.private[:few], private_labels=task.private_labels[:few], pool=task.pool[:some],
        pool_labels=task.pool_labels[:some], looks=task.looks[:some],
    )  # fmt: skip
