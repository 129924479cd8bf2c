"""Pictures by their patches: one layer of fixed filters, a rectifier, and means under hills.

Patches of photographs and of handwriting are mostly alike: slow changes of light. Whitening takes that off, after which
the answers of a few hundred filters, rectified and averaged over parts of the picture, tell classes apart with a linear
model almost as well as a trained network does [coates11, thiry21]. There the filters and the whitening come from the
training pictures. Here both come from pictures of nothing (`dead_leaves`), so that nothing is read from anybody's; in
`whitened_patches` the whitening is learned from private pictures.

Answers of different filters are much alike too, and are mixed at no cost (`evened`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn import functional

from hush import _check
from hush.errors import InvalidValue
from hush.features.dead_leaves import dead_leaves
from hush.features.evened import mixing
from hush.features.pictures import checked

_CONTRAST = 0.3  # added to the length of a patch: patches that are nearly flat stay short
_LIVELY = 0.4  # the shortest patch that becomes a filter
_SPACING = 3  # of the patches, down and across, whose second moments are summed
_PICTURES = 500  # of nothing, whose patches become filters
_MOMENTS = 1_000  # of nothing, whose patches' second moments whiten
_FLAT = 1e-4  # whitened patches shorter than this are not lengthened to 1
_FITTED_AT_ONCE, _MIXED_AT_ONCE, _PLACES_AT_ONCE, _FILTERS_AT_ONCE = 500, 64, 6_000, 256


class Patches(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Pictures (rows, channels, height, width) -> rows of features, for a linear model after `PrivateScaler`.

    Each picture is looked at alone, so that nothing is spent: there is no event.

    >>> Patches(8, patch_size=3, cells=2).fit_transform(torch.rand(2, 1, 12, 12)).shape
    (2, 32)

    Args:
        num_filters: How many filters; each gives two answers (of either sign) in each cell.
        patch_size: Pixels a side of a patch.
        cells: Cells a side that the answers are averaged over, under a hill around each cell's middle.
        overlap: How wide a hill is: its standard deviation over the side of a cell.
        num_directions: How many directions of the answers are kept for each cell. None: all, two for each filter (one
            if `mirror`).
        threshold: Answers of less than this count as 0.
        contrast: Patches of this length (less their mean) count half, and flatter ones less. 0: all count alike.
        ridge: Of the mean eigenvalue of the patches' second moments, added to all of them before whitening. Large ones
            leave patches as they are.
        mirror: Whether a picture and its mirror image are the same thing, as in photographs and not in digits. Then
            half of the filters are mirror images of the others, and a picture's features are those of both.
        dictionary_seed: A public number that the filters are made from.
    """

    def __init__(
        self,
        num_filters: int = 1024,
        *,
        patch_size: int = 6,
        cells: int = 3,
        overlap: float = 0.5,
        num_directions: int | None = None,
        threshold: float = 0.2,
        contrast: float = 0.0,
        ridge: float = 0.5,
        mirror: bool = True,
        dictionary_seed: int = 0,
    ) -> None:
        self.num_filters = num_filters
        self.patch_size = patch_size
        self.cells = cells
        self.overlap = overlap
        self.num_directions = num_directions
        self.threshold = threshold
        self.contrast = contrast
        self.ridge = ridge
        self.mirror = mirror
        self.dictionary_seed = dictionary_seed

    def fit(self, X: Any, y: object = None) -> Patches:
        """Nothing is learned from X but its shape: pictures of nothing of that shape are looked at."""
        shape = tuple(int(size) for size in self._checked(X).shape[1:])
        nothing = dead_leaves(_MOMENTS, max(shape[1:]), shape[0], self.dictionary_seed + 1)
        self._prepare(self._second_moments(nothing), shape)
        return self

    def _prepare(self, moments: NDArray[numpy.float64], shape: tuple[int, ...]) -> None:
        """Whitening by these second moments, filters, and how answers are mixed."""
        channels, width = shape[0], len(moments)
        if self.mirror:  # the moments of mirror images too: whitening then treats both sides alike
            turned = numpy.arange(width).reshape(channels, self.patch_size, self.patch_size)[..., ::-1].ravel()
            moments = (moments + moments[numpy.ix_(turned, turned)]) / 2
        self.whitening_ = _whitening(torch.from_numpy(moments), self.ridge)
        self.filters_ = self._filters(channels)
        self.picture_shape_ = shape
        self.mixing_ = mixing(self._all, shape, seed=self.dictionary_seed + 1, kept=self.num_directions)

    @torch.no_grad()
    def _second_moments(self, pictures: Tensor) -> NDArray[numpy.float64]:
        """The sum over pictures of the mean of p p^T over their patches p: of each, of Frobenius norm at most 1."""
        total: Any = 0.0
        for part in pictures.split(_FITTED_AT_ONCE):
            patches = self._patches(part, _SPACING)  # (rows, width, places)
            flat = patches.transpose(1, 2).flatten(0, 1)
            total = total + (flat.T @ flat).to(torch.float64).numpy() / patches.shape[2]
        return numpy.asarray(total)

    def _patches(self, pictures: Tensor, spacing: int = 1) -> Tensor:
        """Patches without their mean, divided by their length and a little more: shorter than 1."""
        patches = functional.unfold(pictures, self.patch_size, stride=spacing)
        patches = patches - patches.mean(dim=1, keepdim=True)
        return patches / (torch.linalg.vector_norm(patches, dim=1, keepdim=True) + _CONTRAST)

    @torch.no_grad()
    def _filters(self, channels: int) -> Tensor:
        """Whitened patches of pictures of nothing, of length 1; the second half are mirror images of the first."""
        wanted = self.num_filters // 2 if self.mirror else self.num_filters
        size = max(16, self.patch_size + 8)
        found = (
            self._patches(dead_leaves(_PICTURES, size, channels, self.dictionary_seed)).transpose(1, 2).flatten(0, 1)
        )
        found = found[torch.linalg.vector_norm(found, dim=1) > _LIVELY]
        stream = torch.Generator().manual_seed(self.dictionary_seed)
        filters = functional.normalize(found[torch.randperm(len(found), generator=stream)[:wanted]] @ self.whitening_)
        if not self.mirror:
            return filters
        square = filters.reshape(len(filters), channels, self.patch_size, self.patch_size)
        return torch.cat([filters, square.flip(-1).flatten(1)])

    @torch.no_grad()
    def transform(self, X: Any) -> NDArray[numpy.float32]:
        """Mixed roots of the mean answers: (rows, directions x cells x cells)."""
        check_is_fitted(self, "mixing_")
        pictures = self._checked(X)
        if tuple(pictures.shape[1:]) != self.picture_shape_:
            raise InvalidValue(
                f"X must hold pictures of shape {self.picture_shape_}, as in fit; got {tuple(pictures.shape[1:])}."
            )
        result, start = torch.empty(len(pictures), self.mixing_.shape[1], self.cells**2), 0
        for many in pictures.split(_MIXED_AT_ONCE):  # one product for many pictures is twenty times quicker
            answers = torch.cat(list(self._all(many))).transpose(1, 2)  # (rows, cells x cells, answers)
            result[start : start + len(many)] = (
                (answers.flatten(0, 1) @ self.mixing_).reshape(len(many), -1, self.mixing_.shape[1]).transpose(1, 2)
            )
            start += len(many)
        return result.flatten(1).numpy()

    def _all(self, pictures: Tensor) -> Iterator[Tensor]:
        """Answers (rows, two signs of all filters, cells x cells) of a few pictures after another."""
        down, across = (self._hills(int(size) - self.patch_size + 1) for size in pictures.shape[2:])
        pool = torch.einsum("ai,bj->abij", down, across).flatten(0, 1).flatten(1).contiguous()  # (cells^2, places)
        for part in pictures.split(max(1, _PLACES_AT_ONCE // pool.shape[1])):
            yield self._answers(part, pool)

    def _hills(self, places: int) -> Tensor:
        """Weights (cells, places) that average under a hill around each of the cells along one side."""
        side = places / self.cells
        middles = (torch.arange(self.cells) + 0.5) * side - 0.5
        away = (torch.arange(places) - middles[:, None]) / (self.overlap * side)
        return torch.softmax(-away.square() / 2, dim=1)

    def _answers(self, pictures: Tensor, pool: Tensor) -> Tensor:
        """Cosines of whitened patches and filters, both signs rectified, averaged over cells; then the root."""
        white = self._white(pictures)
        parts = []
        for some in self.filters_.split(_FILTERS_AT_ONCE):  # few pictures and filters at once: they stay in the cache
            answers = white @ some.T  # (rows, places, filters)
            above = pool @ (answers - self.threshold).clamp_(min=0)
            below = pool @ answers.add_(self.threshold).clamp_(max=0)
            parts.append(torch.stack([above, -below], dim=1))
        means = torch.cat(parts, dim=3).transpose(2, 3)  # (rows, signs, filters, cells x cells)
        means = means.unflatten(3, (self.cells, self.cells))
        if self.mirror:
            first, second = means.chunk(2, dim=2)
            means = (first + second.flip(-1)) / 2
        return means.flatten(3).flatten(1, 2).sqrt_()

    def _white(self, pictures: Tensor) -> Tensor:
        """Whitened patches (rows, places, width), of length 1 or less by their contrast; flat ones are 0."""
        patches = functional.unfold(pictures, self.patch_size)
        centred = self.whitening_ - self.whitening_.mean(dim=0)  # takes the mean of a patch off
        white = centred.T @ patches
        scale = torch.linalg.vector_norm(white, dim=1, keepdim=True).clamp_(min=_FLAT).reciprocal_()
        if self.contrast:
            mean = patches.mean(dim=1, keepdim=True)
            lengths = torch.linalg.vector_norm(patches - mean, dim=1, keepdim=True)
            scale *= lengths / (lengths + self.contrast)
        return white.mul_(scale).transpose(1, 2).contiguous()

    def _checked(self, X: Any) -> Tensor:
        for name in ("num_filters", "patch_size", "cells"):
            _check.whole(name, getattr(self, name), least=2 if name == "num_filters" else 1)
        if self.num_directions is not None:
            _check.whole("num_directions", self.num_directions)
        for name in ("overlap", "ridge"):
            _check.positive(name, getattr(self, name))
        for name in ("threshold", "contrast"):
            _check.nonnegative(name, getattr(self, name))
        return checked(X, self.patch_size + self.cells - 1)


def _whitening(moments: Tensor, ridge: float) -> Tensor:
    """The inverse root of the second moments, their eigenvalues raised by a ridge. A common factor does not matter."""
    values, vectors = torch.linalg.eigh(moments)
    values = values.clamp(min=0)
    values = values / values.mean().clamp(min=1e-12)
    return ((vectors * (values + ridge).rsqrt()) @ vectors.T).to(torch.float32)
