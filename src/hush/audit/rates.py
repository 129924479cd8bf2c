"""Error rates of a test at one threshold that was fixed beforehand: Clopper-Pearson, and Gaussian curves.

>>> round(clopper_pearson_bound(90, 100, 10, 100, delta=0.0, significance=0.05), 6)
1.542152
>>> round(gdp_bound(900, 1_000, 100, 1_000, delta=1e-5, significance=0.05), 3)
12.198
"""

from __future__ import annotations

import math

from scipy import special

from hush import _check
from hush.accounting.gdp import epsilon_of
from hush.audit.counts import ROUND_DOWN, Counts, positive_delta, significance_of


def clopper_pearson_bound(
    true_positives: int, positives: int, false_positives: int, negatives: int, delta: float, significance: float
) -> float:
    """log((TPR - delta) / FPR) at the safe ends of both rates: an epsilon that the truth is not below.

    No assumption on the mechanism; the threshold must be fixed before looking, and the trials independent. Each rate
    takes half of `significance` [Clopper, Pearson 1934]. The other direction of the same test is this bound with the
    roles exchanged: negatives called negative, and positives called negative.

    Args:
        true_positives: Members that the test calls members.
        positives: All members.
        false_positives: Others that the test calls members.
        negatives: All others.
        delta: The delta at which epsilon is bounded.
        significance: The accepted chance that the bound is above the truth.
    """
    counts = Counts(true_positives, positives, false_positives, negatives)
    delta = _check.delta(delta)
    tpr_low, fpr_high = safe_rates(counts, significance)
    return max(0.0, _log_ratio(tpr_low - delta, fpr_high)) * ROUND_DOWN


def gdp_bound(
    true_positives: int, positives: int, false_positives: int, negatives: int, delta: float, significance: float
) -> float:
    """Epsilon at `delta` of the largest mu for which mu-GDP is refuted; arguments as for `clopper_pearson_bound`.

    This is a bound for mechanisms that are mu-GDP for some mu, such as Gaussian noise without sampling.
    """
    counts = Counts(true_positives, positives, false_positives, negatives)
    return epsilon_of(positive_delta(delta), mu_at_least(counts, significance)) * ROUND_DOWN


def mu_at_least(counts: Counts, significance: float) -> float:
    """Phi^-1(TPR) - Phi^-1(FPR) at the safe ends of both rates, or 0 [Nasr, Hayes, Steinke, Balle 2023, Sec. 3]."""
    tpr_low, fpr_high = safe_rates(counts, significance)
    if tpr_low <= fpr_high:
        return 0.0
    return float(special.ndtri(tpr_low) - special.ndtri(fpr_high)) * ROUND_DOWN


def safe_rates(counts: Counts, significance: float) -> tuple[float, float]:
    """A lower end of the true positive rate and an upper end of the false positive rate, both right but for chance
    `significance`, half of it each."""
    half = significance_of(significance) / 2
    return (
        lower_rate(counts.true_positives, counts.positives, half),
        1 - lower_rate(counts.negatives - counts.false_positives, counts.negatives, half),
    )


def lower_rate(successes: int, trials: int, significance: float) -> float:
    """The Clopper-Pearson lower end of a rate: the truth is below it with chance `significance` at most.

    >>> lower_rate(0, 10, 0.05), round(lower_rate(10, 10, 0.05), 6)
    (0.0, 0.741134)
    """
    if successes == 0:
        return 0.0
    return float(special.betaincinv(successes, trials - successes + 1, significance))


def _log_ratio(over: float, under: float) -> float:
    return math.log(over / under) if over > 0 else 0.0
