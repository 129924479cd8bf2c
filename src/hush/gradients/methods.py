"""Which method serves a model: the tape where it has rules, `vmap` where it can, the loop always."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward

from hush.errors import HushError, NoRule
from hush.gradients import graph, rules, vectorized
from hush.gradients.batches import Batch, LossFunction, call, checked_losses, mapped, num_examples
from hush.gradients.keeping import kept
from hush.gradients.layers import join
from hush.gradients.layout import Layout, mark
from hush.gradients.tape import Tape
from hush.gradients.uses import Rows, Use

METHODS = ("tape", "vectorized", "looped")
_chosen: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()

_run_backward: Any = _engine_run_backward  # what torch.autograd.grad calls, after questions that are answered here

assert rules  # importing it fills the tape's table


def remembered(model: nn.Module, method: str) -> str:
    """The method that served this model last, or would be tried first."""
    return _chosen.get(model, "tape") if method == "auto" else method


def uses_by(
    method: str,
    model: nn.Module,
    trainable: Mapping[str, nn.Parameter],
    loss_fn: LossFunction,
    batch: Batch,
    modules: list[tuple[str, nn.Module]],
) -> tuple[str, dict[str, list[Use]] | None]:
    """The method that served, and each parameter's uses; None for the loop, which gives gradients one by one."""
    if method == "auto" and num_examples(batch) == 1:
        return "looped", None
    first = remembered(model, method)
    for name in METHODS[METHODS.index(first) :]:
        try:
            found = None if name == "looped" else _attempt(name, model, trainable, loss_fn, batch, modules)
        except NoRule as reason:
            if method != "auto":
                raise
            _say(model, name, reason)
            continue
        except (RuntimeError, NotImplementedError) as reason:
            if method != "auto" or name != "vectorized" or isinstance(reason, HushError):
                raise
            _say(model, name, reason)
            continue
        if name != first or model not in _chosen:
            _chosen[model] = name if method == "auto" else _chosen.get(model, name)
        return name, found
    raise AssertionError("the loop serves every model")


def _attempt(
    name: str,
    model: nn.Module,
    trainable: Mapping[str, nn.Parameter],
    loss_fn: LossFunction,
    batch: Batch,
    modules: list[tuple[str, nn.Module]],
) -> dict[str, list[Use]]:
    hooked = [key for key, value in trainable.items() if value._backward_hooks]
    if hooked:
        raise NoRule(f"{', '.join(hooked)}: a hook on a parameter's gradient runs only where gradients are looped.")
    with kept(model, batch, modules) as own:
        return _by_tape(model, trainable, loss_fn, own) if name == "tape" else vectorized.uses(model, loss_fn, own)


def _say(model: nn.Module, name: str, reason: BaseException) -> None:
    following = METHODS[METHODS.index(name) + 1]
    text = " ".join(str(reason).split())[:300]
    warnings.warn(f"{type(model).__name__} is not served by {name} but by {following}: {text}", stacklevel=6)


def taped(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Batch,
    *,
    tolerant: bool = False,
    parameters: Mapping[str, nn.Parameter] | None = None,
) -> tuple[Tape, Tensor]:
    """The tape after one forward and one backward pass, and the losses; tolerant: refusals are noted, not raised."""
    count = num_examples(batch)
    tape = Tape(model, count, tolerant=tolerant, parameters=parameters)

    def entered(tensor: Tensor) -> Tensor:
        alias = tensor.detach()
        mark(alias, Layout(0))
        return alias

    own = mapped(entered, batch)
    with tape:
        losses = call(loss_fn, model, own)
    losses = checked_losses(losses, count)
    tape.is_final = True
    if losses.requires_grad:
        targets, ones = (tape.anchor, *tape.parameters.values()), torch.ones_like(losses)
        with tape:  # neither kept nor differentiated again; unused parameters are as they should be
            direct = _run_backward((losses,), (ones,), False, False, targets, True, accumulate_grad=False)[1:]
        missed = [name for name, value in zip(tape.parameters, direct, strict=True) if value is not None]
        if missed and not tolerant:
            raise NoRule(f"{', '.join(missed)}: used by a function that the tape does not see.")
    return tape, losses


def _by_tape(
    model: nn.Module, trainable: Mapping[str, nn.Parameter], loss_fn: LossFunction, batch: Batch
) -> dict[str, list[Use]]:
    if graph.may_serve(model, loss_fn) and (read := graph.uses(model, trainable, loss_fn, batch)) is not None:
        return read
    tape, losses = taped(model, loss_fn, batch, parameters=trainable)
    graph.expect(model, loss_fn, readable=tape.functions <= graph.FUNCTIONS)
    with torch.no_grad():
        uses = tape.uses()
        join(uses)
    if not uses:  # no parameter was used: every gradient is zero
        name, value = next(iter(tape.parameters.items()))
        return {name: [Rows(value.new_zeros(len(losses), *value.shape))]}
    return uses
