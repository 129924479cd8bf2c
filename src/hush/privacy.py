"""Value types: what may be spent, what is proven, what was measured.

Numbers know their safe side. A `Guarantee` is an interval that holds the truth and its `epsilon` is the upper
end. `Evidence` comes from an attack, rounds down, and is another type, so nobody can print it as a promise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, Literal, get_args

from hush import _check
from hush.errors import InvalidValue

Relation = Literal["add_remove", "replace_one", "zero_out"]
RELATIONS: tuple[str, ...] = get_args(Relation)


def check_relation(value: object) -> Relation:
    """The relation, if it is one of the three."""
    return _check.one_of("relation", value, RELATIONS)  # type: ignore[return-value]


@dataclass(frozen=True)
class Budget:
    """The most that may be spent: (epsilon, delta)-differential privacy.

    >>> Budget(epsilon=1.0, delta=1e-5)
    Budget(epsilon=1.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _check.positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", _check.delta(self.delta))

    def allows(self, guarantee: Guarantee) -> bool:
        """Whether a guarantee is proven and inside this budget."""
        return guarantee.proven and guarantee.epsilon <= self.epsilon and guarantee.delta <= self.delta


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A claim of (epsilon, delta)-differential privacy that holds for every pair of neighbours.

    `epsilon` and `delta` are the safe upper ends. Where the question was "which epsilon at this delta", the true
    value lies in [`epsilon_lower`, `epsilon`]; where it was "which delta at this epsilon", in [`delta_lower`,
    `delta`]. A method that only gives an upper bound has a lower end of 0. `proven` is False for approximations
    (`gdp_clt`), which no budget accepts.
    """

    epsilon: float
    delta: float
    relation: Relation
    method: str
    epsilon_lower: float = 0.0
    delta_lower: float = 0.0
    proven: bool = True
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_relation(self.relation)
        if math.isnan(self.epsilon) or self.epsilon < 0 or not 0 <= self.delta <= 1:
            raise InvalidValue(
                f"a guarantee needs epsilon 0 or above and delta in [0, 1]; got {self.epsilon!r}, {self.delta!r}."
            )
        if not (0 <= self.epsilon_lower <= self.epsilon and 0 <= self.delta_lower <= self.delta):
            raise InvalidValue(
                "a guarantee's lower ends must be 0 or above and not over its upper ends; got epsilon "
                f"[{self.epsilon_lower!r}, {self.epsilon!r}], delta [{self.delta_lower!r}, {self.delta!r}]."
            )

    @property
    def gap(self) -> float:
        """How far the stated epsilon can be above the truth."""
        return self.epsilon - self.epsilon_lower if math.isfinite(self.epsilon) else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the glossary's words; infinity becomes the text "infinity", since JSON has none."""
        result = {**asdict(self), "notes": list(self.notes)}
        return {key: "infinity" if value == math.inf else value for key, value in result.items()}

    def agrees_with(self, written: Mapping[str, Any]) -> bool:
        """Whether a guarantee that was written down, by `to_dict`, is this one, computed anew by whatever version.

        All words must be the same. Numbers may differ where two intervals that hold the same truth can: both ends by a
        thousandth, and neither interval below the other.
        """
        own = self.to_dict()
        numbers = ("epsilon", "epsilon_lower")
        if set(own) != set(written) or any(own[key] != written[key] for key in own if key not in numbers):
            return False
        if not all(type(side[key]) in (int, float) for side in (own, written) for key in numbers):
            return own == dict(written)  # infinite, or no number at all
        near = all(math.isclose(own[key], written[key], rel_tol=1e-3) for key in numbers)
        return near and self.epsilon_lower <= written["epsilon"] and written["epsilon_lower"] <= self.epsilon

    def __str__(self) -> str:
        claim = f"({round_up(self.epsilon)}, {self.delta:.3g})-differential privacy"
        kind = self.relation.replace("_", " ")
        return f"{claim}, {kind}, by {self.method}" + ("" if self.proven else " (an approximation, not a bound)")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A lower bound on epsilon from an attack: with probability 1 - `significance`, the truth is not below it.

    `notes` say on what the bound rests beside the attack's own rules.

    >>> print(Evidence(epsilon_at_least=0.8234567, delta=1e-5, significance=0.05, method="one_run"))
    epsilon at least 0.823456 at delta 1e-05, confidence 95 %, add remove, by one_run
    """

    epsilon_at_least: float
    delta: float
    significance: float
    method: str
    relation: Relation = "add_remove"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_relation(self.relation)
        object.__setattr__(self, "epsilon_at_least", _check.nonnegative("epsilon_at_least", self.epsilon_at_least))
        object.__setattr__(self, "delta", _check.delta(self.delta))
        if not 0 < _check.number("significance", self.significance) < 1:
            raise InvalidValue(f"significance must be above 0 and below 1; got {self.significance!r}.")

    @property
    def confidence(self) -> float:
        """1 - `significance`."""
        return 1 - self.significance

    def contradicts(self, guarantee: Guarantee) -> bool:
        """Whether this measurement and that claim cannot both be true (but for chance `significance`)."""
        if self.relation != guarantee.relation:
            raise InvalidValue(f"evidence is for {self.relation} and the guarantee for {guarantee.relation}.")
        return self.delta >= guarantee.delta and self.epsilon_at_least > guarantee.epsilon

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the glossary's words."""
        return {**asdict(self), "notes": list(self.notes), "confidence": self.confidence}

    def __str__(self) -> str:
        bound = f"epsilon at least {_round_down(self.epsilon_at_least)} at delta {self.delta:.3g}"
        level = f"confidence {100 * (1 - self.significance):.8g} %"
        return f"{bound}, {level}, {self.relation.replace('_', ' ')}, by {self.method}"


def round_up(value: float, digits: int = 6) -> str:
    """`value` to some significant digits, never below it.

    >>> round_up(0.94686680076438)
    '0.946867'
    >>> round_up(1.0000001), round_up(2.0)
    ('1.00001', '2')
    """
    return _rounded(value, digits, ROUND_CEILING)


def _round_down(value: float, digits: int = 6) -> str:
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    exact = Decimal(value)
    unit = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return f"{float(exact.quantize(unit, rounding=rounding)):.{digits}g}"
