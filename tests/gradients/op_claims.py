"""Check what the tape claims about one call: where the result holds each example, moved by no other example."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import Any

import torch
from op_calls import Call
from torch import Tensor, nn

from hush.errors import NoRule, NotIsolated
from hush.gradients import follow
from hush.gradients import functions as kinds
from hush.gradients.indexing import flat, tensors_in
from hush.gradients.layout import UNKNOWN, Layout, by_example, layout_of, mark
from hush.gradients.tape import Tape

# What a call came to: torch took it and the claim holds (an example's place, or a constant), no claim was made, the
# tape refused it, or torch did.
KNOWN, CONSTANT, UNFOLLOWED, REFUSED, REJECTED = "known", "constant", "unknown", "refused", "rejected"
_CLOSE = {"rtol": 1e-9, "atol": 1e-12, "equal_nan": True}
# Their values are whatever the memory held.
_BLANK = kinds.both("empty_like", "new_empty", "new_empty_strided", "new")


# What torch raises for operands that a function does not take.
ERRORS = (RuntimeError, ValueError, IndexError, AttributeError, KeyError, AssertionError, ArithmeticError)


class WrongClaim(AssertionError):
    """One example moves what the tape says is another's, or a constant."""


def fresh(
    call: Call, count: int, changed: int | None = None, way: int = 0, wrap: Any = None, keep: Container[int] = ()
) -> Call:
    """Return copies of a call's tensors with their marks; one example's values are others if `changed` names one.

    Tensors whose ids are in `keep` stay themselves.
    """
    memo: dict[int, Any] = {}
    draws = torch.Generator().manual_seed(1000 * way + (changed or 0))

    def copied(value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) in keep:
                return value
            if id(value) not in memo:
                memo[id(value)] = _copied(value, count, changed, way, draws, wrap)
            return memo[id(value)]
        if isinstance(value, tuple | list):
            return type(value)([copied(item) for item in value])
        return value

    args, kwargs = call
    return tuple(copied(value) for value in args), {name: copied(value) for name, value in kwargs.items()}


def _copied(value: Tensor, count: int, changed: int | None, way: int, draws: torch.Generator, wrap: Any) -> Tensor:
    place = layout_of(value)
    copy = value.detach().clone(memory_format=torch.contiguous_format)
    if place is not None and changed is not None:
        own = by_example(copy, place, count)[changed]
        own.copy_(_others(own, value, way, draws))
    if wrap is not None:
        copy = wrap(copy, place)
    if place is not None:
        mark(copy, place)
    return copy


def _others(own: Tensor, value: Tensor, way: int, draws: torch.Generator) -> Tensor:
    """Return other values that the function can take as well as the old ones: whole numbers from the same tensor."""
    if value.dtype == torch.bool:
        return ~own if way else torch.rand(own.shape, generator=draws) < 0.5
    if not value.dtype.is_floating_point and not value.dtype.is_complex:
        stock = value.flatten()
        return stock[torch.randint(0, len(stock), own.shape, generator=draws)]
    values = 0.1 + 0.8 * torch.rand(own.shape, generator=draws, dtype=torch.float64)
    return (values if not way else 50 * (values - 0.5)).to(value.dtype)


def run(func: Any, call: Call) -> Any:
    torch.manual_seed(0)  # whatever is drawn is drawn again
    return func(*call[0], **call[1])


def _parts(result: Any, call: Call) -> list[Tensor]:
    """Return all tensors that a call made or may have written."""
    made = [result] if isinstance(result, Tensor) else [part for part in flat(result) if isinstance(part, Tensor)]
    return [*made, *tensors_in(list(call[0])), *tensors_in(call[1])]


def observe(func: Any, call: Call, count: int, *, through_tape: bool = False) -> str:
    """Return what the call came to.

    Raises:
        WrongClaim: Another example's values, or their gradient, reach what is claimed to be one example's part.
    """
    own = fresh(call, count)
    try:
        if through_tape:
            with Tape(nn.Module(), count):
                result = run(func, own)
        else:
            result = run(func, own)
            given = [*tensors_in(list(own[0])), *tensors_in(own[1])]
            follow.follow(func, *own, result, given, count)
    except (NoRule, NotIsolated):
        return REFUSED
    except ERRORS:
        return REJECTED
    parts = _parts(result, own)
    num_made = len(parts) - len(_parts(None, own))
    if not num_made:
        return REJECTED
    claims = [layout_of(part) for part in parts]
    name = getattr(func, "__qualname__", getattr(func, "__name__", func))
    _compare_both_ends(func, name, call, (parts, claims), count)
    if KNOWN in (verdicts := {_verdict(claim) for claim in claims[:num_made]}):
        _check_gradient(func, name, call, count, claims[:num_made])
    return KNOWN if KNOWN in verdicts else UNFOLLOWED if UNFOLLOWED in verdicts else CONSTANT


def check_claims(func: Any, name: str, call: Call, result: Any, claims: Sequence[Layout | None], count: int) -> None:
    """Check what is claimed of the floating-point parts of a result."""
    made = [result] if isinstance(result, Tensor) else flat(result)
    named = iter(claims)
    every = [next(named) if part.is_floating_point() else UNKNOWN for part in made if isinstance(part, Tensor)]
    _compare_both_ends(func, name, call, ([part for part in made if isinstance(part, Tensor)], every), count)


