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

from hush.accounting.exact.logs import log_one_plus, log_one_plus_parts, log_tails
from hush.accounting.exact.nodes import Nodes
from hush.accounting.exact.phases import Floats

Complexes = NDArray[np.complex128]
Waves = tuple[Floats, Floats]  # real and imaginary part of e^{i height loss} - 1
UNIT = 2.0**-52
_LARGEST = 650.0  # exponents above this overflow
_LEAST = -80.0
_SHORT = 256
_NOTHING = -1 + 1e-9
_LARGE_PRODUCT = 10_000  # heights times nodes from which the exponentials are split


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
        self.kept_waves: Waves | None = None  # of the last call of `waves`, where they are few
        # Moments are kept relative to 1 where the nodes carry the whole density; where some were cropped they can't be.
        self._missing: Floats | float = 0.0
        if cut is not None and not nodes.is_cropped:
            self._missing = -nodes.sums(nodes.weight * ndtr((nodes.loss - cut.level) / cut.softness))

    def log_moments(self, orders: Floats) -> Floats:
        """log E e^{order * total loss} for ascending real orders; infinite where it overflows."""
        nodes = self.nodes
        product = np.multiply.outer(orders, nodes.loss)
        count = self._fitting(product, float(orders[-1]))
        excess = self._excess(product[:count])
        sums = np.log1p(np.maximum(excess, _NOTHING)) @ nodes.times
        if nodes.phases.has_rest:
            sums += self.rest(orders[:count])
        if np.minimum.reduce(excess, axis=None, initial=0.0) <= _NOTHING:
            # A cut so sharp that the nodes miss it leaves no mass, or less.
            sums[(excess <= _NOTHING).any(axis=-1)] = math.inf
        if count == len(orders):
            return np.asarray(sums)
        result = np.full(len(orders), math.inf)
        result[:count] = sums
        return result

    def _fitting(self, product: Floats, highest: float) -> int:
        """How many of the rows order * loss, for ascending orders, have a moment that does not overflow."""
        top = highest * max(float(np.maximum.reduce(self.nodes.loss)), 0.0)
        if top + max(float(np.maximum.reduce(self.log_weight)), 0.0) < _LARGEST:
            return len(product)
        weighed = product + self.log_weight
        fits = weighed.max(axis=1) < _LARGEST
        if not self.nodes.is_cropped and product[-1].max() > _LARGEST:
            # Where e^product would overflow by itself it is held back, so it must carry nothing: a moment that came
            # out too small would spoil Chernoff's bound.
            fits &= np.where(product > _LARGEST, weighed, -math.inf).max(axis=1) < _LEAST
        return len(product) if fits.all() else int(np.argmin(fits))

    def _excess(self, exponent: Floats) -> Floats:
        """E e^exponent - 1 for each phase."""
        nodes = self.nodes
        if nodes.is_cropped:
            return np.asarray(nodes.sums(np.exp(exponent + self.log_weight)) - 1)
        rise = np.expm1(np.minimum(exponent, _LARGEST))
        if nodes.is_single and len(nodes.loss) <= _SHORT:  # a longer product would round more than a sum
            return np.asarray((rise @ self.weight)[..., None] + self._missing)
        return np.asarray(nodes.sums(self.weight * rise) + self._missing)

    def rest(self, order: NDArray[Any]) -> NDArray[Any]:
        """The unsampled Gaussian and the bounded losses, which have closed forms."""
        phases = self.nodes.phases
        if not phases.has_rest:
            return np.zeros_like(order)
        total = phases.gaussian * (order * order + order) / 2
        for loss, count in phases.bounded:
            total = total + count * loss.log_moment(order)
        return np.asarray(total)

    def tilt_to(self, order: float) -> float:
        """Fix the vertical line Re z = order; returns the log moment there."""
        nodes = self.nodes
        exponent = order * nodes.loss
        excess = self._excess(exponent)
        log_moment = np.log1p(excess)
        self.order, self.moment = order, 1 + excess
        self.log_tilted: Floats = exponent + self.log_weight - nodes.spread(log_moment)
        self.tilted: Floats = np.exp(self.log_tilted)
        self._rest_here = float(self.rest(np.array([order]))[0]) if nodes.phases.has_rest else 0.0
        return float(log_moment @ nodes.times) + self._rest_here

    def _drift(self) -> float:
        """The sum of |e^{order loss} - 1| over all steps' nodes, whose rounding the moment takes over."""
        nodes, weighed = self.nodes, self.weight
        if not nodes.is_cropped:
            weighed = weighed * np.abs(np.expm1(np.minimum(self.order * nodes.loss, _LARGEST)))
        return float(nodes.times @ nodes.sums(weighed))

    def cumulants(self) -> tuple[float, float, float, float]:
        """The first four of the tilted total loss, but for bounded losses."""
        nodes, gaussian = self.nodes, self.nodes.phases.gaussian
        mean = nodes.sums(self.tilted * nodes.loss)
        off = nodes.loss - nodes.spread(mean)
        square = off * off
        weighed = self.tilted * square
        second, third, fourth = (nodes.sums(values) for values in (weighed, weighed * off, weighed * square))
        sums = (float(value @ nodes.times) for value in (mean, second, third, fourth - 3 * second * second))
        one, two, three, four = sums
        return one + gaussian * (self.order + 0.5), two + gaussian, three, four

    def variance(self) -> float:
        """Variance of the tilted total loss."""
        nodes = self.nodes
        weighed = self.tilted * nodes.loss
        first, second = nodes.sums(weighed), nodes.sums(weighed * nodes.loss)
        return max(float((second - first * first) @ nodes.times), 0.0) + nodes.phases.gaussian

    def log_along(self, heights: Floats) -> Complexes:
        """log of the transform at order + i * height over its value at order, for evenly spaced heights from 0."""
        total = self.step_log_along(heights) @ self.nodes.times
        return total + self._rest_along(heights) if self.nodes.phases.has_rest else total

    def step_log_along(self, heights: Floats) -> Complexes:
        """The same for one step of each phase, without the closed forms."""
        ((real, imaginary),) = self.waves(heights, self.tilted)
        return log_one_plus_parts(real, imaginary)

    def twin_log_along(self, heights: Floats, waves: Waves) -> Complexes:
        """`log_along` by the waves of the opposite direction on the same nodes: all losses have the other sign."""
        real, imaginary = self._weighed(waves, self.tilted)
        total = log_one_plus_parts(real, -imaginary) @ self.nodes.times
        return total + self._rest_along(heights) if self.nodes.phases.has_rest else total

    def log_sizes(self, heights: Floats) -> Floats:
        """log of |transform| at order + i * height over its value at order, at any heights, as the nodes have it."""
        tangent = np.tan(np.multiply.outer(0.5 * heights, self.nodes.loss))
        sine = 2 * tangent / (1 + tangent * tangent)
        real, imaginary = (self.nodes.sums(wave * self.tilted) for wave in (1 - sine * tangent, sine))
        sizes = 0.5 * np.log(np.maximum(real * real + imaginary * imaginary, 1e-300)) @ self.nodes.times
        return np.asarray(sizes + self._rest_along(heights).real)

    def log_size(self, height: float) -> float:
        """The same at one height, quickly, without bounded losses."""
        turn = height * self.nodes.loss
        real, imaginary = (self.nodes.sums(self.tilted * wave) for wave in (np.cos(turn), np.sin(turn)))
        sampled = 0.5 * float(np.log(real * real + imaginary * imaginary) @ self.nodes.times)
        return sampled - self.nodes.phases.gaussian * height * height / 2

    def waves(self, heights: Floats, *weights: Floats) -> list[tuple[Floats, Floats]]:
        """Real and imaginary part of sum(weight * (e^{i height loss} - 1)) per height and phase, for each weight."""
        nodes, self.kept_waves = self.nodes, None
        if len(heights) * len(nodes.loss) > _LARGE_PRODUCT:
            return _split_waves(nodes, heights, weights)
        # e^{i b} - 1 = s (i - t) with t = tan(b/2) and s = 2 t / (1 + t^2), without cancellation.
        tangent = np.multiply.outer(0.5 * heights, nodes.loss)
        np.tan(tangent, out=tangent)
        square = tangent * tangent
        square += 1
        imaginary = np.divide(tangent, square, out=square)
        imaginary *= 2
        real = np.negative(np.multiply(imaginary, tangent, out=tangent), out=tangent)
        self.kept_waves = real, imaginary
        return [self._weighed((real, imaginary), weight) for weight in weights]

    def _weighed(self, waves: Waves, weight: Floats) -> Waves:
        real, imaginary = waves
        if self.nodes.is_single:
            return (real @ weight)[:, None], (imaginary @ weight)[:, None]
        return self.nodes.sums(real * weight), self.nodes.sums(imaginary * weight)

    def _rest_along(self, heights: Floats) -> Complexes:
        return np.asarray(self.rest(self.order + 1j * heights) - self._rest_here)

    def rounding(self, height: float) -> float:
        """Bound on the rounding error of the transform up to that height, over its value on the axis."""
        nodes = self.nodes
        # Each e^{i height loss} - 1 is a sum of products of at most log2(heights) factors, all at most 2.
        speed = float(nodes.times @ nodes.sums(self.tilted * nodes.size))
        turns = min(height * speed, 4.0 * nodes.phases.steps)
        # Each bounded loss is rounded once in its closed form, and as often as it occurs.
        reach = sum(count * loss.largest for loss, count in self.nodes.phases.bounded)
        closed = 16 * reach * (self.order + height) + 4 * abs(self._rest_here)
        return UNIT * (24 + 12 * self._drift() + 6 * height * speed + 24 * turns + closed)


