"""How fast a transform falls along a vertical line, and how exact its quadrature is: two bounds, one device.

For y > 0 the path of integration may be moved from u to u + i d(u), 0 <= d < pi / m, since the integrand is analytic
there. On the moved path |e^{iyL}| = e^{-y arg w} falls with y, so a bound taken at height Y holds for all heights above
it. Moved the other way, the same integral bounds the trapezoid rule's error (Trefethen and Weideman 2014, section 5).
Both are integrals of positive smooth functions, taken on the nodes at hand.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr

from hush.accounting.exact.nodes import WINDOW, Nodes
from hush.accounting.exact.phases import Floats
from hush.accounting.exact.transforms import Complexes, Jumps, Whole

Menu = tuple[tuple[float, float, float], ...]
_PATIENCE = 10  # heights tried before a line is given up
_KNEE = 0.25  # where, below the cut, the path has turned half way

# (power of the loss's slope, cap as a share of pi/m, factor on the best quadratic rate; negative: on the slope itself)
_FIRST: Menu = ((0.3, 0.9, 1.0),)
_MORE: Menu = (
    (0.6, 0.9, 1.0),
    (0.6, 0.25, 1.0),
    (0.3, 0.45, 1.0),
    (1.0, 0.7, -1.0),
    (1.0, 0.45, -1.0),
    (1.0, 0.25, -0.3),
)


def _log_softened(place: Floats, imaginary: Floats) -> Floats:
    """log of a bound on |ndtr(a + ib)|: the cdf's own path is shifted, from the left or from the right."""
    growth = 0.5 * imaginary * imaginary
    return np.asarray(np.minimum(growth + log_ndtr(place), np.logaddexp(0.0, growth + log_ndtr(-place))))


def _masses(nodes: Nodes, log_values: Floats) -> Floats:
    """Sums over each phase's nodes; what would overflow stays so large that no bound can rest on it."""
    return np.asarray(nodes.sums(np.exp(np.minimum(log_values, 690.0))))


def _moved(nodes: Nodes, order: float, moved: Complexes, height: float) -> tuple[Floats, Complexes]:
    """log of |density e^{zL}| at the moved nodes over its value on the real line, and the loss there."""
    log_mixture = np.log1p(nodes.odds(moved))
    here = np.log1p(nodes.odds_here)
    loss, at_rest = log_mixture, here
    if nodes.direction == "replace":
        loss = log_mixture - np.log1p(nodes.odds(-moved))
        at_rest = here - np.log1p(nodes.odds_back)
    exponent = 0.5 * (nodes.u * nodes.u - (moved * moved).real) - height * loss.imag
    if nodes.direction == "add":  # the loss is -log w; its path is the mirror image, with the same moduli
        exponent = exponent - order * (loss.real - at_rest)
        return exponent, nodes.loss - (loss - at_rest)
    exponent = exponent + (log_mixture.real - here) + order * (loss.real - at_rest)
    return exponent, nodes.loss + (loss - at_rest)


def _log_far_ratio(nodes: Nodes, moved: Complexes) -> Floats | float:
    if nodes.far is None:
        return 0.0
    far = nodes.spread(nodes.far)
    return np.asarray(_log_softened((far - moved.real) / WINDOW, moved.imag / WINDOW) - nodes.log_window)


def moved_mass(part: Whole, moved: Complexes, weight: Floats, height: float) -> Floats:
    """Per phase: the tilted integral along the moved path at that height, relative to the one on the real line."""
    nodes = part.nodes
    exponent, loss = _moved(nodes, part.order, moved, height)
    exponent = exponent + np.log(weight) + _log_far_ratio(nodes, moved)
    if part.cut is not None:
        cut = part.cut
        exponent = exponent + _log_softened((cut.level - loss.real) / cut.softness, loss.imag / cut.softness)
        exponent = exponent - cut.log_below(nodes.loss)
    return _masses(nodes, part.log_tilted + exponent)


def quadrature_error(part: Whole | Jumps, height: float) -> float:
    """Bound on the error of a transform up to that height, over its value on the axis."""
    nodes = part.nodes
    moved, weight = nodes.lowered(height)
    if isinstance(part, Whole):
        return float(moved_mass(part, moved, weight, height) @ nodes.times) + nodes.cropped(part.order)
    # d(M^T - B^T) = T (M^(T-1) - B^(T-1)) dM + T B^(T-1) dJ; the first is at most twice M's own relative error.
    exponent, loss = _moved(nodes, part.order, moved, height)
    exponent = exponent + np.log(weight) + _log_far_ratio(nodes, moved) + _log_window(part, loss.real, loss.imag)
    jump = _masses(nodes, _log_uncut(part) + exponent)
    return 2 * quadrature_error(part.below, height) + float(jump @ nodes.times) * math.exp(-part.log_part)


def _log_uncut(part: Jumps) -> Floats:
    """log of the tilted weights of one step before any cut on the loss."""
    nodes = part.nodes
    return np.asarray(part.order * nodes.loss + nodes.log_weight - nodes.spread(np.log(part.below.moment)))


def _paths(part: Whole, height: float, menu: Menu) -> list[tuple[Complexes, Floats]]:
    """Candidate paths and their stretch. Each offset is proportional to a power of the slope, softly capped."""
    nodes = part.nodes
    shift, slope = nodes.spread(nodes.shift), nodes.slope
    share = np.maximum(slope / shift, 1e-300)
    bend = nodes.bend / shift
    result = []
    for power, cap_share, factor in menu:
        shape = share**power
        derivative = power * shape / share * bend
        if factor > 0:  # the offset that makes the quadratic term of the exponent smallest
            gain = nodes.sums(part.tilted * slope * shape)
            cost = nodes.sums(part.tilted * (shape * shape + derivative * derivative))
            scale = factor * gain / np.maximum(cost, 1e-300)
        else:
            scale = -factor * nodes.shift
        cap = cap_share * math.pi / shift
        bent = np.tanh(nodes.spread(scale * height) * shape / cap)
        tangent = nodes.spread(scale * height) * derivative * (1 - bent * bent)
        result.append((nodes.u + 1j * cap * bent, np.sqrt(1 + tangent * tangent)))
    return result


