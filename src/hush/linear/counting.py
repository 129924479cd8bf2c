"""The number of rows, where it is private and a setting needs it.

Under replace_one neighbours have the same number of rows, and it is public. Under add_remove it is what they differ in,
so a noisy count is released first, for a small share of the budget, and settings are made from that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hush import events, mechanisms
from hush.rng import Rng

PURE_SHARE = 0.02  # of epsilon
GAUSSIAN_SHARE = 0.01  # of mu^2


@dataclass(frozen=True)
class Count:
    """A count with noise: discrete Laplace of this epsilon, or Gaussian of this noise multiplier; the other is 0."""

    epsilon: float
    noise_multiplier: float

    @property
    def event(self) -> events.Event:
        """What it costs."""
        return events.Gaussian(self.noise_multiplier) if self.noise_multiplier else events.PureDP(self.epsilon)

    def release(self, num_rows: int, rng: Rng) -> float:
        """The noisy count, at least 1."""
        if self.noise_multiplier:
            noise = self.noise_multiplier
            return max(1.0, float(mechanisms.gaussian(num_rows, sensitivity=1.0, noise_multiplier=noise, rng=rng)))
        return max(1.0, float(mechanisms.discrete_laplace(num_rows, sensitivity=1, epsilon=self.epsilon, rng=rng)))


def split_epsilon(epsilon: float) -> tuple[Count, float]:
    """A count, and the epsilon that is left."""
    count = Count(epsilon=PURE_SHARE * epsilon, noise_multiplier=0.0)
    return count, epsilon - count.epsilon


def split_gaussian(noise_multiplier: float) -> tuple[Count, float]:
    """A count and the noise multiplier that is left, which together cost one Gaussian of this noise multiplier."""
    count = Count(epsilon=0.0, noise_multiplier=noise_multiplier / math.sqrt(GAUSSIAN_SHARE))
    return count, noise_multiplier / math.sqrt(1 - GAUSSIAN_SHARE)
