"""epsilon by short rules without any bound, and how it changes with the noise, the sampling and the steps.

Only for searches, which end at an exact answer. With a(u) = d log w(u) / d theta for the mixture w of `nodes`, one
step's transform M(z) = E w^z changes by E (z + 1) a w^z under "remove", and under "replace" by that less z times the
same with the mirror image a(-u).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hush.accounting.exact.bent import BEND, LARGEST_SWELL, end_of, lowest_of, shape_of
from hush.accounting.exact.contour import abscissa, from_zero
from hush.accounting.exact.layers import Ordinary
from hush.accounting.exact.logs import log_complex, log_one_plus
from hush.accounting.exact.nodes import Nodes, TooManyNodes
from hush.accounting.exact.path import Path, excesses, weighed
from hush.accounting.exact.phases import Floats
from hush.accounting.exact.transforms import Complexes, Whole

_LINE_DIGITS, _BENT_DIGITS = 14.0, 10.0  # errors are about e^-digits of delta
_MOST_NODES = 500
_LINE_LEFT, _BENT_LEFT = 1e-5, 1e-2  # share of delta that the last terms may still have
_AFAR = 0.15  # from a place so much off a rule is not exact
_SLOW = 12.0  # how far the transform should have fallen at the end of the line, in powers of e
_FAST, _FAINT = 3.0, 5e-5  # a turn from node to node, and how many losses may turn as fast
_FEW_STEPS = 1.5  # log moment at Chernoff's order below which a bent contour serves rather than a line
_FEW_LOSSES = 1.0  # log moment at the saddle point below which it says little: a few large losses make up the answer
_LARGEST_TERM = 0.5  # of the saddle point's series
_LITTLE, _MOST_STRIDES = 0.05, 12  # of the saddle point: an error of log delta, and the search for it
_MOST_ROUNDS = 20  # of Newton's method


class Rough(NamedTuple):
    """About epsilon, and about how much it grows with the logarithm of each number, of all sampled steps."""

    epsilon: float
    by_noise: float
    by_prob: float
    by_steps: float


def rough(ordinary: Ordinary, near: float) -> Rough | None:
    """By the first rule that serves, if epsilon lies near there; None where none does."""
    likely, log_moment = ordinary.saddle_epsilon()
    places = [near]
    if likely > 0 and abs(likely - near) > _AFAR * near:  # where few losses make up the answer, that says little
        places = [likely, near] if log_moment > _FEW_LOSSES else [near, likely]
    best = None
    for place in places:
        found = _along(ordinary, place, log_moment)
        best = found or best
        if found is not None and abs(found.epsilon - place) < _AFAR * place:
            break
    return best


def _along(ordinary: Ordinary, near: float, log_moment: float) -> Rough | None:
    """By a line, or by a bend: first the one that is likely to serve."""
    rules = [_along_line, _along_bend] if ordinary.part.nodes.is_single else [_along_line]
    if log_moment < min(_FEW_STEPS, -0.12 * ordinary.log_delta):
        rules.reverse()
    return next((found for rule in rules if (found := rule(ordinary, near)) is not None), None)


def saddle(ordinary: Ordinary) -> Rough | None:
    """By the saddle point alone (Daniels 1954): the middle of a line and its shape there. Right to a percent or so."""
    part, nodes, log_delta = ordinary.part, ordinary.part.nodes, ordinary.log_delta
    order = float(ordinary.orders[np.argmin((ordinary.constants - log_delta) / ordinary.orders)])
    low, high = 0.0, math.inf
    for _ in range(_MOST_STRIDES):
        log_moment = part.tilt_to(order)
        epsilon, log_here, variance = _at_saddle(part, order, log_moment)
        off = log_here - log_delta
        if not math.isfinite(off) or nodes.phases.bounded:
            return None
        if abs(off) < _LITTLE:
            break
        low, high = (order, high) if off > 0 else (low, order)
        order *= math.exp(min(max(off / (order * order * variance), -1.0), 1.0))
        order = order if low < order < high else math.sqrt(low * high)  # moments can explode from one order to the next
    else:
        return None
    epsilon += off / part.order
    if not epsilon > 0 or log_moment < _FEW_LOSSES:
        return None
    factors = _factors(nodes, nodes.u, nodes.spread(nodes.prob), nodes.spread(nodes.shift))
    moved = [nodes.sums(part.tilted * factor) for factor in factors]
    by_noise, by_prob = (float(change @ nodes.times) / part.order for change in _joined(part.order, moved))
    return Rough(epsilon, by_noise, by_prob, log_moment / part.order)


def _at_saddle(part: Whole, order: float, log_moment: float) -> tuple[float, float, float]:
    """The epsilon whose saddle point this order is, log delta there to the second term, and the variance."""
    mean, variance, third, fourth = part.cumulants()
    # The kernel 1 / (z (z + 1)) is part of the integrand.
    ends = order, order + 1
    epsilon, variance = mean - sum(1 / end for end in ends), variance + sum(end**-2 for end in ends)
    skew = (third - 2 * sum(end**-3 for end in ends)) ** 2 / variance**3
    next_term = (fourth + 6 * sum(end**-4 for end in ends)) / variance**2 / 8 - 5 * skew / 24
    log_delta = log_moment - order * epsilon - math.log(order * (order + 1)) - math.log(2 * math.pi * variance) / 2
    return epsilon, log_delta + min(max(next_term, -_LARGEST_TERM), _LARGEST_TERM), variance


def _along_line(ordinary: Ordinary, near: float) -> Rough | None:
    """By a short line."""
    part, log_delta = ordinary.part, ordinary.log_delta
    grid, constants = from_zero(ordinary.orders, ordinary.constants)
    if len(grid) < 3:
        return None
    c, period = abscissa(grid, constants, near, log_delta, _LINE_DIGITS)
    log_moment = part.tilt_to(c)
    height = math.sqrt(2 * _LINE_DIGITS / max(part.variance(), 1e-300))
    count = 1.4 * height * period / (2 * math.pi)
    if not count < _MOST_NODES or part.log_size(height) > -_SLOW or _unresolved(part, height) > _FAINT:
        return None
    z: Complexes = np.asarray(c + 2j * math.pi / period * np.arange(math.ceil(count) + 2))
    log_power, changes = _on_line(part, z)
    log_power += log_moment
    log_terms = log_power - log_complex(z * (z + 1)) - math.log(period)
    log_terms[1:] += math.log(2)
    return _solved(z, log_terms, log_power, changes, log_delta, near, _LINE_LEFT)


def _unresolved(part: Whole, height: float) -> float:
    """How many of all steps' losses turn too fast for the nodes at that height."""
    nodes = part.nodes
    is_fast = nodes.slope * height * nodes.spread(nodes.spacing) > _FAST
    return float(nodes.sums(part.tilted * is_fast) @ nodes.times)


