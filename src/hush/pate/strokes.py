"""Strokes in pictures: how much of each direction lies where. A fixed map of each picture alone; nothing is learned.

A bank of Gabor filters (Daugman 1985), two wavelengths and eight directions; the length of the complex answer is
averaged over overlapping cells, its root taken, and the whole brought to length 1. That strokes, and not pixels, tell
pictures apart, and that small shifts do not matter, is public knowledge; it spares each teacher learning it from its
few rows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from hush.errors import InvalidValue

_DIRECTIONS, _WAVELENGTHS, _SIZE, _AT_ONCE = 8, (4.0, 8.0), 9, 500


def filters(size: int = _SIZE, wavelengths: tuple[float, ...] = _WAVELENGTHS) -> Tensor:
    """Gabor filters without mean, of length 1: (pixels of a window, wavelengths x directions x 2)."""
    line = torch.arange(size, dtype=torch.float32) - size // 2
    down, across = torch.meshgrid(line, line, indexing="ij")
    bank = []
    for wavelength in wavelengths:
        hill = torch.exp(-(across.square() + down.square()) / (2 * (0.4 * wavelength) ** 2))
        for direction in range(_DIRECTIONS):
            angle = math.pi * direction / _DIRECTIONS
            along = across * math.cos(angle) + down * math.sin(angle)
            for phase in (0.0, math.pi / 2):
                wave = hill * torch.cos(2 * math.pi * along / wavelength + phase)
                wave = wave - hill * (wave.sum() / hill.sum())
                bank.append(wave / torch.linalg.vector_norm(wave))
    return torch.stack(bank).flatten(1).T.contiguous()


@torch.no_grad()
def strokes(x: Tensor, *, cells: int = 7) -> Tensor:
    """(rows, channels, height, width) -> (rows, features of length 1); colours are averaged.

    >>> strokes(torch.rand(3, 1, 28, 28)).shape
    torch.Size([3, 784])
    """
    if x.ndim != 4:
        raise InvalidValue(
            f"strokes are found in pictures (rows, channels, height, width); got shape {tuple(x.shape)}."
        )
    bank, parts = filters(), []
    for part in x.to(torch.float32).mean(dim=1).split(_AT_ONCE):
        if min(part.shape[1:]) < 2 * cells:  # small pictures are enlarged first
            part = functional.interpolate(part[:, None], size=(4 * cells, 4 * cells), mode="bilinear")[:, 0]
        around = functional.pad(part, [_SIZE // 2] * 4).unfold(1, _SIZE, 2).unfold(2, _SIZE, 2)
        rows, down, across = around.shape[:3]
        answers = (around.reshape(rows * down * across, -1) @ bank).reshape(rows, down, across, -1, 2)
        lengths = torch.linalg.vector_norm(answers, dim=4).permute(0, 3, 1, 2)
        parts.append(_unit(_cells(lengths, cells).flatten(1).sqrt()))
    return torch.cat(parts) if parts else torch.empty(0, bank.shape[1] // 2 * cells * cells)


def _cells(lengths: Tensor, cells: int) -> Tensor:
    """Means over cells that overlap by half."""
    step = max(1, min(lengths.shape[2:]) // cells)
    means = functional.avg_pool2d(lengths, 2 * step, stride=step, padding=step // 2)
    return functional.adaptive_avg_pool2d(means, cells)


def _unit(rows: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / length.clamp(min=1e-6)
