"""Amplification by sampling: a mechanism on a random part of the data is more private than on all of it.

    >>> round(poisson(1.0, 1e-5, sampling_prob=0.01)[0], 13)
    0.0170368632362

The inner parameters must hold for the same relation as the conclusion [Balle, Barthe, Gaboardi 2018, Thms. 8, 9].
"""

from __future__ import annotations

import math

from hush import _check
from hush.errors import InvalidValue


def poisson(epsilon: float, delta: float, sampling_prob: float) -> tuple[float, float]:
    """The (epsilon, delta) of an (epsilon, delta)-DP mechanism on a Poisson sample, for add/remove or zero-out."""
    return _amplified(epsilon, delta, _check.probability("sampling_prob", sampling_prob))


def fixed_size(epsilon: float, delta: float, sample_size: int, num_examples: int) -> tuple[float, float]:
    """The (epsilon, delta) on a sample of fixed size without replacement; inner and outer are for `replace_one`."""
    size, total = _check.whole("sample_size", sample_size), _check.whole("num_examples", num_examples)
    if size > total:
        raise InvalidValue(f"sample_size must not exceed num_examples; got {size} of {total}.")
    return _amplified(epsilon, delta, size / total)


def _amplified(epsilon: float, delta: float, fraction: float) -> tuple[float, float]:
    if math.isnan(epsilon) or epsilon < 0:
        raise InvalidValue(f"epsilon must be 0 or above; got {epsilon!r}.")
    delta = _check.delta(delta)
    if fraction == 1 or epsilon == 0:
        return epsilon, delta * fraction
    # log(1 + q (e^epsilon - 1)); beyond 30 it is epsilon + log q + log(1 + (1 - q) e^-epsilon / q)
    if epsilon > 30:
        amplified = epsilon + math.log(fraction) + math.log1p((1 - fraction) * math.exp(-epsilon) / fraction)
    else:
        amplified = math.log1p(fraction * math.expm1(epsilon))
    return min(amplified * (1 + 4e-16), epsilon), min(delta * fraction * (1 + 4e-16), delta)
