"""Moment generating functions of composed losses, on the real axis and along a vertical line.

`Whole` is the composition itself, or the part of it in which no loss exceeds a soft cut. `Jumps` is the difference of
two such parts: what has at least one loss above the lower cut and none above the upper. All are positive measures, so
each gives its own share of delta, on its own vertical line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from hush.accounting.exact.nodes import Nodes, log_tails
from hush.accounting.exact.phases import Floats, log_one_plus

Complexes = NDArray[np.complex128]
UNIT = 2.0**-52
_LARGEST = 650.0  # exponents above this overflow
_LEAST = -80.0
_NOTHING = -1 + 1e-9
_LARGE_PRODUCT = 2_500  # heights times nodes from which the exponentials are split


@dataclass(frozen=True)
class Cut:
    """A soft bound on one step's loss: the weight is the normal cdf of (level - loss) / softness."""

    level: float
    softness: float

    def log_sides(self, loss: Floats) -> tuple[Floats, Floats]:
        """Log weights of what stays below, and of what rises above."""
        return log_tails((self.level - loss) / self.softness)


def _turns(angle: Floats, count: int) -> Complexes:
    """e^{i k angle} - 1 for k below count, relatively exact, each from at most log2(count) exponentials."""
    rows = np.zeros((count, len(angle)), dtype=np.complex128)
    size = 1
    while size < count:
        half = min(size, count - size)
        sine, cosine = np.sin(0.5 * size * angle), np.cos(0.5 * size * angle)
        turn = 2 * sine * (1j * cosine - sine)
        rows[size : size + half] = rows[:half] + turn * (1 + rows[:half])
        size *= 2
    return rows


