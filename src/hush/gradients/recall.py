"""Where the batch goes, remembered: the same function on the same shapes and layouts has the same answer.

An answer depends on the function, its plain arguments, and its tensors' shapes, types and layouts. Where it could
depend on a tensor's values (an index), or where an argument is of a kind that is not listed here, nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hush.gradients.layout import Layout, layout_of

_MOST = 4096  # answers kept; models with ever new shapes start afresh
_PLAIN = frozenset({int, bool, str, type(None), type(Ellipsis), torch.dtype, torch.device, torch.memory_format})
_SEQUENCES = (tuple, list, torch.Size)

_answers: dict[Any, Layout] = {}


class _Unfit(Exception):
    """An argument of which no key can be made."""


def key_of(func: Any, args: Any, kwargs: Any, count: int) -> Any:
    """What an answer depends on, where no value of a tensor plays a part; None where there is no such key."""
    seen: set[int] = set()
    try:
        named = tuple([(name, _described(value, seen)) for name, value in kwargs.items()])
        return func, count, tuple([_described(value, seen) for value in args]), named
    except _Unfit:
        return None


def _described(value: Any, seen: set[int]) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return kind, value  # with its type, since True equals 1
    if isinstance(value, Tensor):
        if id(value) in seen:  # some answers ask which operand is which
            raise _Unfit
        seen.add(id(value))
        return value.shape, value.dtype, layout_of(value)
    if kind is slice:
        if any(isinstance(bound, Tensor) for bound in (value.start, value.stop, value.step)):
            raise _Unfit  # the value of the bound says where examples go
        return slice, _described((value.start, value.stop, value.step), seen)
    if kind in _SEQUENCES:
        return kind, tuple([_described(item, seen) for item in value])
    if kind is float:
        return float  # no axis, size or index is a float
    raise _Unfit


def recalled(key: Any, index: int, shape: torch.Size, answer: Callable[[], Layout]) -> Layout:
    """The answer for the result's part `index`, of this shape; asked for once where there is a key."""
    if key is None:
        return answer()
    full = key, index, shape
    found = _answers.get(full)
    if found is None:
        if len(_answers) >= _MOST:
            _answers.clear()
        found = _answers[full] = answer()
    return found
