"""Moment generating functions of composed losses, on the real axis and along a vertical line.

`Whole` is the composition itself, or the part of it in which no loss exceeds a soft cut. `Jumps` is the difference of two
such parts: what has at least one loss above the lower cut and none above the upper. All are positive measures, so each
gives its own share of delta, on its own vertical line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from hush.accounting.exact.nodes import Nodes
from hush.accounting.exact.phases import Floats

Complexes = NDArray[np.complex128]
UNIT = 2.0**-52
_LARGEST = 650.0  # exponents above this overflow


@dataclass(frozen=True)
class Cut:
    """A soft bound on one step's loss: the weight is the normal cdf of (level - loss) / softness."""

    level: float
    softness: float

    def log_below(self, loss: Floats) -> Floats:
        """Log weight of what stays below."""
        return np.asarray(log_ndtr((self.level - loss) / self.softness))


def log_one_plus(real: Floats, imaginary: Floats) -> Complexes:
    """log(1 + x + iy), relatively exact near 0 (numpy's complex log1p is not)."""
    square = np.maximum(real * (2 + real) + imaginary * imaginary, -1 + UNIT)
    return 0.5 * np.log1p(square) + 1j * np.arctan2(imaginary, 1 + real)


class Whole:
    """The product of all steps' transforms, for losses below `cut` where one is given."""

    def __init__(self, nodes: Nodes, cut: Cut | None = None) -> None:
        self.nodes, self.cut = nodes, cut
        self.log_weight = nodes.log_weight if cut is None else nodes.log_weight + cut.log_below(nodes.loss)
        self.weight = nodes.weight if cut is None else np.exp(self.log_weight)
        # Mass of one step's measure less 1, so that moments can be kept relative to 1.
        self._missing = 0.0 if cut is None else -nodes.sums(nodes.weight * ndtr((nodes.loss - cut.level) / cut.softness))
        self.far_mass = nodes.far_mass

    def log_moments(self, orders: Floats) -> Floats:
        """log E e^{order * total loss} for ascending real orders; infinite where it overflows."""
        nodes = self.nodes
        product = np.multiply.outer(orders, nodes.loss)
        fits = (product + self.log_weight).max(axis=1) < _LARGEST
        count = len(orders) if fits.all() else int(np.argmin(fits))
        excess = nodes.sums(self.weight * np.expm1(np.minimum(product[:count], _LARGEST))) + self._missing
        result = np.full(len(orders), math.inf)
        result[:count] = np.log1p(excess) @ nodes.times + self._rest(orders[:count])
        return result

    def _rest(self, order: NDArray[np.generic]) -> NDArray[np.generic]:
        """The unsampled Gaussian and the bounded losses, which have closed forms."""
        phases = self.nodes.phases
        total = phases.gaussian * (order * order + order) / 2
        for loss, count in phases.bounded:
            total = total + count * loss.log_moment(order)
        return np.asarray(total)

    def tilt_to(self, order: float) -> float:
        """Fix the vertical line Re z = order; returns the log moment there."""
        nodes = self.nodes
        grown = np.expm1(np.minimum(order * nodes.loss, _LARGEST))
        excess = nodes.sums(self.weight * grown) + self._missing
        self.order, self.moment = order, 1 + excess
        self.tilted: Floats = np.exp(order * nodes.loss + self.log_weight) / nodes.spread(self.moment)
        self.drift = float(nodes.times @ nodes.sums(self.weight * np.abs(grown)))
        self.speed = float(nodes.times @ nodes.sums(self.tilted * np.abs(nodes.loss)))
        self._rest_here = float(self._rest(np.array([order]))[0])
        return float(np.log1p(excess) @ nodes.times) + self._rest_here

    def variance(self) -> float:
        """Variance of the tilted total loss."""
        nodes = self.nodes
        first = nodes.sums(self.tilted * nodes.loss)
        second = nodes.sums(self.tilted * nodes.loss * nodes.loss)
        return max(float((second - first * first) @ nodes.times), 0.0) + nodes.phases.gaussian

    def log_along(self, heights: Floats) -> Complexes:
        """log of the transform at order + i * height over its value at order."""
        half = np.multiply.outer(0.5 * heights, self.nodes.loss)
        sine, cosine = np.sin(half), np.cos(half)
        # e^{i t} - 1 = -2 sin^2(t/2) + 2 i sin(t/2) cos(t/2), without cancellation.
        real, imaginary = self._pair(-2 * sine * sine, 2 * sine * cosine, self.tilted)
        return log_one_plus(real, imaginary) @ self.nodes.times + self._rest_along(heights)

    def _pair(self, real: Floats, imaginary: Floats, weight: Floats) -> tuple[Floats, Floats]:
        nodes = self.nodes
        if len(nodes.times) == 1:
            return (real @ weight)[:, None], (imaginary @ weight)[:, None]
        return nodes.sums(real * weight), nodes.sums(imaginary * weight)

    def _rest_along(self, heights: Floats) -> Complexes:
        return np.asarray(self._rest(self.order + 1j * heights) - self._rest_here)

    def rounding(self, height: float) -> float:
        """Bound on the relative rounding error of the transform up to that height."""
        return UNIT * (24 + 12 * self.drift + 6 * height * self.speed + 4 * abs(self._rest_here))


