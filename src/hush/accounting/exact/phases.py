"""One composition as phases of equal steps, in the numbers the contour method works with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from hush.accounting.exact.logs import log_one_plus

Value = TypeVar("Value")
Direction = Literal["remove", "add", "replace"]
Floats = NDArray[np.float64]


class lazy(Generic[Value]):  # noqa: N801
    """`functools.cached_property` without its lock, which takes as long as a short array's arithmetic."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Value:
        value = self._compute(instance)
        instance.__dict__[self._name] = value  # found before this descriptor from now on
        return value


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

    @lazy
    def steps(self) -> float:
        """The number of sampled Gaussian steps."""
        return sum(times for _, _, times in self.rows)

    @lazy
    def rows(self) -> list[tuple[float, float, float]]:
        """(sampling_prob, shift, times) of each sampled phase, for arithmetic that no array is needed for."""
        return list(zip(self.sampling_prob.tolist(), self.shift.tolist(), self.times.tolist(), strict=True))

    @lazy
    def has_rest(self) -> bool:
        """Whether anything but sampled Gaussians is composed."""
        return bool(self.gaussian or self.bounded)

    @lazy
    def log_steps(self) -> float:
        """Its logarithm."""
        return math.log(self.steps)

    @lazy
    def largest_shift(self) -> float:
        """The largest shift; 0 where nothing is sampled."""
        return max((shift for _, shift, _ in self.rows), default=0.0)

    @lazy
    def log_rest(self) -> Floats:
        """log(1 - q): an example that was not sampled."""
        return np.log1p(-self.sampling_prob)

    @lazy
    def log_odds(self) -> Floats:
        """log of q / (1 - q) e^{-m^2/2}: the odds that output 0 came from the shifted component."""
        return np.asarray(np.log(self.sampling_prob) - self.log_rest - self.shift * self.shift / 2)
