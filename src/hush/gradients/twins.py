"""Python functions of torch, run so that a function mode sees what they call.

A mode is told of `F.multi_head_attention_forward` once, as a whole, and is switched off inside it. Its twin is the same
code without the question whether anybody overrides it, so it can run with the mode on, which then sees each `linear`
and `softmax` inside.

One step of it is written anew: torch cuts query, key and value out of their common product so that, on the way back,
each fills a whole array of zeros and the three are added up. Here they are joined.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import signature
from types import FunctionType
from typing import Any

import torch.nn.functional as F
from torch import Tensor

_PACKED: Any = getattr(F, "_in_projection_packed", None)  # no public name
_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def _nobody(*_: object) -> bool:
    return False


def _in_projection_packed(q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None = None) -> Any:
    """Query, key and value of a self-attention, as torch makes them."""
    if not (q is k and k is v):
        return _PACKED(q, k, v, w, b)
    return tuple(part.contiguous() for part in F.linear(q, w, b).chunk(3, -1))


def _anew(world: dict[str, Any]) -> dict[str, Any]:
    """What is written anew, if it is what torch calls by this name in this world."""
    known = _PACKED is not None and world.get("_in_projection_packed") is _PACKED
    fits = known and list(signature(_PACKED).parameters) == ["q", "k", "v", "w", "b"]
    return {"_in_projection_packed": _in_projection_packed} if fits else {}


_worlds: dict[int, dict[str, Any]] = {}


def _world_of(function: FunctionType) -> dict[str, Any]:
    """The names that the function's code sees, with the questions answered."""
    world = function.__globals__
    if id(world) not in _worlds:
        _worlds[id(world)] = {**world, **{name: _nobody for name in _QUESTIONS if name in world}, **_anew(world)}
    return _worlds[id(world)]


@cache
def twin(function: FunctionType) -> Callable[..., Any]:
    """The function without its question for overrides."""
    code, closure = function.__code__, function.__closure__
    result = FunctionType(code, _world_of(function), function.__name__, function.__defaults__, closure)
    result.__kwdefaults__ = function.__kwdefaults__
    return result