class Jumps:
    """The part with at least one loss above `lower` and none above `upper`: product of wholes, subtracted."""

    def __init__(self, nodes: Nodes, lower: Cut, upper: Cut | None) -> None:
        self.nodes, self.lower, self.upper = nodes, lower, upper
        kept, rises = self.log_lower = lower.log_sides(nodes.loss)
        self.log_upper: tuple[Floats, Floats]  # where there is an upper cut
        self.far_mass = 0.0
        if upper is None:
            self.below = Whole(nodes)
            self.log_weight = nodes.log_weight + rises
            return
        below, falls = self.log_upper = upper.log_sides(nodes.loss)
        self.below = Whole(nodes, upper, below)
        with np.errstate(divide="ignore"):
            low = rises + np.log1p(-np.exp(np.minimum(falls - rises, 0.0)))
            high = np.log(np.maximum(np.exp(below) - np.exp(kept), 0.0))
        self.log_weight = nodes.log_weight + np.where(nodes.loss > lower.level, high, low)

    def log_moments(self, orders: Floats) -> Floats:
        """log of the part's moment generating function for ascending real orders."""
        nodes = self.nodes
        exponent = np.multiply.outer(orders, nodes.loss)
        exponent += self.below.log_weight
        count = len(orders)
        if exponent[[0, -1]].max() >= _LARGEST:  # each exponent is linear in the order
            count = int(np.argmin(np.append(exponent.max(axis=1) < _LARGEST, False)))
        tilted = np.exp(exponent[:count], out=exponent[:count])
        whole = nodes.sums(tilted)
        tilted *= np.exp(self.log_weight - self.below.log_weight)
        share = np.minimum(nodes.sums(tilted) / whole, 1 - UNIT)
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
