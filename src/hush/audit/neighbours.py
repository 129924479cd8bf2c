"""Two neighbouring data sets, many runs: can an attacker who sees every release tell which of them it was?

The slow and general audit. Choose the worst pair of neighbours that you can think of (a crowd that pulls one way and
one example that pulls the other), and give a function that trains on a data set and returns all numbers it released.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy
from numpy.typing import ArrayLike, NDArray

from hush import _check
from hush.audit.counts import significance_of
from hush.audit.result import ACCUSATION, AuditResult, judge
from hush.errors import InvalidValue
from hush.events import Event
from hush.privacy import Relation
from hush.rng import Rng

Data = TypeVar("Data")
_RIDGE = 1e-9  # relative; keeps directions without any noise from dividing by zero


def audit_neighbours(
    release: Callable[[Data], ArrayLike],
    without: Data,
    having: Data,
    *,
    event: Event,
    delta: float,
    relation: Relation = "add_remove",
    num_runs: int = 2_000,
    significance: float = 0.05,
    accusation_significance: float = ACCUSATION,
    rng: Rng | None = None,
) -> AuditResult:
    """Run `release` on one of two neighbours by a fair coin, many times, and guess the coins.

    The first half of the runs, with their coins, makes the guessing rule: a linear score (Fisher's) and a threshold in
    the middle. The second half is guessed by it. Runs are independent, so the guesses are.

    Args:
        release: Trains on a data set and returns what an attacker sees, always as many numbers.
        without: A data set.
        having: A neighbour of it.
        event: What the training is claimed to be.
        delta: The delta of the evidence.
        relation: The relation by which they are neighbours.
        num_runs: Runs in all.
        significance: The chance that the evidence is above the truth.
        accusation_significance: The chance that a training that keeps its promise is called a contradiction.
        rng: Where the coins come from; fresh entropy if None.
    """
    num_runs = _check.whole("num_runs", num_runs, least=8)
    rng = rng or Rng.from_entropy()
    coins = rng.stream(rng.unused("coins")).integers(0, 2, num_runs).astype(bool)
    half = num_runs // 2
    seen = _scaled(_released(release, [having if coin else without for coin in coins]), half)
    direction, threshold = _rule(seen[:half], coins[:half])
    right = (seen[half:] @ direction > threshold) == coins[half:]
    return judge(
        [int(right.sum())],
        num_runs - half,
        event,
        delta=delta,
        relation=relation,
        method="neighbours",
        significance=significance_of(significance),
        accusation_significance=significance_of(accusation_significance),
    )


def _released(release: Callable[[Data], ArrayLike], worlds: list[Data]) -> NDArray[numpy.float64]:
    rows = [numpy.asarray(release(world), dtype=numpy.float64).ravel() for world in worlds]
    if len({len(row) for row in rows}) != 1 or not len(rows[0]):
        raise InvalidValue("release must return as many numbers in every run, and at least one.")
    return numpy.clip(numpy.nan_to_num(numpy.stack(rows)), -1e100, 1e100)


def _scaled(seen: NDArray[numpy.float64], half: int) -> NDArray[numpy.float64]:
    """Columns divided by their largest value in the first half, which alone may decide anything."""
    scale = numpy.abs(seen[:half]).max(axis=0)
    return seen / numpy.where(scale > 0, scale, 1.0)


def _rule(seen: NDArray[numpy.float64], coins: NDArray[numpy.bool_]) -> tuple[NDArray[numpy.float64], float]:
    """Fisher's linear score and the middle between both means; without full covariance where runs are few."""
    if coins.all() or not coins.any():
        return numpy.zeros(seen.shape[1]), 0.0
    means = seen[~coins].mean(axis=0), seen[coins].mean(axis=0)
    rest = numpy.where(coins[:, None], seen - means[1], seen - means[0])
    spread = rest.T @ rest / len(seen)
    if 4 * spread.shape[0] > len(seen):
        spread = numpy.diag(numpy.diag(spread))
    difference = means[1] - means[0]
    ridge = _RIDGE * (float(numpy.trace(spread)) / len(spread) + float(difference @ difference)) + 1e-300
    direction = numpy.linalg.solve(spread + ridge * numpy.eye(len(spread)), difference)
    return direction, float(direction @ (means[0] + means[1]) / 2)
