"""What the tape does with each parameter of a model, before any budget is spent."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from hush.errors import NotIsolated
from hush.gradients.batches import Batch, LossFunction, call, num_examples
from hush.gradients.clipped import clipped_sum
from hush.gradients.isolation import check_isolation
from hush.gradients.memory import peak_bytes
from hush.gradients.methods import taped

_REPEATS = 3


@dataclass(frozen=True)
class Finding:
    """One parameter: its size, which functions used it and by which rule, or why the tape refuses it."""

    parameter: str
    shape: tuple[int, ...]
    trainable: bool
    rule: str
    refused: str = ""


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


def doctor(model: nn.Module, loss_fn: LossFunction, batch: Batch) -> Diagnosis:
    """Look at a model, its loss and one batch of public or made-up examples."""
    problem = ""
    try:
        check_isolation(model, loss_fn, batch)
    except NotIsolated as error:
        problem = str(error)
    findings = _findings(model, loss_fn, batch)
    if problem:
        return Diagnosis(findings, "none", problem, float("nan"), float("nan"))
    method = clipped_sum(model, loss_fn, batch, 1.0).method

    def plain() -> None:
        losses = call(loss_fn, model, batch)
        weights = [value for value in model.parameters() if value.requires_grad]
        torch.autograd.grad(losses.sum() / num_examples(batch), weights, allow_unused=True)

    def private() -> None:
        clipped_sum(model, loss_fn, batch, 1.0)

    return Diagnosis(findings, method, problem, _ratio(private, plain), peak_bytes(private) / max(peak_bytes(plain), 1))


def _ratio(one: Callable[[], None], other: Callable[[], None]) -> float:
    """Median over interleaved runs of the two times' ratio."""
    ratios = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        other()
        middle = time.perf_counter()
        one()
        ratios.append((time.perf_counter() - middle) / (middle - start))
    return statistics.median(ratios)


def _findings(model: nn.Module, loss_fn: LossFunction, batch: Batch) -> tuple[Finding, ...]:
    try:
        tape, _ = taped(model, loss_fn, batch, tolerant=True)
        tape.uses()
        served, refused = tape.served, tape.refused
    except NotIsolated as error:
        served, refused = {}, {name: str(error) for name, _ in model.named_parameters()}
    result = []
    for name, value in model.named_parameters():
        rule = ", ".join(sorted(served.get(name, ()))) or (
            "not used by this batch" if value.requires_grad else "frozen"
        )
        result.append(Finding(name, tuple(value.shape), value.requires_grad, rule, refused.get(name, "")))
    return tuple(result)
