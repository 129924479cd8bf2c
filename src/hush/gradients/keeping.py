"""A forward pass that leaves no trace: batch, buffers and flags are as before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from hush.errors import InvalidValue, NotIsolated
from hush.gradients.batches import Batch, mapped, tensors

_TABLES = (nn.Embedding, nn.EmbeddingBag)
_writes: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()  # whether a model writes into its batch


@contextmanager
def kept(model: nn.Module, batch: Batch, modules: list[tuple[str, nn.Module]] | None = None) -> Iterator[Batch]:
    """The batch to work on; what the forward pass writes into it, into buffers or flags does not stay.

    `modules` are the model's, with their names, where they are at hand.
    """
    modules = list(model.named_modules()) if modules is None else modules
    for name, module in modules:
        if isinstance(module, _TABLES) and module.max_norm is not None:
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
    if _writes.get(model) is not wrote:
        _writes[model] = wrote


def is_written(value: Tensor, version: int, copy: Tensor) -> bool:
    """Whether a tensor is not what it was. Some functions write without raising its version (batch_norm on a CPU)."""
    return value._version != version or (value.layout is torch.strided and not torch.equal(value, copy))


def _put_back(buffers: list[tuple[nn.Module, str, Tensor, int, Tensor]], flags: list[tuple[nn.Module, bool]]) -> None:
    for module, name, value, version, copy in buffers:
        if is_written(value, version, copy):
            with torch.no_grad():
                value.copy_(copy)
        if module._buffers.get(name) is not value:
            module._buffers[name] = value
    for module, training in flags:
        if module.training is not training:
            module.training = training
