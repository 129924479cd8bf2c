"""What a plan must be: each field by itself, then the fields together."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hush import _check
from hush.errors import InvalidValue
from hush.privacy import Budget, check_relation
from hush.training.clipping import AdaptiveClipping

if TYPE_CHECKING:
    from hush.training.plan import TrainingPlan

SAMPLINGS = ("poisson", "truncated_poisson", "full_batch", "ordered")
CLIPPINGS = ("flat", "per_layer", "automatic")
AVERAGES = ("none", "ema", "mean")
UNITS = ("example", "person")


def budget(value: object) -> Budget:
    """A budget."""
    if not isinstance(value, Budget):
        raise InvalidValue(f"budget must be a Budget(epsilon, delta); got {value!r}.")
    return value


def steps_of(steps: int | None, epochs: float | None, sampling_prob: float) -> int:
    """The number of steps, given as such or as how often an example is expected to take part."""
    if (steps is None) == (epochs is None):
        raise InvalidValue("give either steps or epochs, not both and not neither.")
    if epochs is None:
        return _check.whole("steps", steps)
    # A hair off, so that 0.3 / 0.1 is 3 and not 4.
    exact = _check.positive("epochs", epochs) / _check.probability("sampling_prob", sampling_prob)
    return max(1, math.ceil(exact * (1 - 1e-12)))


def given(plan: TrainingPlan, name: str) -> int:
    """A whole number that this plan's sampling needs."""
    value = getattr(plan, name)
    if value is None:
        raise InvalidValue(f"sampling {plan.sampling!r} needs {name}.")
    return int(value)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(f"{name} must be True or False; got {value!r}.")
    return value


def _decay(name: str, value: object) -> float:
    result = _check.number(name, value)
    if not 0 < result < 1:
        raise InvalidValue(f"{name} must be above 0 and below 1; got {result!r}.")
    return result


def _clip_norm(name: str, value: object) -> float:
    return math.inf if value == math.inf else _check.positive(name, value)


def _words(choices: tuple[str, ...]) -> Callable[[str, object], str]:
    return lambda name, value: _check.one_of(name, value, choices)


def _adaptive(name: str, value: object) -> AdaptiveClipping:
    if not isinstance(value, AdaptiveClipping):
        raise InvalidValue(f"{name} must be an AdaptiveClipping(...); got {value!r}.")
    return value


FIELD_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "noise_multiplier": _check.nonnegative,
    "sampling_prob": _check.probability,
    "expected_batch_size": _check.whole,
    "steps": _check.whole,
    "clip_norm": _clip_norm,
    "delta": lambda name, value: _check.delta(value, name),
    "relation": lambda name, value: check_relation(value),
    "sampling": _words(SAMPLINGS),
    "max_batch_size": _check.whole,
    "num_examples": _check.whole,
    "clipping": _words(CLIPPINGS),
    "adaptive": _adaptive,
    "augmentations": _check.whole,
    "unit": _words(UNITS),
    "average": _words(AVERAGES),
    "average_decay": _decay,
    "project_to": _check.positive,
    "secure": _flag,
    "bands": _check.whole,
    "budget": lambda name, value: budget(value),
    "spare_steps": lambda name, value: _check.whole(name, value, least=0),
    "physical_batch_size": _check.whole,
}
MAY_BE_NONE = frozenset(
    {"max_batch_size", "num_examples", "adaptive", "project_to", "bands", "budget", "physical_batch_size"}
)


def check_together(plan: TrainingPlan) -> None:
    """Refuse fields that do not go together."""
    if (plan.noise_multiplier == 0) != (plan.clip_norm == math.inf):
        raise InvalidValue(
            "noise_multiplier 0 and no clip_norm belong together: make the twin by plan.without_privacy()."
        )
    _check_sampling(plan)
    if plan.adaptive is not None:
        if plan.clipping != "flat":
            raise InvalidValue(f"adaptive clipping is for clipping 'flat'; got {plan.clipping!r}.")
        plan.gradient_noise_multiplier  # noqa: B018  refuses a count that costs more than the plan
    if plan.budget is not None and plan.budget.delta != plan.delta:
        raise InvalidValue(f"delta must be the budget's, {plan.budget.delta:g}; got {plan.delta:g}.")


def _check_sampling(plan: TrainingPlan) -> None:
    if plan.sampling in ("full_batch", "ordered") and plan.sampling_prob != 1:
        raise InvalidValue(f"sampling {plan.sampling!r} samples nothing: sampling_prob must be 1.")
    needs = {"truncated_poisson": ("num_examples",), "ordered": ("num_examples", "bands")}.get(plan.sampling, ())
    for name in needs:
        given(plan, name)
    for name, home in (("max_batch_size", "truncated_poisson"), ("bands", "ordered")):
        if getattr(plan, name) is not None and plan.sampling != home:
            raise InvalidValue(f"{name} is for sampling {home!r}; this plan has {plan.sampling!r}.")
    if plan.sampling == "ordered" and plan.private:
        if plan.relation == "add_remove":
            raise InvalidValue("ordered passes are private for relation 'zero_out' or 'replace_one': rows keep places.")
        if plan.unit == "person" or plan.adaptive is not None:
            raise InvalidValue("ordered passes are for unit 'example' and a fixed clip norm.")
    if plan.sampling == "truncated_poisson" and plan.unit == "person":
        raise InvalidValue("truncated Poisson sampling is for unit 'example': a person has no fixed number of rows.")
