"""Quadrature nodes for the loss of one sampled Gaussian step, all phases in one flat array.

A step's moment generating function is an integral over the real line of a function that is analytic in a strip, so
the trapezoid rule converges geometrically (Trefethen and Weideman 2014, Theorem 5.1). With u the output in units of
the noise, m = 1 / noise_multiplier, q = sampling_prob and w(u) = 1 - q + q exp(m u - m^2 / 2):

    remove   density phi(u) w(u), loss log w(u)
    add      density phi(u),      loss -log w(u)
    replace  density phi(u) w(u), loss log w(u) - log w(-u)

All three are analytic for |Im u| < pi / m. Where the loss can be large the density is multiplied by a soft window that
drops a far tail; its mass is known in closed form and counted against the upper end.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from hush.accounting.exact.phases import Direction, Floats, Phases

WINDOW = 1.0  # softness of the far window, in units of the noise
_SPREAD = math.sqrt(1 + WINDOW**2)
_LEFTMOST = 10.0  # nodes further left weigh less than 1e-23 and carry no large loss
EDGE_DISTANCE = 13.0
EDGE = float(ndtr(-EDGE_DISTANCE))  # weight left by a cut that many softnesses below
_MOST_NODES = 3e5
_MANY_TURNS = 40.0  # below this, evenly spaced nodes are cheaper than stretched ones
_SHALLOW = 18.0  # phase in radians that the error's path may gain on the way down
_CUSHION = 6.0  # and the logarithm of the steps: the error of each counts once


def log_mixture(sampling_prob: Floats | float, exponent: Floats) -> Floats:
    """log(1 - q + q e^v), relatively exact near 0 and without overflow."""
    small = np.log1p(sampling_prob * np.expm1(np.minimum(exponent, 30.0)))
    if exponent.max() <= 30:
        return np.asarray(small)
    large = np.logaddexp(np.log1p(-np.asarray(sampling_prob)), np.log(sampling_prob) + exponent)
    return np.where(exponent <= 30, small, large)


class TooManyNodes(Exception):
    """The loss turns too fast for any reasonable number of nodes."""


class Nodes:
    """Nodes u, losses and log weights of every phase for one direction.

    `digits` is how many powers of e below the answer an error may be. `fastest` is the largest |Im z| at which e^{zL}
    is to be integrated: where it is large the nodes are spread evenly in t = u + fastest/_PACE * loss, so that the
    phase between two nodes stays bounded. There are no nodes for losses above `highest`, where the caller's cut has
    left a weight below `EDGE`, nor below `lowest`, where e^{cL} vanishes; `cropped` says what that costs. `has_cut`
    says that a cut on the loss has to be resolved as well.
    """

    _PACE = 9.0

    def __init__(
        self,
        phases: Phases,
        direction: Direction,
        log_delta: float,
        *,
        digits: float,
        fastest: float = 0.0,
        highest: float = math.inf,
        lowest: float = -math.inf,
        has_cut: bool = False,
    ) -> None:
        self.phases, self.direction, self.log_delta, self.digits = phases, direction, log_delta, digits
        self.shift, self.prob, self.times = phases.shift, phases.sampling_prob, phases.times
        self._sign = -1.0 if direction == "add" else 1.0
        self._fastest = fastest
        turns = fastest * self.shift  # radians per unit of u where the loss is steepest
        self._stretch = fastest / self._PACE if has_cut or turns.max() > _MANY_TURNS else 0.0
        self._highest, self._lowest = highest, lowest
        low, high = self._range(log_delta)
        depth = digits + _CUSHION + math.log(phases.steps)
        widest = 3.0 if self._stretch else math.sqrt(depth)
        self.strip = np.minimum(0.9 * math.pi / self.shift, widest)
        # On a line d below, the density grows by e^{d^2/2}, the window by as much again, e^{iyL} by e^{pace * d}.
        rate = depth / self.strip + self.strip + (self._PACE if self._stretch else turns)
        self.spacing = 2 * math.pi / rate
        self._place(low, high)
        self._weigh()

    def _range(self, log_delta: float) -> tuple[Floats, Floats]:
        reach = math.sqrt(2 * (math.log(self.times.sum()) - log_delta + self.digits))
        if self.direction == "add":
            self.far, self.far_mass = None, 0.0
            return np.full_like(self.shift, -(reach + 5.0)), np.minimum(9.0, self._place_of(-self._lowest))
        self.far = self.shift + _SPREAD * reach
        # The window is the normal cdf, so the mass it drops is a normal tail with variance 1 + WINDOW^2.
        dropped = (1 - self.prob) * ndtr(-self.far / _SPREAD) + self.prob * ndtr(-(self.far - self.shift) / _SPREAD)
        self.far_mass = float(self.times @ dropped)
        low = np.full_like(self.shift, -_LEFTMOST)
        if self.direction == "replace":
            low = np.maximum(low, -self._place_of(-self._lowest))
        return low, np.minimum(self.far + 7 * WINDOW, self._place_of(self._highest))

    def _place_of(self, loss: float) -> Floats:
        """A place at which |loss| is at least this: where w(u) = e^loss, since w(-u) <= 1 for u >= -m/2."""
        if not math.isfinite(loss):
            return np.full_like(self.shift, math.inf)
        limit = np.log1p(math.expm1(min(loss, 600.0)) / self.prob)
        return np.asarray((limit + self.shift**2 / 2) / self.shift)

    def stretched_count(self, fastest: float, highest: float, lowest: float) -> float:
        """About how many nodes the same phases would need at that speed between those losses."""
        if math.isinf(highest) and float((fastest * self.shift).max()) <= _MANY_TURNS:
            return 2.0 * len(self.u)  # evenly spaced ones
        ends = np.append(self.start[1:], len(self.loss)) - 1
        reach = np.clip(self.loss[[self.start, ends]], lowest, highest)
        return len(self.u) + float(np.abs(reach).sum()) * fastest / self._PACE / 0.2

    @property
    def is_cropped(self) -> bool:
        """Whether the nodes leave out losses that carry more than a negligible part of the density."""
        return math.isfinite(self._highest) or math.isfinite(self._lowest)

    def cropped(self, order: float) -> float:
        """Bound on what the missing nodes would add to all steps' transforms at this order."""
        total = float(self.times.sum()) * float(ndtr(-_LEFTMOST))
        if math.isfinite(self._lowest):
            total += float(self.times.sum()) * math.exp(max(order * self._lowest, -700.0))
        if math.isfinite(self._highest):
            edge = self._place_of(self._highest)
            mass = (1 - self.prob) * ndtr(-edge) + self.prob * ndtr(self.shift - edge)
            total += float(self.times @ mass) * EDGE * math.exp(min(order * self._highest, 600.0))
        return total

    def _place(self, low: Floats, high: Floats) -> None:
        first, last = (edge + self._stretch * self._distance(edge) for edge in (low, high))
        needed = np.ceil((last - first) / self.spacing) + 1
        if not needed.sum() < _MOST_NODES:
            raise TooManyNodes
        counts = needed.astype(np.int64)
        ends = np.cumsum(counts)
        self.start: NDArray[np.int64] = ends - counts
        self._phase = None if len(counts) == 1 else np.repeat(np.arange(len(counts)), counts)
        place = np.arange(ends[-1]) - self.spread(self.start)
        t = self.spread(first) + place * self.spread(self.spacing)
        self.u = t if not self._stretch else self._unstretch(t, low, high)

    def spread(self, per_phase: NDArray[Any]) -> Any:
        """One number per phase, repeated for each of its nodes; a plain number where there is one phase."""
        return per_phase[0] if self._phase is None else per_phase[self._phase]

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sums over the nodes of each phase, along the last axis."""
        if self._phase is None:
            return np.add.reduce(values, axis=-1, keepdims=True)
        return np.add.reduceat(values, self.start, axis=-1)

    def _loss_at(self, u: Floats, prob: Floats | float, shift: Floats | float) -> Floats:
        loss = log_mixture(prob, shift * u - shift**2 / 2)
        if self.direction == "replace":
            loss = loss - log_mixture(prob, -shift * u - shift**2 / 2)
        return self._sign * loss

    def _distance(self, u: Floats) -> Floats:
        return self._sign * self._loss_at(u, self.prob, self.shift) if self._stretch else np.zeros_like(u)

    def _unstretch(self, t: Floats, low: Floats, high: Floats) -> Floats:
        """u with u + stretch * |loss|(u) = t: a table, then Newton."""
        pieces, u = np.append(self.start, len(t)), np.empty_like(t)
        for phase, (prob, shift) in enumerate(zip(self.prob, self.shift, strict=True)):
            table = np.linspace(low[phase], high[phase] + 0.1, 800)
            image = table + self._stretch * self._sign * self._loss_at(table, prob, shift)
            here = slice(pieces[phase], pieces[phase + 1])
            u[here] = np.interp(t[here], image, table)
        prob, shift = self.spread(self.prob), self.spread(self.shift)
        for _ in range(3):
            image = u + self._stretch * self._sign * self._loss_at(u, prob, shift)
            u = u - (image - t) / (1 + self._stretch * self.slope_at(u))
        return u

    def odds(self, u: NDArray[Any]) -> NDArray[Any]:
        """q / (1 - q) * exp(m u - m^2 / 2): the odds that this output came from the shifted component."""
        exponent = self._shift_here * u + self._log_odds
        if np.iscomplexobj(u):
            return np.asarray(np.exp(np.minimum(exponent.real, 300.0) + 1j * exponent.imag))
        return np.asarray(np.exp(np.minimum(exponent, 300.0)))

    @cached_property
    def _shift_here(self) -> Any:
        return self.spread(self.shift)

    @cached_property
    def _log_odds(self) -> Any:
        return self.spread(np.log(self.prob) - np.log1p(-self.prob) - self.shift**2 / 2)

    @cached_property
    def odds_here(self) -> Floats:
        """`odds` at the nodes."""
        return np.asarray(self.odds(self.u))

    @cached_property
    def odds_back(self) -> Floats:
        """`odds` at the mirror images of the nodes."""
        return np.asarray(self.odds(-self.u))

    @cached_property
    def slope(self) -> Floats:
        """d|loss|/du at the nodes."""
        share = self.odds_here / (1 + self.odds_here)
        if self.direction == "replace":
            share = share + self.odds_back / (1 + self.odds_back)
        return np.asarray(self.spread(self.shift) * share)

    def slope_at(self, u: NDArray[Any]) -> NDArray[Any]:
        """d|loss|/du, for real or complex u."""
        odds = self.odds(u)
        share = odds / (1 + odds)
        if self.direction == "replace":
            back = self.odds(-u)
            share = share + back / (1 + back)
        return np.asarray(self.spread(self.shift) * share)

    def _weigh(self) -> None:
        prob, shift = self.spread(self.prob), self.spread(self.shift)
        mixture = log_mixture(prob, shift * self.u - shift**2 / 2)
        self.loss = self._loss_at(self.u, prob, shift) if self.direction == "replace" else self._sign * mixture
        log_weight = -0.5 * self.u * self.u + np.log(self.spread(self.spacing) / math.sqrt(2 * math.pi))
        if self._stretch:
            log_weight = log_weight - np.log1p(self._stretch * self.slope)
        if self.direction != "add":
            log_weight = log_weight + mixture
        if self.far is not None:
            self.log_window = log_ndtr((self.spread(self.far) - self.u) / WINDOW)
            log_weight = log_weight + self.log_window
        self.log_weight: Floats = log_weight

    def lowered(self, height: float) -> tuple[NDArray[np.complex128], Floats]:
        """A path below the real line, and the weight that the trapezoid rule's error puts on each of its points.

        By Cauchy, the error is at most twice the integral of |f| / (e^{2 pi depth / spacing} - 1) along any such path
        in the strip (Trefethen and Weideman 2014, section 5). Where e^{iyL} turns fast the path stays shallow.
        """
        spacing = self.spread(self.spacing)
        if self._stretch:
            return self._lowered_evenly
        pace = max(height, self._fastest) / _SHALLOW
        depth = 1 / (1 / self.spread(self.strip) + pace * self.slope)
        tangent = depth * depth * pace * self.bend
        weight = np.sqrt(1 + tangent * tangent) * 2 / np.expm1(2 * math.pi * depth / spacing)
        return self.u - 1j * depth, weight

    @cached_property
    def _lowered_evenly(self) -> tuple[NDArray[np.complex128], Floats]:
        """The same for stretched nodes, at constant depth in the variable in which they are evenly spaced."""
        depth = self.spread(self.strip)
        here = 1 + self._stretch * self.slope
        moved = self.u - 1j * depth / here
        target = self.u + self._stretch * self._bare_loss(self.u) - 1j * depth
        for _ in range(4):
            moved = moved - (moved + self._stretch * self._bare_loss(moved) - target) / (
                1 + self._stretch * self.slope_at(moved)
            )
        stretch = np.abs(here / (1 + self._stretch * self.slope_at(moved)))
        return moved, stretch * 2 / np.expm1(2 * math.pi * depth / self.spread(self.spacing))

    @cached_property
    def bend(self) -> Floats:
        """d slope / du at the nodes."""
        bend = self.odds_here / (1 + self.odds_here) ** 2
        if self.direction == "replace":
            bend = bend - self.odds_back / (1 + self.odds_back) ** 2
        return np.asarray(self.spread(self.shift) ** 2 * bend)

    def _bare_loss(self, u: NDArray[Any]) -> NDArray[Any]:
        """log(1 + odds) and its mirror image, which is |loss| up to a constant; for real or complex u."""
        loss = np.log1p(self.odds(u))
        return np.asarray(loss - np.log1p(self.odds(-u)) if self.direction == "replace" else loss)

    @cached_property
    def weight(self) -> Floats:
        """The weights of the density itself; they sum to 1 less the far mass."""
        return np.exp(self.log_weight)