def _compare_both_ends(func: Any, name: Any, call: Call, claimed: Any, count: int) -> None:
    """Change the first example, then the last: what runs along the batch in one direction shows at one of its ends.

    Large values change what is largest.
    """
    _compare(func, name, call, claimed, (count, 0, 0))
    if not _compare(func, name, call, claimed, (count, count - 1, 1)):
        _compare(func, name, call, claimed, (count, count - 1, 0))


def _verdict(claim: Layout | None) -> str:
    return CONSTANT if claim is None else UNFOLLOWED if claim == UNKNOWN else KNOWN


def _compare(func: Any, name: Any, call: Call, claimed: Any, which: tuple[int, int, int]) -> bool:
    """Check the claims against a run with one example changed; False where the function rejects its new values."""
    (parts, claims), (count, changed, way) = claimed, which
    other = fresh(call, count, changed, way)
    try:
        moved = _parts(run(func, other), other)
    except ERRORS:
        return False
    others = [example for example in range(count) if example != changed]
    for number, (part, claim) in enumerate(zip(parts, claims, strict=True)):
        if claim == UNKNOWN or (claim is None and func in _BLANK):
            continue
        where = f"{name}: part {number} claims {claim}; call {shown(call)}"
        if number >= len(moved) or moved[number].shape != part.shape:
            raise WrongClaim(f"the shape depends on the values: {where}")
        if claim is None:
            old, new = part, moved[number]
        else:
            if not is_sound(part, claim, count):
                raise WrongClaim(f"no such axis: {where}")
            old, new = (by_example(value.detach(), claim, count)[others] for value in (part, moved[number]))
        if not torch.allclose(*_comparable(old.detach(), new.detach()), **_CLOSE):  # type: ignore[arg-type]
            raise WrongClaim(f"example {changed} moves others: {where}")
    return True


def is_sound(tensor: Tensor, place: Layout, count: int) -> bool:
    return place.axis < tensor.ndim and tensor.shape[place.axis] == place.outer * count * place.inner


def _comparable(old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    kind = torch.complex128 if old.is_complex() else torch.float64
    return old.to(kind), new.to(kind)


def _check_gradient(func: Any, name: Any, call: Call, count: int, claims: list[Layout | None]) -> None:
    """One example's part has no gradient in the other examples, also where values hide it."""
    leaves: list[tuple[Tensor, Layout]] = []

    def grown(copy: Tensor, place: Layout | None) -> Tensor:
        if place is None or not (copy.is_floating_point() or copy.is_complex()):
            return copy
        leaves.append((copy.requires_grad_(), place))
        return copy * 1  # functions that write do not take leaves

    own = fresh(call, count, wrap=grown)
    if not leaves:
        return
    try:
        made = _parts(run(func, own), own)[: len(claims)]
    except ERRORS:
        return
    for part, claim in zip(made, claims, strict=True):
        if claim is None or claim == UNKNOWN or not _is_smooth(part):
            continue
        for example in (0, count - 1):
            total = by_example(part, claim, count)[example].abs().sum()
            inputs = [leaf for leaf, _ in leaves]
            try:
                found = torch.autograd.grad(total, inputs, retain_graph=True, allow_unused=True)
            except ERRORS:
                continue  # torch has no derivative
            for gradient, (_, place) in zip(found, leaves, strict=True):
                if gradient is None:
                    continue
                rest = [index for index in range(count) if index != example]
                # NaN is zero times the infinite slope of another example's own values, such as x / 0.
                if bool((by_example(gradient, place, count)[rest].nan_to_num(0, 1, 1) != 0).any()):
                    raise WrongClaim(f"{name}: a gradient crosses examples: {claim}; call {shown(call)}")


def _is_smooth(part: Tensor) -> bool:
    return part.requires_grad and (part.is_floating_point() or part.is_complex())


def shown(call: Call) -> str:
    def text(value: Any) -> str:
        if isinstance(value, Tensor):
            place = layout_of(value)
            return f"{str(value.dtype)[6:]}{list(value.shape)}" + ("" if place is None else f"@{tuple(place)}")
        if isinstance(value, tuple | list):
            return f"[{', '.join(map(text, value))}]"
        return repr(value)

    args, kwargs = call
    return ", ".join([*map(text, args), *(f"{name}={text(value)}" for name, value in kwargs.items())])


def survey(func: Any, calls: Iterable[tuple[int, Call]], *, through_tape: bool = False) -> Counter[str]:
    """Observe a function in many calls, each with its number of examples, and count what they came to."""
    counts: Counter[str] = Counter()
    hopeless: set[Any] = set()  # kinds of arguments that the function does not take
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for count, call in calls:
            kind = _kind(call)
            given = [(value, place) for value in tensors_in([*call]) if (place := layout_of(value)) is not None]
            if kind in hopeless or not given or not all(is_sound(*pair, count) for pair in given):
                continue
            try:
                counts[observe(func, call, count, through_tape=through_tape)] += 1
            except TypeError:
                hopeless.add(kind)
    return counts


def _kind(call: Call) -> Any:
    def kind(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value), tuple(map(kind, value))
        return value.dtype if isinstance(value, Tensor) else type(value)

    args, kwargs = call
    return tuple(map(kind, args)), tuple((name, kind(value)) for name, value in kwargs.items())
