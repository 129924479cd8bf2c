"""A warning where rows are fitted more than once in one process: each fit costs its whole epsilon again.

Cross-validation, a grid search and a second call of `fit` all read the same rows several times, and what they say about
them adds up. Scikit-learn has no place for that sum, so this keeps one: each private fit leaves keyed hashes of up to
1,024 of its rows in the memory of the process, with its event. A later fit that meets a tenth of them warns, and
states what the fits cost together. A fit with an `account` is charged to a ledger, which keeps the sum and refuses what
goes over its cap; it does not warn.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import warnings
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from hush import accounting, events
from hush.privacy import Guarantee, Relation, round_up

_LOOKED_AT = 1024
_MOST_FITS = 200  # older ones are forgotten
_OVERLAP = 0.1  # of the rows that were looked at: a few equal rows make no common data
_KEY = secrets.token_bytes(32)


class _Fit(NamedTuple):
    marks: frozenset[bytes]  # of rows
    event: events.Event
    epsilon: float
    delta: float


class RepeatedFitWarning(UserWarning):
    """Private models were fitted on the same rows several times in this process, and their costs add up."""


@dataclass
class _Fits:
    """The fits of this process: hashes of rows, and the event of each."""

    seen: list[_Fit] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


_FITS = _Fits()


def watch(rows: NDArray[numpy.float64], event: events.Event, guarantee: Guarantee) -> None:
    """Take down a fit on these rows (targets included), and warn if many of them were in an earlier one."""
    this = _Fit(_marks(rows), event, guarantee.epsilon, guarantee.delta)
    with _FITS.lock:
        fits = [fit for fit in _FITS.seen if _overlap(fit.marks, this.marks)]
        _FITS.seen.append(this)
        del _FITS.seen[:-_MOST_FITS]
    if fits:
        warnings.warn(_warning([*fits, this], guarantee.relation), stacklevel=4)


def _overlap(one: frozenset[bytes], other: frozenset[bytes]) -> bool:
    return len(one & other) >= _OVERLAP * min(len(one), len(other))


def forget() -> None:
    """Start anew: for tests, and for data that is public."""
    with _FITS.lock:
        _FITS.seen.clear()


def _marks(rows: NDArray[numpy.float64]) -> frozenset[bytes]:
    """Keyed hashes of the rows with the smallest first hashes: the same rows are chosen in every fold that has them."""
    projection = numpy.frombuffer(_stretched(rows.shape[1]), dtype=numpy.uint32) / 2.0**32
    with numpy.errstate(all="ignore"):
        scores = (rows @ projection * 997.0) % 1.0
    chosen = numpy.argsort(scores, kind="stable")[:_LOOKED_AT]
    return frozenset(hashlib.blake2b(rows[place].tobytes(), key=_KEY, digest_size=16).digest() for place in chosen)


def _stretched(columns: int) -> bytes:
    return hashlib.shake_256(_KEY).digest(4 * columns)


def _warning(fits: list[_Fit], relation: Relation) -> RepeatedFitWarning:
    epsilon, delta = _cost(fits, relation)
    return RepeatedFitWarning(
        f"{len(fits)} private models were fitted on rows of the same data in this process (cross-validation, a search, "
        f"or fit called again): together they cost epsilon {round_up(epsilon)} at delta {delta:.3g}. Pass "
        "fit(..., account=...) to charge a ledger that keeps the sum."
    )


def _cost(fits: list[_Fit], relation: Relation) -> tuple[float, float]:
    """Exactly where all noise is Gaussian; else the sums, which always hold and cost no time."""
    parts = [event for fit in fits for event, _ in events.flat(fit.event)]
    if all(isinstance(part, events.Gaussian | events.GaussianDP) for part in parts):
        delta = max(fit.delta for fit in fits)
        total = accounting.guarantee(events.Composed(*(fit.event for fit in fits)), delta=delta, relation=relation)
        return total.epsilon, delta
    return sum(fit.epsilon for fit in fits), sum(fit.delta for fit in fits)
