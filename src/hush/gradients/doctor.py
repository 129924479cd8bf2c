"""What the tape does with each parameter of a model, and what to do where it refuses, before any budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from hush.errors import NoRule, NotIsolated
from hush.gradients.batches import Batch, LossFunction, call, mapped, num_examples
from hush.gradients.clipped import clipped_sum
from hush.gradients.guarded import guarded
from hush.gradients.isolation import check_isolation
from hush.gradients.memory import peak_bytes
from hush.gradients.methods import taped

_REPEATS = 5
_FIXES = (  # words of a refusal, and what to do
    ("a hook on a parameter", "remove the hook"),
    ("does not see", "write that function with torch's own, which the tape sees"),
    ("backward pass inside", "take the inner backward pass out of the model"),
    ("cannot be followed", "keep the examples in their order on one axis up to here"),
    ("axis 0", "put the examples on axis 0"),
)
_USUAL_FIX = "use functions that have a rule (linear, convolution, lookup, norm, sum, product), or freeze it"


@dataclass(frozen=True)
class Finding:
    """One parameter: its size, which functions used it and by which rule; or why the tape refuses it, and the fix."""

    parameter: str
    shape: tuple[int, ...]
    trainable: bool
    rule: str
    refused: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All parameters, whether examples mix, and what a private gradient costs against an ordinary one."""

    findings: tuple[Finding, ...]
    method: str
    not_isolated: str
    time_ratio: float
    memory_ratio: float

    @property
    def is_fine(self) -> bool:
        """Whether the model can be trained as it is."""
        return not self.not_isolated

    @property
    def fix(self) -> str:
        """What to do where examples mix; empty where they do not."""
        return self.not_isolated.partition("; ")[2]


def doctor(model: nn.Module, loss_fn: LossFunction, batch: Batch) -> Diagnosis:
    """Look at a model, its loss and one batch of public or made-up examples."""
    problem = ""
    try:
        check_isolation(model, loss_fn, batch)
    except NotIsolated as error:
        problem = str(error)
    served, refused = _looked_at(model, loss_fn, batch)
    if problem:
        found = Diagnosis((), "none", problem, float("nan"), float("nan"))
        refused = {name: why.partition("; ")[0] for name, why in refused.items()}  # the fix has a place of its own
        return replace(found, findings=_findings(model, served, refused, lambda _: found.fix))
    method = clipped_sum(model, loss_fn, batch, 1.0).method
    findings = _findings(model, served, refused, partial(_fix, method=method))

    def plain() -> None:
        losses = call(loss_fn, model, batch)
        weights = [value for value in model.parameters() if value.requires_grad]
        torch.autograd.grad(losses.sum() / num_examples(batch), weights, allow_unused=True)

    def private() -> None:
        clipped_sum(model, loss_fn, batch, 1.0)

    return Diagnosis(findings, method, problem, _ratio(private, plain), peak_bytes(private) / max(peak_bytes(plain), 1))


def _ratio(one: Callable[[], None], other: Callable[[], None]) -> float:
    """The least time of the one against the least of the other: a busy moment only ever adds."""
    ones, others = [], []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        other()
        middle = time.perf_counter()
        one()
        ones.append(time.perf_counter() - middle)
        others.append(middle - start)
    return min(ones) / min(others)


def _findings(
    model: nn.Module, served: dict[str, set[str]], refused: dict[str, str], fix: Callable[[str], str]
) -> tuple[Finding, ...]:
    result = []
    for name, value in model.named_parameters():
        why = refused.get(name, "")
        idle = "" if why else "not used by this batch" if value.requires_grad else "frozen"
        rule = ", ".join(sorted(served.get(name, ()))) or idle
        result.append(Finding(name, tuple(value.shape), value.requires_grad, rule, why, fix(why) if why else ""))
    return tuple(result)


def _fix(why: str, method: str) -> str:
    fix = next((fix for words, fix in _FIXES if words in why), _USUAL_FIX)
    return f"{fix}; or leave it: {method} serves it."


def _looked_at(model: nn.Module, loss_fn: LossFunction, batch: Batch) -> tuple[dict[str, set[str]], dict[str, str]]:
    """By which rules the tape serves each parameter, and why it refuses others."""
    trainable = {name: value for name, value in model.named_parameters() if value.requires_grad}
    hooked = [name for name, value in trainable.items() if value._backward_hooks]
    missed = set[str]()  # what a plain gradient reaches has gone past the tape
    hooks = [value.register_hook(partial(_note, missed, name)) for name, value in trainable.items()]
    try:
        tape = guarded(
            model,
            loss_fn,
            batch,
            list(model.named_modules()),
            lambda rows: taped(model, loss_fn, mapped(Tensor.clone, rows), tolerant=True)[0],
        )
    except Exception as error:
        first = error if isinstance(error, NoRule | NotIsolated) else error.__context__  # what fails once refused
        if not isinstance(first, NoRule | NotIsolated):
            raise
        return {}, dict.fromkeys(trainable, str(first))
    finally:
        for hook in hooks:
            hook.remove()
    tape.uses()
    unseen = {name: f"{name}: used by a function that the tape does not see." for name in sorted(missed)}
    by_hook = {
        name: f"{name}: a hook on a parameter's gradient runs only where gradients are looped." for name in hooked
    }
    return tape.served, {**unseen, **tape.refused, **by_hook}


def _note(names: set[str], name: str, _: Tensor) -> None:
    names.add(name)
