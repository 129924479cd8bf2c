"""Tensors that a loss function closes over: what is made of the batch there is no part of the batch any more.

    mean = x.mean(0)
    private.backward(lambda model, x, y: loss(model(x - mean), y), (x, y))

Nobody can see from inside that such a tensor came from private rows. But one that is another at every step is told of.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy
from torch import Tensor, nn

from hush.gradients.prints import SMALL, print_of

CHANGES = (
    "loss_fn closes over a tensor that changed from one step to another; the guarantee holds only if it was not made "
    "of private rows."
)


def print_of_closure(loss_fn: Any, model: nn.Module) -> Any:
    """Return the print of the tensors and arrays that a function closes over, but for those of the model."""
    known = {id(value) for value in (*model.parameters(), *model.buffers())}
    found: list[Any] = []
    pending = [loss_fn]
    while pending:
        value = pending.pop()
        if isinstance(value, types.MethodType):
            value = value.__func__
        if isinstance(value, functools.partial):
            pending += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, types.FunctionType):
            pending += [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
            pending += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        elif isinstance(value, tuple | list):
            found += [item for item in value if isinstance(item, Tensor | numpy.ndarray)]
        elif isinstance(value, Tensor | numpy.ndarray):
            found.append(value)
    return [_print(value) for value in found if id(value) not in known]


def _print(value: Any) -> Any:
    size = value.numel() if isinstance(value, Tensor) else value.size
    return print_of(value) if size <= SMALL else (tuple(value.shape), id(value))


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
