"""Curves of pairs that random sampling makes out of others.

Letters: q is the chance that the example is in the batch; (P, Q) the pair of the unsampled release. Every base pair
here is symmetric, D_{Q|P} = D_{P|Q}; `Remove` and `Add` rest on that ([zhu22] Thm. 11).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from scipy import special

from hush.accounting.grid.curves import Array, Curve, tail_difference


def _unmixed(epsilon: Array, q: float) -> Array:
    # The base loss x with 1 - q + q e^x = e^epsilon, for epsilon above log(1 - q).
    small = numpy.log1p(numpy.maximum(numpy.expm1(numpy.minimum(epsilon, 1.0)) / q, -1 + 2.0**-53))
    large = epsilon + numpy.log1p(-(1 - q) * numpy.exp(-numpy.maximum(epsilon, 1.0))) - math.log(q)
    return numpy.where(epsilon > 1, large, small)


def _mixed(loss: float, q: float) -> float:
    # log(1 - q + q e^loss) for one loss, which may be infinite.
    if loss > 30:
        return loss + math.log(q) + math.log1p((1 - q) / q * math.exp(-loss))
    return math.log1p(q * math.expm1(loss))


@dataclass(frozen=True)
class Remove:
    """((1-q)Q + qP, Q): the example is there, or not. D(epsilon) = q D_base(x), where 1 - q + q e^x = e^epsilon."""

    base: Curve
    sampling_prob: float

    @property
    def bottom(self) -> float:
        """log(1 - q + q e^bottom); log(1 - q) where P lacks some of Q."""
        return (
            math.log1p(-self.sampling_prob) if self.base.infinite_mass else _mixed(self.base.bottom, self.sampling_prob)
        )

    @property
    def top(self) -> float:
        """log(1 - q + q e^top)."""
        return _mixed(self.base.top, self.sampling_prob)

    @property
    def top_mass(self) -> float:
        """q P(top) + (1-q) Q(top)."""
        if not math.isfinite(self.base.top):
            return 0.0 if self.base.top > 0 else 1 - self.sampling_prob
        return self.base.top_mass * (self.sampling_prob + (1 - self.sampling_prob) * math.exp(-self.base.top))

    @property
    def infinite_mass(self) -> float:
        """q times the base's."""
        return self.sampling_prob * self.base.infinite_mass

    @property
    def atoms(self) -> tuple[float, ...]:
        """The base's, mixed; Q's mass at the base's loss of -infinity is an atom as well."""
        extra = (math.log1p(-self.sampling_prob),) if self.base.infinite_mass else ()
        return (*(_mixed(loss, self.sampling_prob) for loss in self.base.atoms), *extra)

    def finite(self, epsilon: Array) -> Array:
        """q D_base(x) above log(1-q); below every test says yes."""
        floor = math.log1p(-self.sampling_prob)
        above = self.sampling_prob * self.base.finite(_unmixed(numpy.maximum(epsilon, floor), self.sampling_prob))
        below = -numpy.expm1(numpy.minimum(epsilon, 0.0)) - self.infinite_mass
        return numpy.where(epsilon > floor, above, below)

    def slope(self, epsilon: Array) -> Array:
        """e^epsilon Q(L_base > x)."""
        floor = math.log1p(-self.sampling_prob)
        loss = _unmixed(numpy.maximum(epsilon, floor), self.sampling_prob)
        above = self.base.slope(loss) * numpy.exp(numpy.minimum(epsilon - loss, 700.0))
        return numpy.where(epsilon > floor, above, numpy.exp(numpy.minimum(epsilon, 0.0)))