def _on_line(part: Whole, z: Complexes) -> tuple[Complexes, Complexes]:
    """log of all steps' transform over its value on the axis, and its changes with the logs of noise and sampling."""
    nodes, heights = part.nodes, z.imag
    shift, prob, times = nodes.spread(nodes.shift), nodes.spread(nodes.prob), nodes.times
    factors = [part.tilted * a for a in _factors(nodes, nodes.u, prob, shift)]
    whole, *waves = (real + 1j * imaginary for real, imaginary in part.waves(heights, part.tilted, *factors))
    moved = [wave + nodes.sums(factor) for wave, factor in zip(waves, factors, strict=True)]
    log_power = log_one_plus(whole) @ times + (part.rest(z) - part.rest(z[:1]))
    changes = [change / (1 + whole) @ times for change in _joined(z[:, None], moved)]
    return log_power, np.stack(changes)


def _factors(nodes: Nodes, u: NDArray[Any], prob: Any, shift: Any) -> list[NDArray[Any]]:
    """d log w(u) by the logs of noise and sampling_prob, and under "replace" d log w(-u)."""
    factors = []
    for place in (u, -u) if nodes.direction == "replace" else (u,):
        odds = np.exp(shift * place + (np.log(prob) - np.log1p(-prob) - shift * shift / 2))
        share = 1 / (1 + 1 / odds)
        factors += [-shift * share * (place - shift), (share - prob) / (1 - prob)]
    return factors


