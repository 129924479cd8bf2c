"""What was seen during a run. Read from the data without noise, so not part of what a guarantee covers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hush.training.step import StepReport


@dataclass
class History:
    """One entry per step.

    `loss`, `norms` (the mean norm of the gradients), `clipped` (the share above the clip norm), all NaN for an empty
    batch, and `nonfinite` are NOT private: whoever may not see the data may not see them. `clip_norms` are made from
    private releases and may be shown.
    """

    loss: list[float] = field(default_factory=list)
    nonfinite: list[int] = field(default_factory=list)
    clip_norms: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    clipped: list[float] = field(default_factory=list)

    def add(self, report: StepReport) -> None:
        """Take in a step."""
        self.loss.append(math.nan if report.loss is None else report.loss)
        self.nonfinite.append(report.nonfinite)
        self.clip_norms.append(report.clip_norm)
        self.norms.append(math.nan if report.norm is None else report.norm)
        self.clipped.append(math.nan if report.clipped is None else report.clipped)

    def to_tensors(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        return {
            "loss": torch.tensor(self.loss, dtype=torch.float64),
            "nonfinite": torch.tensor(self.nonfinite, dtype=torch.int64),
            "clip_norms": torch.tensor(self.clip_norms, dtype=torch.float64),
            "norms": torch.tensor(self.norms, dtype=torch.float64),
            "clipped": torch.tensor(self.clipped, dtype=torch.float64),
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> History:
        """From a checkpoint; one that was written before norms were kept has none."""
        unknown = torch.full_like(tensors["loss"], math.nan)
        kept = [tensors[name].tolist() for name in ("loss", "nonfinite", "clip_norms")]
        return cls(*kept, *(tensors.get(name, unknown).tolist() for name in ("norms", "clipped")))
