"""dp-accounting's PLD with more digits: its own distributions of one step, composed in 80-bit arithmetic.

Where PLD contradicts Hush and the high-precision value would take too long, this tells whether PLD does so by its
discretisation, which is a bound, or by the rounding of its 53-bit transforms, which is none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import fft

from benchmarks.accounting.peers import _dp_accounting_relation
from benchmarks.accounting.settings import Setting

_MOST_PLACES = 2**23


def interval(setting: Setting) -> tuple[float, float] | str:
    """PLD's optimistic and pessimistic epsilon without its rounding, or why there are none."""
    try:
        return epsilon(setting, pessimistic=False), epsilon(setting, pessimistic=True)
    except (ArithmeticError, MemoryError) as error:
        return str(error) or type(error).__name__


def epsilon(setting: Setting, *, pessimistic: bool = True, interval: float = 1e-4) -> float:
    """epsilon of the worse direction from PLD's distributions, rounded to one side only."""
    directions = ("_pmf_remove", "_pmf_add") if setting.relation == "add_remove" else ("_pmf_remove",)
    return max(_epsilon(setting, direction, pessimistic, interval) for direction in directions)


def _steps(setting: Setting, pessimistic: bool, interval: float) -> list[tuple[Any, int]]:
    from dp_accounting.pld import privacy_loss_distribution as distributions

    return [
        (
            distributions.from_gaussian_mechanism(
                noise,
                value_discretization_interval=interval,
                pessimistic_estimate=pessimistic,
                use_connect_dots=pessimistic,
                sampling_prob=prob,
                neighboring_relation=_dp_accounting_relation(setting),
            ),
            steps,
        )
        for prob, noise, steps in setting.phases
    ]


def _epsilon(setting: Setting, direction: str, pessimistic: bool, interval: float) -> float:
    parts = []
    for distribution, times in _steps(setting, pessimistic, interval):
        pmf = getattr(distribution, direction).to_dense_pmf()
        parts.append((np.asarray(pmf._probs, dtype=np.longdouble), pmf._lower_loss, float(pmf._infinity_mass), times))
    places = 1 << (8 * max(len(probs) for probs, *_ in parts)).bit_length()
    if places > _MOST_PLACES:
        raise ArithmeticError("too many places")
    log_total: Any = 0
    infinite, lowest = 0.0, 0
    for probs, lower, infinity, times in parts:
        log_total = log_total + times * np.log(fft.rfft(probs, places))
        lowest += times * lower
        infinite += times * infinity
    mass = fft.irfft(np.exp(log_total), places)
    # Place k holds the totals (lowest + k + n * places) * interval; those from -places/2 up are kept.
    first = -places // 2
    mass = np.roll(mass, lowest - first)
    outside = sum(abs(float(part.sum())) for part in (mass[: places // 16], mass[-places // 16 :]))
    if outside > 1e-3 * setting.delta:
        raise ArithmeticError("the totals do not fit")
    infinite += outside if pessimistic else 0.0  # what lies beyond the window is less than what lies at its edges
    losses = (first + np.arange(places)) * np.longdouble(interval)
    above = np.cumsum(mass[::-1])[::-1]
    shrunk = np.cumsum((mass * np.exp(-losses))[::-1])[::-1]
    deltas = above - np.exp(losses) * shrunk + infinite  # at epsilon = each loss
    positive = losses >= 0
    over = np.flatnonzero(deltas[positive] > setting.delta)
    return float(losses[positive][over[-1] + (1 if pessimistic else 0)]) if len(over) else 0.0
