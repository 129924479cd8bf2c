"""The moments accountant as first published: whole moments and the tail bound of Abadi et al. 2016, Thm. 2.

    >>> from hush.events import Gaussian, PoissonSampled, Repeated
    >>> step = PoissonSampled(Gaussian(noise_multiplier=4.0), sampling_prob=0.01)
    >>> round(guarantee(Repeated(step, times=10_000), delta=1e-5, relation="add_remove").epsilon, 6)
    1.258575

It is kept for comparison with published numbers; `hush.accounting.rdp` is never looser.
"""

from __future__ import annotations

import math

import numpy

from hush import _check
from hush.accounting.loss_moments import Array
from hush.accounting.renyi_curve import directions_of, total
from hush.errors import InvalidValue
from hush.events import Event, flat
from hush.privacy import Guarantee, Relation, check_relation

LARGEST_MOMENT = 512
_BLOCK = 32
_MARGIN = 1 + 1e-11


def log_moment(event: Event, moment: int, relation: Relation) -> float:
    """alpha(moment): the log of the moment generating function of the privacy loss, the worse direction.

    alpha(lambda) is lambda times the Rényi divergence of order lambda + 1; for the sampled Gaussian it is the maximum
    of the two expectations of Abadi et al. 2016, Sec. 3.2, here without their asymptotic bound.
    """
    moment = _check.whole("moment", moment)
    if moment > LARGEST_MOMENT:
        raise InvalidValue(f"moment must be at most {LARGEST_MOMENT}; got {moment}.")
    return float(_log_moments(event, numpy.array([float(moment)]), check_relation(relation))[0])


def _log_moments(event: Event, moments: Array, relation: Relation) -> Array:
    parts = list(flat(event))
    totals = [total(parts, moments, relation, direction) for direction in directions_of(parts, relation)]
    result: Array = numpy.maximum.reduce(totals) * _MARGIN
    return result


def _best(event: Event, relation: Relation, slope: float, offset: float, *, per_moment: bool) -> tuple[float, int]:
    """The least of alpha - lambda * slope + offset, over lambda if asked; blocks of moments until it stops falling."""
    best, place = math.inf, 1
    for start in range(1, LARGEST_MOMENT + 1, _BLOCK):
        moments = numpy.arange(start, start + _BLOCK, dtype=float)
        values = _log_moments(event, moments, relation) - moments * slope + offset
        values = values / moments if per_moment else values
        index = int(numpy.argmin(values))
        if values[index] >= best:
            break  # both forms have one valley, since alpha is convex
        best, place = float(values[index]), start + index
        if index < _BLOCK - 1:
            break
    return best, place


def guarantee(event: Event, *, delta: float, relation: Relation) -> Guarantee:
    """The least (alpha(lambda) + log(1/delta)) / lambda over lambda = 1..512; infinite at delta 0."""
    delta, relation = _check.delta(delta), check_relation(relation)
    if not list(flat(event)):
        return Guarantee(epsilon=0.0, delta=delta, relation=relation, method="moments")
    _log_moments(event, numpy.ones(1), relation)  # refuses what is not supported, whatever delta is
    if delta == 0:
        return Guarantee(epsilon=math.inf, delta=delta, relation=relation, method="moments")
    epsilon, place = _best(event, relation, 0.0, -math.log(delta), per_moment=True)
    epsilon *= 1 + 1e-14
    return Guarantee(epsilon=epsilon, delta=delta, relation=relation, method="moments", notes=(f"moment {place}",))


def delta_guarantee(event: Event, *, epsilon: float, relation: Relation) -> Guarantee:
    """The least exp(alpha(lambda) - lambda * epsilon) over lambda = 1..512."""
    epsilon, relation = _check.nonnegative("epsilon", epsilon), check_relation(relation)
    if not list(flat(event)):
        return Guarantee(epsilon=epsilon, delta=0.0, relation=relation, method="moments")
    log_delta, place = _best(event, relation, epsilon, 0.0, per_moment=False)
    delta = max(math.exp(min(log_delta + 1e-14 * (1 + abs(log_delta)), 0.0)), 5e-324)
    return Guarantee(epsilon=epsilon, delta=delta, relation=relation, method="moments", notes=(f"moment {place}",))
