"""A share of a count, with an interval that holds the truth as often as it says."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hush import _check
from hush.errors import InvalidValue


@dataclass(frozen=True)
class Rate:
    """`count` out of `total`, and the interval for the chance behind it."""

    value: float
    low: float
    high: float
    count: int
    total: int
    confidence: float

    def to_dict(self) -> dict[str, float]:
        """Plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.value:.2%} [{self.low:.2%}, {self.high:.2%}]"


def clopper_pearson(count: int, total: int, *, confidence: float = 0.95) -> Rate:
    """The exact interval for a binomial chance, half of the error on each side (Clopper, Pearson 1934).

    >>> found = clopper_pearson(500, 500, confidence=0.99)
    >>> round(found.low, 8), found.high
    (0.98945931, 1.0)
    """
    from scipy.special import betaincinv

    total = _check.whole("total", total)
    count = _check.whole("count", count, least=0)
    if count > total:
        raise InvalidValue(f"count must be at most total, {total}; got {count}.")
    if not 0 < _check.number("confidence", confidence) < 1:
        raise InvalidValue(f"confidence must be above 0 and below 1; got {confidence!r}.")
    tail = (1 - confidence) / 2
    low = float(betaincinv(count, total - count + 1, tail)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, total - count, 1 - tail)) if count < total else 1.0
    return Rate(count / total, low, high, count, total, confidence)