def log_tail(part: Whole, height: float, menu: Menu) -> tuple[float, Menu]:
    """log of a bound on |transform| over its value on the axis from this height on, and the paths that gave it."""
    nodes = part.nodes
    masses = np.array([moved_mass(part, *path, height) for path in _paths(part, height, menu)])
    bounds = np.log(np.maximum(masses, 1e-300))
    best = np.minimum(bounds.min(axis=0), 0.0)
    used = tuple(menu[index] for index in sorted(set(bounds.argmin(axis=0).tolist())))
    return float(best @ nodes.times) - nodes.phases.gaussian * height * height / 2, used


def whole_reach(part: Whole, target: float, *, patient: bool) -> tuple[float, float] | None:
    """(height, log tail there) with the tail below e^-target, or None where no path is found."""
    height = 1.12 * math.sqrt(2 * target / max(part.variance(), 1e-300))
    menu = _FIRST
    for attempt in range(_PATIENCE if patient else 8):
        tail, used = log_tail(part, height, menu)
        if tail <= -target:
            return height, tail
        menu = _FIRST + _MORE if attempt % 3 == 0 else used
        done = -tail / target
        height *= 1.12 if done > 0.8 else 1.3 if done > 0.5 else 1.7 if done > 0.15 else 2.3
    return None


def jumps_reach(part: Jumps, target: float) -> tuple[float, float] | None:
    """The same for a part with jumps, by the path on which the loss has a constant imaginary part."""
    softness = part.lower.softness
    turn = min(math.sqrt(2 * target) * softness, 0.8 * math.pi)
    height = (target + 0.5 * (turn / softness) ** 2) / turn
    for _ in range(6):
        tail = _log_jump_tail(part, turn, height)
        if tail <= -target:
            return height, tail
        height += max(target + tail, 0.5) / turn
    return None


def _log_jump_tail(part: Jumps, turn: float, height: float) -> float:
    """|M^T - B^T| <= T |J| M(c)^(T-1), with each phase's |J| by the best of three turns (none: its own mass)."""
    nodes = part.nodes
    best = np.minimum(_turned_jump(part, turn, height), nodes.sums(part.tilted))
    if len(nodes.times) > 1:
        best = np.minimum(best, _turned_jump(part, turn / 2, height))
    return (
        math.log(max(float(nodes.times @ best), 1e-300)) - part.log_part - nodes.phases.gaussian * height * height / 2
    )


def _turned_jump(part: Jumps, turn: float, height: float) -> Floats:
    """Bound on each phase's |J|: its path is moved until Im loss = turn wherever the loss is well above 0."""
    nodes = part.nodes
    rise = np.maximum(nodes.loss, 0.0) / (_KNEE * part.lower.level)
    turned = rise > 1e-6
    ramp = np.where(turned, rise**4 / (1 + rise**4), 0.0)
    slope_of_ramp = 4 * rise**3 / (1 + rise**4) ** 2 / (_KNEE * part.lower.level)
    moved = np.where(turned, _inverse_loss(nodes, np.where(turned, nodes.loss, 1.0) + 1j * turn * ramp), nodes.u)
    stretch = np.abs(nodes.slope * (1 + 1j * turn * slope_of_ramp) / nodes.slope_at(moved))
    exponent, _ = _moved(nodes, part.order, moved, height)
    exponent = exponent + np.log(stretch) + _log_window(part, nodes.loss, turn * ramp) + _log_far_ratio(nodes, moved)
    return _masses(nodes, _log_uncut(part) + exponent)


def _log_window(part: Jumps, loss: Floats, imaginary: Floats) -> Floats:
    """log of a bound on the window between the two cuts, at a loss with that imaginary part."""
    lower, upper = part.lower, part.upper
    low, low_turn = (loss - lower.level) / lower.softness, imaginary / lower.softness
    rising = _log_softened(low, low_turn)
    if upper is None:
        return rising
    high, high_turn = (loss - upper.level) / upper.softness, imaginary / upper.softness
    falling = np.logaddexp(low_turn**2 / 2 + log_ndtr(-low), high_turn**2 / 2 + log_ndtr(-high))
    return np.asarray(np.minimum(np.logaddexp(rising, _log_softened(high, high_turn)), falling))


def _inverse_loss(nodes: Nodes, loss: Complexes) -> Complexes:
    """The complex u at which the loss is this ("remove" and "replace" only; "add" has no large losses)."""
    prob, shift = nodes.spread(nodes.prob), nodes.spread(nodes.shift)
    ratio = np.exp(np.minimum(loss.real, 300.0) + 1j * loss.imag)
    if nodes.direction == "remove":
        shifted = np.log((ratio - (1 - prob)) / prob)
    else:  # A g^2 + (1-q)(1-X) g - A X = 0 for g = e^{mu}, A = q e^{-m^2/2}
        scale = prob * np.exp(-0.5 * shift**2)
        half = (1 - prob) * (ratio - 1)
        # The root that is positive for real X > 1, continued without crossing the square root's cut.
        root = half * (1 + np.sqrt(1 + (2 * scale / half) ** 2 * ratio))
        shifted = np.log(root / (2 * scale)) - 0.5 * shift**2
    return np.asarray((shifted + 0.5 * shift**2) / shift)
