"""One composition as phases of equal steps, in the numbers the contour method works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Direction = Literal["remove", "add", "replace"]
Floats = NDArray[np.float64]


def log_one_plus(excess: NDArray[Any]) -> NDArray[Any]:
    """log(1 + x) for real or complex x, relatively exact near 0 (numpy's complex log1p is not) and near -1."""
    if not np.iscomplexobj(excess):
        return np.asarray(np.log1p(excess))
    real, imaginary = excess.real, excess.imag
    square = (1 + real) ** 2 + imaginary * imaginary
    near = np.log1p(np.maximum(real * (2 + real) + imaginary * imaginary, -0.9))
    modulus = np.where(square > 0.5, near, np.log(np.maximum(square, 1e-300)))
    return np.asarray(0.5 * modulus + 1j * np.arctan2(imaginary, 1 + real))


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
        """log E e^{order * loss}, for real or complex orders; relatively exact where order * loss is small."""
        reach = float(np.abs(order).max(initial=0.0)) * self.largest
        if reach < 0.5:
            return log_one_plus(np.expm1(np.multiply.outer(order, self.losses)) @ self.probabilities)
        top = self.largest
        shifted = np.exp(np.multiply.outer(order, self.losses - top)) @ self.probabilities
        return np.asarray(np.log(shifted) + order * top)


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
        # E = e^{z/b}/2 + e^{-(1+z)/b}/2 + (e^{z/b} - e^{-(1+z)/b}) / (2 (2z + 1))
        #   = e^{z/b} (1 - (1 - e^{-(2z+1)/b}) z / (2z + 1)).
        excess = np.expm1(-(2 * order + 1) / self.scale) * order / (2 * order + 1)
        return np.asarray(order / self.scale + log_one_plus(excess))


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
