"""One composition as phases of equal steps, in the numbers the contour method works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Direction = Literal["remove", "add", "replace"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Atoms:
    """A loss with finitely many values: randomized response, pure differential privacy."""

    losses: Floats
    probabilities: Floats

    @property
    def largest(self) -> float:
        """The largest loss."""
        return float(self.losses.max())

    def log_moment(self, order: NDArray[Any]) -> NDArray[Any]:
        """log E e^{order * loss}, for real or complex orders."""
        top = self.largest
        return np.asarray(
            np.log(np.exp(np.multiply.outer(order, self.losses - top)) @ self.probabilities) + order * top
        )


@dataclass(frozen=True)
class LaplaceLoss:
    """The loss of the Laplace mechanism whose noise has this scale for sensitivity 1."""

    scale: float

    @property
    def largest(self) -> float:
        """The largest loss."""
        return 1 / self.scale

    def log_moment(self, order: NDArray[Any]) -> NDArray[Any]:
        """log E e^{order * loss}, for real or complex orders; the two atoms and the density between them."""
        # E = e^{z/b}/2 + e^{-(1+z)/b}/2 + (e^{z/b} - e^{-(1+z)/b}) / (2 (2z + 1)), written with e^{z/b} in front.
        ratio = np.exp(-(2 * order + 1) / self.scale)
        return np.asarray(order / self.scale + np.log((1 + ratio + (1 - ratio) / (2 * order + 1)) / 2))


@dataclass(frozen=True)
class Phases:
    """Sampled Gaussian phases (arrays over phases), one merged Gaussian, and bounded losses with their counts.

    `shift` is 1 / noise_multiplier, the distance between the two means in units of the noise. `gaussian` is the squared
    distance of all unsampled Gaussian steps together.
    """

    sampling_prob: Floats
    shift: Floats
    times: Floats
    gaussian: float = 0.0
    bounded: tuple[tuple[Atoms | LaplaceLoss, int], ...] = field(default=())

    @property
    def steps(self) -> float:
        """The number of sampled Gaussian steps."""
        return float(self.times.sum())
