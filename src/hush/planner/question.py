"""What the page asks: the numbers of a training, and which one of them is to be found.

>>> asked, messages = read({"num_examples": "60000", "expected_batch_size": 600, "epochs": 30, "delta": "1e-5",
...                         "noise_multiplier": "1.1", "epsilon": 3, "find": "epsilon"})
>>> asked.steps, asked.sampling_prob, messages
(3000, 0.01, {})
>>> read({"num_examples": 100, "expected_batch_size": "many", "epochs": 1, "delta": 1e-5, "noise_multiplier": 1,
...       "epsilon": 3})[1]
{'expected_batch_size': "expected_batch_size must be a number; got 'many'."}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hush import events
from hush.accounting.calibrate import MOST_STEPS, sampled_gaussian
from hush.errors import HushError, InvalidValue
from hush.privacy import Relation, check_relation

FIELDS = ("num_examples", "expected_batch_size", "epochs", "noise_multiplier", "delta", "epsilon")
MOST_EXAMPLES = 10**12
_LONGEST = 60  # characters of a number, and of what is said about it
# What a field holds while it is the one to be found: a place for the search to start, nothing more.
_STARTS = {"num_examples": 60_000, "expected_batch_size": 256, "epochs": 10.0, "noise_multiplier": 1.0, "delta": 1e-6}


@dataclass(frozen=True, kw_only=True)
class Question:
    """The settings of one training, all public. `epsilon` is the target, `find` the field that is to be found."""

    num_examples: int
    expected_batch_size: int
    epochs: float
    noise_multiplier: float
    delta: float
    epsilon: float
    relation: Relation = "add_remove"
    find: str = "epsilon"

    @property
    def sampling_prob(self) -> float:
        """The chance of one example to join a batch."""
        return self.expected_batch_size / self.num_examples

    @property
    def steps(self) -> int:
        """How many batches there are, as a `TrainingPlan` counts them."""
        exact = self.epochs * self.num_examples / self.expected_batch_size
        return max(1, math.ceil(exact * (1 - 1e-12)))  # a hair off, so that 0.3 / 0.1 is 3 and not 4

    @property
    def event(self) -> events.Event:
        """The training as accountants read it."""
        return sampled_gaussian(self.noise_multiplier, self.sampling_prob, self.steps)

    def changed(self, field: str, value: float) -> Question:
        """The same question with another value in one field."""
        change: dict[str, Any] = {field: value}
        return replace(self, **change)

    def to_dict(self) -> dict[str, Any]:
        """All numbers under the glossary's words."""
        return {**vars(self), "steps": self.steps, "sampling_prob": self.sampling_prob}


def read(data: Mapping[str, Any]) -> tuple[Question | None, dict[str, str]]:
    """The question, or None; and for each field that is wrong what is wrong with it."""
    messages: dict[str, str] = {}
    values: dict[str, Any] = {}
    find = data.get("find", "epsilon")
    if find not in FIELDS:
        return None, {"find": f"find must be one of {', '.join(FIELDS)}; got {str(find)[:_LONGEST]!r}."}
    for name in FIELDS:
        if name == find and name in _STARTS:
            values[name] = _start(name, data.get(name))
        else:
            _keep(name, lambda name=name: _CHECKS[name](name, _number(name, data.get(name))), values, messages)  # type: ignore[misc]
    _keep("relation", lambda: check_relation(data.get("relation", "add_remove")), values, messages)
    if messages:
        return None, messages
    asked = Question(**values, find=find)
    messages = together(asked)
    return (None if messages else asked), messages


def together(asked: Question) -> dict[str, str]:
    """What is wrong with the numbers beside each other."""
    if asked.find not in ("num_examples", "expected_batch_size") and asked.expected_batch_size > asked.num_examples:
        limit = f"at most num_examples, {asked.num_examples}"
        return {"expected_batch_size": f"expected_batch_size must be {limit}; got {asked.expected_batch_size}."}
    fixed = asked.find not in ("epochs", "num_examples", "expected_batch_size")
    if fixed and asked.steps > MOST_STEPS:
        return {"epochs": f"these epochs are {asked.steps:.3g} steps; at most {MOST_STEPS:.0e} can be planned."}
    return {}


def _start(name: str, value: Any) -> Any:
    """Where the search starts: the value that the field last had, if it is one."""
    try:
        return _CHECKS[name](name, _number(name, value))
    except HushError:
        return _STARTS[name]


def _keep(name: str, check: Callable[[], Any], values: dict[str, Any], messages: dict[str, str]) -> None:
    try:
        values[name] = check()
    except HushError as error:
        messages[name] = str(error)


def _number(name: str, value: Any) -> float:
    """A number, or a text that is one; a comma could mean two things and is refused."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return float(value.strip()[:_LONGEST])
    except (AttributeError, ValueError):
        raise InvalidValue(f"{name} must be a number; got {str(value)[:_LONGEST]!r}.") from None


def _whole(name: str, value: float) -> int:
    if not (math.isfinite(value) and value.is_integer() and 1 <= value <= MOST_EXAMPLES):
        raise InvalidValue(f"{name} must be a whole number from 1 to {MOST_EXAMPLES:.0e}; got {value:.12g}.")
    return int(value)


def _between(least: float, most: float) -> Callable[[str, float], float]:
    def check(name: str, value: float) -> float:
        if not least <= value <= most:
            raise InvalidValue(f"{name} must be from {least:g} to {most:g}; got {value:g}.")
        return value

    return check


def _delta(name: str, value: float) -> float:
    if not 1e-300 <= value < 1:
        raise InvalidValue(f"{name} must be above 0 and below 1, well below 1/num_examples; got {value:g}.")
    return value


_CHECKS: dict[str, Callable[[str, float], Any]] = {
    "num_examples": _whole,
    "expected_batch_size": _whole,
    "epochs": _between(1e-6, 1e9),
    "noise_multiplier": _between(0.05, 1e6),
    "delta": _delta,
    "epsilon": _between(1e-6, 1e6),
}