def _joined(z: Any, moved: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """The changes of the transforms from the expectations of the factors."""
    if len(moved) == 2:
        return [(z + 1) * ahead for ahead in moved]
    return [(z + 1) * ahead - z * back for ahead, back in zip(moved[:2], moved[2:], strict=True)]


def _along_bend(ordinary: Ordinary, near: float) -> Rough | None:
    """By a bent contour."""
    part, nodes = ordinary.part, ordinary.part.nodes
    shape = shape_of(part, near, ordinary.saddle(near)) if ordinary.swell(near) < LARGEST_SWELL else None
    if shape is None:
        return None
    hyperbola, swell, steepness = shape
    step = 2 * math.pi * BEND / (_BENT_DIGITS + swell + steepness)
    end = end_of(part, hyperbola, near, _BENT_DIGITS)
    if end is None or end / step > _MOST_NODES:
        return None
    x: Floats = step * np.arange(math.ceil(end / step) + 1, dtype=np.float64)
    z = hyperbola.at(x)
    try:
        exponent = _BENT_DIGITS + swell + nodes.phases.log_steps
        lifted = Path(nodes, float(z[-1].imag), np.array([exponent]), np.zeros(1))
    except TooManyNodes:
        return None
    # Low on the contour the nodes at hand serve.
    split = int(np.searchsorted(z.imag, lowest_of(nodes)[0]))
    turns = np.stack([nodes.loss, np.zeros_like(nodes.loss)]), 0.5 * np.stack([np.zeros_like(nodes.loss), nodes.loss])
    found = (
        _moments(nodes, z[:split], nodes.u, nodes.weight, turns),
        _moments(nodes, z[split:], lifted.u, lifted.weights, lifted.turns),
    )
    excess, moved = (np.concatenate(both) for both in zip(*found, strict=True))
    log_power = float(nodes.times[0]) * log_one_plus(excess) + part.rest(z)
    changes = np.stack(_joined(z, list(moved.T))) / (1 + excess) * nodes.times[0]
    log_terms = log_power - log_complex(z * (z + 1)) + hyperbola.log_speed(x) + math.log(step / math.pi)
    log_terms[0] -= math.log(2)
    return _solved(z, log_terms, log_power, changes, ordinary.log_delta, near, _BENT_LEFT)


def _moments(
    nodes: Nodes, z: Complexes, u: NDArray[Any], weight: NDArray[Any], turns: tuple[Floats, Floats]
) -> tuple[Complexes, Complexes]:
    """One step's transform less 1 along this path, and the expectations of the factors."""
    weights = np.stack(
        [weight, *(weight * factor for factor in _factors(nodes, u, nodes.prob[0], nodes.shift[0]))], axis=1
    )
    real, imaginary, _ = excesses(z, turns)
    found = weighed(real, imaginary, np.concatenate([weights.real, weights.imag], axis=1))
    # d log w(u) has the mean 0, d log w(-u) has not.
    means = weights[:, 1:].sum(axis=0)
    means[:2] = 0
    return found[:, 0], found[:, 1:] + means


def _solved(
    z: Complexes,
    log_terms: Complexes,
    log_power: Complexes,
    changes: Complexes,
    log_delta: float,
    near: float,
    left: float,
) -> Rough | None:
    """epsilon at which the rule has that delta, by Newton's method."""
    epsilon = near
    for _ in range(_MOST_ROUNDS):
        terms = np.exp(log_terms - z * epsilon - log_delta)
        value, slope = float(terms.real.sum()), -float((z @ terms).real)
        if not (0 < value < math.inf and slope < 0):
            return None
        step = math.log(value) * value / -slope
        epsilon += step
        if abs(step) <= 1e-9 * abs(epsilon):
            break
    else:
        return None
    if not epsilon > 0 or abs(terms[-1]) * len(terms) > left * value:
        return None
    by_noise, by_prob = (changes @ terms).real / -slope
    return Rough(epsilon, float(by_noise), float(by_prob), float((log_power @ terms).real) / -slope)
