"""Pictures of nothing: overlapping discs and boxes of random size, place, colour and shade.

Dead leaves [matheron68, lee01] have edges, corners and flat parts in about the mixture of
photographs, so that patches of them make a good dictionary. They are made from a public seed and know nothing of
anybody's data.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

_LEAVES = 60


@lru_cache(maxsize=4)
@torch.no_grad()
def dead_leaves(count: int, size: int, channels: int, seed: int = 0) -> Tensor:
    """Pictures (count, channels, size, size), always the same for a seed.

    >>> dead_leaves(2, 16, 3).shape
    torch.Size([2, 3, 16, 16])
    """
    stream = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.rand(count, *shape, generator=stream)

    line = torch.arange(size, dtype=torch.float32)
    down, across = torch.meshgrid(line, line, indexing="ij")
    pictures = draw(channels, 1, 1).expand(count, channels, size, size).clone()
    for _ in range(_LEAVES):
        radius = (1.5 / draw(1, 1).clamp(min=0.02).sqrt()).clamp(max=size)  # few large leaves, many small ones
        angle, shape = draw(1, 1) * math.pi, 0.3 + 0.7 * draw(1, 1)
        right, below = across - draw(1, 1) * size, down - draw(1, 1) * size
        along, beside = right * angle.cos() + below * angle.sin(), below * angle.cos() - right * angle.sin()
        disc = along.square() + (beside / shape).square() < radius.square()
        box = (along.abs() < radius) & (beside.abs() < radius * shape)
        leaf = torch.where(draw(1, 1) < 0.5, disc, box)[:, None]
        tint = 0.35 * torch.randn(count, channels, 1, 1, generator=stream)
        colour = (draw(1, 1, 1) + tint).clamp(0, 1)
        shade = 0.02 * torch.randn(count, 1, 1, generator=stream) * along
        pictures = torch.where(leaf, colour + shade[:, None], pictures)
    blurred = functional.avg_pool2d(functional.pad(pictures, (1, 1, 1, 1), mode="reflect"), 3, 1)
    return (pictures + blurred) / 2
