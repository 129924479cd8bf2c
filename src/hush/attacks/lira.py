"""LiRA: is the model's confidence in a row that of models which saw the row, or of models which did not?

Carlini, Chien, Nasr, Song, Terzis, Tramer 2022, "Membership inference attacks from first principles": the confidence is
scaled to log-odds, which are close to normal, and the two hypotheses are compared row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hush import _check
from hush.attacks.result import AttackResult
from hush.attacks.shadows import Flags, Shadows
from hush.attacks.signals import Floats, Model, log_odds
from hush.errors import InvalidValue

_FEW = 64  # with fewer shadow models a row's own variance is too rough [carlini22]
_SMALLEST = 1e-12
_PRIOR = 8.0  # of "shrunk": how many observations the variance of all rows counts for


def lira(
    model: Model,
    shadows: Shadows,
    members: Any,
    *,
    mode: str = "online",
    variance: str = "auto",
) -> AttackResult:
    """Score each row of the shadows' pool by a likelihood ratio.

    Args:
        model: The attacked model: rows -> what the shadows give.
        shadows: Models like it, each trained on a random half of the pool.
        members: Which rows of the pool the attacked model was trained on: the truth to measure against.
        mode: "online" compares models with and without the row, log N(in) - log N(out). "offline" uses those without it
            alone, and asks how far above them the confidence lies: the one-sided tail. A confidence far *below* them is
            no sign of membership.
        variance: "global" for one variance of all rows, "per_example" for each its own, "shrunk" for a mean of the two
            weighted by the number of shadows; "auto" takes "global" below 64 shadow models.
    """
    _check.one_of("mode", mode, ("online", "offline"))
    inside = shadows.check_target(members)
    observed = log_odds(shadows.target(model), shadows.labels)
    scores = lira_scores(observed, shadows.log_odds, shadows.included, mode=mode, variance=variance)
    return AttackResult(f"LiRA, {mode}", scores, inside)


def lira_scores(
    observed: Floats, shadow_values: Floats, included: Flags, *, mode: str = "online", variance: str = "auto"
) -> Floats:
    """The scores from log-odds alone: (rows,) of the target, (models, rows) of the shadows."""
    _check.one_of("variance", variance, ("auto", "global", "per_example", "shrunk"))
    chosen = ("global" if len(included) < _FEW else "per_example") if variance == "auto" else variance
    out_centre, out_spread = _fitted(shadow_values, ~included, chosen)
    if mode == "offline":
        return tail_score((observed - out_centre) / out_spread)
    in_centre, in_spread = _fitted(shadow_values, included, chosen)
    return log_density(observed, in_centre, in_spread) - log_density(observed, out_centre, out_spread)


def log_density(values: Floats, centre: Floats, spread: Floats) -> Floats:
    """The logarithm of the normal density.

    >>> log_density(np.array([1.0, 0.0]), np.array([0.0, 10.0]), np.array([1.0, 10.0])).round(8).tolist()
    [-1.41893853, -3.72152363]
    """
    return np.asarray(-0.5 * ((values - centre) / spread) ** 2 - np.log(spread) - 0.5 * np.log(2 * np.pi))


def tail_score(standard: Floats) -> Floats:
    """-log P(Z > z): rises with the paper's 1 - P(Z > z), and does not stop at 1 where that rounds."""
    from scipy.special import log_ndtr

    return np.asarray(-log_ndtr(-standard))


def _fitted(values: Floats, chosen: Flags, variance: str) -> tuple[Floats, Floats]:
    """The median of each row over the chosen models, and the spread around their mean."""
    counts = chosen.sum(axis=0)
    if counts.min() < 1:
        row = int(counts.argmin())
        raise InvalidValue(f"row {row} is in all shadow models or in none; train more of them, as an even number.")
    kept = np.where(chosen, values, np.nan)
    squares = np.nansum((kept - np.nanmean(kept, axis=0)) ** 2, axis=0)
    own = squares / counts
    freedom = (counts - 1).sum()
    if variance != "per_example" and freedom < 1:
        raise InvalidValue("the spread of shadow models needs at least two of them with, and two without, some row.")
    shared = squares.sum() / max(freedom, 1)
    if variance == "global":
        own = np.full_like(own, shared)
    elif variance == "shrunk":
        own = (squares + _PRIOR * shared) / (counts - 1 + _PRIOR)
    return np.nanmedian(kept, axis=0), np.sqrt(np.maximum(own, _SMALLEST))
