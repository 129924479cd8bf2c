"""Paths through the complex plane for the outputs of a sampled Gaussian step, on which heavy tails die out.

With v(u) = m u - m^2/2 + log(q / (1 - q)) the loss of "remove" is log(1 - q) + log(1 + e^v): about e^v for small losses
and about v for large ones. On a lifted path the imaginary part of v rises to about `_RISE` where losses begin to count,
and by `_CLIMB` of the loss from there on, so that e^{zL} falls wherever z lies well above the real axis, even with Re z
growing. It passes right of the zeros of 1 + e^v, where log(1 + e^v) is continued.

The nodes are evenly spaced in the path's real parameter t. Two neighbouring paths, at t + i depth and t - i depth,
bound the error of the trapezoid rule (Trefethen and Weideman 2014, section 5).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc, ndtr

from hush.accounting.exact.logs import log_complex, log_one_plus, tanh_complex
from hush.accounting.exact.nodes import WINDOW, Nodes, TooManyNodes
from hush.accounting.exact.phases import Floats, lazy
from hush.accounting.exact.transforms import UNIT, Complexes

Indices = NDArray[np.int64]
_RISE, _CLIMB = 1.45, 0.38
_LEAN = 0.5  # the most that a path may rise where it begins to, over u
_HASTE = 0.8  # lift over the one of steepest descent at the top height
_DEPTH, _REAL_DEPTH, _DEEPEST = 0.68, 0.8 * math.pi, 3.0  # of the neighbours: over the rise, over 1/m, and at most
_LEFTMOST = -10.0
_LEFT_MASS = float(ndtr(_LEFTMOST))
_MOST_NODES = 6_000
_BLOCK = 12_000  # elements at a time: what a fast cache holds
_LARGEST = 600.0
_NEAR_ZERO = 0.98 * math.pi  # 1 + e^v is 0 at v = i pi
_FAR_INSIDE = 40.0  # 1 - erfc(-x) / 2 is below e^-40 where Re x^2 is above this
_NO_NOISE: Floats = np.empty((0, 1))
_SIDES = np.array([1j, -1j])[:, None]


def _softplus(v: NDArray[Any]) -> NDArray[Any]:
    """log(1 + e^v), continued to the right of the zeros of 1 + e^v; they must stay on the left."""
    large = v.real > 0
    if np.abs(v.imag[np.abs(v.real) < 0.75]).max(initial=0.0) > _NEAR_ZERO:
        raise TooManyNodes
    return np.asarray(log_one_plus(np.exp(np.where(large, -v, v))) + np.where(large, v, 0))


def excesses(z: Complexes, turns: tuple[Floats, Floats]) -> tuple[Floats, Floats, Floats]:
    """e^{zL} - 1 at each z and node, real and imaginary part, and |e^{zL}|."""
    parts = np.stack([z.real, z.imag], axis=1)
    rise = parts @ turns[0]
    np.expm1(np.minimum(rise, _LARGEST, out=rise), out=rise)
    tangent = parts @ turns[1]
    np.tan(tangent, out=tangent)
    # e^{a+ib} - 1 with t = tan(b/2): the imaginary part is s = 2 e^a t / (1 + t^2), the real part e^a - 1 - s t.
    size = rise + 1
    imaginary = tangent * tangent
    imaginary += 1
    np.divide(tangent, imaginary, out=imaginary)
    imaginary *= size
    imaginary *= 2
    tangent *= imaginary
    return np.subtract(rise, tangent, out=rise), imaginary, size


def weighed(real: Floats, imaginary: Floats, weights: Floats) -> Complexes:
    """The complex sums: the first half of the weights' columns are their real parts, the others the imaginary."""
    count = weights.shape[1] // 2
    ahead, aside = real @ weights, imaginary @ weights
    return np.asarray(ahead[:, :count] - aside[:, count:] + 1j * (ahead[:, count:] + aside[:, :count]))


