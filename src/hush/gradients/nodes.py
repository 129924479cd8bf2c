"""Nodes of torch's graph, and those whose backward pass is somebody's own Python code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_Python: Any = torch._C._FunctionBase
_KNOWN = ("hush.", "torch.distributed.fsdp.")  # taps, and the hooks by which FSDP gathers parameters


def nodes_of(tensor: Tensor) -> Iterator[Any]:
    """Yield each node of the graph that made a tensor, once."""
    pending, seen = [tensor.grad_fn], set()
    while pending:
        node = pending.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            pending += [parent for parent, _ in node.next_functions]


def foreign_node(losses: Tensor) -> str | None:
    """Return the name of a node with a backward pass in Python, which could mix the examples; None if there is none."""
    for node in nodes_of(losses):
        if isinstance(node, _Python):
            written = getattr(type(node), "_forward_cls", type(node))
            if not written.__module__.startswith(_KNOWN):
                return str(written.__name__)
    return None
