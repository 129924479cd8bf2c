"""Maps of a picture that say much the same, mixed so that each says something of its own.

Answers of different filters in one cell go up and down together. The directions in which they differ are found on
pictures of nothing (`dead_leaves`), which costs no privacy, and evened out; the last of them may be dropped, which
makes what follows quicker. A linear model then has its length for what tells pictures apart, and needs fewer steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from hush.features.dead_leaves import dead_leaves

_PICTURES = 1_000
_RIDGE = 0.05  # of the mean eigenvalue, added to all of them


@torch.no_grad()
def mixing(
    maps: Callable[[Tensor], Iterable[Tensor]], shape: tuple[int, ...], *, seed: int, kept: int | None
) -> Tensor:
    """(maps, directions): by this, maps (rows, maps, cells) of pictures of this shape are mixed."""
    channels, height, width = shape
    nothing = dead_leaves(_PICTURES, max(height, width), channels, seed)[..., :height, :width]
    found = torch.cat(list(maps(nothing)))
    found = found / found.norm(dim=(1, 2), keepdim=True).clamp(min=1e-12)
    rows = (found - found.mean(dim=(0, 2), keepdim=True)).transpose(1, 2).flatten(0, 1).to(torch.float64)
    values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
    values = values.clamp(min=0)
    directions = vectors * (values + _RIDGE * values.mean().clamp(min=1e-12)).rsqrt()
    return directions.flip(1)[:, :kept].to(torch.float32).contiguous()
