"""Check the tape's rules on one call: constants become parameters, and per-example gradients are those of torch."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from op_calls import Call
from op_claims import ERRORS, WrongClaim, check_claims, fresh, is_sound, run, shown
from torch import Tensor, nn

from hush.errors import NoRule, NotIsolated
from hush.gradients.indexing import flat, tensors_in
from hush.gradients.layout import UNKNOWN, Layout, by_example, layout_of
from hush.gradients.tape import Tape

EXACT, REFUSED, UNFOLLOWED, REJECTED = "exact", "refused", "unknown", "rejected"


def constants(call: Call) -> list[Tensor]:
    """Return the tensors of a call that may be parameters."""
    found = {
        id(value): value for value in tensors_in([*call]) if layout_of(value) is None and value.is_floating_point()
    }
    return list(found.values())


def with_parameters(call: Call, chosen: list[Tensor]) -> tuple[Call, nn.Module]:
    """Return the call with some of its constants as parameters, and the model that owns these."""
    model, memo = nn.Module(), {}
    for number, value in enumerate(chosen):
        memo[id(value)] = nn.Parameter(value.detach().clone())
        model.register_parameter(f"p{number}", memo[id(value)])

    def put(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)([put(item) for item in value])
        return memo.get(id(value), value)

    args, kwargs = call
    return (tuple(map(put, args)), {name: put(value) for name, value in kwargs.items()}), model


def losses_of(result: Any, places: list[Layout], count: int) -> Tensor:
    """Return a weighted sum of what each example has in the result."""
    draws = torch.Generator().manual_seed(5)
    total = torch.zeros(count, dtype=torch.float64)
    for part, place in zip(_floats(result), places, strict=True):
        rows = by_example(part, place, count).reshape(count, -1)
        total = total + (rows * torch.randn(rows.shape, generator=draws, dtype=torch.float64)).sum(1)
    return total


def _floats(result: Any) -> list[Tensor]:
    parts = [result] if isinstance(result, Tensor) else flat(result)
    return [part for part in parts if isinstance(part, Tensor) and part.is_floating_point()]


def observe_rule(func: Any, call: Call, count: int, chosen: list[Tensor]) -> str:
    """Return what the call came to, with these constants as parameters.

    Raises:
        WrongClaim: The values, where examples lie, or a gradient is not what torch gives.
    """
    name = f"{getattr(func, '__name__', func)}({shown(call)}), parameters {[list(value.shape) for value in chosen]}"
    plain, owner = with_parameters(call, chosen)
    copied = _copy(plain, count, owner)
    try:
        truth = run(func, copied)
    except (TypeError, *ERRORS):
        return REJECTED
    if truth is NotImplemented:
        return REJECTED
    own = _copy(plain, count, owner)
    tape = Tape(owner, count)
    try:
        with tape:
            result = run(func, own)
    except (NoRule, NotIsolated):
        return REFUSED
    except (TypeError, *ERRORS) as error:
        raise WrongClaim(f"{name}: {type(error).__name__}: {error}") from error
    expected, found = _floats(truth), _floats(result)
    if len(expected) != len(found):
        raise WrongClaim(f"{name}: {len(found)} tensors where torch gives {len(expected)}")
    for one, other in zip(expected, found, strict=True):
        if one.shape != other.shape or not torch.allclose(one.detach(), other.detach(), rtol=1e-9, equal_nan=True):
            raise WrongClaim(f"{name}: other values than torch's")
    places = [layout_of(part) for part in found]
    if not found or any(place is None or place == UNKNOWN for place in places):
        return UNFOLLOWED
    known = [place for place in places if place is not None]
    if not all(is_sound(part, place, count) for part, place in zip(found, known, strict=True)):
        raise WrongClaim(f"{name}: no such axis")
    check_claims(func, name, call, result, places, count)
    expected_rows = _rows(owner, losses_of(truth, known, count))
    if expected_rows is None:
        return REJECTED
    _check_rows(name, tape, owner, losses_of(result, known, count), expected_rows)
    return EXACT


def _copy(call: Call, count: int, owner: nn.Module) -> Call:
    """Return copies of everything but the parameters."""
    parameters = {id(value) for value in owner.parameters()}
    return fresh(call, count, keep=parameters)


def _rows(owner: nn.Module, losses: Tensor) -> list[list[Tensor]] | None:
    """Return each example's gradient by autograd, for each parameter; None where torch has no derivative."""
    parameters = list(owner.parameters())
    try:
        found = [
            torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
            if loss.requires_grad
            else [torch.zeros_like(value) for value in parameters]
            for loss in losses
        ]
    except ERRORS:
        return None
    return [list(rows) for rows in zip(*found, strict=True)]


def _check_rows(name: str, tape: Tape, owner: nn.Module, losses: Tensor, expected: list[list[Tensor]]) -> None:
    tape.is_final = True
    parameters = dict(owner.named_parameters())
    if losses.requires_grad:
        direct = torch.autograd.grad(losses.sum(), [tape.anchor, *parameters.values()], allow_unused=True)
        if any(value is not None for value in direct[1:]):
            raise WrongClaim(f"{name}: a parameter's gradient goes past the tape")
    with torch.no_grad():
        uses = tape.uses()
    for (key, value), gradients in zip(parameters.items(), expected, strict=True):
        rows = torch.zeros(len(losses), value.numel(), dtype=value.dtype)
        for use in uses.get(key, []):
            rows = rows + use.rows().reshape(len(losses), -1)
        truth = torch.stack([gradient.flatten() for gradient in gradients])
        # Zero times the infinite or undefined slope of another example is NaN in autograd; the tape leaves others out.
        truth = torch.where(truth.isnan(), rows, truth)
        if not torch.allclose(rows, truth, rtol=1e-7, atol=1e-9, equal_nan=True):
            raise WrongClaim(f"{name}: the gradients of {key}")


def survey_rule(func: Any, calls: Iterable[tuple[int, Call]], seed: int = 0) -> Counter[str]:
    """Observe a rule in many calls, with one or more of each call's constants as parameters."""
    counts, draws = Counter[str](), random.Random(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for count, call in calls:
            given = [(value, place) for value in tensors_in([*call]) if (place := layout_of(value)) is not None]
            if not given or not all(is_sound(*pair, count) for pair in given) or not constants(call):
                continue
            some = constants(call)
            counts[observe_rule(func, call, count, draws.sample(some, draws.randint(1, len(some))))] += 1
    return counts
