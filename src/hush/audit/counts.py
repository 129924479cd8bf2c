"""Counts of an attack, checked: what every bound starts from."""

from __future__ import annotations

from dataclasses import dataclass

from hush import _check
from hush.errors import InvalidValue

ROUND_DOWN = 1 - 1e-9  # relative; more than the errors of the special functions and of the searches


def significance_of(value: object) -> float:
    """A chance of being wrong, above 0 and below 1."""
    result = _check.number("significance", value, wanted="a number above 0 and below 1")
    if not 0 < result < 1:
        raise InvalidValue(f"significance must be above 0 and below 1; got {result!r}.")
    return result


def positive_delta(value: object) -> float:
    """A delta above 0, which Gaussian curves need."""
    result = _check.delta(value)
    if result == 0:
        raise InvalidValue("delta must be above 0 for a Gaussian curve, whose epsilon at delta 0 is infinite; got 0.")
    return result


def part_of(name: str, value: object, whole_name: str, whole: int) -> int:
    """A count from 0 to `whole`."""
    result = _check.whole(name, value, least=0)
    if result > whole:
        raise InvalidValue(f"{name} must be at most {whole_name}, {whole}; got {result}.")
    return result


@dataclass(frozen=True)
class Guesses:
    """One run: `num_guesses` of `num_canaries` memberships were guessed, `num_correct` of them rightly."""

    num_canaries: int
    num_guesses: int
    num_correct: int

    def __post_init__(self) -> None:
        _check.whole("num_canaries", self.num_canaries)
        part_of("num_guesses", self.num_guesses, "num_canaries", self.num_canaries)
        part_of("num_correct", self.num_correct, "num_guesses", self.num_guesses)


@dataclass(frozen=True)
class Counts:
    """A test at one threshold: `true_positives` of `positives` members and `false_positives` of `negatives` others."""

    true_positives: int
    positives: int
    false_positives: int
    negatives: int

    def __post_init__(self) -> None:
        _check.whole("positives", self.positives, least=0)
        _check.whole("negatives", self.negatives, least=0)
        part_of("true_positives", self.true_positives, "positives", self.positives)
        part_of("false_positives", self.false_positives, "negatives", self.negatives)
