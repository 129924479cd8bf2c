"""Prints of values: tuples that are equal where the values are, and copies by which to put them back."""

from __future__ import annotations

import contextvars
import functools
import types
import zlib
from collections import deque
from collections.abc import Collection
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from hush.rng import is_generator, put_back, state_of

SMALL = 1 << 16  # numbers of a tensor in an attribute, up to which its values are kept
CODE = (type, types.ModuleType, types.BuiltinFunctionType, types.FunctionType, types.MethodType, property)
_PLAIN = {int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size}
LIBRARIES = ("torch", "torchvision", "transformers", "peft", "hush", "numpy", "random", "builtins", "functools")
_OPENED = ("builtins", "transformers", "torch.distributions", "torch.optim", "torch.utils.data")  # settings or values
_DEPTH = 32  # levels of containers and plain objects that are looked into


def is_library(value: Any) -> bool:
    """Return whether a class, function or module is of a library, which keeps nothing of a user's rows."""
    return (getattr(value, "__module__", None) or "").partition(".")[0] in LIBRARIES


class Printer:
    """Turns values into tuples that differ when the values do, and keeps copies of containers to restore them."""

    def __init__(self, known: Collection[int] = (), *, exact: bool = False, in_full: bool = False) -> None:
        self._known = known  # modules that are looked at for themselves
        self.exact = exact  # by value, so that the prints of different objects can be compared
        self._in_full = in_full  # small tensors by their values too, and generators by what they are
        self.containers: list[tuple[Any, Any]] = []
        self.arrays: list[tuple[Any, Any]] = []
        self.generators: list[tuple[Any, Any]] = []
        self.tensors: list[Tensor] = []
        self._seen: set[int] = set()

    def of(self, value: Any, depth: int = 0) -> Any:
        """Return the print of a value."""
        kind = type(value)
        if kind in _PLAIN:
            return ("nan",) if value != value else value
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, torch.Generator):
            return id(value), value.initial_seed()
        if isinstance(value, CODE) or id(value) in self._known:
            return id(value)
        identity = 0 if self.exact else id(value)
        if isinstance(value, numpy.ndarray | numpy.generic):
            return identity, value.shape, self._array(value, depth)
        if is_generator(value):
            return identity, id(value) if self._in_full else self._generator(value)
        if isinstance(value, contextvars.ContextVar):
            return identity, self.of(value.get(None), depth + 1)
        if depth >= _DEPTH or id(value) in self._seen:
            return identity
        if isinstance(value, tuple):
            return kind, tuple([self.of(item, depth + 1) for item in value])
        if isinstance(value, list | deque):
            self._keep(value, list(value))
            items = tuple([self.of(item, depth + 1) for item in value])
            return (
                (identity, kind, items)
                if kind in (list, deque)
                else (identity, kind, items, self._beside(value, depth))
            )
        if isinstance(value, dict):
            self._keep(value, dict(value))
            items = tuple([(self.of(key, depth + 1), self.of(item, depth + 1)) for key, item in value.items()])
            return (identity, kind, items, *self._beside(value, depth))
        if isinstance(value, set | frozenset):
            if isinstance(value, set):
                self._keep(value, set(value))
            return identity, kind, frozenset([str(self.of(item, depth + 1)) for item in value])
        inner = getattr(value, "__dict__", None)
        if isinstance(value, functools.partial):
            return identity, self.of((value.args, value.keywords), depth + 1)
        if is_library(kind) and not kind.__module__.startswith(_OPENED) and not isinstance(value, nn.Module):
            return id(value)
        self._seen.add(id(value))
        if type(inner) is not dict:
            return identity, kind, self.of(_state(value), depth + 1)
        self._keep(inner, dict(inner))
        return identity, kind, tuple([(key, self.of(item, depth + 1)) for key, item in inner.items()])

    def _beside(self, value: Any, depth: int) -> tuple[Any, ...]:
        """Return the print of what a container of one's own class keeps beside its items."""
        own = getattr(value, "__dict__", None)
        if type(own) is not dict or not own or is_library(type(value)):
            return ()
        self._keep(own, dict(own))
        return tuple([(key, self.of(item, depth + 1)) for key, item in own.items()])

    def _array(self, value: Any, depth: int) -> Any:
        if value.dtype == object:
            return self.of(value.tolist(), depth + 1)
        if value.nbytes > 1 << 24:
            return zlib.crc32(numpy.ascontiguousarray(value).data)  # to keep it would cost too much memory
        if isinstance(value, numpy.ndarray) and not self.exact:
            self.arrays.append((value, value.copy()))
        return value.tobytes()

    def _generator(self, value: Any) -> Any:
        state = state_of(value)
        if not self.exact:
            self.generators.append((value, state))
        return str(state)

    def restore(self) -> None:
        """Put containers, arrays and generators back."""
        for container, copy in self.containers:
            container.clear()
            container.update(copy) if isinstance(container, dict | set) else container.extend(copy)
        for array, copy in self.arrays:
            array[...] = copy
        for generator, state in self.generators:
            put_back(generator, state)

    def _keep(self, container: Any, copy: Any) -> None:
        self._seen.add(id(container))
        self.containers.append((container, copy))

    def _tensor(self, value: Tensor) -> Any:
        if torch._C._functorch.is_functorch_wrapped_tensor(value):  # has no values outside of its transformation
            return id(value)
        self.tensors.append(value)
        if not self.exact and not (self._in_full and value.numel() <= SMALL):
            return id(value), version_of(value)
        if type(value) is not Tensor or value.layout is not torch.strided:
            return id(value)
        plain = value.detach().cpu().contiguous().reshape(-1)
        return value.shape, value.dtype, plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def _state(value: Any) -> Any:
    """Return what an object without a dictionary holds, as pickle would save it; None where it cannot be told."""
    if isinstance(value, types.GeneratorType):
        return dict(value.gi_frame.f_locals) if value.gi_frame is not None else None
    try:
        found = value.__reduce_ex__(4)
    except Exception:  # files, locks and the like
        return None
    return found[1:3] if isinstance(found, tuple) else found


def version_of(tensor: Tensor) -> int:
    """Return how often the tensor was written to, as torch counts it."""
    return 0 if tensor.is_inference() else tensor._version


def print_of(value: Any) -> Any:
    """Return something that is equal for values that are equal, whichever objects they are."""
    return Printer(exact=True).of(value)
