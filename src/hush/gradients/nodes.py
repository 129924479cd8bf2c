"""Nodes of torch's graph whose backward pass is somebody's own Python code."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_Python: Any = torch._C._FunctionBase
_KNOWN = ("hush.", "torch.distributed.fsdp.")  # taps, and the hooks by which FSDP gathers parameters


def foreign_node(losses: Tensor) -> str | None:
    """Return the name of a node with a backward pass in Python, which could mix the examples; None if there is none."""
    pending, seen = [losses.grad_fn], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, _Python):
            written = getattr(type(node), "_forward_cls", type(node))
            if not written.__module__.startswith(_KNOWN):
                return str(written.__name__)
        pending += [parent for parent, _ in node.next_functions]
    return None