def _split_waves(nodes: Nodes, heights: Floats, weights: tuple[Floats, ...]) -> list[tuple[Floats, Floats]]:
    """The same by e^{i(a+b)} - 1 = AB + A + B with A = e^{ia} - 1, B = e^{ib} - 1: few exponentials, one product."""
    count, step = len(heights), float(heights[1])
    block = math.isqrt(count) + 1
    small, large = _turns(step * nodes.loss, block), _turns(step * block * nodes.loss, -(-count // block))
    ends = np.append(nodes.start[1:], len(nodes.loss))
    result = []
    for weight in weights:
        columns = []
        for begin, end in zip(nodes.start, ends, strict=True):
            weighed, fine = large[:, begin:end] * weight[begin:end], small[:, begin:end]
            both = weighed @ fine.T + weighed.sum(axis=1)[:, None] + fine @ weight[begin:end]
            columns.append(both.ravel()[:count])
        values = np.stack(columns, axis=1)
        result.append((values.real, values.imag))
    return result


class Whole:
    """The product of all steps' transforms, for losses below `cut` where one is given."""

    def __init__(self, nodes: Nodes, cut: Cut | None = None, log_below: Floats | None = None) -> None:
        self.nodes, self.cut = nodes, cut
        if cut is not None and log_below is None:
            log_below = cut.log_sides(nodes.loss)[0]
        self.log_below = log_below
        self.log_weight = nodes.log_weight if log_below is None else nodes.log_weight + log_below
        self.weight = nodes.weight if cut is None else np.exp(self.log_weight)
        self.far_mass = nodes.far_mass
        # Moments are kept relative to 1 where the nodes carry the whole density; where some were cropped they can't be.
        self._missing: Floats | float = 0.0
        if cut is not None and not nodes.is_cropped:
            self._missing = -nodes.sums(nodes.weight * ndtr((nodes.loss - cut.level) / cut.softness))

    def log_moments(self, orders: Floats) -> Floats:
        """log E e^{order * total loss} for ascending real orders; infinite where it overflows."""
        nodes = self.nodes
        product = np.multiply.outer(orders, nodes.loss)
        weighed = product + self.log_weight
        fits = weighed.max(axis=1) < _LARGEST
        if not nodes.is_cropped and product[-1].max() > _LARGEST:
            # Where e^product would overflow by itself it is held back, so it must carry nothing: a moment that came
            # out too small would spoil Chernoff's bound.
            fits &= np.where(product > _LARGEST, weighed, -math.inf).max(axis=1) < _LEAST
        count = len(orders) if fits.all() else int(np.argmin(fits))
        result = np.full(len(orders), math.inf)
        excess = self._excess(product[:count])
        sound = (excess > _NOTHING).all(axis=-1)  # a cut so sharp that the nodes miss it leaves no mass, or less
        sums = np.log1p(np.maximum(excess, _NOTHING)) @ nodes.times + self.rest(orders[:count])
        result[:count] = np.where(sound, sums, math.inf)
        return result

    def _excess(self, exponent: Floats) -> Floats:
        """E e^exponent - 1 for each phase."""
        if self.nodes.is_cropped:
            return np.asarray(self.nodes.sums(np.exp(exponent + self.log_weight)) - 1)
        return np.asarray(self.nodes.sums(self.weight * np.expm1(np.minimum(exponent, _LARGEST))) + self._missing)

    def rest(self, order: NDArray[Any]) -> NDArray[Any]:
        """The unsampled Gaussian and the bounded losses, which have closed forms."""
        phases = self.nodes.phases
        total = phases.gaussian * (order * order + order) / 2
        for loss, count in phases.bounded:
            total = total + count * loss.log_moment(order)
        return np.asarray(total)

    def tilt_to(self, order: float) -> float:
        """Fix the vertical line Re z = order; returns the log moment there."""
        nodes = self.nodes
        exponent = order * nodes.loss
        excess = self._excess(exponent)
        self.order, self.moment = order, 1 + excess
        self.log_tilted: Floats = exponent + self.log_weight - nodes.spread(np.log(self.moment))
        self.tilted: Floats = np.exp(self.log_tilted)
        weighed = self.weight * (1.0 if nodes.is_cropped else np.abs(np.expm1(np.minimum(exponent, _LARGEST))))
        self.drift = float(nodes.times @ nodes.sums(weighed))
        self.speed = float(nodes.times @ nodes.sums(self.tilted * np.abs(nodes.loss)))
        self._rest_here = float(self.rest(np.array([order]))[0])
        return float(np.log1p(excess) @ nodes.times) + self._rest_here

    def variance(self) -> float:
        """Variance of the tilted total loss."""
        nodes = self.nodes
        first = nodes.sums(self.tilted * nodes.loss)
        second = nodes.sums(self.tilted * nodes.loss * nodes.loss)
        return max(float((second - first * first) @ nodes.times), 0.0) + nodes.phases.gaussian

    def log_along(self, heights: Floats) -> Complexes:
        """log of the transform at order + i * height over its value at order, for evenly spaced heights from 0."""
        return self.step_log_along(heights) @ self.nodes.times + self._rest_along(heights)

    def step_log_along(self, heights: Floats) -> Complexes:
        """The same for one step of each phase, without the closed forms."""
        ((real, imaginary),) = self.waves(heights, self.tilted)
        return log_one_plus(real + 1j * imaginary)

    def log_sizes(self, heights: Floats) -> Floats:
        """log of |transform| at order + i * height over its value at order, at any heights, as the nodes have it."""
        turns = np.multiply.outer(heights, self.nodes.loss)
        real, imaginary = (self.nodes.sums(wave * self.tilted) for wave in (np.cos(turns), np.sin(turns)))
        sizes = 0.5 * np.log(np.maximum(real * real + imaginary * imaginary, 1e-300)) @ self.nodes.times
        return np.asarray(sizes + self._rest_along(heights).real)

    def waves(self, heights: Floats, *weights: Floats) -> list[tuple[Floats, Floats]]:
        """Real and imaginary part of sum(weight * (e^{i height loss} - 1)) per height and phase, for each weight."""
        nodes = self.nodes
        if len(heights) * len(nodes.loss) > _LARGE_PRODUCT:
            return _split_waves(nodes, heights, weights)
        half = np.multiply.outer(0.5 * heights, nodes.loss)
        sine, cosine = np.sin(half), np.cos(half)
        # e^{i t} - 1 = -2 sin^2(t/2) + 2 i sin(t/2) cos(t/2), without cancellation.
        real, imaginary = -2 * sine * sine, 2 * sine * cosine
        if len(nodes.times) == 1:
            return [((real @ weight)[:, None], (imaginary @ weight)[:, None]) for weight in weights]
        return [(nodes.sums(real * weight), nodes.sums(imaginary * weight)) for weight in weights]

    def _rest_along(self, heights: Floats) -> Complexes:
        return np.asarray(self.rest(self.order + 1j * heights) - self._rest_here)

    def rounding(self, height: float) -> float:
        """Bound on the rounding error of the transform up to that height, over its value on the axis."""
        nodes = self.nodes
        # Each e^{i height loss} - 1 is a sum of products of at most log2(heights) factors, all at most 2.
        turns = float(nodes.times @ nodes.sums(self.tilted * np.minimum(height * np.abs(nodes.loss), 4.0)))
        # Each bounded loss is rounded once in its closed form, and as often as it occurs.
        reach = sum(count * loss.largest for loss, count in self.nodes.phases.bounded)
        closed = 16 * reach * (self.order + height) + 4 * abs(self._rest_here)
        return UNIT * (24 + 12 * self.drift + 6 * height * self.speed + 24 * turns + closed)


class Jumps:
    """The part with at least one loss above `lower` and none above `upper`: product of wholes, subtracted."""

    def __init__(self, nodes: Nodes, lower: Cut, upper: Cut | None) -> None:
        self.nodes, self.lower, self.upper = nodes, lower, upper
        kept, rises = lower.log_sides(nodes.loss)
        self.far_mass = 0.0
        if upper is None:
            self.below = Whole(nodes)
            self.log_weight = nodes.log_weight + rises
            return
        below, falls = upper.log_sides(nodes.loss)
        self.below = Whole(nodes, upper, below)
        with np.errstate(divide="ignore"):
            low = rises + np.log1p(-np.exp(np.minimum(falls - rises, 0.0)))
            high = np.log(np.maximum(np.exp(below) - np.exp(kept), 0.0))
        self.log_weight = nodes.log_weight + np.where(nodes.loss > lower.level, high, low)

    def log_moments(self, orders: Floats) -> Floats:
        """log of the part's moment generating function for ascending real orders."""
        nodes = self.nodes
        exponent = np.multiply.outer(orders, nodes.loss) + self.below.log_weight
        fits = exponent.max(axis=1) < _LARGEST
        count = len(orders) if fits.all() else int(np.argmin(fits))
        tilted = np.exp(exponent[:count])
        whole = nodes.sums(tilted)
        share = np.minimum(nodes.sums(tilted * np.exp(self.log_weight - self.below.log_weight)) / whole, 1 - UNIT)
        result = np.full(len(orders), math.inf)
        with np.errstate(divide="ignore"):
            part = np.log(-np.expm1(np.log1p(-share) @ nodes.times))
            sums = np.log(whole) @ nodes.times + self.below.rest(orders[:count]) + part
        result[:count] = np.where((whole > 1e-9).all(axis=-1), sums, math.inf)
        return result

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
        """log of the transform at order + i * height over its value at order, for evenly spaced heights from 0."""
        whole, (jump_real, jump_imaginary) = self.below.waves(heights, self.below.tilted, self.tilted)
        base = log_one_plus(whole[0] + 1j * whole[1])
        ratio = (self.share + jump_real + 1j * jump_imaginary) * np.exp(-base)
        kept = log_one_plus(-ratio) @ self.nodes.times
        # M^T - B^T = M^T (1 - e^kept) = B^T (e^-kept - 1), whichever does not overflow.
        smaller = np.where(kept.real > 0, -kept, kept)
        with np.errstate(divide="ignore"):
            part = np.log(np.where(kept.real > 0, 1, -1) * np.expm1(smaller)) + np.where(kept.real > 0, kept, 0)
        return np.asarray(base @ self.nodes.times + part - self.log_part + self.below._rest_along(heights))

    def rounding(self, height: float) -> float:
        """Bound on the rounding error of the transform up to that height, over its value on the axis."""
        return self.below.rounding(height) + UNIT * 64
