"""Broadcast arithmetic, joining, and whatever else takes a parameter element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hush.gradients import follow
from hush.gradients.indexing import arguments
from hush.gradients.layout import UNKNOWN, Layout, layout_of
from hush.gradients.rules.expanded import per_example
from hush.gradients.tape import _tensors, rule

if TYPE_CHECKING:
    from hush.gradients.tape import Tape

_NAMES = (
    "add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "true_divide", "divide", "multiply", "subtract", "rsub",
    "__add__", "__radd__", "__iadd__", "__sub__", "__rsub__", "__isub__", "__mul__", "__rmul__", "__imul__",
    "__truediv__", "__rtruediv__", "__itruediv__", "__div__", "__rdiv__", "__idiv__", "pow", "__pow__", "__rpow__",
    "maximum", "minimum", "where", "lerp", "addcmul", "addcdiv", "clamp", "clip", "fmod", "remainder", "hypot",
    "atan2", "xlogy", "copysign", "logaddexp", "masked_fill", "max", "min",
)  # fmt: skip
_WRITING = follow._both(*(name for name in _NAMES if name.endswith("_") and not name.startswith("__"))) | follow._both(
    *(name for name in _NAMES if name.startswith("__i"))
)
_FILLING, _STACKING = follow._both("masked_fill"), follow._both("stack")


def reference(tape: Tape, func: Any, tensors: list[Tensor]) -> tuple[Tensor, Layout]:
    """The widest operand whose layout is known, and that layout."""
    known = [(tensor, place) for tensor in tensors if (place := layout_of(tensor)) is not None]
    if not known or any(place == UNKNOWN for _, place in known):
        raise tape.no_rule(func, tensors, "its input cannot be followed back to single examples")
    return known[0]


@rule(*follow._both(*_NAMES))
def elementwise(tape: Tape, func: Any, args: Any, kwargs: Any) -> Any:
    """Each weight becomes one copy per example; the rest is ordinary arithmetic."""
    other, layout = reference(tape, func, [*_tensors(args), *_tensors(kwargs.values())])
    if "out" in kwargs or (func in _WRITING and tape.is_weight(args[0])):
        raise tape.no_rule(func, list(_tensors(args)), "it writes a part of the batch into a weight")
    if func in _FILLING and any(isinstance(value, Tensor) and tape.is_weight(value) for value in args[2:]):
        return _with_copies(tape, torch.where, (args[1], args[2], args[0]), {}, other, layout)
    return _with_copies(tape, func, args, kwargs, other, layout)


@rule(*follow._both("cat", "concat", "concatenate", "stack"))
def joined(tape: Tape, func: Any, args: Any, kwargs: Any) -> Any:
    """Class tokens and the like: all operands have the same axes."""
    other, layout = reference(tape, func, [*_tensors(args), *_tensors(kwargs.values())])
    axis = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis", 0))
    if func not in _STACKING and axis % other.ndim == layout.axis:
        raise tape.no_rule(func, list(_tensors(args)), "it is joined to the batch as one more example")
    return _with_copies(tape, func, args, kwargs, other, layout)


@rule(torch.nn.functional.scaled_dot_product_attention)
def attention(tape: Tape, func: Any, args: Any, kwargs: Any) -> Any:
    """A learned bias on the scores, such as relative positions."""
    query = args[0] if args else kwargs["query"]
    _, layout = reference(tape, func, [*_tensors(args), *_tensors(kwargs.values())])
    if layout_of(query) is None or layout.axis >= query.ndim - 2:
        raise tape.no_rule(func, [query], "learned queries, or the examples on the axis of tokens")
    return _with_copies(tape, func, args, kwargs, query, layout)


def _with_copies(tape: Tape, func: Any, args: Any, kwargs: Any, other: Tensor, layout: Layout) -> Any:
    def copied(value: Any) -> Any:
        if isinstance(value, Tensor) and tape.is_weight(value):
            copies = per_example(tape, value, other.ndim, layout, func)
            # A number without axes does not widen the other operand; its copies would.
            return copies.to(other.dtype) if not value.ndim and other.is_floating_point() else copies
        if isinstance(value, tuple | list):
            return type(value)(copied(item) for item in value)
        return value

    new_args, new_kwargs = copied(tuple(args)), {key: copied(value) for key, value in kwargs.items()}
    result = func(*new_args, **new_kwargs)
    tensors = [*_tensors(new_args), *_tensors(new_kwargs.values())]
    follow.follow(func, new_args, new_kwargs, result, tensors, tape.count)
    return result


@rule(torch.prelu, torch.Tensor.prelu)
def prelu(tape: Tape, func: Any, args: Any, kwargs: Any) -> Any:
    """One slope, or one for each channel (axis 1)."""
    given = arguments(("input", "weight"), args, kwargs)
    if given is None or len(given) < 2:
        raise tape.no_rule(func, list(_tensors(args)), "arguments that it does not know")
    inputs, weight = given["input"], given["weight"]
    with tape:
        if weight.numel() > 1:
            weight = weight.view(-1, *[1] * (inputs.ndim - 2))
        return torch.where(inputs > 0, inputs, inputs * weight)  # at zero torch takes the slope, not one
