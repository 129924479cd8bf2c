"""Where a batch was drawn: each tensor of a batch from `plan.batches` carries the plan and the step.

A guarantee for Poisson sampling says nothing about the batches of a shuffled loader. So a batch is known by what its
tensors carry, not by how it looks: a copy, a slice or a mixture of two batches is not the plan's.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hush.errors import UnplannedBatch
from hush.gradients.batches import Batch, take, tensors
from hush.gradients.prints import print_of
from hush.gradients.state import memory_of

if TYPE_CHECKING:
    from hush.training.plan import TrainingPlan

UNPLANNED = "holds only if the batches, which did not come from plan.batches, were drawn as the plan says."
_DRAW = "_hush_draw"


@dataclass(frozen=True, eq=False)
class Draw:
    """One draw of a plan's sampler.

    `rows` are places in the batch to check at this step, and `kept` copies of what was there. `alone` are the same
    examples, each collated by itself, with the row as it was collated in the batch; empty where the data set is made
    of tensors, so that there is no collation.
    """

    plan: str
    step: int
    rows: Sequence[int] = ()
    kept: Sequence[Batch] = ()
    alone: Sequence[tuple[Batch, Batch]] = ()
    is_random: bool = False  # whether collating the same example twice gives different rows


def mark_draw(batch: Batch, draw: Draw) -> None:
    """Note on each tensor of a batch where it was drawn."""
    for tensor in tensors(batch):
        setattr(tensor, _DRAW, (draw, tensor._version, memory_of(tensor)))


def draw_of(batch: Batch) -> Draw | None:
    """Return the draw that this batch is, unchanged; None for any other batch."""
    found: set[Draw | None] = set()
    for tensor in tensors(batch):
        draw, version, memory = getattr(tensor, _DRAW, (None, 0, 0))
        found.add(draw if tensor._version == version and memory_of(tensor) == memory else None)
    draw = found.pop() if len(found) == 1 else None
    if draw is not None:  # numpy can write into a tensor without a new version
        for row, kept in zip(draw.rows, draw.kept, strict=False):
            known = [print_of(tensor) for tensor in tensors(kept)]
            if any(print_of(tensor) not in known for tensor in tensors(take(batch, slice(row, row + 1)))):
                return None
    return draw


class Taken:
    """The draws that one loop has taken, in order."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._plan = plan
        self.unplanned = 0  # batches that are not the plan's next draw

    def take(self, batch: Batch, step: int, rows: int) -> Draw | None:
        """Return the batch's draw, and warn once where it is not the plan's for this step."""
        draw = draw_of(batch)
        if draw is not None and draw.plan == self._plan.fingerprint and draw.step == step:
            return draw
        self.unplanned += 1
        if self.unplanned == 1:
            came = "did not come from plan.batches(dataset)"
            if draw is not None and draw.plan == self._plan.fingerprint:
                came = f"is the plan's draw for step {draw.step}, used at step {step}"
            warnings.warn(
                f"a batch of {rows} rows {came}, and the guarantee is for {self._plan.sampling} sampling: batches of a "
                "shuffled loader, skipped or repeated draws can cost more than it says. Give backward each batch of "
                "plan.batches as it comes, the empty ones too, or see to it that yours are drawn just so.",
                UnplannedBatch,
                stacklevel=5,
            )
        return None
