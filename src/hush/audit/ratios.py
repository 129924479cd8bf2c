"""Asymptotic lower ends for TPR / FPR, as other audit tools print them; for comparison only.

They hold for many trials and fail for few, so no `Evidence` rests on them: `clopper_pearson_bound` does.

>>> round(ratio_lower_end(473, 984, 755, 1705, significance=0.05, method="katz_log"), 8)
1.01166194
"""

from __future__ import annotations

import math

from scipy import special

from hush import _check
from hush.audit.counts import Counts, significance_of
from hush.errors import InvalidValue

METHODS = ("katz_log", "adjusted_log", "bailey", "inverse_sinh")


def ratio_lower_end(
    true_positives: int, positives: int, false_positives: int, negatives: int, *, significance: float, method: str
) -> float:
    """The lower end of a one-sided interval for TPR / FPR; not a proven bound.

    `method`: "katz_log" and "adjusted_log" (normal approximation of the logarithm, without and with half a count
    added), "bailey" (of the cube root), "inverse_sinh" (the logarithm with a shorter tail). All but "adjusted_log" need
    a true and a false positive.
    """
    counts = Counts(true_positives, positives, false_positives, negatives)
    z = -float(special.ndtri(significance_of(significance)))
    half = 0.5 if _check.one_of("method", method, METHODS) == "adjusted_log" else 0.0
    x, n = counts.true_positives + half, counts.positives + half
    y, m = counts.false_positives + half, counts.negatives + half
    if x == 0 or y == 0:
        raise InvalidValue(f"{method} needs a true and a false positive; use 'adjusted_log' or clopper_pearson_bound.")
    ratio = (x / n) / (y / m)
    if method == "bailey":
        return float(ratio * _bailey_factor(x, n, y, m, z))
    error = math.sqrt(1 / x - 1 / n + 1 / y - 1 / m)
    return ratio * math.exp(-2 * math.asinh(z * error / 2) if method == "inverse_sinh" else -z * error)


def _bailey_factor(x: float, n: float, y: float, m: float, z: float) -> float:
    miss, rest = (1 - x / n) / x, (1 - y / m) / y
    root = math.sqrt(max(0.0, miss + rest - z * z * miss * rest / 9))
    return float((1 - z * root / 3) / (1 - z * z * rest / 9)) ** 3
