"""One training run, many canaries, each in by a fair coin: what the number of right guesses says.

>>> round(one_run_bound(num_canaries=1_000, num_guesses=100, num_correct=100, delta=1e-5, significance=0.05), 6)
3.465376
"""

from __future__ import annotations

import math

import numpy
from scipy import special

from hush import _check
from hush.audit.counts import ROUND_DOWN, Guesses, significance_of

_LARGEST = 60.0  # epsilons above are not told apart: e^-60 is far below the rounding of a probability


def one_run_bound(num_canaries: int, num_guesses: int, num_correct: int, delta: float, significance: float) -> float:
    """An epsilon that the truth is not below, with confidence 1 - `significance`. No assumption on the mechanism.

    `num_guesses` must be fixed before looking, and each canary must be in by its own fair coin (add/remove neighbours)
    [Steinke, Nasr, Jagielski 2023, Thm. 5.2].

    Args:
        num_canaries: Canaries whose coins were tossed.
        num_guesses: On how many of them a guess was made; the others were left open.
        num_correct: How many guesses were right.
        delta: The delta at which epsilon is bounded.
        significance: The accepted chance that the bound is above the truth.
    """
    counts = Guesses(num_canaries, num_guesses, num_correct)
    delta, level = _check.delta(delta), significance_of(significance)
    if num_correct == 0 or one_run_tail(counts, 0.0, delta) > level:
        return 0.0
    low, high = 0.0, _LARGEST
    if one_run_tail(counts, high, delta) <= level:
        return high
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if one_run_tail(counts, middle, delta) <= level else (low, middle)
    return low * ROUND_DOWN


def one_run_tail(counts: Guesses, epsilon: float, delta: float) -> float:
    """The most likely that an (epsilon, delta)-private training lets so many guesses or more be right.

    f(v) + 2 m delta max_i (f(v - i) - f(v)) / i with f(v) = P[Binomial(r, e^epsilon / (1 + e^epsilon)) >= v].
    """
    # m, r, v of the paper: canaries, guesses, right guesses.
    m, r, v = counts.num_canaries, counts.num_guesses, counts.num_correct
    wrong = 1 / (1 + math.exp(epsilon))
    tail = float(special.bdtr(r - v, r, wrong))  # at most r - v wrong
    if delta == 0:
        return tail
    steps = numpy.arange(1, v + 1)
    gains = special.bdtr(r - v + steps, r, wrong) - tail
    return tail + 2 * m * delta * float(numpy.max(gains / steps))
