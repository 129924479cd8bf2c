"""What a composition of events costs. Needs numpy and scipy only; torch is never loaded."""

from hush.accounting.calibrate import noise_for, sampling_prob_for, steps_for
from hush.accounting.explain import Explanation, explain
from hush.accounting.filters import GDPFilter, RenyiFilter
from hush.accounting.group import group
from hush.accounting.guarantee import METHODS, delta, guarantee
from hush.accounting.odometer import Odometer

__all__ = [
    "METHODS",
    "Explanation",
    "GDPFilter",
    "Odometer",
    "RenyiFilter",
    "delta",
    "explain",
    "group",
    "guarantee",
    "noise_for",
    "sampling_prob_for",
    "steps_for",
]
