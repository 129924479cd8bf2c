"""Strategies for correlated noise: how the noise of a step is made to cancel in the sum of all steps.

    >>> strategy = BandedStrategy.square_root(steps=400, bands=20, min_separation=100, participations=4)
    >>> strategy.sensitivity
    2.0000000000...
    >>> independent = BandedStrategy(steps=400, min_separation=100, participations=4, coefficients=(1.0,))
    >>> strategy.error() < 0.5 * independent.error()
    True

A strategy is a lower triangular Toeplitz matrix C with a few bands. With S the sums of all steps and Z independent
noise, S + C^-1 Z is released [Denisov, McMahan, Rush, Smith, Thakurta 2022; Choquette-Choo et al. 2023]. See
docs/theory/correlated-noise.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hush import _check
from hush.errors import InvalidValue
from hush.events import MatrixGaussian

Array = NDArray[np.float64]
_MARGIN = 1 + 1e-12  # above the rounding of the sums below


@dataclass(frozen=True, kw_only=True)
class BandedStrategy:
    """A banded Toeplitz matrix C for examples that come in an order.

    Args:
        steps: How many sums are released; C has as many rows.
        min_separation: Steps between two uses of the same example, at least.
        participations: How often one example takes part, at most.
        coefficients: C's diagonal and the bands below it, first the diagonal.
    """

    steps: int
    min_separation: int
    participations: int
    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        given = (_check.number(f"coefficients[{place}]", value) for place, value in enumerate(self.coefficients))
        coefficients = tuple(given)
        if not coefficients or coefficients[0] <= 0:
            raise InvalidValue("coefficients must begin with C's diagonal, which is above 0.")
        object.__setattr__(self, "coefficients", coefficients)
        self.event(1.0)  # checks the whole numbers

    @classmethod
    def square_root(cls, *, steps: int, bands: int, min_separation: int, participations: int) -> BandedStrategy:
        """The square root of the matrix of prefix sums, cut to its bands, with columns of length 1.

        Its coefficients are those of (1 - x)^(-1/2): 1, 1/2, 3/8, ... [Fichtenberger, Henzinger, Upadhyay 2023].
        """
        order = np.arange(1, _check.whole("bands", bands))
        coefficients = np.concatenate([[1.0], np.cumprod((2 * order - 1) / (2 * order))])
        return cls(
            steps=steps,
            min_separation=min_separation,
            participations=participations,
            coefficients=tuple((coefficients / np.linalg.norm(coefficients)).tolist()),
        )

    @classmethod
    def optimized(cls, *, steps: int, bands: int, min_separation: int, participations: int) -> BandedStrategy:
        """The bands with the least `error`, searched from those of the square root; never worse than these."""
        start = cls.square_root(steps=steps, bands=bands, min_separation=min_separation, participations=participations)
        if bands > min_separation:
            raise InvalidValue(f"bands must be at most min_separation, {min_separation}, to be optimized; got {bands}.")
        found = _least_error(np.array(start.coefficients), steps)
        best = cls(
            steps=steps,
            min_separation=min_separation,
            participations=participations,
            coefficients=tuple((found / np.linalg.norm(found)).tolist()),
        )
        return best if best.error() < start.error() else start

    @property
    def bands(self) -> int:
        """How many bands C has, its diagonal among them."""
        return len(self.coefficients)

    @property
    def sensitivity(self) -> float:
        """The most by which one example moves C S, if it moves each sum it is in by 1 at most (L2, over all steps).

        The columns of two uses meet in the product A(lag) of C's bands with themselves. Two uses that are m uses apart
        are m * min_separation steps apart or more, so that the squared sensitivity is at most

            k A(0) + 2 sum over m from 1 to k - 1 of (k - m) max over lag >= m * min_separation of A(lag)

        with k participations and A taken of absolute values. With bands <= min_separation the columns do not meet and
        this is k times the squared length of a column, exactly [Choquette-Choo et al. 2023].
        """
        products = _self_products(np.abs(np.array(self.coefficients)))
        largest = np.maximum.accumulate(products[::-1])[::-1]
        distances = np.arange(1, self.participations)
        distances = distances[distances * self.min_separation < self.bands]
        meeting = np.dot(self.participations - distances, largest[distances * self.min_separation])
        return math.sqrt(self.participations * products[0] + 2 * float(meeting)) * _MARGIN

    def error(self) -> float:
        """The mean over the steps of the noise's variance in the sum so far, for stddev 1 per unit of sensitivity."""
        spread = _prefix_coefficients(np.array(self.coefficients), self.steps)
        return float(np.dot(_weights(self.steps), spread**2)) * self.sensitivity**2

    def matrix(self) -> Array:
        """C in full: for looking at small ones."""
        rows = np.arange(self.steps)
        lag = rows[:, None] - rows[None, :]
        padded = np.zeros(self.steps)
        padded[: self.bands] = self.coefficients
        return np.where(lag >= 0, padded[np.clip(lag, 0, None)], 0.0)

    def event(self, noise_multiplier: float) -> MatrixGaussian:
        """What a whole run by this strategy does to the data."""
        return MatrixGaussian(noise_multiplier, self.steps, self.bands, self.min_separation, self.participations)


def _self_products(values: Array) -> Array:
    """A(lag) = sum over i of values[i] * values[i + lag], rounded up."""
    size = 2 * len(values)
    spectrum = np.fft.rfft(values, size)
    products = np.fft.irfft(spectrum * spectrum.conj(), size)[: len(values)]
    exact = np.array([np.dot(values, values)])
    return np.concatenate([exact, products[1:] + 1e-13 * exact[0]])


def _prefix_coefficients(coefficients: Array, steps: int) -> Array:
    """The first column of A C^-1, with A the matrix of prefix sums: the sums of C^-1's first column."""
    impulse = np.zeros(steps)
    impulse[0] = 1.0
    return np.cumsum(_divided(impulse, coefficients))


def _divided(values: Array, coefficients: Array) -> Array:
    """C^-1 times the values, by forward substitution."""
    from scipy.signal import lfilter

    return np.asarray(lfilter([1.0], coefficients, values))


def _weights(steps: int) -> Array:
    return np.arange(steps, 0, -1) / steps


def _least_error(start: Array, steps: int) -> Array:
    """Bands that minimise the error per column length, by L-BFGS with the gradient in closed form."""
    from scipy.optimize import minimize

    weights = _weights(steps)

    def log_error(rest: Array) -> tuple[float, Array]:
        coefficients = np.concatenate([[1.0], rest])
        spread = _prefix_coefficients(coefficients, steps)
        square, length = float(np.dot(weights, spread**2)), float(np.dot(coefficients, coefficients))
        # The derivative of h = A C^-1 by the band i is -C^-1 h, moved down by i.
        moved, pull = _divided(spread, coefficients), weights * spread
        slopes = np.array([-2 * np.dot(pull[i:], moved[: steps - i]) for i in range(1, len(coefficients))])
        return math.log(square) + math.log(length), slopes / square + 2 * rest / length

    with np.errstate(over="ignore", invalid="ignore"):
        found = minimize(log_error, start[1:] / start[0], jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return np.concatenate([[1.0], np.asarray(found.x)]) if np.all(np.isfinite(found.x)) else start
