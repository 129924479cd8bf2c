"""Composition theorems that need only each step's (epsilon, delta): basic, advanced, optimal.

    >>> round(basic([0.1] * 100, [0.0] * 100)[0], 9)
    10.0
    >>> round(advanced([0.1] * 100, [0.0] * 100, slack=1e-5, form="tanh")[0], 8)
    5.29810966
    >>> round(optimal(0.1, 0.0, 100, total_delta=1e-5), 8)
    4.30679137

For their use on events, see `hush.accounting.composition`. References: Dwork, Rothblum, Vadhan 2010 [drv10];
Kairouz, Oh, Viswanath 2015 [kov15].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Literal

import numpy

from hush import _check
from hush.accounting.loss_moments import Array
from hush.accounting.rdp_orders import minimise
from hush.accounting.renyi_pairs import sampled_losses
from hush.accounting.response_curve import response_curve
from hush.errors import InvalidValue

Form = Literal["original", "tanh"]
_UP = 1 + 1e-13
MOST_TIMES = 10**300


def _steps(epsilons: Sequence[float], deltas: Sequence[float]) -> tuple[Array, Array]:
    first = numpy.asarray([_check.nonnegative("epsilons", value) for value in epsilons], dtype=float)
    second = numpy.asarray([_check.delta(value, "deltas") for value in deltas], dtype=float)
    if len(first) != len(second):
        raise InvalidValue(f"epsilons and deltas must be equally many; got {len(first)} and {len(second)}.")
    return first, second


def _slack(slack: float) -> float:
    if _check.delta(slack, "slack") == 0:
        raise InvalidValue("slack must be above 0; got 0. Use basic composition for no slack.")
    return float(slack)


def basic(epsilons: Sequence[float], deltas: Sequence[float]) -> tuple[float, float]:
    """The sums [Dwork, Roth 2014, Thm. 3.16]."""
    first, second = _steps(epsilons, deltas)
    return sum_up(first), min(1.0, sum_up(second))


def sum_up(values: Iterable[float], counts: Iterable[float] | None = None) -> float:
    """Return the sum of values, each `counts` times, rounded up by at most one unit in the last place.

    It is infinite where it is beyond every float.

    >>> sum_up([1.0, 0.5], [10, 2])
    11.0
    """
    pairs = [(float(value), 1.0) for value in values] if counts is None else list(zip(values, counts, strict=True))
    if not all(math.isfinite(value) for value, _ in pairs):
        return math.inf
    exact = sum((Fraction(float(value)) * Fraction(float(count)) for value, count in pairs), Fraction(0))
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def advanced(
    epsilons: Sequence[float], deltas: Sequence[float], slack: float, *, form: Form = "tanh"
) -> tuple[float, float]:
    """Advanced composition of unlike steps; the total delta is the sum of deltas plus `slack`.

    sqrt(2 log(1/slack) sum e^2) plus, in the original form, sum e (exp(e) - 1) [drv10, Thm. III.3] or, in the "tanh"
    form, sum e tanh(e/2) [kov15, Thm. 3.5, third term], which is never larger.
    """
    _check.one_of("form", form, ("original", "tanh"))
    first, second = _steps(epsilons, deltas)
    ones = numpy.ones(len(first))
    total_delta = min(1.0, sum_up([*second, _slack(slack)]))
    return advanced_epsilon(first, ones, slack, form), total_delta


def advanced_epsilon(epsilons: Array, counts: Array, slack: float, form: Form) -> float:
    """The epsilon of `advanced`, each step `counts` times."""
    with numpy.errstate(over="ignore"):
        gain = numpy.expm1(epsilons) if form == "original" else numpy.tanh(epsilons / 2)
        drift, squares = float(numpy.sum(counts * epsilons * gain)), float(numpy.sum(counts * epsilons**2))
    return (drift + math.sqrt(-2 * math.log(slack) * squares)) * _UP


def kairouz(epsilons: Sequence[float], deltas: Sequence[float], slack: float) -> tuple[float, float]:
    """The closed form of [kov15, Thm. 3.5]: the best of three epsilons, and 1 - (1 - slack) product of (1 - delta)."""
    first, second = _steps(epsilons, deltas)
    log_whole = math.fsum(numpy.log1p(-second)) + math.log1p(-_slack(slack))
    total_delta = min(1.0, -math.expm1(log_whole) * _UP) if numpy.any(second) else slack
    return kairouz_epsilon(first, numpy.ones(len(first)), slack), total_delta


def kairouz_epsilon(epsilons: Array, counts: Array, slack: float) -> float:
    """The epsilon of `kairouz`, each step `counts` times."""
    return min(
        sum_up(epsilons, counts),
        advanced_epsilon(epsilons, counts, slack, "tanh"),
        kairouz_middle_term(epsilons, counts, slack),
    )


def kairouz_middle_term(epsilons: Array, counts: Array, slack: float) -> float:
    """sum e tanh(e/2) + sqrt(2 sum e^2 log(E + sqrt(sum e^2)/slack)), E = 2.718... [kov15, Thm. 3.5, second term]."""
    with numpy.errstate(over="ignore"):
        squares = float(numpy.sum(counts * epsilons**2))
        drift = float(numpy.sum(counts * epsilons * numpy.tanh(epsilons / 2)))
    return (drift + math.sqrt(2 * squares * math.log(math.e + math.sqrt(squares) / slack))) * _UP


def optimal(epsilon: float, delta: float, times: int, *, total_delta: float) -> float:
    """The smallest epsilon of `times` (epsilon, delta)-DP mechanisms at `total_delta`, exactly [kov15, Thm. 3.3].

    No better statement follows from (epsilon, delta) alone. Infinite where `total_delta` is below what the deltas
    add up to.
    """
    epsilon, delta = _check.nonnegative("epsilon", epsilon), _check.delta(delta)
    times, total_delta = _times(times), _check.delta(total_delta, "total_delta")
    slack = spare_delta(total_delta, times * math.log1p(-delta))
    if slack < 0:
        return math.inf
    if epsilon == 0:
        return 0.0
    return min(response_curve(numpy.array([epsilon]), [times])[0].epsilon(slack), sum_up([epsilon], [times]))


def _times(times: int) -> int:
    """Return a number of steps that a float can hold."""
    if _check.whole("times", times) > MOST_TIMES:
        raise InvalidValue(f"times must be at most {float(MOST_TIMES):g}; got 10^{len(str(times)) - 1} or more.")
    return times


def spare_delta(total_delta: float, log_whole: float) -> float:
    """The slack that gives 1 - (1 - slack) e^log_whole = total_delta, rounded down; negative where there is none."""
    if log_whole == 0:
        return total_delta
    slack = -math.expm1(min(math.log1p(-total_delta) - log_whole, 1.0))  # any exponent above 0 leaves no slack
    return slack - 4e-16 * (1 + abs(slack))


def optimal_delta(epsilon: float, delta: float, times: int, *, total_epsilon: float) -> float:
    """The smallest delta of `times` (epsilon, delta)-DP mechanisms at `total_epsilon`, exactly [kov15, Thm. 3.3]."""
    epsilon, delta = _check.nonnegative("epsilon", epsilon), _check.delta(delta)
    times, total_epsilon = _times(times), _check.nonnegative("total_epsilon", total_epsilon)
    inner = response_curve(numpy.array([epsilon]), [times])[0].delta(total_epsilon) if epsilon > 0 else 0.0
    return min(1.0, -math.expm1(times * math.log1p(-delta) + math.log1p(-inner)) * _UP) if inner < 1 else 1.0


def strong_composition(
    noise_multiplier: float, sampling_prob: float, steps: int, delta: float, *, form: Form = "tanh"
) -> float:
    """Advanced composition of sampled Gaussian steps, each costed by the textbook noise formula.

    Per step, epsilon_0 = sqrt(2 log(1.25/delta_0)) / noise_multiplier, amplified to log(1 + q (e^epsilon_0 - 1)), and
    the best split of delta. The textbook formula is a theorem only for epsilon_0 < 1, so this is for comparison with
    other texts: a float, not a `Guarantee`. `hush.accounting.composition` has the sound version.

    >>> round(strong_composition(4.0, 0.01, 10_000, 1e-5, form="original"), 2)
    26.39
    >>> round(strong_composition(4.0, 0.01, 10_000, 1e-5), 2)
    21.17
    """

    def total(epsilon: float, slack: float) -> float:
        amplified = sampled_losses(numpy.array([epsilon]), sampling_prob)
        return advanced_epsilon(amplified, numpy.array([float(steps)]), slack, form)

    return _best_split(total, noise_multiplier, sampling_prob, steps, delta)


def published_strong_composition(noise_multiplier: float, sampling_prob: float, steps: int, delta: float) -> float:
    """The famous 9.34 for "strong composition", reproduced. **This is not a theorem**, so not a `Guarantee`.

    It amplifies by q * epsilon_0, which only holds in the limit of small epsilon_0, while epsilon_0 is near 1.4 in the
    published setting; the lemma log(1 + q (e^epsilon_0 - 1)) gives 21.17 or 26.39 there (`strong_composition`).

    >>> round(published_strong_composition(4.0, 0.01, 10_000, 1e-5), 6)
    9.337634
    """

    def total(epsilon: float, slack: float) -> float:
        linear = sampling_prob * epsilon
        square = linear * linear  # a product overflows to infinity, where a power would raise
        return linear * math.sqrt(-2 * steps * math.log(slack)) + steps * square

    return _best_split(total, noise_multiplier, sampling_prob, steps, delta)


def _best_split(
    total: Callable[[float, float], float], noise_multiplier: float, sampling_prob: float, steps: int, delta: float
) -> float:
    """The least total(epsilon_0, slack) over splits of delta into steps * q * delta_0 and slack."""
    noise_multiplier = _check.positive("noise_multiplier", noise_multiplier)
    sampling_prob, steps = _check.probability("sampling_prob", sampling_prob), _check.whole("steps", steps)
    if _check.delta(delta) == 0:
        raise InvalidValue("delta must be above 0 for advanced composition; got 0.")

    def at(odds: float) -> float:
        base_delta = delta * odds / (1 + odds) / (sampling_prob * steps)
        epsilon = math.sqrt(2 * math.log(1.25 / base_delta)) / noise_multiplier if base_delta < 1.25 else 0.0
        return total(epsilon, delta / (1 + odds))

    return minimise(lambda odds: numpy.array([at(float(value)) for value in odds]), 1.0)[1]