class Path:
    """Nodes, losses and weights of all phases of one direction ("remove" or "replace").

    `top` is the height up to which the path is to serve, 0 for the real line. Per phase, `exponent` is how many powers
    of e below 1 the error of a step's transform may be, and `pace` the height up to which e^{zL} is resolved.
    """

    def __init__(self, nodes: Nodes, top: float, exponent: Floats, pace: Floats) -> None:
        assert nodes.far is not None
        self._nodes, self._top, self._far, shift = nodes, top, nodes.far, nodes.shift
        self._log_odds = np.log(nodes.prob) - np.log1p(-nodes.prob) - shift**2 / 2
        self._rise = self._rises()
        self._depth = np.minimum((_DEPTH * self._rise if top else _REAL_DEPTH) / shift, _DEEPEST)
        self._spacing = 2 * math.pi * self._depth / (exponent + 4 + self._depth * (self._depth + pace * shift))
        self._t = self._placed()
        self._log_scale = np.log(self._spacing / math.sqrt(2 * math.pi))
        self._weigh()

    @lazy
    def _sides(self) -> tuple[Floats, Floats]:
        """The neighbouring paths' losses and log weights. Positive and smooth, so every second node is enough."""
        half = self._phase[::2]
        share = np.log(2 / np.expm1(2 * math.pi * self._depth / self._spacing))
        _, loss, log_weight = self._at(self._t[::2] + _SIDES * self._depth[half], half)
        return np.stack([loss.real, -loss.imag], axis=1), log_weight.real + (self._log_scale + share)[half]

    @lazy
    def _off_one(self) -> Floats:
        """The error at z = 0, where the transform is known to be 1."""
        return self._quadrature(np.zeros(1, dtype=np.complex128))

    def _rises(self) -> Floats:
        """Where the lift begins it must not exceed a share of u: the normal density would grow along the path."""
        shift = self._nodes.shift
        begin = (math.log(0.5 / (max(self._top, 1e-300) * _HASTE)) - np.log(shift) - self._log_odds) / shift
        return np.asarray(np.minimum(_RISE, _LEAN * shift * np.maximum(begin, 2.0)))

    def _placed(self) -> Floats:
        """Evenly spaced parameters, an even number for each phase."""
        needed = np.ceil((self._far + 7 * WINDOW - _LEFTMOST) / self._spacing) + 2
        if not needed.sum() < _MOST_NODES:
            raise TooManyNodes
        counts = needed.astype(np.int64) // 2 * 2
        ends = np.cumsum(counts)
        self._phase: Indices = np.repeat(np.arange(len(counts)), counts)
        self._columns = (self._phase[:, None] == np.arange(len(counts))).astype(np.float64)
        self._last = ends - 1
        place = np.arange(ends[-1]) - (ends - counts)[self._phase]
        return np.asarray(_LEFTMOST + self._spacing[self._phase] * place)

    def _lifted(
        self, t: Complexes | Floats, phase: Indices, shift: Floats, log_odds: Floats
    ) -> tuple[Complexes, Complexes]:
        """The places u(t), and du/dt."""
        odds = np.exp(shift * t + log_odds)
        share = odds / (1 + odds)
        slope, bend = share, share / (1 + odds)
        if self._nodes.direction == "replace":
            back = np.exp(log_odds - shift * t)
            behind = back / (1 + back)
            slope, bend = slope + behind, bend - behind / (1 + back)
        speed = _HASTE * self._top * shift
        most = (self._rise[phase] + _CLIMB * log_one_plus(odds)) / shift
        pull = speed * slope / most
        bent = tanh_complex(pull)
        climb = _CLIMB * share
        tangent = climb * bent + (speed * shift * bend - pull * climb) * (1 - bent * bent)
        return t + 1j * most * bent, 1 + 1j * tangent

    def _at(self, t: Complexes | Floats, phase: Indices) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The places u at parameters t, the losses there, and logs of the density times du/dt."""
        shift, log_odds = self._nodes.shift[phase], self._log_odds[phase]
        rest = np.log1p(-self._nodes.prob)[phase]
        u, tangent = self._lifted(t, phase, shift, log_odds) if self._top else (t, 1.0)
        mixture = rest + _softplus(shift * u + log_odds)
        is_replace = self._nodes.direction == "replace"
        loss = mixture - rest - _softplus(log_odds - shift * u) if is_replace else mixture
        outside = (u - self._far[phase]) / (WINDOW * math.sqrt(2))
        window = np.ones_like(outside)
        near = (outside.real > 0) | (outside.real**2 - outside.imag**2 < _FAR_INSIDE)
        window[near] = 0.5 * erfc(outside[near])
        density: NDArray[Any] = np.asarray(tangent * window)
        log_density = log_complex(density) if density.dtype.kind == "c" else np.log(density)
        return u, loss, mixture - 0.5 * u * u + log_density

    def _weigh(self) -> None:
        self.u, loss, log_weight = self._at(self._t, self._phase)
        log_weight = log_weight + self._log_scale[self._phase]
        self.turns = np.stack([loss.real, -loss.imag]), 0.5 * np.stack([loss.imag, loss.real])
        self._log_size = log_weight.real
        weights = self._columns * np.exp(log_weight)[:, None]
        self._weights = np.concatenate([weights.real, weights.imag], axis=1)
        self._loss, self._log_weight = loss, log_weight

    @lazy
    def _noise(self) -> tuple[Floats, Floats]:
        """Rounding of the weights (their exponents are sums of a few terms of that size) and of the losses."""
        exact = UNIT * np.exp(self._log_size)
        off = 24 * exact * (np.abs(self._loss) + self._nodes.prob[self._phase])
        noise = exact * (16 + 2 * np.abs(self._log_weight))
        return self._columns * noise[:, None], self._columns * off[:, None]

    def excess(self, z: Complexes, count: int | None = None) -> tuple[Complexes, Floats]:
        """E e^{zL} - 1 of one step of each phase at each z, and bounds on the first `count` values' rounding errors."""
        count = len(z) if count is None else count
        rows = max(_BLOCK // len(self._phase), 1)
        starts = (*range(0, count, rows), *range(count, len(z), rows))
        total, noise = np.empty((len(z), self._columns.shape[1]), dtype=np.complex128), [_NO_NOISE]
        for first, last in zip(starts, (*starts[1:], len(z)), strict=True):
            real, imaginary, size = excesses(z[first:last], self.turns)
            total[first:last] = weighed(real, imaginary, self._weights)
            if first < count:
                spread = np.abs(real, out=real)
                spread += np.abs(imaginary, out=imaginary)
                noise.append(spread @ self._noise[0] + np.abs(z[first:last])[:, None] * (size @ self._noise[1]))
        return total, np.concatenate(noise[1:] or noise)

    @property
    def weights(self) -> Complexes:
        """The weights of one phase's nodes."""
        return np.asarray(self._weights[:, 0] + 1j * self._weights[:, 1])

    def quadrature(self, z: Complexes) -> Floats:
        """Bound on the trapezoid rule's error of E e^{zL} - 1 of one step, per z and phase, with the ends left out."""
        return self._quadrature(z) + self._off_one

    def _quadrature(self, z: Complexes) -> Floats:
        parts, columns = np.stack([z.real, z.imag], axis=1), self._columns[::2]
        total = np.full((len(z), columns.shape[1]), _LEFT_MASS)
        for turns, log_side in zip(*self._sides, strict=True):
            total += np.exp(np.minimum(parts @ turns + log_side, _LARGEST)) @ columns
        end = parts @ self.turns[0][:, self._last] + self._log_size[self._last]
        return np.asarray(total + 10 * np.exp(np.minimum(end, _LARGEST)))

    def log_bound(self, z: complex) -> float:
        """log of a bound on the sampled steps' |transform| at Re z and all heights from Im z on."""
        if self.turns[0][1].max() > 1e-13:  # |e^{zL}| must fall with the height all along the path
            return math.inf
        exponent = np.array([z.real, z.imag]) @ self.turns[0] + self._log_size
        return float(np.log(np.exp(np.minimum(exponent, _LARGEST)) @ self._columns) @ self._nodes.times)
