"""Which noise a plan asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from hush.gradients.noise import NoiseSource
from hush.rng import Rng
from hush.training.correlated import for_plan

if TYPE_CHECKING:
    from hush.training.plan import TrainingPlan


class Noise(Protocol):
    """Adds noise to gradients; its draws go on from step to step and never come again."""

    def add(self, gradients: dict[str, Tensor], stddev: float) -> dict[str, Tensor]:
        """The gradients with noise of this standard deviation; the tensors may be changed in place."""
        ...


def noise_source(plan: TrainingPlan, rng: Rng, first: int) -> Noise:
    """Independent noise, or correlated noise for ordered passes that begin at step `first`."""
    if plan.sampling == "ordered":
        return for_plan(plan, rng, first)
    return NoiseSource(rng, secure=plan.secure)
