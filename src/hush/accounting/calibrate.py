"""The noise, the steps or the sampling probability that a budget allows. Never over budget.

>>> from hush.privacy import Budget
>>> noise = noise_for(Budget(epsilon=1.0, delta=1e-5), sampling_prob=0.01, steps=10_000)
>>> round(noise, 6)
3.812817
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from hush import _check, events
from hush.accounting.guarantee import guarantee
from hush.errors import InvalidValue, Unreachable
from hush.privacy import Budget, Relation, check_relation

CALIBRATED = ("exact", "rdp")
_FINEST = 1e-9  # relative width of the bracket at which the search for a real number stops
_GUESSED = 1e-5  # a guess so near the budget needs no second one
_QUICK = 7  # evaluations that the secant method may take
_NOISE_LIMITS = 5e-2, 1e9
_PRECISE = 1e-6  # relative width of an interval for epsilon up to which `_FINEST` has a meaning
_SHARE_OF_WIDTH = 0.1  # of a wider interval: its upper end is not smooth, and finer steps only follow its noise
# Evaluations of one search at full precision. The Illinois method takes about ten where the cost is smooth. Where it
# jumps, as from 0 near delta 1, each further evaluation is content with three times less, so that the search ends.
_PATIENCE = 16
_LESS_PRECISE = 3.0
_MOST_MORE_STEPS = 4  # that are tried one by one after the search for a number of steps
_LARGEST_SQUARE = 1e300
MOST_STEPS = 10**9  # a budget that allows more is answered with this many


def sampled_gaussian(noise_multiplier: float, sampling_prob: float, steps: int) -> events.Event:
    """The event of DP-SGD: `steps` Gaussian releases, each on a Poisson sample."""
    return events.Repeated(events.PoissonSampled(events.Gaussian(noise_multiplier), sampling_prob), steps)


def noise_for(
    budget: Budget, *, sampling_prob: float, steps: int, relation: Relation = "add_remove", method: str = "exact"
) -> float:
    """Return the smallest noise multiplier whose cost is inside the budget.

    It is found to nine digits, or to a tenth of the width of epsilon's interval where that is wider than 1e-6.
    """
    prob, steps = _check.probability("sampling_prob", sampling_prob), _check.whole("steps", steps)
    _ready(budget, relation, method)
    spending = _Spending(budget, relation, method)

    def over(log_noise: float) -> float:
        return spending.excess(sampled_gaussian(math.exp(log_noise), prob, steps))

    least, most = (math.log(limit) for limit in _NOISE_LIMITS)
    mu = _likely_mu(budget, relation)
    start = min(max(math.log(_likely_noise(mu, prob, steps)), least), most)
    start, slope = _approach(
        lambda x: _guessed_excess(sampled_gaussian(math.exp(x), prob, steps), budget, relation, method),
        *(start, least, most, _noise_slope(budget, mu, prob, steps)),
    )
    found = _secant(over, spending, start, least, most, slope)
    if found is None:
        found = _boundary(over, start, least, most, finest=lambda x: spending.finest)
    if found is None:
        raise Unreachable(
            f"no noise_multiplier up to {_NOISE_LIMITS[1]:g} meets {budget}; "
            "use fewer steps, or a larger epsilon or delta."
        )
    return math.exp(found)


def steps_for(
    budget: Budget,
    *,
    noise_multiplier: float,
    sampling_prob: float,
    relation: Relation = "add_remove",
    method: str = "exact",
) -> int:
    """Return the largest number of steps inside the budget, at most `MOST_STEPS`; none at all is an error.

    Where epsilon's interval is wider than 1e-6, the number is found to a tenth of that width.
    """
    noise = _check.positive("noise_multiplier", noise_multiplier)
    prob = _check.probability("sampling_prob", sampling_prob)
    _ready(budget, relation, method)
    spending = _Spending(budget, relation, method)

    def fits(steps: int) -> bool:
        return spending.excess(sampled_gaussian(noise, prob, steps)) <= 0

    if not fits(1):
        raise Unreachable(f"one step already exceeds {budget}; use more noise or a smaller sampling_prob.")

    def over(minus_log_steps: float) -> float:
        return spending.excess(sampled_gaussian(noise, prob, round(math.exp(-minus_log_steps))))

    def finest(minus_log_steps: float) -> float:
        # Two counts that differ by less than one step are the same.
        one_step = 0.9 * math.exp(minus_log_steps)
        return one_step if spending.finest == _FINEST else max(one_step, spending.finest)

    start = 2 * math.log(_likely_root(_likely_mu(budget, relation), noise, prob))
    found = _boundary(over, -start, -math.log(MOST_STEPS), 0.0, finest=finest)
    steps = 1 if found is None else round(math.exp(-found))
    # `found` was itself inside the budget, and one step more is not, but for the rounding of the logarithm.
    for _ in range(_MOST_MORE_STEPS):
        if steps == MOST_STEPS or spending.finest > 1 / steps or not fits(steps + 1):
            break
        steps += 1
    return steps


def sampling_prob_for(
    budget: Budget, *, noise_multiplier: float, steps: int, relation: Relation = "add_remove", method: str = "exact"
) -> float:
    """Return the largest sampling probability whose cost is inside the budget.

    It is found to nine digits, or to a tenth of the width of epsilon's interval where that is wider than 1e-6.
    """
    noise, steps = _check.positive("noise_multiplier", noise_multiplier), _check.whole("steps", steps)
    _ready(budget, relation, method)
    spending = _Spending(budget, relation, method)

    def over(log_inverse: float) -> float:
        return spending.excess(sampled_gaussian(noise, math.exp(-log_inverse), steps))

    least, most = 0.0, math.log(1e12)
    start = min(max(-math.log(_likely_root(_likely_mu(budget, relation), noise, math.sqrt(steps))), least), most)
    start, slope = _approach(
        lambda x: _guessed_excess(sampled_gaussian(noise, math.exp(-x), steps), budget, relation, method),
        *(start, least, most, -1.1),
    )
    found = _secant(over, spending, start, least, most, slope)
    if found is None:
        found = _boundary(over, start, least, most, finest=lambda x: spending.finest)
    if found is None:
        raise Unreachable(f"no sampling_prob down to 1e-12 meets {budget}; use more noise or fewer steps.")
    return math.exp(-found)


def _ready(budget: Budget, relation: Relation, method: str) -> None:
    if not isinstance(budget, Budget):
        raise InvalidValue(f"budget must be a Budget(epsilon, delta); got {budget!r}.")
    check_relation(relation)
    _check.one_of("method", method, CALIBRATED)


class _Spending:
    """What events cost compared with a budget.

    `finest` is how precisely a parameter can be found from that: the relative width of the last interval that came
    near the budget decides.
    """

    def __init__(self, budget: Budget, relation: Relation, method: str) -> None:
        self._budget, self._relation, self._method = budget, relation, method
        self.finest = _FINEST

    def excess(self, event: events.Event) -> float:
        """Return the log of the event's epsilon over the budget's: 0 or below is inside."""
        answer = guarantee(event, delta=self._budget.delta, relation=self._relation, method=self._method)
        if answer.epsilon <= 0:
            return -math.inf
        result = _log_ratio(answer.epsilon, self._budget.epsilon)
        if 0 < answer.epsilon_lower < answer.epsilon and abs(result) < 1:
            width = min(_log_ratio(answer.epsilon, answer.epsilon_lower), 1.0)
            self.finest = _SHARE_OF_WIDTH * width if width > _PRECISE else _FINEST
        return result


def _log_ratio(one: float, other: float) -> float:
    """Return log(one / other), also where the quotient would overflow or underflow."""
    return math.log1p((one - other) / other) if other / 2 < one < 2 * other else math.log(one) - math.log(other)


def _guessed_excess(event: events.Event, budget: Budget, relation: Relation, method: str) -> float:
    """About the same at a fraction of the cost, near the budget; NaN where there is no guess."""
    if method != "exact":
        return math.nan
    from hush.accounting.exact import report

    spent = report.guess(event, delta=budget.delta, relation=relation, near=budget.epsilon)
    return _log_ratio(spent, budget.epsilon) if spent > 0 else math.nan


def _likely_mu(budget: Budget, relation: Relation) -> float:
    """The distance of one Gaussian release that costs the budget, as seen from one example's presence."""
    from hush.accounting import gdp

    whole = 1 / gdp.analytic_noise(budget.epsilon, budget.delta) if budget.delta > 0 else 1.0
    return whole / 2 if relation == "replace_one" else whole


