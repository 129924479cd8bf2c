"""Group privacy: what a guarantee for one example means for several.

>>> from hush.privacy import Guarantee
>>> one = Guarantee(epsilon=1.0, delta=1e-5, relation="add_remove", method="exact")
>>> two = group(one, 2)
>>> round(two.epsilon, 9), round(two.delta, 16)
(2.0, 3.71828182846e-05)
"""

from __future__ import annotations

import math
from dataclasses import replace

from hush import _check
from hush.errors import InvalidValue
from hush.privacy import Guarantee

_UP = 1 + 1e-14


def group(guarantee: Guarantee, size: int) -> Guarantee:
    """The guarantee for `size` examples that change together: k epsilon and delta (e^(k epsilon) - 1)/(e^epsilon - 1).

    From delta sum of e^(i epsilon), i < k [Dwork, Roth 2014, Thm. 2.2, without its last rounding]. An approximation
    stays an approximation.

    | case | result |
    |---|---|
    | size 1 | the same guarantee |
    | epsilon 0 | delta times size |
    | delta reaches 1 | delta 1: nothing is promised |
    | epsilon infinite | infinite |
    """
    size = _check.whole("size", size)
    if size == 1:
        return guarantee
    epsilon = guarantee.epsilon * size * _UP
    delta = _group_delta(guarantee.epsilon, guarantee.delta, size)
    notes = (*guarantee.notes, f"for groups of {size}, from epsilon {guarantee.epsilon:.9g} for one")
    return replace(guarantee, epsilon=epsilon, delta=delta, epsilon_lower=0.0, delta_lower=0.0, notes=notes)


def _group_delta(epsilon: float, delta: float, size: int) -> float:
    if delta == 0:
        return 0.0
    if epsilon == 0:
        return min(1.0, delta * size * _UP)
    if size * epsilon > 700:  # e^(k epsilon) / (e^epsilon - 1) = e^((k-1) epsilon) / (1 - e^-epsilon)
        log_delta = math.log(delta) + (size - 1) * epsilon - math.log(-math.expm1(-epsilon))
        return math.exp(min(log_delta + 1e-14 * (1 + abs(log_delta) + size * epsilon), 0.0))
    return min(1.0, delta * math.expm1(size * epsilon) / math.expm1(epsilon) * _UP)


def group_rdp(order: float, divergence: float, size: int) -> tuple[float, float]:
    """The (order, divergence) for a group: (a/2^c, 3^c r) for 2^c examples, if a >= 2^(c+1) [Mironov 2017, Prop. 2].

    A size that is not a power of two is rounded up to one.

    >>> group_rdp(order=32.0, divergence=0.1, size=2)
    (16.0, 0.30000000000000004)
    """
    order, divergence = _check.positive("order", order), _check.nonnegative("divergence", divergence)
    doublings = (_check.whole("size", size) - 1).bit_length()
    if order < 2 ** (doublings + 1):
        raise InvalidValue(f"order must be at least {2 ** (doublings + 1)} for a group of {size}; got {order!r}.")
    return order / 2**doublings, 3**doublings * divergence


def group_zcdp(rho: float, size: int) -> float:
    """The rho of a group: size^2 rho [Bun, Steinke 2016, Prop. 1.9]."""
    return _check.nonnegative("rho", rho) * _check.whole("size", size) ** 2


def group_gdp(mu: float, size: int) -> float:
    """The mu of a group: size mu [Dong, Roth, Su 2022, Thm. 2.14]."""
    return _check.nonnegative("mu", mu) * _check.whole("size", size)
