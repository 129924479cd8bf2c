"""Who pays for privacy: accuracy and clipping, group by group.

Everything here is read from rows without noise. Ask it of test rows that may be seen, or keep the answer to yourself:
a report on private rows is NOT private.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hush import _check
from hush.attacks.rates import Rate, clopper_pearson
from hush.attacks.signals import at_rest
from hush.errors import InvalidValue
from hush.gradients import clipped_sum
from hush.gradients.batches import LossFunction

WARNING = "These numbers are read from the rows without noise: they are NOT private."


@dataclass(frozen=True)
class Group:
    """One group's rows. Gradient norms are those before clipping."""

    name: str
    accuracy: Rate
    loss: float
    clipped: Rate
    median_gradient_norm: float


@dataclass(frozen=True)
class GroupReport:
    """The groups by name, and what must be said with them."""

    groups: tuple[Group, ...]
    clip_norm: float
    warning: str = WARNING

    @property
    def accuracy_gap(self) -> float:
        """The best group's accuracy less the worst's."""
        found = [group.accuracy.value for group in self.groups]
        return max(found) - min(found)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a report."""
        return {
            "warning": self.warning,
            "clip_norm": self.clip_norm,
            "accuracy_gap": self.accuracy_gap,
            "groups": {
                group.name: {
                    "rows": group.accuracy.total,
                    "accuracy": group.accuracy.to_dict(),
                    "loss": group.loss,
                    "clipped": group.clipped.to_dict(),
                    "median_gradient_norm": group.median_gradient_norm,
                }
                for group in self.groups
            },
        }


def group_report(
    model: nn.Module,
    loss_fn: LossFunction,
    x: Tensor,
    y: Tensor,
    groups: Mapping[str, Any],
    *,
    clip_norm: float,
    rows_at_once: int = 1_000,
) -> GroupReport:
    """Accuracy, loss and share of clipped gradients of each group. NOT private: see the module.

    Args:
        model: Rows -> logits.
        loss_fn: `loss_fn(model, x, y)` gives one loss per example, as for `fit`.
        x: Rows, best those of a test set.
        y: Their classes.
        groups: Name -> which rows belong to it, True or False for each. Groups may overlap.
        clip_norm: The bound on one example's gradient that the training used.
        rows_at_once: Rows in memory at once.
    """
    _check.positive("clip_norm", clip_norm)
    parts = list(zip(x.split(rows_at_once), y.split(rows_at_once), strict=True))
    with at_rest(model):
        norms = torch.cat([clipped_sum(model, loss_fn, part, clip_norm).norms for part in parts]).double().numpy()
        with torch.no_grad():
            right = torch.cat([model(rows).argmax(dim=1) == classes for rows, classes in parts]).numpy()
            losses = torch.cat([loss_fn(model, rows, classes) for rows, classes in parts]).double().numpy()
    found = []
    for name, chosen in groups.items():
        inside = np.asarray(chosen)
        if inside.dtype != np.bool_ or inside.shape != right.shape or not inside.any():
            raise InvalidValue(f"group {name!r} must be True or False for each of {len(right)} rows, and hold one.")
        total = int(inside.sum())
        found.append(
            Group(
                name,
                clopper_pearson(int(right[inside].sum()), total),
                float(losses[inside].mean()),
                clopper_pearson(int((norms[inside] > clip_norm).sum()), total),
                float(np.median(norms[inside])),
            )
        )
    return GroupReport(tuple(found), clip_norm)
