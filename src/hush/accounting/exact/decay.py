"""How fast a transform falls along a vertical line, and how exact its quadrature is: two bounds, one device.

For y > 0 the path of integration may be moved from u to u + i d(u), 0 <= d < pi / m, since the integrand is analytic
there. On the moved path |e^{iyL}| = e^{-y arg w} falls with y, so a bound taken at height Y holds for all heights above
it. Moved the other way, the same integral bounds the trapezoid rule's error (Trefethen and Weideman 2014, section 5).
Both are integrals of positive smooth functions, taken on the nodes at hand.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hush.accounting.exact.logs import log_sum, log_tails
from hush.accounting.exact.nodes import WINDOW, Nodes
from hush.accounting.exact.phases import Floats
from hush.accounting.exact.transforms import Jumps, Whole

Menu = tuple[tuple[float, float, float], ...]
_AT_ONCE = 20_000  # numbers in one array of paths times nodes
_HEIGHTS = 1.25 ** np.arange(24)  # over the first height: where to look for the transform's own decay
_MARGIN = 1.12  # on a height: a transform falls more slowly than to the quadratic term
_SLOW = 0.45  # share of the fall of a normal loss that is too little for who is in haste
_EVEN = 0.75  # share of the variance that an even path must see
_KNEE = 0.25  # where, below the cut, the path has turned half way

Turned = tuple[Floats, Floats, Floats]  # see Nodes.turned


class Moved(NamedTuple):
    """A path that bounds the tail and one that bounds the quadrature's error: two rows each."""

    offset: Floats
    weight: Floats
    turned: Turned


class Reach(NamedTuple):
    """A height, the log tail from there on, the error of the transform up to there, and how they were found."""

    height: float
    tail: float
    error: float
    moved: Moved | None = None


# (power of the loss's slope, cap as a share of pi/m, factor on the best quadratic rate; negative: on the slope itself)
_FIRST: Menu = ((0.3, 0.9, 1.0),)
_STEEP: Menu = ((0.6, 0.25, 1.0), (1.0, 0.25, -0.3))  # the likeliest high above the transform's own scale
_MORE: Menu = (
    (0.6, 0.9, 1.0),
    (0.6, 0.25, 1.0),
    (0.3, 0.45, 1.0),
    (1.0, 0.7, -1.0),
    (1.0, 0.45, -1.0),
    (1.0, 0.25, -0.3),
)


def _log_softened(inside: Floats, outside: Floats, growth: Floats) -> Floats:
    """log of a bound on |ndtr(a + ib)|: the cdf's own path is shifted, from the left or from the right.

    `inside` and `outside` are log ndtr(a) and log ndtr(-a), `growth` is b^2 / 2.
    """
    return np.asarray(np.minimum(growth + inside, log_sum(np.float64(0.0), growth + outside)))


def _masses(nodes: Nodes, log_values: Floats) -> Floats:
    """Sums over each phase's nodes; what would overflow stays so large that no bound can rest on it."""
    return np.asarray(nodes.sums(np.exp(np.minimum(log_values, 690.0))))


def _moved(nodes: Nodes, order: float, offset: Floats, height: float, turned: Turned) -> Turned:
    """log of |density e^{zL}| at u + i offset over its value at u, and the loss there: real and imaginary part."""
    swing, change, turn = turned
    growth = 0.5 * offset * offset
    exponent = growth - height * turn
    if nodes.far is not None:
        growth = growth / WINDOW**2
        exponent = exponent + (_log_softened(nodes.log_window, nodes.log_outside, growth) - nodes.log_window)
    if nodes.direction == "add":  # the loss is -log w; its path is the mirror image, with the same moduli
        return exponent - order * change, nodes.loss - change, turn
    return exponent + swing + order * change, nodes.loss + change, turn


def _log_cut_ratio(part: Whole, loss: Floats, turn: Floats) -> Floats | float:
    """log of a bound on the cut's weight at a loss with that imaginary part, over the one at the node."""
    if part.cut is None or part.log_below is None:
        return 0.0
    level, softness = part.cut.level, part.cut.softness
    softened = _log_softened(*log_tails((level - loss) / softness), 0.5 * (turn / softness) ** 2)
    return np.asarray(softened - part.log_below)


def _moved_mass(part: Whole, offset: Floats, weight: Floats, height: float, turned: Turned | None = None) -> Floats:
    """Per phase: the tilted integral along the moved path at that height, relative to the one on the real line."""
    turned = turned or part.nodes.turned(offset)
    exponent, loss, turn = _moved(part.nodes, part.order, offset, height, turned)
    exponent = exponent + (part.log_tilted + _log_cut_ratio(part, loss, turn))
    return np.asarray(part.nodes.sums(weight * np.exp(np.minimum(exponent, 690.0))))


