"""Changed copies of pictures: small turns, stretches and shifts keep what a picture shows. Public knowledge."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def weak(x: Tensor, stream: torch.Generator) -> Tensor:
    """Small turns and shifts."""
    return affine(x, stream, turn=0.1, stretch=0.05, shear=0.05, shift=0.1)


def strong(x: Tensor, stream: torch.Generator) -> Tensor:
    """Large turns, stretches and shifts, and a square cut out."""
    return cut_out(affine(x, stream, turn=0.35, stretch=0.2, shear=0.3, shift=0.2), stream)


def affine(x: Tensor, stream: torch.Generator, *, turn: float, stretch: float, shear: float, shift: float) -> Tensor:
    """Each picture under its own random affine map: angles in radians, shifts as a share of half the side."""

    def draw(most: float) -> Tensor:
        return (torch.rand(len(x), generator=stream) * 2 - 1) * most

    angle, size, slant = draw(turn), draw(stretch).exp(), draw(shear)
    cos, sin = angle.cos() * size, angle.sin() * size
    first = torch.stack([cos, slant * cos - sin, draw(shift)], dim=1)
    second = torch.stack([sin, cos + slant * sin, draw(shift)], dim=1)
    grid = functional.affine_grid(torch.stack([first, second], dim=1), list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, align_corners=False)


def cut_out(x: Tensor, stream: torch.Generator, share: float = 0.25) -> Tensor:
    """A square of this share of the side set to 0, at a random place of each picture [DeVries, Taylor 2017]."""
    near = [_near(len(x), side, max(1.0, side * share / 2), stream) for side in x.shape[-2:]]
    hidden = near[0][:, :, None] & near[1][:, None, :]
    return x * ~hidden[:, None]


def _near(number: int, side: int, reach: float, stream: torch.Generator) -> Tensor:
    centre = torch.randint(side, (number, 1), generator=stream)
    return (torch.arange(side) - centre).abs() < reach


def jitter(x: Tensor, stream: torch.Generator) -> Tensor:
    """For rows of a table: a little Gaussian noise."""
    return x + 0.02 * torch.randn(x.shape, generator=stream)


def dropped(x: Tensor, stream: torch.Generator) -> Tensor:
    """For rows of a table: noise, and one number in ten set to 0."""
    return jitter(x, stream) * (torch.rand(x.shape, generator=stream) > 0.1)
