"""RMIA: is the row's likelihood ratio larger than that of rows from the population? (Zarifzadeh et al. 2024)

It needs few shadow models: a single one already gives an estimate of how hard a row is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hush import _check
from hush.attacks.result import AttackResult
from hush.attacks.shadows import Shadows
from hush.attacks.signals import Floats, Model, answers, as_labels, cross_entropy, log_probabilities
from hush.errors import InvalidValue


def rmia(
    model: Model,
    shadows: Shadows,
    members: Any,
    *,
    mode: str = "offline",
    ratio: float = 2.0,
    offline_scale: float = 0.3,
    population: tuple[Any, Any] | None = None,
) -> AttackResult:
    """Score each row of the pool by the share of population rows that it beats by the factor `ratio`.

    Args:
        model: The attacked model: rows -> what the shadows give.
        shadows: Models like it.
        members: Which rows of the pool the attacked model was trained on: the truth to measure against.
        mode: "offline" uses shadows without the row, and guesses what those with it would say; "online" uses both.
        ratio: By which factor (the paper's gamma) a row must beat another; 1 or above.
        offline_scale: The paper's a in `p(x) = ((1 + a) p_out(x) + (1 - a)) / 2`, between 0 and 1.
        population: (rows, classes) that nobody was trained on; the pool itself if None.
    """
    _check.one_of("mode", mode, ("online", "offline"))
    if _check.number("ratio", ratio) < 1:
        raise InvalidValue(f"ratio must be 1 or above; got {ratio!r}.")
    if not 0 <= _check.number("offline_scale", offline_scale) <= 1:
        raise InvalidValue(f"offline_scale must be in [0, 1]; got {offline_scale!r}.")
    inside = shadows.check_target(members)
    own = -cross_entropy(shadows.target(model), shadows.labels)
    chances = np.exp(-cross_entropy(shadows.log_probs, shadows.labels))
    prior = _prior(chances, shadows.included, mode, offline_scale)
    log_ratio = own - np.log(np.maximum(prior, 1e-300))
    others = log_ratio if population is None else _population(model, shadows, population, mode, offline_scale)
    return AttackResult(f"RMIA, {mode}", rmia_scores(log_ratio, others, ratio), inside)


def rmia_scores(log_ratio: Floats, population: Floats, ratio: float) -> Floats:
    """For each row the share of the population whose ratio it reaches `ratio` times.

    >>> rmia_scores(np.log([8.0, 2.0]), np.log([1.0, 2.0, 4.0, 8.0]), 2.0).tolist()
    [0.75, 0.25]
    """
    reached = np.searchsorted(np.sort(population), log_ratio - np.log(ratio) + 1e-12, side="right")
    return np.asarray(reached / len(population), dtype=np.float64)


def _prior(chances: Floats, included: Any, mode: str, scale: float) -> Floats:
    """p(x): what models say of the row on average, whether they saw it or not [zarifzadeh24]."""
    without = _mean(chances, ~included)
    if mode == "online":
        return (without + _mean(chances, included)) / 2
    return ((1 + scale) * without + (1 - scale)) / 2


def _mean(chances: Floats, chosen: Any) -> Floats:
    counts = chosen.sum(axis=0)
    if counts.min() < 1:
        row = int(counts.argmin())
        raise InvalidValue(f"row {row} is in all shadow models or in none; train more of them, as an even number.")
    return np.asarray(np.where(chosen, chances, 0).sum(axis=0) / counts)


def _population(model: Model, shadows: Shadows, rows: tuple[Any, Any], mode: str, scale: float) -> Floats:
    """The same ratio for rows that no model saw."""
    log_probs = log_probabilities(answers(model, rows[0]), shadows.outputs)
    labels = as_labels(rows[1], log_probs.shape[-1], len(log_probs))
    said = log_probabilities(shadows.predict(rows[0]), shadows.outputs)
    without = np.exp(-cross_entropy(said, labels)).mean(axis=0)
    prior = without if mode == "online" else ((1 + scale) * without + (1 - scale)) / 2
    return np.asarray(-cross_entropy(log_probs, labels) - np.log(np.maximum(prior, 1e-300)))
