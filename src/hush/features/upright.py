"""Pictures of one bright shape on a dark ground, each moved to the middle, made upright and brought near one size.

Where a written digit stands, how far it leans and how large it is says little of which digit it is, and a model that
need not learn that asks for less of the private rows. The light of a picture has a mean place, and second moments
around it. The picture is sheared along its rows until the mixed moment is zero [lecun98], and its height and width are
brought some of the way to a given size.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from torch import Tensor
from torch.nn import functional

from hush import _check
from hush.features.pictures import checked

_AT_ONCE = 1_000  # pictures
_LEAST = 1e-4  # of a second moment; smaller shapes count as this large
_MOST_SHEAR = 1.0  # half a side for each half side down
_LEAST_SCALE, _MOST_SCALE = 0.6, 1.5


class Upright(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Pictures (rows, channels, height, width) -> such pictures, upright; to be followed by `Patches` or `Scattering`.

    Each picture is looked at alone, so that nothing is spent: there is no event. Negative values count as dark; an
    empty picture stays empty.

    >>> Upright().transform(torch.rand(2, 1, 12, 12)).shape
    (2, 1, 12, 12)

    Args:
        height: The standard deviation of a shape's light down the picture, in half sides, towards which it is scaled.
        width: The same across.
        height_share: How far: 0 leaves a shape as tall as it is, 1 makes all of the same height.
        width_share: The same for widths; not 1 where some shapes are narrow by nature, as the digit 1 is.
    """

    def __init__(
        self, height: float = 0.42, width: float = 0.3, *, height_share: float = 0.7, width_share: float = 0.4
    ) -> None:
        self.height = height
        self.width = width
        self.height_share = height_share
        self.width_share = width_share

    def fit(self, X: Any, y: object = None) -> Upright:
        """Nothing is learned from X."""
        self._checked(X)
        return self

    @torch.no_grad()
    def transform(self, X: Any) -> NDArray[numpy.float32]:
        """The pictures, upright."""
        pictures = self._checked(X)
        result = torch.empty(pictures.shape)
        for part, place in zip(pictures.split(_AT_ONCE), result.split(_AT_ONCE), strict=True):
            grid = functional.affine_grid(self._maps(part), list(part.shape), align_corners=True)
            place.copy_(functional.grid_sample(part, grid, align_corners=True))
        return result.numpy()

    def _maps(self, pictures: Tensor) -> Tensor:
        """For each picture the affine map (2, 3) from places of the new one, across and down, to places of the old."""
        light = pictures.clamp(min=0).mean(1)
        light = light / light.sum((1, 2), keepdim=True).clamp(min=torch.finfo(light.dtype).tiny)
        down, across = (torch.linspace(-1, 1, size) for size in light.shape[1:])
        middle_down, middle_across = light.sum(2) @ down, light.sum(1) @ across
        off_down, off_across = down - middle_down[:, None], across - middle_across[:, None]
        tall, wide = (light.sum(2) * off_down**2).sum(1), (light.sum(1) * off_across**2).sum(1)
        mixed = torch.einsum("rij,ri,rj->r", light, off_down, off_across)
        lean = mixed / tall.clamp(min=_LEAST)
        shear = lean.clamp(-_MOST_SHEAR, _MOST_SHEAR)
        narrow = wide - lean * mixed  # the width that is left when it stands upright
        scale_down, scale_across = (
            ((moment.clamp(min=_LEAST).sqrt() / size) ** share).clamp(_LEAST_SCALE, _MOST_SCALE)
            for moment, size, share in (
                (tall, self.height, self.height_share), (narrow, self.width, self.width_share),
            )
        )  # fmt: skip
        zero = torch.zeros_like(shear)
        rows = [scale_across, shear * scale_down, middle_across, zero, scale_down, middle_down]
        return torch.stack(rows, dim=1).view(-1, 2, 3)

    def _checked(self, X: Any) -> Tensor:
        for name in ("height", "width"):
            _check.positive(name, getattr(self, name))
        for name in ("height_share", "width_share"):
            _check.nonnegative(name, getattr(self, name))
        return checked(X, 2)
