"""Root finding that ends on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable

from hush.errors import Unreachable

_SMALLEST_LOG_DELTA = -690.0  # e^-690 is about 1e-300


def bisect_root(excess: Callable[[float], float], low: float, high: float, *, width: float = 0.0) -> float:
    """Where a decreasing function crosses 0, from the side on which it is 0 or below.

    The returned value was evaluated: `excess` there is at most 0. Chandrupatla's method [1997]: bisection, and
    inverse quadratic interpolation where the last three points allow it. Ends at neighbouring floats, or `width` apart.

    >>> bisect_root(lambda x: 2.0 - x * x, 0.0, 2.0)
    1.4142135623730951
    """
    newest, other = (low, excess(low)), (high, excess(high))
    if newest[1] <= 0:
        return low
    if other[1] > 0:
        raise Unreachable(f"no root between {low!r} and {high!r}: the function is still {other[1]!r} at the upper end.")
    share = 0.5
    for _ in range(200):
        point = newest[0] + share * (other[0] - newest[0])
        value = excess(point)
        oldest = newest
        if (value > 0) != (newest[1] > 0):
            oldest, other = other, newest
        newest = (point, value)
        finest = max(2.3e-16 * max(abs(newest[0]), abs(other[0])), width / 4)
        smallest = finest / max(abs(other[0] - newest[0]), 1e-300)
        if smallest > 0.5:
            break
        share = min(max(_share(newest, other, oldest), smallest), 1 - smallest)
    return max(newest, other)[0]


def _share(newest: tuple[float, float], other: tuple[float, float], oldest: tuple[float, float]) -> float:
    """How far from `newest` towards `other` to look next."""
    (a, fa), (b, fb), (c, fc) = newest, other, oldest
    if c == b or not all(map(math.isfinite, (fa, fb, fc))) or fa == 0 or fc == fb or fa == fc:
        return 0.5
    xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
    if not (phi * phi < xi and (1 - phi) ** 2 < 1 - xi):
        return 0.5
    return fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)


def smallest_delta(epsilon_at: Callable[[float], float], epsilon: float) -> float:
    """The smallest delta at which `epsilon_at`, decreasing in delta, is at most `epsilon`; 1 where there is none."""

    def excess(log_delta: float) -> float:
        return epsilon_at(math.exp(log_delta)) - epsilon

    if epsilon_at(0.0) <= epsilon:
        return 0.0
    largest = math.log1p(-1e-12)
    if excess(largest) > 0:
        return 1.0
    return math.exp(bisect_root(excess, _SMALLEST_LOG_DELTA, largest, width=1e-7))
