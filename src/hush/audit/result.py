"""What an audit found, beside what was claimed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hush import accounting
from hush.audit.claim import evidence_from_rate, promised_rate
from hush.audit.rates import lower_rate
from hush.errors import UnreadableFile
from hush.events import Event
from hush.privacy import Evidence, Guarantee, Relation

ACCUSATION = 1e-6  # the chance of accusing a training that keeps its promise
_FIRST_SHARE = 0.9
WEAK = "fewer right guesses than the best attack has: is the worst case in the data, did all canaries take part?"


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """Right guesses against a claim.

    Attributes:
        evidence: Epsilon is at least this, at the evidence's confidence.
        guarantee: What was claimed.
        num_guesses: Fair coins that were guessed.
        num_correct: How many guesses were right.
        promised_rate: The most that the claim lets anybody be right.
        rate_at_least: A lower end of how often the guesses are right, at `accusation_significance`.
        accusation_significance: The chance of accusing a training that keeps its promise.
        accusation: Evidence at that significance, where the guarantee claims less than the event costs.
        roc: Points (share of the absent called in, share of the present called in) of the canaries, by falling score.
        verdict: "CONTRADICTION", "doubtful: ..." or "no contradiction".
    """

    evidence: Evidence
    guarantee: Guarantee
    num_guesses: int
    num_correct: int
    promised_rate: float
    rate_at_least: float
    accusation_significance: float
    accusation: Evidence | None = None
    roc: tuple[tuple[float, float], ...] = field(default=(), repr=False)
    verdict: str = field(init=False)

    def __post_init__(self) -> None:
        words = "no contradiction"
        if self.contradicts:
            words = "CONTRADICTION"
        elif self.evidence.contradicts(self.guarantee):
            words = "doubtful: above the guarantee, but not by enough to rule out chance; audit with more canaries"
        object.__setattr__(self, "verdict", words)

    @property
    def contradicts(self) -> bool:
        """Whether the claim is refuted at `accusation_significance`, by the rate or by the accusation."""
        beyond = self.accusation is not None and self.accusation.contradicts(self.guarantee)
        return beyond or self.rate_at_least > self.promised_rate

    @property
    def is_weak(self) -> bool:
        """Whether the guesses are clearly worse than the best that the claim allows: the attack misses something."""
        most = 1 - lower_rate(self.num_guesses - self.num_correct, self.num_guesses, self.accusation_significance)
        return most < self.promised_rate

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the glossary's words."""
        return {
            "verdict": self.verdict,
            "contradicts": self.contradicts,
            "evidence": self.evidence.to_dict(),
            "guarantee": self.guarantee.to_dict(),
            "num_guesses": self.num_guesses,
            "num_correct": self.num_correct,
            "promised_rate": self.promised_rate,
            "rate_at_least": self.rate_at_least,
            "accusation_significance": self.accusation_significance,
            "accusation": None if self.accusation is None else self.accusation.to_dict(),
            "is_weak": self.is_weak,
            "roc": [list(point) for point in self.roc],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], guarantee: Guarantee) -> AuditResult:
        """What `to_dict` wrote, beside the guarantee that it was about."""
        if data["guarantee"] != guarantee.to_dict():
            raise UnreadableFile("the audit of this run is about another guarantee: one of them was edited.")
        accusation = data["accusation"]
        numbers = ("num_guesses", "num_correct", "promised_rate", "rate_at_least", "accusation_significance")
        return cls(
            evidence=_evidence(data["evidence"]),
            guarantee=guarantee,
            accusation=None if accusation is None else _evidence(accusation),
            roc=tuple((float(false), float(true)) for false, true in data.get("roc", ())),
            **{name: data[name] for name in numbers},
        )

    def __str__(self) -> str:
        share = self.num_correct / self.num_guesses if self.num_guesses else 0.0
        lines = [
            f"claimed: {self.guarantee}",
            f"measured: {self.evidence}",
            f"guesses: {self.num_correct:,} of {self.num_guesses:,} right ({100 * share:.2f} %); the claim allows "
            f"{100 * self.promised_rate:.2f} %, the measured rate is at least {100 * self.rate_at_least:.2f} % but for "
            f"chance {self.accusation_significance:g}",
            *(f"note: {note}" for note in (*self.evidence.notes, *([WEAK] if self.is_weak else []))),
            self.verdict,
        ]
        return "\n".join(lines)


def _evidence(data: dict[str, Any]) -> Evidence:
    own = {key: value for key, value in data.items() if key != "confidence"}
    return Evidence(**{**own, "notes": tuple(own["notes"])})


def judge(
    num_correct: Sequence[int],
    num_guesses: int,
    event: Event,
    *,
    delta: float,
    relation: Relation,
    method: str,
    significance: float = 0.05,
    accusation_significance: float = ACCUSATION,
    guarantee: Guarantee | None = None,
) -> AuditResult:
    """Hold right guesses of fair coins, independent under the claim, against a claimed event.

    `num_correct` has one number for each guessing rule. The first is the one that is best if the claim is true, and
    has nine tenths of the significance; the others share the rest.
    """
    rates = _safe_rates(num_correct, num_guesses, accusation_significance)
    best = max(range(len(rates)), key=lambda rule: rates[rule])

    def evidence(level: float) -> Evidence:
        rate = max(_safe_rates(num_correct, num_guesses, level))
        return evidence_from_rate(rate, event, delta=delta, relation=relation, significance=level, method=method)

    costs = accounting.guarantee(event, delta=delta, relation=relation)
    claim = costs if guarantee is None else guarantee
    return AuditResult(
        evidence=evidence(significance),
        accusation=evidence(accusation_significance) if claim.epsilon < costs.epsilon_lower else None,
        guarantee=claim,
        num_guesses=num_guesses,
        num_correct=num_correct[best],
        promised_rate=promised_rate(event, relation),
        rate_at_least=rates[best],
        accusation_significance=accusation_significance,
    )


def _safe_rates(num_correct: Sequence[int], num_guesses: int, significance: float) -> list[float]:
    """Lower ends of the rules' right-guess rates, all of them right but for chance `significance`."""
    others = len(num_correct) - 1
    shares = [_FIRST_SHARE, *([(1 - _FIRST_SHARE) / others] * others)] if others else [1.0]
    return [
        lower_rate(correct, num_guesses, share * significance)
        for correct, share in zip(num_correct, shares, strict=True)
    ]