def _likely_noise(mu: float, sampling_prob: float, steps: int) -> float:
    """The noise at which the central limit theorem gives that distance (Bu et al. 2020); only a guess."""
    return 1 / math.sqrt(_likely_variance(mu, sampling_prob, steps))


def _likely_variance(mu: float, sampling_prob: float, steps: int) -> float:
    """Return noise^-2 by the same theorem, between what squares of floats can hold."""
    ratio = min(mu / sampling_prob, math.sqrt(_LARGEST_SQUARE))
    return max(math.log1p(ratio * ratio / steps), 1 / _LARGEST_SQUARE)


def _likely_root(mu: float, noise: float, other: float) -> float:
    """The sampling probability, or the square root of the steps, at which the theorem gives it, from the other."""
    inverse = min(1 / noise, math.sqrt(600.0)) if noise > 1e-300 else math.sqrt(600.0)
    # e^(x^2) - 1 is x^2 to full precision for a small x, whose square could underflow.
    growth = math.sqrt(math.expm1(inverse * inverse)) if inverse > 1e-8 else max(inverse, 1e-300)
    return min(max(mu / other / growth, 1e-300), _LARGEST_SQUARE)


def _noise_slope(budget: Budget, mu: float, sampling_prob: float, steps: int) -> float:
    """d log epsilon / d log noise by the same theorem."""
    from hush.accounting import gdp

    one, other = (gdp.epsilon_of(budget.delta, scale * mu) for scale in (1.0, 0.999))
    by_mu = math.log(other / one) / math.log(0.999) if 0 < other < one < math.inf else 1.3
    variance = _likely_variance(mu, sampling_prob, steps)
    return -max(by_mu, 0.3) * variance / -math.expm1(-variance)