@dataclass(frozen=True)
class Add:
    """(Q, (1-q)Q + qP). With 1 - q + q e^x = e^-epsilon, D(epsilon) = q e^(epsilon + x) D_base(-x): nothing cancels.

    Q(L < x) - e^epsilon ((1-q) Q(L < x) + q P(L < x)), and 1 - (1-q) e^epsilon = q e^(epsilon + x).
    """

    base: Curve
    sampling_prob: float

    infinite_mass: float = 0.0

    @property
    def bottom(self) -> float:
        """-log(1 - q + q e^top)."""
        return -_mixed(self.base.top, self.sampling_prob) if self.base.top > 0 else -math.inf

    @property
    def top(self) -> float:
        """-log(1 - q + q e^bottom), and -log(1-q) where P lacks some of Q."""
        return (
            -math.log1p(-self.sampling_prob)
            if self.base.infinite_mass
            else -_mixed(self.base.bottom, self.sampling_prob)
        )

    @property
    def top_mass(self) -> float:
        """Q's mass there; the base is symmetric, so its own mass at the other end."""
        return self.base.infinite_mass or self.base.top_mass

    @property
    def atoms(self) -> tuple[float, ...]:
        """The base's, mixed, with the other sign."""
        extra = (-math.log1p(-self.sampling_prob),) if self.base.infinite_mass else ()
        return (*extra, *(-_mixed(loss, self.sampling_prob) for loss in self.base.atoms))

    def finite(self, epsilon: Array) -> Array:
        """q e^(epsilon + x) D_base(-x)."""
        loss, inside = self._loss(epsilon)
        value = self.base.finite(-loss) + self.base.infinite_mass
        return numpy.where(inside, self.sampling_prob * numpy.exp(numpy.minimum(epsilon + loss, 700.0)) * value, 0.0)

    def slope(self, epsilon: Array) -> Array:
        """e^epsilon ((1-q) Q + q P)(L_base < x)."""
        loss, inside = self._loss(epsilon)
        falling = self.base.slope(-loss)
        stay = self.base.finite(-loss) + falling + self.base.infinite_mass
        moved = self.sampling_prob * numpy.exp(numpy.minimum(epsilon + loss, 700.0)) * falling
        return numpy.where(
            inside, (1 - self.sampling_prob) * numpy.exp(numpy.minimum(epsilon, 700.0)) * stay + moved, 0.0
        )

    def _loss(self, epsilon: Array) -> tuple[Array, NDArray[numpy.bool_]]:
        ceiling = -math.log1p(-self.sampling_prob)
        return _unmixed(-numpy.minimum(epsilon, ceiling), self.sampling_prob), epsilon < self.top


@dataclass(frozen=True)
class Mirrored:
    """A curve for epsilon >= 0, continued as that of a symmetric pair: D(-x) = 1 - e^-x + e^-x D(x).

    Fixed-size sampling, g = sample_size / num_examples, both data sets of one size: for epsilon >= 0 [balle18b]
    Thm. 9 (by advanced joint convexity, Thm. 2) bounds the divergence by C(epsilon), the curve of ((1-g)Q + gP, Q),
    with (P, Q) the base's replace_one pair. Neighbours may trade places, and D_{Q|P}(-x) = 1 - e^-x + e^-x
    D_{P|Q}(x) for any pair, so the continuation bounds it for epsilon < 0. It is the curve of a pair, since it is
    convex in t = e^epsilon: at t = 1 its slope jumps by P'(L <= 0) - Q(L > 0), P' = (1-g)Q + gP, and for a
    symmetric base this is (1-g) P(L >= 0) + g Q(L >= 0) - Q(L > 0) >= 0, an atom at loss 0 ([zhu22] Prop. 8 needs
    no more). So it composes.
    """

    half: Curve

    @property
    def bottom(self) -> float:
        """-top."""
        return -self.top

    @property
    def top(self) -> float:
        """The half's."""
        return self.half.top

    @property
    def top_mass(self) -> float:
        """The half's."""
        return self.half.top_mass

    @property
    def infinite_mass(self) -> float:
        """The half's."""
        return self.half.infinite_mass

    @property
    def atoms(self) -> tuple[float, ...]:
        """The half's positive ones, 0, and their negatives."""
        positive = tuple(loss for loss in self.half.atoms if loss > 0)
        return (*positive, 0.0, *(-loss for loss in reversed(positive)))

    def finite(self, epsilon: Array) -> Array:
        """The half's for epsilon >= 0 and the continuation below."""
        size = numpy.abs(epsilon)
        value = self.half.finite(size)
        below = -(1 - self.infinite_mass) * numpy.expm1(-size) + numpy.exp(-size) * value
        return numpy.where(epsilon < 0, below, value)

    def slope(self, epsilon: Array) -> Array:
        """Q(L > -x) = 1 - infinite_mass - P(L >= x), x > 0."""
        size = numpy.abs(epsilon)
        value = self.half.slope(size)
        rest = numpy.maximum((1 - self.infinite_mass) - self.half.finite(size) - value, 0.0)
        return numpy.where(epsilon < 0, numpy.exp(-size) * rest, value)