class Jumps:
    """The part with at least one loss above `lower` and none above `upper`: product of wholes, subtracted."""

    def __init__(self, nodes: Nodes, lower: Cut, upper: Cut | None) -> None:
        self.nodes, self.lower, self.upper = nodes, lower, upper
        self.below = Whole(nodes, upper)
        self.far_mass = 0.0
        self.log_weight = nodes.log_weight + self._log_jump(nodes.loss)

    def _log_jump(self, loss: Floats) -> Floats:
        rises = log_ndtr((loss - self.lower.level) / self.lower.softness)
        if self.upper is None:
            return np.asarray(rises)
        with np.errstate(divide="ignore"):
            falls = log_ndtr((loss - self.upper.level) / self.upper.softness)
            low = rises + np.log1p(-np.exp(np.minimum(falls - rises, 0.0)))
            high = np.log(np.maximum(np.exp(self.upper.log_below(loss)) - np.exp(self.lower.log_below(loss)), 0.0))
        return np.where(loss > self.lower.level, high, low)

    def log_moments(self, orders: Floats) -> Floats:
        """log of the part's moment generating function for ascending real orders."""
        base = self.below.log_moments(orders)
        count = int(np.isfinite(base).sum())
        product = np.multiply.outer(orders[:count], self.nodes.loss)
        whole = self.nodes.sums(np.exp(product + self.below.log_weight))
        share = np.minimum(self.nodes.sums(np.exp(product + self.log_weight)) / whole, 1 - UNIT)
        with np.errstate(divide="ignore"):
            base[:count] += np.log(-np.expm1(np.log1p(-share) @ self.nodes.times))
        return base

    def tilt_to(self, order: float) -> float:
        """Fix the vertical line Re z = order; returns the log moment there."""
        base = self.below.tilt_to(order)
        jump = np.exp(order * self.nodes.loss + self.log_weight)
        self.order = order
        self.tilted: Floats = jump / self.nodes.spread(self.below.moment)
        self.share = np.minimum(self.nodes.sums(self.tilted), 1 - UNIT)
        self.log_part = math.log(max(-math.expm1(float(np.log1p(-self.share) @ self.nodes.times)), 1e-300))
        return base + self.log_part

    def log_along(self, heights: Floats) -> Complexes:
        """log of the transform at order + i * height over its value at order."""
        half = np.multiply.outer(0.5 * heights, self.nodes.loss)
        sine, cosine = np.sin(half), np.cos(half)
        real, imaginary = -2 * sine * sine, 2 * sine * cosine
        base = log_one_plus(*self.below._pair(real, imaginary, self.below.tilted))
        jump_real, jump_imaginary = self.below._pair(real, imaginary, self.tilted)
        ratio = (self.share + jump_real + 1j * jump_imaginary) * np.exp(-base)
        kept = log_one_plus(-ratio.real, -ratio.imag) @ self.nodes.times
        # M^T - B^T = M^T (1 - e^kept) = B^T (e^-kept - 1), whichever does not overflow.
        smaller = np.where(kept.real > 0, -kept, kept)
        with np.errstate(divide="ignore"):
            part = np.log(np.where(kept.real > 0, 1, -1) * np.expm1(smaller)) + np.where(kept.real > 0, kept, 0)
        return np.asarray(base @ self.nodes.times + part - self.log_part + self.below._rest_along(heights))

    def rounding(self, height: float) -> float:
        """Bound on the relative rounding error of the transform up to that height."""
        return self.below.rounding(height) + UNIT * 64
