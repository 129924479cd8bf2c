"""What a membership attack found: its curve, and how sure one can be of each point. Never accuracy alone.

>>> result = AttackResult("example", scores=[3.0, 1.0, 2.0, 0.0], members=[True, True, False, False])
>>> result.auc
0.75
>>> result.tpr_at(0.5).value
1.0
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hush import _check
from hush.attacks.rates import Rate, clopper_pearson
from hush.errors import InvalidValue

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
REPORTED = (0.001, 0.01)  # the false positive rates of every report


@dataclass(frozen=True)
class Roc:
    """Points of a curve, from (0, 0) to (1, 1), by falling threshold."""

    false_positive_rate: Floats
    true_positive_rate: Floats

    @property
    def area(self) -> float:
        """The area under the straight lines between the points."""
        heights = self.true_positive_rate[1:] + self.true_positive_rate[:-1]
        return float(np.sum(np.diff(self.false_positive_rate) * heights) / 2)

    def at(self, false_positive_rate: float) -> float:
        """The highest rate on the lines at this false positive rate."""
        reached = self.false_positive_rate <= false_positive_rate
        line = np.interp(false_positive_rate, self.false_positive_rate, self.true_positive_rate)
        return float(max(line, self.true_positive_rate[reached].max()))


@dataclass(frozen=True, eq=False)
class AttackResult:
    """Scores of examples whose membership is known, the higher the likelier a member.

    Each example that an attack can tell only by its score counts by itself: a model that leaks a few people and no
    others is not private, so read the rates at small false positive rates and not the average over all.

    Intervals hold for one model and examples drawn independently. The members and non-members of one model share that
    model, so its luck is not in them; neither is the luck of the shadow models.
    """

    method: str
    scores: Floats = field(repr=False)
    members: Flags = field(repr=False)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        scores, members = np.asarray(self.scores, dtype=np.float64), np.asarray(self.members)
        if members.dtype != np.bool_ or members.ndim != 1 or members.shape != scores.shape:
            raise InvalidValue(f"members must be True or False for each of the {scores.shape} scores; got {members!r}.")
        if np.isnan(scores).any():
            raise InvalidValue(f"scores must be numbers; {int(np.isnan(scores).sum())} of {len(scores)} are NaN.")
        if members.all() or not members.any():
            raise InvalidValue("an attack is measured on members and non-members; got only one kind.")
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "members", members)

    @property
    def num_members(self) -> int:
        """How many of the examples were trained on."""
        return int(self.members.sum())

    @property
    def num_nonmembers(self) -> int:
        """How many were not."""
        return int((~self.members).sum())

    @cached_property
    def roc(self) -> Roc:
        """Every threshold's rates: an example counts as a member if its score is at or above the threshold."""
        order = np.argsort(-self.scores, kind="stable")
        true, false = np.cumsum(self.members[order]), np.cumsum(~self.members[order])
        ordered = self.scores[order]
        last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(order) - 1)  # equal scores go together
        ends = np.concatenate([[0], last + 1])
        true, false = np.concatenate([[0], true])[ends], np.concatenate([[0], false])[ends]
        return Roc(false / self.num_nonmembers, true / self.num_members)

    @cached_property
    def hull(self) -> Roc:
        """The upper convex hull of the curve: what an attacker reaches who draws lots between two thresholds."""
        kept: list[tuple[float, float]] = []
        for point in zip(self.roc.false_positive_rate.tolist(), self.roc.true_positive_rate.tolist(), strict=True):
            while len(kept) > 1 and _turns_up(kept[-2], kept[-1], point):
                kept.pop()
            kept.append(point)
        return Roc(*np.asarray(kept).T)

    @property
    def auc(self) -> float:
        """The chance that a member scores above a non-member; ties count half. 0.5 is guessing."""
        return self.roc.area

    @property
    def advantage(self) -> float:
        """The largest difference of the two rates (Yeom et al. 2018). 0 is guessing."""
        return float((self.roc.true_positive_rate - self.roc.false_positive_rate).max())

    def tpr_at(self, false_positive_rate: float, *, confidence: float = 0.95) -> Rate:
        """The share of members found when at most that share of non-members is accused.

        The threshold is read from the non-members alone, so the members' count is binomial and the interval is exact
        for it [clopper34].
        """
        allowed = _check.nonnegative("false_positive_rate", false_positive_rate)
        if allowed > 1:
            raise InvalidValue(f"false_positive_rate must be at most 1; got {allowed!r}.")
        others = np.sort(self.scores[~self.members])[::-1]
        accused = int(np.floor(allowed * len(others) * (1 + 1e-12)))
        threshold = others[accused] if accused < len(others) else -np.inf
        found = self.scores[self.members] > threshold if accused < len(others) else np.ones(self.num_members, bool)
        return clopper_pearson(int(found.sum()), self.num_members, confidence=confidence)

    def is_above(self, epsilon: float, delta: float, *, confidence: float = 0.95) -> bool:
        """Whether some point of the curve is surely above `e^epsilon * FPR + delta`, in either direction.

        Every score is a threshold, so the confidence is shared among all of them (Bonferroni), and the example that
        sets a threshold counts for the claim: given it, the others' counts are binomial. This is a check of plots, and
        a weak one: for a bound on epsilon see `hush.audit`.
        """
        limit, delta = np.exp(_check.nonnegative("epsilon", epsilon)), _check.delta(delta)
        tail = (1 - confidence) / (4 * len(self.scores))  # two rates, two directions, every threshold
        true = np.rint(self.roc.true_positive_rate[1:] * self.num_members)  # the first point has no example above it
        false = np.rint(self.roc.false_positive_rate[1:] * self.num_nonmembers)
        tpr_low = _low(np.maximum(true - 1, 0), self.num_members - 1, tail)
        fpr_high = 1 - _low(self.num_nonmembers - false, self.num_nonmembers, tail)
        tnr_low = _low(self.num_nonmembers - false, self.num_nonmembers, tail)
        fnr_high = 1 - _low(np.maximum(true - 1, 0), self.num_members, tail)
        return bool(((tpr_low > limit * fpr_high + delta) | (tnr_low > limit * fnr_high + delta)).any())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a report: the curve's area, advantage, and the rates with their intervals."""
        return {
            "method": self.method,
            "members": self.num_members,
            "nonmembers": self.num_nonmembers,
            "auc": self.auc,
            "advantage": self.advantage,
            "tpr_at_fpr": {f"{rate:g}": self.tpr_at(rate).to_dict() for rate in REPORTED},
            "notes": list(self.notes),
        }

    def plot(self, path: str | os.PathLike[str], *, title: str = "Membership inference") -> None:
        """Draw the curve on logarithmic axes; .png, .svg or .pdf for a picture, .html for a page."""
        from hush.attacks.plots import draw_curves

        draw_curves({self.method: self}, path, title=title)

    def __str__(self) -> str:
        rates = ", ".join(f"{self.tpr_at(rate)} at FPR {rate:.1%}" for rate in REPORTED)
        return f"{self.method}: AUC {self.auc:.4f}; TPR {rates}"


def _low(counts: Floats, total: int, tail: float) -> Floats:
    """The lower ends of the exact intervals for counts out of a total."""
    from scipy.special import betaincinv

    return np.asarray(np.where(counts > 0, betaincinv(np.maximum(counts, 1), total - counts + 1, tail), 0.0))


def _turns_up(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    """Whether the middle point is on or below the line between the other two."""
    slope = (middle[0] - first[0]) * (last[1] - first[1]) - (middle[1] - first[1]) * (last[0] - first[0])
    return slope >= 0
