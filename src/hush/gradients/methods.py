"""Which method serves a model: the tape where it has rules, `vmap` where it can, the loop always."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward

from hush.errors import HushError, NoRule, NotIsolated
from hush.gradients import graph, rules, vectorized
from hush.gradients.batches import (
    Batch,
    LossFunction,
    SplitBatch,
    call,
    checked_losses,
    mapped,
    num_examples,
    take,
    tensors,
)
from hush.gradients.guarded import guarded
from hush.gradients.layers import apart, join
from hush.gradients.layout import Layout, layout_of, mark
from hush.gradients.nodes import foreign_node
from hush.gradients.precision import exact_arithmetic
from hush.gradients.scripted import no_scripts
from hush.gradients.state import Snapshot
from hush.gradients.tape import Tape
from hush.gradients.uses import Rows, Use

_COMPARED = 8  # examples of which a reading of the graph is compared with the tape
METHODS = ("tape", "vectorized", "looped")
_chosen: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()

_reading: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()  # loss functions that write nothing into batches

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
    *,
    in_full: bool = False,
) -> tuple[str, dict[str, list[Use]] | None]:
    """The method that served, and each parameter's uses; None for the loop, which gives gradients one by one."""
    if method == "auto" and num_examples(batch) == 1:
        return "looped", None
    first = remembered(model, method)
    for name in METHODS[METHODS.index(first) :]:
        try:
            found = (
                None if name == "looped" else _attempt(name, model, trainable, loss_fn, batch, modules, in_full=in_full)
            )
        except NoRule as reason:
            if method != "auto":
                raise
            _say(model, name, reason)
            continue
        except Exception as reason:  # vmap fails in many ways on what it does not support
            if method != "auto" or name != "vectorized" or isinstance(reason, HushError | SplitBatch):
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
    *,
    in_full: bool,
) -> dict[str, list[Use]]:
    hooked = [key for key, value in trainable.items() if value._backward_hooks]
    if hooked:
        raise NoRule(f"{', '.join(hooked)}: a hook on a parameter's gradient runs only where gradients are looped.")

    def one_pass(work: Callable[[Batch], Any], *, in_full: bool = in_full) -> Any:
        return guarded(model, loss_fn, batch, modules, partial(_on_own_rows, model, loss_fn, work), in_full=in_full)

    found: dict[str, list[Use]]
    if name == "vectorized":  # the tape sees each write into a parameter before it happens, and vmap does not
        found = one_pass(lambda rows: vectorized.uses(model, loss_fn, rows), in_full=True)
        return found
    if graph.may_serve(model, loss_fn):
        with suppress(graph.Unreadable):
            found, signature = one_pass(lambda rows: graph.uses(model, trainable, loss_fn, rows))
            if graph.is_verified(model, signature) or _agrees(model, trainable, loss_fn, batch, modules, found):
                graph.verify(model, signature)
                return found
            graph.drop(model, loss_fn)
    found = one_pass(lambda rows: _by_tape(model, trainable, loss_fn, rows))
    return found


def _on_own_rows(model: nn.Module, loss_fn: LossFunction, work: Callable[[Batch], Any], batch: Batch) -> Any:
    """Return `work(batch)` so that what the model writes into its batch does not reach the caller's.

    A copy is made until a pass is seen to write nothing there. One that begins to do so later is rejected.
    """
    known = _reading.get(model)
    is_reading = known is not None and known() is loss_fn
    given = mapped(Tensor.detach if is_reading else Tensor.clone, batch)
    before = [tensor._version for tensor in tensors(given)]
    result = work(given)
    is_written = before != [tensor._version for tensor in tensors(given)]
    if is_reading and is_written:
        raise NotIsolated(
            "the model or loss_fn writes into its batch, which it did not do before; let it work on a copy."
        )
    if not is_reading and not is_written:
        with suppress(TypeError):  # not every callable has weak references
            _reading[model] = ref(loss_fn)
    return result


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
        tape.hold(alias)
        mark(alias, Layout(0))
        return alias

    own = mapped(entered, batch)
    with no_scripts(), tape:
        losses = call(loss_fn, model, own)
    losses = checked_losses(losses, count)
    tape.is_final = True
    if losses.requires_grad:
        _check_losses(tape, losses, tolerant=tolerant)
        node = foreign_node(losses)
        targets, ones = (tape.anchor, *tape.parameters.values()), torch.ones_like(losses)
        with exact_arithmetic(), tape:  # neither kept nor differentiated again; unused parameters are as they should be
            direct = _run_backward((losses,), (ones,), False, False, targets, True, accumulate_grad=False)[1:]
        missed = [name for name, value in zip(tape.parameters, direct, strict=True) if value is not None]
        if missed and not tolerant:
            raise NoRule(f"{', '.join(missed)}: used by a function that the tape does not see.")
        if node is not None and not tolerant:
            raise NoRule(f"{node} has a backward pass of its own, which the tape cannot follow.")
    return tape, losses


def _check_losses(tape: Tape, losses: Tensor, *, tolerant: bool) -> None:
    """Raise `NoRule` unless loss b is proven to be made of example b alone."""
    layout = layout_of(losses)
    reason = ""
    if layout != Layout(0) and tape.count > 1:
        reason = f"the examples cannot be told apart after {tape.lost_at or 'a function without the batch'}."
    if reason and not tolerant:
        raise NoRule(reason)
    if reason and not tape.refused:  # what was refused before is the cause
        tape.refused.update(dict.fromkeys(tape.parameters, reason))


def _agrees(
    model: nn.Module,
    trainable: Mapping[str, nn.Parameter],
    loss_fn: LossFunction,
    batch: Batch,
    modules: list[tuple[str, nn.Module]],
    found: dict[str, list[Use]],
) -> bool:
    """Return whether what was read off the graph is what the tape gives, for the first examples of the batch."""
    few = torch.arange(min(_COMPARED, num_examples(batch)))
    before = Snapshot(model, loss_fn, modules, in_full=False)
    try:
        tape, _ = taped(model, loss_fn, mapped(Tensor.clone, take(batch, slice(0, len(few)))), parameters=trainable)
    finally:
        before.restore()
    with torch.no_grad(), exact_arithmetic():
        expected = tape.uses()
        read = {name: [use.take(few.to(use.held()[0].device)) for use in some] for name, some in found.items()}
        apart(read)
        if read.keys() != expected.keys():
            return False
        for name, uses in expected.items():
            one, other = (torch.stack([use.rows() for use in some]).sum(0) for some in (uses, read[name]))
            one, other = one.flatten(1), other.flatten(1)
            scale = torch.linalg.vector_norm(one, dim=1) + 1e-12
            if not bool((torch.linalg.vector_norm(one - other, dim=1) <= 1e-3 * scale).all()):
                return not bool(torch.isfinite(one).all())
    return True


def _by_tape(
    model: nn.Module, trainable: Mapping[str, nn.Parameter], loss_fn: LossFunction, batch: Batch
) -> dict[str, list[Use]]:
    tape, losses = taped(model, loss_fn, batch, parameters=trainable)
    graph.expect(model, loss_fn, readable=tape.functions <= graph.FUNCTIONS)
    with torch.no_grad():
        uses = tape.uses()
        join(uses)
    if not uses:  # no parameter was used: every gradient is zero
        name, value = next(iter(tape.parameters.items()))
        return {name: [Rows(value.new_zeros(len(losses), *value.shape))]}
    return uses
