"""What an event costs: one question, several methods, one kind of answer.

>>> from hush import events
>>> step = events.PoissonSampled(events.Gaussian(noise_multiplier=4.0), sampling_prob=0.01)
>>> answer = guarantee(events.Repeated(step, times=10_000), delta=1e-5)
>>> print(answer)
(0.946867, 1e-05)-differential privacy, add remove, by exact
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy

from hush import _check, events
from hush.errors import InvalidValue
from hush.privacy import Guarantee, Relation, check_relation

# method -> module, function for "which epsilon", function for "which delta"
_METHODS = {
    "exact": ("hush.accounting.exact.report", "guarantee", "delta_guarantee"),
    "rdp": ("hush.accounting.rdp", "guarantee", "delta_guarantee"),
    "moments": ("hush.accounting.moments", "guarantee", "delta_guarantee"),
    "basic": ("hush.accounting.composition", "basic_guarantee", "basic_delta_guarantee"),
    "advanced": ("hush.accounting.composition", "advanced_guarantee", "advanced_delta_guarantee"),
    "optimal": ("hush.accounting.composition", "optimal_guarantee", "optimal_delta_guarantee"),
    "gdp_clt": ("hush.accounting.gdp", "clt_guarantee", "clt_delta_guarantee"),
}
METHODS: tuple[str, ...] = tuple(_METHODS)
MOST_STEPS = 10**300  # of one kind; a number of steps must stay a float


def guarantee(
    event: events.Event, *, delta: float, relation: Relation = "add_remove", method: str = "exact"
) -> Guarantee:
    """The smallest epsilon that `method` gives at this delta.

    Args:
        event: What was done, such as `Repeated(PoissonSampled(Gaussian(4.0), 0.01), times=10_000)`.
        delta: The chance of failure that is accepted, in [0, 1); well below one over the number of examples.
        relation: Which data sets are neighbours.
        method: "exact" is an interval that holds the truth; the others are upper bounds, except "gdp_clt", which is
            an approximation and says so.

    Raises:
        InvalidValue: An argument is outside its domain.
        UnsupportedEvent: The method cannot bound this event; the message names it.
    """
    return _ask(event, method, 1, relation=check_relation(relation), delta=_check.delta(delta))


def delta(
    event: events.Event, *, epsilon: float, relation: Relation = "add_remove", method: str = "exact"
) -> Guarantee:
    """The smallest delta that `method` gives at this epsilon; arguments as for `guarantee`.

    >>> answer = delta(events.Gaussian(noise_multiplier=1.0), epsilon=1.0)
    >>> round(answer.delta, 9)
    0.126936738
    """
    return _ask(event, method, 2, relation=check_relation(relation), epsilon=_check.nonnegative("epsilon", epsilon))


def _ask(event: object, method: str, which: int, **arguments: Any) -> Guarantee:
    if not isinstance(event, events.Event):
        raise InvalidValue(f"event must be an event, such as events.Gaussian(noise_multiplier=1.0); got {event!r}.")
    if method not in _METHODS:
        raise InvalidValue(f"method must be one of {', '.join(METHODS)}; got {method!r}.")
    for _, count in events.flat(event):
        if count > MOST_STEPS:
            raise InvalidValue(
                f"an event must repeat a step at most {float(MOST_STEPS):g} times; this one does more often."
            )
    question = _METHODS[method]
    ask = getattr(import_module(question[0]), question[which])
    with numpy.errstate(over="ignore"):  # an upper bound that overflows is infinite, which is no mistake
        answer = ask(event, **arguments)
    if math.isnan(answer.epsilon) or math.isnan(answer.delta):
        raise InvalidValue(f"{method} gave no number for {event!r}; please report this event.")
    return answer  # type: ignore[no-any-return]
