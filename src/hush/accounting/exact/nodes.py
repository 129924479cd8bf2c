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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from hush.accounting.exact.logs import log_mixture, log_tails
from hush.accounting.exact.phases import Direction, Floats, Phases, lazy

WINDOW = 1.0  # softness of the far window, in units of the noise
_SPREAD = math.sqrt(1 + WINDOW**2)
_ROOT_HALF = math.sqrt(0.5)
_LEFTMOST = 10.0  # nodes further left weigh less than 1e-23 and carry no large loss
_LEFT_MASS = float(ndtr(-_LEFTMOST))
_RIGHTMOST, _RIGHT_MASS = 9.0, float(ndtr(-9.0))  # of "add", whose losses are negative there
EDGE_DISTANCE = 13.0
EDGE = float(ndtr(-EDGE_DISTANCE))  # weight left by a cut that many softnesses below
_MOST_NODES = 3e5
_TABLE = np.linspace(0.0, 1.0, 800)
_ONE_START: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
_MANY_TURNS = 40.0  # below this, evenly spaced nodes are cheaper than stretched ones
_SHALLOW = 18.0  # phase in radians that the error's path may gain on the way down
_CUSHION = 6.0  # and the logarithm of the steps: the error of each counts once


def _turned(odds: Floats, cosine: Floats, sine: Floats) -> tuple[Floats, Floats]:
    """log modulus and argument of 1 + odds * (cosine + i sine)."""
    return 0.5 * np.log1p(odds * (2 * cosine + odds)), np.arctan2(odds * sine, 1 + odds * cosine)


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
        self.fastest = fastest
        # A turn is a radian per unit of u, where the loss is steepest.
        is_fast = has_cut or fastest * phases.largest_shift > _MANY_TURNS
        self._stretch = fastest / self._PACE if is_fast else 0.0
        self._highest, self._lowest = highest, lowest
        self._leftmost_loss: Floats | None = None  # 0
        self._end_mass = self.phases.steps * (_RIGHT_MASS if direction == "add" else _LEFT_MASS)
        low, high = self._range(log_delta)
        depth = digits + _CUSHION + phases.log_steps
        widest = 3.0 if self._stretch else math.sqrt(depth)
        self.strip = np.minimum(0.9 * math.pi / self.shift, widest)
        # On a line d below, the density grows by e^{d^2/2}, the window by as much again, e^{iyL} by e^{pace * d}.
        rate = depth / self.strip + self.strip
        if fastest:
            rate = rate + (self._PACE if self._stretch else fastest * self.shift)
        self.spacing = 2 * math.pi / rate
        self._place(low, high)
        self._weigh()

    def _range(self, log_delta: float) -> tuple[Floats, Floats]:
        reach = math.sqrt(2 * (self.phases.log_steps - log_delta + self.digits))
        if self.direction == "add":
            lowest = reach + 5.0
            self.far, self.far_mass = None, self.phases.steps * math.erfc(lowest * _ROOT_HALF) / 2
            high = np.full_like(self.shift, _RIGHTMOST)
            if math.isfinite(self._lowest):
                high = np.minimum(high, self._place_of(-self._lowest))
            return np.full_like(self.shift, -lowest), high
        self.far = self.shift + _SPREAD * reach
        # The window is the normal cdf, so the mass it drops is a normal tail with variance 1 + WINDOW^2.
        shifted = math.erfc(reach * _ROOT_HALF) / 2
        self.far_mass = sum(
            times * ((1 - prob) * math.erfc((reach + shift / _SPREAD) * _ROOT_HALF) / 2 + prob * shifted)
            for prob, shift, times in self.phases.rows
        )
        low, high = np.full_like(self.shift, -_LEFTMOST), self.far + 7 * WINDOW
        if self.direction == "replace" and math.isfinite(self._lowest):
            low = np.maximum(low, -self._place_of(-self._lowest))
        if math.isfinite(self._highest):
            high = np.minimum(high, self._place_of(self._highest))
        return low, high

    def _place_of(self, loss: float) -> Floats:
        """A place at which |loss| is at least this: where w(u) = e^loss, since w(-u) <= 1 for u >= -m/2."""
        limit = np.log1p(math.expm1(min(loss, 600.0)) / self.prob)
        return np.asarray((limit + self.shift**2 / 2) / self.shift)

    def log_mass_above(self, losses: Floats) -> Floats:
        """log of a bound on the expected number of steps with a loss above each of these ("remove", "replace")."""
        # w(-u) >= 1 - q, so under "replace" the loss is at most log w(u) - log(1 - q).
        back = self.phases.log_rest if self.direction == "replace" else np.zeros_like(self.prob)
        rise = np.expm1(np.minimum(losses[:, None] + back, 600.0)) / self.prob
        edge = np.log1p(np.maximum(rise, -1 + 1e-300)) / self.shift + self.shift / 2
        mass = (1 - self.prob) * ndtr(-edge) + self.prob * ndtr(self.shift - edge)
        return np.asarray(np.log(np.maximum(mass @ self.times, 1e-300)))

    def stretched_count(self, fastest: float, highest: float, lowest: float) -> float:
        """About how many nodes the same phases would need at that speed between those losses."""
        if math.isinf(highest) and fastest * self.phases.largest_shift <= _MANY_TURNS:
            return 2.0 * len(self.u)  # evenly spaced ones
        ends = np.append(self.start[1:], len(self.loss)) - 1
        reach = np.clip(self.loss[[self.start, ends]], lowest, highest)
        return len(self.u) + float(np.abs(reach).sum()) * fastest / self._PACE / 0.2

    @property
    def has_twin(self) -> bool:
        """Whether `twin` serves: evenly spaced nodes of the direction "remove"."""
        return self.direction == "remove" and not self._stretch and not self.is_cropped

    def twin(self) -> Nodes:
        """The direction "add" on these very nodes. Left of them its losses are at most -log(1 - q)."""
        twin = object.__new__(Nodes)
        twin.__dict__.update(self.__dict__)
        for name in ("weight", "size"):
            twin.__dict__.pop(name, None)
        twin.direction, twin._sign, twin.far, twin.far_mass = "add", -1.0, None, 0.0
        twin.loss = -self.loss
        twin.log_weight = self.log_weight - (self.loss + self.log_window)
        twin._leftmost_loss = -self.phases.log_rest
        return twin

    @property
    def is_cropped(self) -> bool:
        """Whether the nodes leave out losses that carry more than a negligible part of the density."""
        return math.isfinite(self._highest) or math.isfinite(self._lowest)

    def cropped(self, order: float) -> float:
        """Bound on what the missing nodes would add to all steps' transforms at this order."""
        if self._leftmost_loss is None and not self.is_cropped:
            return self._end_mass
        if self.is_cropped or self._leftmost_loss is None:
            return float(self.cropped_at(np.array([order]))[0])
        return float(np.exp(np.minimum(order * self._leftmost_loss, 600.0)) @ self.times) * _LEFT_MASS

    def cropped_at(self, orders: Floats) -> Floats:
        """The same at several orders."""
        total = np.full_like(orders, self._end_mass)
        if self._leftmost_loss is not None:
            left = np.exp(np.minimum(np.multiply.outer(orders, self._leftmost_loss), 600.0))
            total = left @ self.times * _LEFT_MASS
        if self._low_mass:
            total = total + self._low_mass * np.exp(np.maximum(orders * self._lowest, -700.0))
        if math.isfinite(self._highest):
            total = total + self._edge_mass * np.exp(np.minimum(orders * self._highest, 600.0))
        return np.asarray(total)

    @lazy
    def _low_mass(self) -> float:
        """Of all steps' losses below `lowest`, where there are no nodes for them; "remove" has no such losses."""
        if self.direction == "remove" or not math.isfinite(self._lowest):
            return 0.0
        edge = self._place_of(-self._lowest)
        mass = ndtr(-edge)
        if self.direction == "replace":
            mass = (1 - self.prob) * mass + self.prob * ndtr(-edge - self.shift)
        return float(self.times @ mass)

    @lazy
    def _edge_mass(self) -> float:
        edge = self._place_of(self._highest)
        mass = (1 - self.prob) * ndtr(-edge) + self.prob * ndtr(self.shift - edge)
        return float(self.times @ mass) * EDGE

    def _place(self, low: Floats, high: Floats) -> None:
        first, last = low, high
        if self._stretch:
            first, last = (edge + self._stretch * self._distance(edge) for edge in (low, high))
        needed = np.ceil((last - first) / self.spacing) + 1
        if not needed.sum() < _MOST_NODES:
            raise TooManyNodes
        self.start, self._phase = _ONE_START, None
        place = np.arange(needed[0], dtype=np.float64)
        if len(needed) > 1:
            counts = needed.astype(np.int64)
            ends = np.cumsum(counts)
            self.start = ends - counts
            self._phase = np.repeat(np.arange(len(counts)), counts)
            place = np.arange(ends[-1]) - self.spread(self.start)
        t = self.spread(first) + place * self.spread(self.spacing)
        self.u = t if not self._stretch else self._unstretch(t, low, high)

    @property
    def is_single(self) -> bool:
        """Whether there is one phase only."""
        return self._phase is None

    def spread(self, per_phase: NDArray[Any]) -> Any:
        """One number per phase, repeated for each of its nodes; a plain number where there is one phase."""
        return per_phase[..., 0] if self._phase is None else per_phase.take(self._phase, axis=-1)

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
        return self._sign * self._loss_at(u, self.prob, self.shift)

    def _unstretch(self, t: Floats, low: Floats, high: Floats) -> Floats:
        """u with u + stretch * |loss|(u) = t: a table, then Newton."""
        pieces, u = np.append(self.start, len(t)), np.empty_like(t)
        for phase, (prob, shift) in enumerate(zip(self.prob, self.shift, strict=True)):
            table = low[phase] + (high[phase] + 0.1 - low[phase]) * _TABLE
            image = table + self._stretch * self._sign * self._loss_at(table, prob, shift)
            here = slice(pieces[phase], pieces[phase + 1])
            u[here] = np.interp(t[here], image, table)
        prob, shift = self.spread(self.prob), self.spread(self.shift)
        for _ in range(3):
            image = u + self._stretch * self._sign * self._loss_at(u, prob, shift)
            u = u - (image - t) / (1 + self._stretch * self._slope_at(u))
        return u

    def odds(self, u: Floats) -> Floats:
        """q / (1 - q) * exp(m u - m^2 / 2): the odds that this output came from the shifted component."""
        return np.asarray(np.exp(np.minimum(self._shift_here * u + self._log_odds, 300.0)))

    @lazy
    def _shift_here(self) -> Any:
        return self.spread(self.shift)

    @lazy
    def _log_odds(self) -> Any:
        return self.spread(self.phases.log_odds)

    @lazy
    def odds_here(self) -> Floats:
        """`odds` at the nodes."""
        return np.asarray(self.odds(self.u))

    @lazy
    def odds_back(self) -> Floats:
        """`odds` at the mirror images of the nodes."""
        return np.asarray(self.odds(-self.u))

    @lazy
    def _log_here(self) -> Floats:
        return np.log1p(self.odds_here)

    @lazy
    def _log_back(self) -> Floats:
        return np.log1p(self.odds_back)

    def turned(self, offset: Floats) -> tuple[Floats, Floats, Floats]:
        """At u + i offset against u: the change of log |w|, that of Re |loss|, and Im |loss|."""
        angle = self._shift_here * offset
        cosine, sine = np.cos(angle), np.sin(angle)
        swing, turn = _turned(self.odds_here, cosine, sine)
        swing = swing - self._log_here
        if self.direction != "replace":
            return swing, swing, turn
        swing_back, turn_back = _turned(self.odds_back, cosine, -sine)
        return swing, swing - (swing_back - self._log_back), turn - turn_back

    @lazy
    def slope(self) -> Floats:
        """d|loss|/du at the nodes."""
        return np.asarray(self._shift_here * self.share)

    @lazy
    def share(self) -> Floats:
        """`slope` over the shift."""
        share = self.odds_here / (1 + self.odds_here)
        if self.direction == "replace":
            share = share + self.odds_back / (1 + self.odds_back)
        return np.asarray(share)

    @lazy
    def log_share(self) -> Floats:
        """Its logarithm, where it is above 0."""
        return np.log(np.maximum(self.share, 1e-300))

    @lazy
    def curl(self) -> Floats:
        """d log slope / du at the nodes."""
        return np.asarray(self.bend / (self._shift_here * np.maximum(self.share, 1e-300)))

    @lazy
    def size(self) -> Floats:
        """|loss| at the nodes."""
        return np.abs(self.loss)

    def _slope_at(self, u: Floats) -> Floats:
        """d|loss|/du, for real u."""
        odds = self.odds(u)
        share = odds / (1 + odds)
        if self.direction == "replace":
            back = self.odds(-u)
            share = share + back / (1 + back)
        return np.asarray(self._shift_here * share)

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
            self.log_window, self.log_outside = log_tails((self.spread(self.far) - self.u) / WINDOW)
            log_weight = log_weight + self.log_window
        self.log_weight: Floats = log_weight

    def lowered(self, height: float) -> tuple[Floats, Floats]:
        """Offsets of a path below the real line, and the weight that the trapezoid rule's error puts on its points.

        By Cauchy, the error is at most twice the integral of |f| / (e^{2 pi depth / spacing} - 1) along any such path
        in the strip (Trefethen and Weideman 2014, section 5). Where e^{iyL} turns fast the path stays shallow.
        """
        if self._stretch:
            return self._lowered_evenly
        pace = max(height, self.fastest) / _SHALLOW
        depth = 1 / (1 / self.spread(self.strip) + pace * self.slope)
        tangent = depth * depth * pace * self.bend
        return -depth, self._error_weight(depth, tangent)

    def _error_weight(self, depth: Floats, tangent: Floats) -> Floats:
        return np.asarray(
            np.sqrt(1 + tangent * tangent) * 2 / np.expm1(2 * math.pi * depth / self.spread(self.spacing))
        )

    @lazy
    def _lowered_evenly(self) -> tuple[Floats, Floats]:
        """The same for stretched nodes: what counts is the depth in t, the variable in which they are evenly spaced."""
        depth = self.spread(self.strip)
        offset = depth / (1 + self._stretch * self.slope)
        tangent = offset * offset * self._stretch * self.bend / depth
        _, change, turn = self.turned(offset)
        weight = self._error_weight(offset + self._stretch * turn, tangent)
        moved = self.u + self._stretch * (self._sign * self.loss + change)
        if not (np.diff(moved) > 0)[self._is_inner].all():  # the path's image in t must not fold
            weight = np.full_like(weight, math.inf)
        return -offset, weight

    @lazy
    def _is_inner(self) -> NDArray[np.bool_]:
        """Whether a node and the next belong to one phase."""
        inner = np.ones(len(self.u) - 1, dtype=np.bool_)
        inner[self.start[1:] - 1] = False
        return inner

    @lazy
    def bend(self) -> Floats:
        """d slope / du at the nodes."""
        ahead = 1 + self.odds_here
        bend = self.odds_here / (ahead * ahead)
        if self.direction == "replace":
            bend = bend - self.odds_back / (1 + self.odds_back) ** 2
        return np.asarray(self._shift_here * self._shift_here * bend)

    @lazy
    def weight(self) -> Floats:
        """The weights of the density itself; they sum to 1 less the far mass."""
        return np.exp(self.log_weight)
