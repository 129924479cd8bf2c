"""Python functions of torch, run so that a function mode sees what they call.

A mode is told of `F.multi_head_attention_forward` once, as a whole, and is switched off inside it. Its twin is the same
code without the question whether anybody overrides it, so it can run with the mode on, which then sees each `linear`
and `softmax` inside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def _nobody(*_: object) -> bool:
    return False


_worlds: dict[int, dict[str, Any]] = {}


def _world_of(function: FunctionType) -> dict[str, Any]:
    """The names that the function's code sees, with the questions answered."""
    world = function.__globals__
    if id(world) not in _worlds:
        _worlds[id(world)] = {**world, **{name: _nobody for name in _QUESTIONS if name in world}}
    return _worlds[id(world)]


@cache
def twin(function: FunctionType) -> Callable[..., Any]:
    """The function without its question for overrides."""
    code, closure = function.__code__, function.__closure__
    result = FunctionType(code, _world_of(function), function.__name__, function.__defaults__, closure)
    result.__kwdefaults__ = function.__kwdefaults__
    return result
