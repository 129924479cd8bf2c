"""A forward pass that leaves no trace: batch, buffers and flags are as before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from hush.errors import InvalidValue, NotIsolated
from hush.gradients.batches import Batch, mapped, tensors

_writes: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()  # whether a model writes into its batch


@contextmanager
def kept(model: nn.Module, batch: Batch) -> Iterator[Batch]:
    """The batch to work on; what the forward pass writes into it, into buffers or flags does not stay."""
    modules = list(model.named_modules())
    for name, module in modules:
        if getattr(module, "max_norm", None) is not None and isinstance(module, nn.Embedding | nn.EmbeddingBag):
            raise NotIsolated(
                f"{name or 'the model'} ({type(module).__name__}) has max_norm, which rewrites the rows that a batch "
                "looks up without any noise; set max_norm to None."
            )
    buffers = [
        (module, name, value, value._version, value.clone())
        for _, module in modules
        for name, value in module._buffers.items()
        if value is not None
    ]
    flags = [(module, module.training) for _, module in modules]
    own = mapped(Tensor.clone, batch) if _writes.get(model, True) else batch  # a copy until it proves needless
    versions = [(tensor, tensor._version) for tensor in tensors(own)]
    try:
        yield own
    finally:
        _put_back(buffers, flags)
    wrote = any(tensor._version != version for tensor, version in versions)
    if wrote and own is batch:
        raise InvalidValue("loss_fn writes into its batch now and did not at first; let it work on a copy.")
    _writes[model] = wrote


def _put_back(buffers: list[tuple[nn.Module, str, Tensor, int, Tensor]], flags: list[tuple[nn.Module, bool]]) -> None:
    with torch.no_grad():
        for module, name, value, version, copy in buffers:
            if value._version != version:
                value.copy_(copy)
            if module._buffers.get(name) is not value:
                module._buffers[name] = value
    for module, training in flags:
        module.training = training
