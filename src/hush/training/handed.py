"""Which lots a plan's own sampler has handed out, so that a loop which takes its batches from elsewhere is told.

A guarantee for Poisson lots says nothing about the batches of a shuffled loader. What becomes of a lot on its way
(another device, a mapping in place of a tuple, a queue) does not matter: it is known by its plan and number of rows.
"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING

from hush.errors import UnplannedBatch

if TYPE_CHECKING:
    from hush.training.plan import TrainingPlan

UNPLANNED = "holds only if the batches, which did not come from plan.batches, were drawn as the plan says."
_NONE: Counter[int] = Counter()
_handed: dict[str, Counter[int]] = {}  # by the plan's fingerprint: how many lots of so many rows


def hand_out(plan: TrainingPlan, rows: int) -> None:
    """Note that the plan's sampler gave a lot of so many rows."""
    if plan.fingerprint not in _handed:
        _handed[plan.fingerprint] = Counter()
    _handed[plan.fingerprint][rows] += 1


class Taken:
    """The lots that one loop has taken."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._plan = plan
        self._taken: Counter[int] = Counter()
        self.unplanned = 0  # batches that no sampler of the plan gave

    def take(self, rows: int) -> None:
        """Count a lot, and warn once where it is none of the plan's."""
        self._taken[rows] += 1
        if self._taken[rows] <= _handed.get(self._plan.fingerprint, _NONE)[rows]:
            return
        self.unplanned += 1
        if self.unplanned == 1:
            warnings.warn(
                f"a batch of {rows} rows did not come from plan.batches(dataset), and the guarantee is for "
                f"{self._plan.sampling} sampling: batches of a shuffled loader can cost more than it says. Take the "
                "batches from plan.batches, or see to it that yours are drawn just so.",
                UnplannedBatch,
                stacklevel=5,
            )