@dataclass(frozen=True)
class ReplaceNormal:
    """(1-q) N(0, s^2) + q N(1, s^2) against (1-q) N(0, s^2) + q N(-1, s^2), for epsilon >= 0; [lebeda24] Thm. 5.

    The loss is odd and increasing in the outcome x, and passes epsilon at x/s^2 = epsilon/2 + asinh((1-q)
    sinh(epsilon/2) / k), k = q e^(-1/(2 s^2)), a quadratic in e^(x/s^2). With u = x/s, mu = 1/s:
    D = q [Phi(mu-u) - phi(u-mu) m(u)] + q e^(epsilon - u mu - mu^2/2) [Phi(-u) - phi(u) m(u+mu)], m the Mills ratio.
    """

    noise_multiplier: float
    sampling_prob: float
    bottom: float = -math.inf
    top: float = math.inf
    top_mass: float = 0.0
    infinite_mass: float = 0.0
    atoms: tuple[float, ...] = ()

    def finite(self, epsilon: Array) -> Array:
        """D, as a sum of two positive terms."""
        mu, u = 1 / self.noise_multiplier, self._threshold(epsilon)
        second = numpy.exp(numpy.minimum(epsilon - u * mu - mu * mu / 2, 700.0)) * tail_difference(u, mu)
        return self.sampling_prob * (tail_difference(u - mu, mu) + second)

    def slope(self, epsilon: Array) -> Array:
        """e^epsilon Q(x > threshold)."""
        mu, u = 1 / self.noise_multiplier, self._threshold(epsilon)
        unmoved = (1 - self.sampling_prob) * numpy.exp(epsilon + special.log_ndtr(-u))
        result: Array = unmoved + self.sampling_prob * numpy.exp(epsilon + special.log_ndtr(-u - mu))
        return result

    def _threshold(self, epsilon: Array) -> Array:
        s = self.noise_multiplier
        if self.sampling_prob == 1:
            return s * epsilon / 2
        log_ratio = math.log1p(-self.sampling_prob) - math.log(self.sampling_prob) + 1 / (2 * s * s)
        half = numpy.maximum(epsilon / 2, 1e-300)
        # log sinh x = log((1 - e^-2x) / 2) + x
        log_ratio_sinh = log_ratio + numpy.log(-numpy.expm1(-2 * half) / 2) + half
        turned = numpy.arcsinh(numpy.exp(numpy.minimum(log_ratio_sinh, 300.0)))
        moved: Array = numpy.where(log_ratio_sinh > 300, log_ratio_sinh + math.log(2), turned)
        return s * (epsilon / 2 + moved)


@dataclass(frozen=True)
class ReplaceLaplace:
    """(1-q) Lap(0) + q Lap(1) against (1-q) Lap(0) + q Lap(-1) at scale s, for epsilon >= 0.

    Dominating for contributions a, b of L1 size at most 1 in any dimension: Lap(b) >= e^(-1/s) Lap(0) pointwise, so
    the excess of (1-q) Lap(0) + q Lap(a) over e^epsilon ((1-q) Lap(0) + q Lap(b)) is at most that of q Lap(a) over
    q r Lap(0), with q r = (1-q)(e^epsilon - 1) + q e^(epsilon - 1/s): q times the base curve at log r, with equality
    for a = 1, b = -1, where the best test looks at x > 0 only. Checked in test_replace_laplace_by_quadrature.
    """

    base: Curve
    sampling_prob: float
    infinite_mass: float = 0.0

    @property
    def bottom(self) -> float:
        """Not used: `Mirrored` gives the negative side."""
        return -self.top

    @property
    def top(self) -> float:
        """log r = 1/s, solved for epsilon."""
        low = math.exp(-self.base.top)  # q/low + (1-q) = e^epsilon ((1-q) + q low)
        return math.log1p(self.sampling_prob * math.expm1(self.base.top)) - math.log1p(-self.sampling_prob * (1 - low))

    @property
    def top_mass(self) -> float:
        """P(x >= 1) = (1-q) e^(-1/s) / 2 + q / 2."""
        return 0.5 * (self.sampling_prob + (1 - self.sampling_prob) * math.exp(-self.base.top))

    @property
    def atoms(self) -> tuple[float, ...]:
        """The top."""
        return (self.top,)

    def finite(self, epsilon: Array) -> Array:
        """q D_base(log r)."""
        return numpy.where(epsilon >= self.top, 0.0, self.sampling_prob * self.base.finite(self._log_ratio(epsilon)))

    def slope(self, epsilon: Array) -> Array:
        """e^epsilon ((1-q) + q e^(-1/s)) Lap(0)(x > threshold)."""
        log_ratio = self._log_ratio(epsilon)
        share = 1 + self.sampling_prob * math.expm1(-self.base.top)
        value = share * numpy.exp(numpy.minimum(epsilon - log_ratio, 700.0)) * self.base.slope(log_ratio)
        return numpy.where(epsilon >= self.top, 0.0, value)

    def _log_ratio(self, epsilon: Array) -> Array:
        # r e^(1/s) = 1 + (e^epsilon - 1) (1 + (1-q)/q e^(1/s)): increasing from 1, no difference taken.
        rate = 1 + (1 - self.sampling_prob) / self.sampling_prob * math.exp(self.base.top)
        return numpy.maximum(
            numpy.log1p(numpy.expm1(numpy.minimum(epsilon, self.top)) * rate) - self.base.top, -self.base.top
        )
