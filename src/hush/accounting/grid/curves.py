"""Hockey-stick curves of one release, in closed form.

A pair (P, Q) of distributions has the privacy loss L = log dP/dQ, drawn under P, and the curve

    D(epsilon) = E_P[(1 - e^(epsilon - L))_+]        for every real epsilon.

As a function of t = e^epsilon it is convex and decreasing; its slope is -Q(L > epsilon). A `Curve` gives the part of
D that comes from finite losses, `finite`, and the scaled slope e^epsilon Q(L > epsilon), `slope`, without
cancellation. What P puts where Q has nothing is `infinite_mass`; D is the sum of both parts.

Values are exact to a relative 4e-13 (`RELATIVE_ERROR`) at an epsilon that is itself off by a few units in the last
place; both errors are added to every answer of this package. Checked in test_curves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy
from numpy.typing import NDArray
from scipy import special

Array = NDArray[numpy.float64]

RELATIVE_ERROR = 4e-13
_NODES, _WEIGHTS = numpy.polynomial.legendre.leggauss(8)


class Curve(Protocol):
    """The curve of one pair of distributions."""

    @property
    def bottom(self) -> float:
        """The smallest loss, or -infinity."""

    @property
    def top(self) -> float:
        """The largest finite loss, or infinity where the losses have no bound."""

    @property
    def top_mass(self) -> float:
        """P(L = top); 0 where the losses have no bound."""

    @property
    def infinite_mass(self) -> float:
        """P(L = infinity)."""

    @property
    def atoms(self) -> tuple[float, ...]:
        """Losses with a probability of their own."""

    def finite(self, epsilon: Array) -> Array:
        """D(epsilon) - infinite_mass."""

    def slope(self, epsilon: Array) -> Array:
        """e^epsilon Q(L > epsilon)."""


@dataclass(frozen=True)
class Normal:
    """N(mu, 1) against N(0, 1); [balle18] Thm. 8: D = Phi(-a) - e^epsilon Phi(-a - mu), a = epsilon/mu - mu/2.

    >>> float(Normal(1.0).finite(numpy.array([1.0]))[0])  # doctest: +ELLIPSIS
    0.12693673750...
    """

    mu: float
    bottom: float = -math.inf
    top: float = math.inf
    top_mass: float = 0.0
    infinite_mass: float = 0.0
    atoms: tuple[float, ...] = ()

    def finite(self, epsilon: Array) -> Array:
        """D, from its mirror image where epsilon is negative: D(-x) = 1 - e^-x + e^-x D(x)."""
        size = numpy.abs(epsilon)
        value = tail_difference(size / self.mu - self.mu / 2, self.mu)
        return numpy.where(epsilon < 0, -numpy.expm1(-size) + numpy.exp(-size) * value, value)

    def slope(self, epsilon: Array) -> Array:
        """e^epsilon Phi(-epsilon/mu - mu/2)."""
        result: Array = numpy.exp(epsilon + special.log_ndtr(-epsilon / self.mu - self.mu / 2))
        return result


def tail_difference(x: Array, mu: float) -> Array:
    """Phi(-x) - phi(x) m(x + mu) for the Mills ratio m(x) = Phi(-x)/phi(x): phi(x) times m's fall over [x, x + mu]."""
    near = numpy.maximum(x, -10.0)
    density = numpy.exp(-near * near / 2) / math.sqrt(2 * math.pi)
    value = density * (_mills_fall(near, mu) if mu < 0.35 else _mills(near) - _mills(near + mu))
    if x.size and float(x.min()) < -10:
        # So far left Phi(-x) is 1 and what is taken off is below e^-50 m(x + mu), which m(x) dwarfs: nothing cancels.
        density = numpy.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        taken = numpy.where(x + mu > -10, density * _mills(numpy.maximum(x + mu, -10)), _far_ratio(x, mu))
        value = numpy.where(x < -10, special.ndtr(-x) - taken, value)
    return numpy.maximum(value, 0.0)


def _far_ratio(x: Array, mu: float) -> Array:
    exponent = mu * x + mu * mu / 2  # phi(x) / phi(x + mu) = e^exponent
    result: Array = numpy.exp(numpy.minimum(exponent, 0.0)) * special.ndtr(-x - mu)
    return result


def _mills(x: Array) -> Array:
    result: Array = math.sqrt(math.pi / 2) * special.erfcx(x / math.sqrt(2))
    return result