def _approach(
    guessed: Callable[[float], float], start: float, least: float, most: float, slope: float
) -> tuple[float, float]:
    """A better start and slope for `_secant`, from guesses of the function; as they are where the guesses fail."""
    x, value, best = start, guessed(start), (start, slope)
    for _ in range(_QUICK):
        stride = -value / slope
        if not (abs(stride) < 1 and least < x + stride < most):
            break
        best = x + stride, slope
        there = guessed(x + stride) if abs(value) > _GUESSED else math.nan
        if not there < math.inf:
            break
        slope = min((there - value) / stride, -0.05) if abs(stride) > 1e-7 else slope
        x, value = x + stride, there
    return best


def _secant(
    over: Callable[[float], float], spending: _Spending, start: float, least: float, most: float, slope: float
) -> float | None:
    """A point at which a falling function is 0 or at most a hair below, by the secant method; None where it strays.

    The point was itself evaluated and is inside the budget.
    """
    x, value = start, over(start)
    for _ in range(_QUICK):
        if -spending.finest < value <= 0:
            return x
        stride = -(value + 0.4 * spending.finest) / slope
        if not (least < x + stride < most and abs(stride) < 1):
            return None
        there = over(x + stride)
        if math.isfinite(there) and there != value and abs(stride) > 1e-7:
            slope = min((there - value) / stride, -0.05)
        x, value = x + stride, there
    return x if -spending.finest < value <= 0 else None


def _boundary(
    over: Callable[[float], float],
    start: float,
    least: float,
    most: float,
    *,
    finest: Callable[[float], float],
) -> float | None:
    """The smallest x in [least, most] at which a falling function is at most 0, from above, to `finest` of it.

    A bracket, then the Illinois variant of the secant method. The end that is returned was itself evaluated and is
    inside the budget.
    """
    inside, outside = _bracket(over, min(max(start, least), most), least, most)
    if inside is None:
        return None
    if outside is None:
        return inside[0]
    (high, below), (low, above), side = inside, outside, 0
    for evaluation in itertools.count():
        if high - low <= finest(high) * _LESS_PRECISE ** max(0, evaluation - _PATIENCE):
            break
        share = above / (above - below) if math.isfinite(below) else 0.5
        # Aim a hair inside the budget, so that the last evaluation lands there.
        point = low + min(max(share, 1e-3), 1 - 1e-3) * (high - low)
        point = min(point + 0.3 * _FINEST, high - 0.1 * (high - low) * (side > 3))
        value = over(point)
        if value <= 0:
            high, below, above = point, value, above / 2 if side < 0 else above
            side = min(side, 0) - 1
            if -value < _FINEST:
                break
        else:
            low, above, below = point, value, below / 2 if side > 0 else below
            side = max(side, 0) + 1
    return high


Point = tuple[float, float]


def _bracket(
    over: Callable[[float], float], start: float, least: float, most: float
) -> tuple[Point | None, Point | None]:
    """A point inside the budget and one outside it, from `start` outwards; None for one that does not exist."""
    here, stride = (start, over(start)), 0.25
    inside, outside = (here, None) if here[1] <= 0 else (None, here)
    while inside is None or outside is None:
        edge = (outside or here)[0] + stride if inside is None else (inside or here)[0] - stride
        point = min(max(edge, least), most)
        value = over(point)
        if value <= 0:
            inside = point, value
            if point == least:
                return inside, None
        else:
            outside = point, value
            if point == most:
                return None, outside
        stride *= 2
    return inside, outside