def quadrature_error(part: Whole | Jumps, height: float) -> float:
    """Bound on the error of a transform up to that height, over its value on the axis."""
    nodes = part.nodes
    offset, weight = nodes.lowered(height)
    if isinstance(part, Whole):
        return float(_moved_mass(part, offset, weight, height) @ nodes.times) + nodes.cropped(part.order)
    # d(M^T - B^T) = T (M^(T-1) - B^(T-1)) dM + T B^(T-1) dJ; the first is at most twice M's own relative error.
    exponent, loss, turn = _moved(nodes, part.order, offset, height, nodes.turned(offset))
    exponent = exponent + (_log_uncut(part) + np.log(weight))
    inner, below = _log_window(part, loss, turn)
    whole, jump = (float(_masses(nodes, exponent + bound) @ nodes.times) for bound in (below, inner))
    return 2 * (whole + nodes.cropped(part.order)) + jump * math.exp(-part.log_part)


def _log_uncut(part: Jumps) -> Floats:
    """log of the tilted weights of one step before any cut on the loss."""
    nodes = part.nodes
    return np.asarray(part.order * nodes.loss + nodes.log_weight - nodes.spread(np.log(part.below.moment)))


@lru_cache
def _columns(menu: Menu) -> Floats:
    return np.asarray(np.array(menu).T[:, :, None])


def _paths(part: Whole, height: float, menu: Menu) -> tuple[Floats, Floats]:
    """Candidate paths: offsets and stretch. Each offset is proportional to a power of the slope, softly capped."""
    nodes = part.nodes
    power, cap_share, factor = _columns(menu)
    shape = np.exp(power * nodes.log_share)
    derivative = power * shape * nodes.curl
    # The offset that makes the quadratic term of the exponent smallest.
    gain = nodes.sums(part.tilted * nodes.slope * shape)
    cost = nodes.sums(part.tilted * (shape * shape + derivative * derivative))
    scale = factor * gain / np.maximum(cost, 1e-300)
    if factor[-1] < 0:
        scale = np.where(factor > 0, scale, -factor * nodes.shift)
    pace = scale * height if nodes.is_single else nodes.spread(scale * height)
    cap = cap_share * math.pi / nodes.spread(nodes.shift)
    bent = np.tanh(pace * shape / cap)
    tangent = pace * derivative * (1 - bent * bent)
    return cap * bent, np.sqrt(1 + tangent * tangent)