def _mills_fall(x: Array, mu: float) -> Array:
    # m(x) - m(x + mu) = integral of -m' = 1 - y m(y) over [x, x + mu]; Gauss-Legendre, since a difference would cancel.
    total = numpy.zeros_like(x)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        y = x + mu * (1 + node) / 2
        total += weight * _mills_slope(y)
    return total * (mu / 2)


def _mills_slope(y: Array) -> Array:
    # 1 - y m(y); beyond 12 by its asymptotic series 1/y^2 - 3/y^4 + 15/y^6 - ..., where the difference would cancel.
    direct = 1 - y * _mills(numpy.minimum(y, 1e3))
    if float(y.max(initial=0.0)) <= 12:
        return direct
    inverse: Array = 1 / numpy.square(numpy.maximum(y, 12.0))
    series, term = numpy.zeros_like(y), numpy.ones_like(y)
    for order in range(1, 26, 2):
        term = term * inverse * order
        series += term if order % 4 == 1 else -term
    return numpy.where(y > 12, series, direct)


@dataclass(frozen=True)
class TwoSidedExponential:
    """Laplace noise, P one unit right of Q; `top` = 1/scale. Half of P has that loss; D = 1 - e^((epsilon - top)/2)."""

    top: float
    top_mass: float = 0.5
    infinite_mass: float = 0.0

    @property
    def bottom(self) -> float:
        """The smallest loss."""
        return -self.top

    @property
    def atoms(self) -> tuple[float, ...]:
        """Both ends."""
        return (-self.top, self.top)

    def finite(self, epsilon: Array) -> Array:
        """D between the ends; 1 - e^epsilon below and 0 above."""
        inside = -numpy.expm1(numpy.minimum(epsilon - self.top, 0.0) / 2)
        return numpy.where(epsilon < -self.top, -numpy.expm1(numpy.minimum(epsilon, 0.0)), inside)

    def slope(self, epsilon: Array) -> Array:
        """-dD/depsilon."""
        inside = numpy.exp(numpy.minimum(epsilon - self.top, 0.0) / 2) / 2
        below = numpy.exp(numpy.minimum(epsilon, 0.0))
        return numpy.where(epsilon >= self.top, 0.0, numpy.where(epsilon < -self.top, below, inside))


@dataclass(frozen=True)
class Atoms:
    """A pair with finitely many losses. `losses` fall; `masses` are P's; the rest of P is at infinity."""

    losses: tuple[float, ...]
    masses: tuple[float, ...]
    infinite_mass: float = 0.0

    @property
    def bottom(self) -> float:
        """The smallest loss."""
        return self.losses[-1] if self.losses else -math.inf

    @property
    def top(self) -> float:
        """The largest loss; -infinity where there is none."""
        return self.losses[0] if self.losses else -math.inf

    @property
    def top_mass(self) -> float:
        """P(L = top)."""
        return self.masses[0] if self.masses else 0.0

    @property
    def atoms(self) -> tuple[float, ...]:
        """All losses."""
        return self.losses

    def finite(self, epsilon: Array) -> Array:
        """The sum of mass (1 - e^(epsilon - loss))_+."""
        total = numpy.zeros_like(epsilon)
        for loss, mass in zip(self.losses, self.masses, strict=True):
            total -= mass * numpy.expm1(numpy.minimum(epsilon - loss, 0.0))
        return total

    def slope(self, epsilon: Array) -> Array:
        """The sum of mass e^(epsilon - loss) over losses above epsilon."""
        total = numpy.zeros_like(epsilon)
        for loss, mass in zip(self.losses, self.masses, strict=True):
            total += numpy.where(epsilon < loss, mass * numpy.exp(numpy.minimum(epsilon - loss, 0.0)), 0.0)
        return total


def response(epsilon: float, categories: int = 2, infinite_mass: float = 0.0) -> Atoms:
    """Randomized response: losses epsilon, 0 and -epsilon; [kairouz15] Thm. 3.3 with mass at infinity.

    >>> response(0.0).losses
    (0.0,)
    """
    kept = 1 - infinite_mass
    if epsilon == 0:
        return Atoms((0.0,), (kept,), infinite_mass)
    low = math.exp(-epsilon)
    truth = kept / (1 + (categories - 1) * low)
    if categories == 2:
        return Atoms((epsilon, -epsilon), (truth, truth * low), infinite_mass)
    return Atoms((epsilon, 0.0, -epsilon), (truth, truth * low * (categories - 2), truth * low), infinite_mass)
