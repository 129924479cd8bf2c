"""Pairs of pixels of small maps, each pair once, and what a convolution makes of them.

The norm of a convolution's gradient needs, for each pair of output pixels, the products of the two windows: the sum
over the kernel's offsets of the products of the input's pixels there. That sum is linear and the same for all examples:
one matrix, by which the pairs of an example's pixels are multiplied. It is nearly all zeros, and still quicker than
adding up shifted maps where these have few pixels.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

_MOST = 1 << 18  # numbers of a matrix; above, maps are shifted and added


@lru_cache(maxsize=256)
def is_small(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether maps of these sizes, before and after a layer, are worth a matrix."""
    return count(before) * count(after) <= _MOST


@lru_cache(maxsize=256)
def count(size: tuple[int, ...]) -> int:
    """How many pairs a map has."""
    pixels = torch.Size(size).numel()
    return pixels * (pixels + 1) // 2


def once(pairs: Tensor) -> Tensor:
    """(batch, pixels, pixels) -> (batch, pairs): of each two products that are the same, one."""
    return pairs.flatten(1).index_select(1, _places(pairs.shape[1], pairs.device))


@lru_cache(maxsize=32)
def of_windows(
    before: tuple[int, ...],
    after: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    zeros: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """The places of those pairs of input pixels that lie in two windows at one offset, and what to multiply them by.

    That matrix is (these pairs, pairs of output pixels); of the latter, a pair of two counts twice, as in the sum over
    all of them. `zeros` are those before the first pixel of each axis.
    """
    pixels = torch.arange(torch.Size(before).numel()).view(before)
    first, second = torch.triu_indices(*[torch.Size(after).numel()] * 2)
    result = torch.zeros(count(before), count(after), dtype=dtype)
    for offset in itertools.product(*map(range, kernel)):
        under = _under(pixels, after, stride, [at - zero for at, zero in zip(offset, zeros, strict=True)])
        one, other = under[first], under[second]
        inside = (one >= 0) & (other >= 0)
        low, high = torch.minimum(one, other), torch.maximum(one, other)
        row = low * pixels.numel() - low * (low - 1) // 2 + high - low
        result[row[inside], inside.nonzero()[:, 0]] += 1
    result *= times(torch.Size(after).numel(), dtype, torch.device("cpu"))
    chosen = result.any(dim=1)  # with a stride, pixels that are an odd number apart never meet
    return _places(pixels.numel(), torch.device("cpu"))[chosen].to(device), result[chosen].to(device)


@lru_cache(maxsize=32)
def times(pixels: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """How often each pair counts: once if it is a pixel with itself, and twice otherwise.

    >>> times(2, torch.float32, torch.device("cpu")).tolist()
    [1.0, 2.0, 1.0]
    """
    first, second = torch.triu_indices(pixels, pixels)
    return torch.where(first == second, 1, 2).to(device, dtype)


def _under(pixels: Tensor, after: Sequence[int], stride: Sequence[int], offset: Sequence[int]) -> Tensor:
    """For each output pixel, the number of the input's pixel at an offset of its window; -1 for the zeros around."""
    axes = [torch.arange(size) * step + at for size, step, at in zip(after, stride, offset, strict=True)]
    inside = [(axis >= 0) & (axis < size) for axis, size in zip(axes, pixels.shape, strict=True)]
    held = [axis.clamp(0, size - 1) for axis, size in zip(axes, pixels.shape, strict=True)]
    found = pixels[held[0][:, None], held[1][None, :]]
    return found.where(inside[0][:, None] & inside[1][None, :], -1).reshape(-1)


@lru_cache(maxsize=32)
def _places(pixels: int, device: torch.device) -> Tensor:
    first, second = torch.triu_indices(pixels, pixels)
    return (first * pixels + second).to(device)
