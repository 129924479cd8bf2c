"""How far each example's gradient is scaled down, so that no example contributes more than `clip_norm`.

    flat        min(1, clip_norm / norm), exactly
    per_layer   the same for each layer with clip_norm / sqrt(layers), so that the whole stays below clip_norm
    automatic   clip_norm / (norm + 0.01): every example counts about the same (Bu et al. 2023, AUTO-S)

A gradient of norm 0 stays 0. An example whose gradient is not finite gets factor 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal, get_args

import torch
from torch import Tensor

Clipping = Literal["flat", "per_layer", "automatic"]
CLIPPINGS: tuple[str, ...] = get_args(Clipping)
STABILITY = 0.01
_FEW = 5  # up to so many rows are added one after the other, and more as one matrix


def factors(
    squared: Mapping[str, Tensor], clip_norm: float, clipping: str, trainable: Iterable[str]
) -> tuple[Tensor, dict[str, Tensor], Tensor | None]:
    """Each example's norm, for each parameter each example's factor, and which are not finite (None if all are).

    `trainable` names all parameters: layers that a batch does not use have their share of the clip norm all the same.
    """
    norms = _norm(list(squared.values()))
    if clipping == "per_layer":
        scales = _per_layer(squared, clip_norm, len(layers(trainable)))
    else:
        scale = clip_norm / (norms + STABILITY) if clipping == "automatic" else shrink(norms, clip_norm)
        scales = dict.fromkeys(squared, scale)
    if math.isfinite(norms.sum().item()):
        return norms, scales, None
    broken = ~torch.isfinite(norms)  # of none, where only the sum was too large
    return norms, {name: scale.masked_fill(broken, 0.0) for name, scale in scales.items()}, broken


def shrink(norms: Tensor, clip_norm: float) -> Tensor:
    """min(1, clip_norm / norm)."""
    return torch.div(_bound(clip_norm, norms.dtype), norms).clamp_(
        max=1.0
    )  # clip_norm / 0 is infinite, so a zero gradient gets 1


@lru_cache(maxsize=8)
def _bound(clip_norm: float, dtype: torch.dtype) -> Tensor:
    return torch.tensor(clip_norm, dtype=dtype)


def layers(names: Iterable[str]) -> dict[str, list[str]]:
    """The parameters of each module together."""
    result: dict[str, list[str]] = {}
    for name in names:
        result.setdefault(name.rpartition(".")[0], []).append(name)
    return result


def _per_layer(squared: Mapping[str, Tensor], clip_norm: float, count: int) -> dict[str, Tensor]:
    groups = layers(squared)
    share = clip_norm / math.sqrt(count)
    found = {layer: shrink(_norm([squared[name] for name in names]), share) for layer, names in groups.items()}
    return {name: found[layer] for layer, names in groups.items() for name in names}


def _norm(squares: list[Tensor]) -> Tensor:
    if len(squares) > _FEW:
        return torch.stack(squares).sum(0).sqrt_()
    total = squares[0]
    for more in squares[1:]:
        total = total + more
    return total.sqrt()