def _masses_along(part: Whole, height: float, menu: Menu) -> Floats:
    """`_moved_mass` for every path of the menu, as many at once as fit into a fast cache."""
    rows = max(_AT_ONCE // len(part.nodes.u), 1)
    pieces = [menu[first : first + rows] for first in range(0, len(menu), rows)]
    return np.concatenate([_moved_mass(part, *_paths(part, height, piece), height) for piece in pieces])


def log_tail(part: Whole, height: float, menu: Menu) -> tuple[float, Menu]:
    """log of a bound on |transform| over its value on the axis from this height on, and the paths that gave it."""
    masses = _masses_along(part, height, menu)
    used = tuple(menu[index] for index in sorted(set(masses.argmin(axis=0).tolist())))
    return _log_fall(part, height, masses.min(axis=0)), used


def _log_fall(part: Whole, height: float, masses: Floats) -> float:
    """log of the tail from each phase's mass on its moved path."""
    best = np.log(np.minimum(np.maximum(masses, 1e-300), 1.0))
    return float(best @ part.nodes.times) - part.nodes.phases.gaussian * height * height / 2


def first_reach(part: Whole, height: float) -> Reach:
    """The log tail from this height on by the likeliest path, and the error up to there, from one evaluation."""
    nodes = part.nodes
    (offsets, weights), (below, below_weight) = _paths(part, height, _FIRST), nodes.lowered(height)
    offset, weight = np.concatenate([offsets, below[None]]), np.concatenate([weights, below_weight[None]])
    return reach_along(part, height, Moved(offset, weight, nodes.turned(offset)))


def reach_along(part: Whole, height: float, moved: Moved) -> Reach:
    """The same by given paths: any path gives a bound. They may be those of the opposite direction's nodes."""
    masses = _moved_mass(part, moved.offset, moved.weight, height, moved.turned)
    error = float(masses[1] @ part.nodes.times) + part.nodes.cropped(part.order)
    return Reach(height, _log_fall(part, height, masses[0]), error, moved)


def steepest_tail(part: Whole, order: float, height: float, enough: float) -> float:
    """log of a bound on |transform| at this order from this height on; more paths are tried until it is enough."""
    log_moment, bound = part.tilt_to(order), math.inf
    for menu in (_STEEP, _FIRST + _MORE):
        if bound <= enough or not math.isfinite(log_moment):
            break
        found = log_moment + log_tail(part, height, menu)[0]
        bound = min(bound, found) if math.isfinite(found) else bound
    return bound


def first_height(part: Whole, target: float) -> float:
    """Where the transform of a normal loss with the tilted variance would be safely below e^-target."""
    return _normal_height(part.variance(), target)


def _normal_height(variance: float, target: float) -> float:
    return _MARGIN * math.sqrt(2 * target / max(variance, 1e-300))


def _even_reach(part: Whole, target: float, variance: float, highest: float) -> Reach | None:
    """The reach by a path at one distance in each phase, which is enough where the loss's slope varies little.

    Up to the quadratic term such a path at height y, y E[slope] away, bounds the transform by e^{-y^2 E[slope]^2 / 2}.
    """
    nodes = part.nodes
    slope = nodes.sums(part.tilted * nodes.slope)
    square = float((slope * slope) @ nodes.times) + nodes.phases.gaussian
    if square < _EVEN * variance:
        return None
    height = _MARGIN * math.sqrt(2 * target / max(square, 1e-300))
    if height > highest:
        return None
    offset, weight = nodes.lowered(height)
    paths, weights = np.empty((2, len(offset))), np.ones((2, len(offset)))
    paths[0] = nodes.spread(np.minimum(height * slope, 0.9 * math.pi / nodes.shift))
    paths[1], weights[1] = offset, weight
    found = reach_along(part, height, Moved(paths, weights, nodes.turned(paths)))
    return found if found.tail <= -target else None


def whole_reach(part: Whole, target: float, highest: float, tries: int, *, is_hasty: bool = False) -> Reach | None:
    """The reach with the tail below e^-target, or None where no path is found up to `highest`."""
    variance = part.variance()
    height = _normal_height(variance, target)
    if height > highest or (is_hasty and part.log_size(height) > -_SLOW * target):
        return None
    first = _even_reach(part, target, variance, highest) or first_reach(part, height)
    if first.tail <= -target:
        return first
    menu, height = _FIRST + _MORE, _own_reach(part, target, height, highest)
    for attempt in range(1, tries):
        if height > highest:
            break
        tail, used = log_tail(part, height, menu)
        if tail <= -target:
            return Reach(height, tail, quadrature_error(part, height))
        menu = _FIRST + _MORE if attempt % 3 == 0 else used
        done = -tail / target
        height *= 1.12 if done > 0.8 else 1.3 if done > 0.5 else 1.7 if done > 0.15 else 2.3
    return None


def _own_reach(part: Whole, target: float, height: float, highest: float) -> float:
    """About where the transform itself falls below e^-target, from this height on; infinite where it does not.

    No bound can fall faster. On these nodes the transform is only a guess, but so is the height.
    """
    heights = np.append(height * _HEIGHTS[: np.searchsorted(_HEIGHTS, highest / height)], highest)
    fallen = part.log_sizes(heights) <= -target
    return 1.05 * float(heights[np.argmax(fallen)]) if fallen.any() else math.inf


def jumps_reach(part: Jumps, target: float) -> Reach | None:
    """The same for a part with jumps, by the path on which the loss has a constant imaginary part."""
    softness = part.lower.softness
    turn = min(math.sqrt(2 * target) * softness, 0.8 * math.pi)
    height = (target + 0.5 * (turn / softness) ** 2) / turn
    for _ in range(6):
        tail = _log_jump_tail(part, turn, height, target)
        if tail <= -target:
            return Reach(height, tail, quadrature_error(part, height))
        height += 1.3 * max(target + tail, 0.5) / turn
    return None


def _log_jump_tail(part: Jumps, turn: float, height: float, target: float) -> float:
    """|M^T - B^T| <= T |J| M(c)^(T-1), with each phase's |J| by the best of three turns (none: its own mass)."""
    nodes = part.nodes
    known = part.log_part + nodes.phases.gaussian * height * height / 2
    best = np.minimum(_turned_jump(part, turn, height), nodes.sums(part.tilted))
    tail = math.log(max(float(nodes.times @ best), 1e-300)) - known
    if tail > -target and len(nodes.times) > 1:
        best = np.minimum(best, _turned_jump(part, turn / 2, height))
        tail = math.log(max(float(nodes.times @ best), 1e-300)) - known
    return tail


def _turned_jump(part: Jumps, turn: float, height: float) -> Floats:
    """Bound on each phase's |J|: its path is moved until Im loss = turn wherever the loss is well above 0."""
    nodes, knee = part.nodes, _KNEE * part.lower.level
    rise = np.maximum(nodes.loss, 0.0) / knee
    turned = rise > 1e-6
    rise = np.where(turned, rise, 0.0)
    square = rise * rise
    fourth = square * square
    imaginary = turn * (fourth / (1 + fourth))
    tangent = turn * 4 / knee * square * rise / (1 + fourth) ** 2
    real, imag, slope, swing = _places(nodes, np.where(turned, nodes.loss, 1.0), imaginary)
    exponent = 0.5 * (nodes.u * nodes.u - real * real + imag * imag) + swing + _log_far_ratio(nodes, real, imag)
    exponent = np.where(turned, exponent + np.log(nodes.slope * np.sqrt(1 + tangent * tangent) / slope), 0.0)
    exponent = exponent + (_log_window(part, None, imaginary)[0] - height * imaginary)
    return _masses(nodes, _log_uncut(part) + exponent)


def _log_far_ratio(nodes: Nodes, real: Floats, imag: Floats) -> Floats:
    """log of a bound on the far window's weight at real + i imag, over the one at the node."""
    if nodes.far is None:
        return np.zeros_like(real)
    place, growth = (nodes.spread(nodes.far) - real) / WINDOW, 0.5 * (imag / WINDOW) ** 2
    if place.min() > 9:  # ndtr(-9) < e^-43
        return log_sum(np.float64(0.0), growth - 43.0) - nodes.log_window
    return _log_softened(*log_tails(place), growth) - nodes.log_window


def _log_window(part: Jumps, loss: Floats | None, imaginary: Floats) -> tuple[Floats, Floats]:
    """logs of bounds on the window between the two cuts, and on the upper cut, at a loss with that imaginary part.

    The loss is the nodes' own where none is given.
    """
    lower, upper = part.lower, part.upper
    low_out, low_in = part.log_lower if loss is None else lower.log_sides(loss)
    low_growth = 0.5 * (imaginary / lower.softness) ** 2
    rising = _log_softened(low_in, low_out, low_growth)
    if upper is None:
        return rising, np.zeros_like(imaginary)
    high_out, high_in = part.log_upper if loss is None else upper.log_sides(loss)
    high_growth = 0.5 * (imaginary / upper.softness) ** 2
    falling = log_sum(low_growth + low_out, high_growth + high_out)
    inner = np.minimum(log_sum(rising, _log_softened(high_in, high_out, high_growth)), falling)
    return inner, _log_softened(high_out, high_in, high_growth)


def _places(nodes: Nodes, loss: Floats, imaginary: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Where the loss is the node's positive one plus i imaginary ("remove" and "replace"; "add" has no large losses).

    The place's real and imaginary part, |d loss / du| there, and the change of log |density e^{cL}| / |phi|: the loss
    keeps its real part, so only the mixture's modulus can change, and for "remove" the mixture is the loss.
    """
    prob, shift = nodes.spread(nodes.prob), nodes.spread(nodes.shift)
    size, cosine, sine = np.exp(np.minimum(loss, 300.0)), np.cos(imaginary), np.sin(imaginary)
    if nodes.direction == "remove":  # e^{m u - m^2/2} = (X - (1 - q)) / q with X = e^loss
        real, imag = size * cosine - (1 - prob), size * sine
        modulus = real * real + imag * imag
        place = (0.5 * np.log(modulus) - np.log(prob) + 0.5 * shift**2) / shift
        return place, np.arctan2(imag, real) / shift, shift * np.sqrt(modulus) / size, np.zeros_like(place)
    ratio = size * (cosine + 1j * sine)
    # A g^2 + (1-q)(1-X) g - A X = 0 for g = e^{m u}, A = q e^{-m^2/2}; the root that is positive for real X > 1,
    # continued without crossing the square root's cut.
    scale = prob * np.exp(-0.5 * shift**2)
    half = (1 - prob) * (ratio - 1)
    root = half * (1 + np.sqrt(1 + (2 * scale / half) ** 2 * ratio)) / (2 * scale)
    odds = scale / (1 - prob) * root
    back = (scale / (1 - prob)) / root
    slope = shift * np.abs(odds / (1 + odds) + back / (1 + back))
    swing = np.log(np.abs(1 + odds)) - np.log1p(nodes.odds_here)
    return np.log(np.abs(root)) / shift, np.angle(root) / shift, slope, swing
