"""Max pooling of pictures on the CPU, in the layout in which torch is quick.

torch pools maps one number at a time where they lie channel by channel, and many channels at once where channels lie
last; here a few examples at a time are turned, pooled and turned back. Maxima, the places that they were taken from
(the first of equal ones) and gradients are torch's own, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_CHANNELS = 16  # fewer do not fill a processor's vector
_PIECE = 2**17  # numbers turned at once, so that they stay in the cache
_torchs_own: Callable[..., Any] = F.max_pool2d


def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """`torch.nn.functional.max_pool2d`, by its names."""
    if return_indices or not _is_quicker(input):
        return _torchs_own(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    step = kernel_size if stride is None or stride in ((), []) else stride
    settings = *(_pair(value) for value in (kernel_size, step, padding, dilation)), ceil_mode
    return _pool(input, settings)


def _is_quicker(inputs: Tensor) -> bool:
    is_plain = type(inputs) is Tensor and inputs.device.type == "cpu" and inputs.ndim == 4 and inputs.is_contiguous()
    is_known = inputs.dtype in (torch.float32, torch.float64)
    return is_plain and is_known and inputs.shape[1] >= _CHANNELS and inputs.numel() > 0


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value) * (2 // len(value))


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, settings: Any) -> Tensor:
        maxima, places = _pooled(inputs, settings)
        ctx.save_for_backward(inputs, places)
        ctx.settings = settings
        return maxima

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        inputs, places = ctx.saved_tensors
        with torch._C.DisableTorchFunction():  # a tape need not follow the way back
            found = torch.ops.aten.max_pool2d_with_indices_backward(gradients[0], inputs, *ctx.settings, places)
        return found, None


_pool: Callable[..., Tensor] = _Pool.apply


def _pooled(inputs: Tensor, settings: Any) -> tuple[Tensor, Tensor]:
    """The maxima, and their places in each map."""
    results: list[Tensor] = []
    for start in range(0, len(inputs), size := max(1, _PIECE // inputs[0].numel())):
        few = inputs[start : start + size].contiguous(memory_format=torch.channels_last)
        found = torch.ops.aten.max_pool2d_with_indices(few, *settings)
        results = results or [part.new_empty(len(inputs), *part.shape[1:]) for part in found]
        for result, part in zip(results, found, strict=True):
            result[start : start + size] = part
    return results[0], results[1]
