"""Calls of TorchScript functions, which no function mode of torch sees."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from hush.errors import NoRule

_KINDS: tuple[Any, ...] = (torch._C.ScriptFunction, torch._C.ScriptMethod)


@contextmanager
def no_scripts() -> Iterator[None]:
    """Raise `NoRule` where a scripted function is called: what it does to the examples cannot be followed."""
    before = [kind.__call__ for kind in _KINDS]

    def refuse(function: Any, *_: Any, **__: Any) -> Any:
        name = str(getattr(function, "name", "") or "a function")
        raise NoRule(f"{name} is scripted by torch.jit, so the tape cannot follow the examples through it.")

    try:
        for kind in _KINDS:
            kind.__call__ = refuse
        yield
    finally:
        for kind, own in zip(_KINDS, before, strict=True):
            kind.__call__ = own
