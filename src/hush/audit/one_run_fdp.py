"""One run, for a training whose trade-off curve is Gaussian: a larger bound from the same guesses.

>>> bound = one_run_fdp_bound(num_canaries=1_000, num_guesses=1_000, num_correct=900, delta=1e-5, significance=0.05)
>>> round(bound, 2), round(mu_one_run(1_000, 1_000, 900, significance=0.05), 3)
(3.78, 0.88)
"""

from __future__ import annotations

from collections.abc import Callable

from scipy import special

from hush.accounting.gdp import epsilon_of
from hush.audit.counts import ROUND_DOWN, Guesses, positive_delta, significance_of

_LARGEST = 12.0  # Phi(-12) is 2e-33


def one_run_fdp_bound(
    num_canaries: int, num_guesses: int, num_correct: int, delta: float, significance: float
) -> float:
    """Epsilon at `delta` of the largest mu for which mu-GDP is refuted; arguments as for `one_run_bound`.

    This is a bound for mechanisms that are mu-GDP for some mu, such as Gaussian noise without sampling. For others it
    says how Gaussian they would have to be, and no more [Mahloujifar, Melis, Chaudhuri 2025, Alg. 1].
    """
    delta = positive_delta(delta)
    mu = mu_one_run(num_canaries, num_guesses, num_correct, significance=significance)
    return epsilon_of(delta, mu) * ROUND_DOWN


def mu_one_run(num_canaries: int, num_guesses: int, num_correct: int, *, significance: float) -> float:
    """The largest mu for which mu-GDP is refuted."""
    counts, level = Guesses(num_canaries, num_guesses, num_correct), significance_of(significance)

    def refuted(mu: float) -> bool:
        return refutes(counts, lambda chance: float(special.ndtr(special.ndtri(chance) - mu)), level)

    if num_correct == 0 or not refuted(0.0):
        return 0.0
    low, high = 0.0, _LARGEST
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low * ROUND_DOWN


def refutes(counts: Guesses, blow_up_inverse: Callable[[float], float], significance: float) -> bool:
    """Whether no mechanism with this curve gives so many right guesses but by chance `significance`.

    `blow_up_inverse(x)` is the least chance under one data set of an event that has chance x under a neighbour.
    """
    # m, c', c, alpha, r, h of the paper; guesses are between in and out, so its k is 2.
    m, c_all, c, alpha = counts.num_canaries, counts.num_guesses, counts.num_correct, significance
    r, h = alpha * c / m, alpha * (c_all - c) / m
    for i in range(c - 1, -1, -1):
        if r + h > c_all / m:  # both only grow
            return True
        grown = max(h, blow_up_inverse(min(r, 1.0)))
        r, h = r + i / (c_all - i) * (grown - h), grown
    return r + h > c_all / m
