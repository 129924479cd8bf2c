"""About where epsilon lies, if one or two large losses make it up or many small ones: guesses, no bounds."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr

from hush.accounting import gdp
from hush.accounting.exact.layers import Ordinary
from hush.accounting.exact.phases import Floats, Phases

_PLACES = np.linspace(0.0, 1.0, 17)


def rough_guess(ordinary: Ordinary) -> float:
    """epsilon if one or two large losses had to reach it, and if many small ones had; where both can, a bit more."""
    phases, log_delta = ordinary.phases, ordinary.log_delta
    large = _jump_guess(phases, log_delta)
    if large > 0 and 2 * float(log_jumps(phases, np.array([large / 2]))[0]) > log_delta:
        large = 2 * _jump_guess(phases, log_delta / 2)
    small = gdp.epsilon_of(math.exp(log_delta), rough_mu(ordinary))
    return math.sqrt(math.hypot(large * large, small * small))


def rough_mu(ordinary: Ordinary) -> float:
    """The distance of the normal approximation, with large losses left out."""
    phases = ordinary.phases
    small = sum(times * prob * prob * math.expm1(min(shift * shift, 1.0)) for prob, shift, times in phases.rows)
    return (2 if ordinary.direction == "replace" else 1) * math.sqrt(small + phases.gaussian)


def _jump_guess(phases: Phases, log_delta: float) -> float:
    """About the epsilon at which the worst phase's single steps have delta."""
    low, high = -40.0, 6.5  # log epsilon
    for _ in range(3):
        places = low + (high - low) * _PLACES
        values = log_jumps(phases, np.exp(places))
        above = int(np.count_nonzero(values > log_delta))
        if not 0 < above < len(places):
            return 0.0 if above == 0 else math.exp(high)
        (low, high), (first, last) = places[above - 1 : above + 1].tolist(), values[above - 1 : above + 1].tolist()
    return math.exp(low + (first - log_delta) / max(first - last, 1e-300) * (high - low))


def log_jumps(phases: Phases, epsilons: Floats) -> Floats:
    """log of the largest phase's sum of single steps' deltas at each epsilon; no cancellation is avoided."""
    # H = ndtr(m/2 - v/m) - e^v ndtr(-m/2 - v/m) with v = log(1 + (e^epsilon - 1)/q), [balle18] Theorem 2.
    v = np.log1p(np.multiply.outer(np.expm1(np.minimum(epsilons, 600.0)), 1 / phases.sampling_prob))
    place, half = v / phases.shift, phases.shift / 2
    ahead, behind = log_ndtr(half - place), v + log_ndtr(-half - place)
    difference = np.log(np.maximum(-np.expm1(behind - ahead), 1e-17))
    return np.asarray((ahead + difference + np.log(phases.sampling_prob * phases.times)).max(axis=1))
