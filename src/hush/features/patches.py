"""Pictures by their whitened patches: one layer of fixed filters, a rectifier, and means over cells.

Patches of photographs and of handwriting are mostly alike: slow changes of light. Whitening takes that off, after which
the answers of a few hundred filters, rectified and averaged over parts of the picture, tell classes apart with a linear
model almost as well as a trained network does [coates11, thiry21]. There the filters are patches of
the training pictures. Here they are patches of pictures of nothing (`dead_leaves`), so that one small matrix is all
that is learned from private pictures: the second moments of patches. A picture adds the mean of p p^T over its patches
p, whose lengths are at most 1: a matrix of Frobenius norm at most 1.

Answers of different filters are much alike too, and are mixed at no cost (`evened`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn import functional

from hush import _check
from hush.errors import InvalidValue
from hush.features.dead_leaves import dead_leaves
from hush.features.evened import mixing
from hush.features.private_transformer import Account, PrivateTransformer

_CONTRAST = 0.3  # added to the length of a patch: patches that are nearly flat stay short
_RIDGE = 0.05  # of the mean eigenvalue, added to all of them before whitening
_LIVELY = 0.4  # the shortest patch that becomes a filter
_SPACING = 3  # of the patches, down and across, whose second moments are summed
_PICTURES = 500  # of nothing, whose patches become filters
_FLAT = 1e-4  # whitened patches shorter than this are not lengthened to 1
_FITTED_AT_ONCE, _PLACES_AT_ONCE, _FILTERS_AT_ONCE = 500, 1_500, 256


class WhitenedPatches(PrivateTransformer):
    """Pictures (rows, channels, height, width) -> rows of features, for a linear model after `PrivateScaler`.

    Args:
        num_filters: How many filters; each gives two answers (of either sign) in each cell.
        patch_size: Pixels a side of a patch.
        cells: Cells a side that the answers are averaged over.
        num_directions: How many directions of the answers are kept for each cell. None: all, two for each filter (one
            if `mirror`).
        threshold: Answers of less than this count as 0.
        mirror: Whether a picture and its mirror image are the same thing, as in photographs and not in digits. Then
            half of the filters are mirror images of the others, and a picture's features are those of both.
        noise_multiplier: Of the released matrix; it costs 1 / noise_multiplier^2 in mu^2.
        dictionary_seed: A public number that the filters are made from.
        random_state: A seed for tests; never release such a fit. None is fresh entropy.
    """

    def __init__(
        self,
        num_filters: int = 1024,
        *,
        patch_size: int = 6,
        cells: int = 3,
        num_directions: int | None = None,
        threshold: float = 0.2,
        mirror: bool = True,
        noise_multiplier: float = 30.0,
        dictionary_seed: int = 0,
        random_state: int | None = None,
    ) -> None:
        self.num_filters = num_filters
        self.patch_size = patch_size
        self.cells = cells
        self.num_directions = num_directions
        self.threshold = threshold
        self.mirror = mirror
        self.noise_multiplier = noise_multiplier
        self.dictionary_seed = dictionary_seed
        self.random_state = random_state

    def fit(self, X: Any, y: object = None, account: Account | None = None) -> WhitenedPatches:
        """Release the second moments of patches; `account` is charged before any noise is drawn."""
        pictures = self._checked(X)
        rng = self._begin(account)
        channels = pictures.shape[1]
        width = channels * self.patch_size**2
        moments = self._noisy_moments(self._second_moments(pictures), rng)
        if self.mirror:  # the moments of mirror images too: whitening then treats both sides alike
            turned = numpy.arange(width).reshape(channels, self.patch_size, self.patch_size)[..., ::-1].ravel()
            moments = (moments + moments[numpy.ix_(turned, turned)]) / 2
        self.whitening_ = _whitening(torch.from_numpy(moments))
        self.filters_ = self._filters(channels)
        self.picture_shape_ = tuple(int(size) for size in pictures.shape[1:])
        self.mixing_ = mixing(self._all, self.picture_shape_, seed=self.dictionary_seed + 1, kept=self.num_directions)
        return self

    @torch.no_grad()
    def _second_moments(self, pictures: Tensor) -> NDArray[numpy.float64]:
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
        for part in self._all(pictures):
            torch.matmul(self.mixing_.T, part, out=result[start : start + len(part)])
            start += len(part)
        return result.flatten(1).numpy()

    def _all(self, pictures: Tensor) -> Iterator[Tensor]:
        """Answers (rows, two signs of all filters, cells x cells) of a few pictures after another."""
        side = [int(size) - self.patch_size + 1 for size in pictures.shape[2:]]
        places = side[0] * side[1]
        every = torch.eye(places).reshape(-1, 1, *side)
        pool = functional.adaptive_avg_pool2d(every, self.cells).flatten(1).T.contiguous()  # (cells x cells, places)
        for part in pictures.split(max(1, _PLACES_AT_ONCE // places)):
            yield self._answers(part, pool)

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
        """Whitened patches of length 1: (rows, places, width). Their contrast does not matter then; flat ones are 0."""
        centred = self.whitening_ - self.whitening_.mean(dim=0)  # takes the mean of a patch off
        white = centred.T @ functional.unfold(pictures, self.patch_size)
        white = white / white.square().sum(dim=1, keepdim=True).sqrt_().clamp_(min=_FLAT)
        return white.transpose(1, 2).contiguous()

    def _checked(self, X: Any) -> Tensor:
        for name in ("num_filters", "patch_size", "cells"):
            _check.whole(name, getattr(self, name), least=2 if name == "num_filters" else 1)
        if self.num_directions is not None:
            _check.whole("num_directions", self.num_directions)
        _check.nonnegative("threshold", self.threshold)
        pictures = torch.as_tensor(X, dtype=torch.float32)
        if pictures.ndim != 4 or not len(pictures) or min(pictures.shape[2:]) < self.patch_size + self.cells - 1:
            raise InvalidValue(
                f"X must hold pictures (rows, channels, height, width) of at least {self.patch_size + self.cells - 1} "
                f"pixels a side; got shape {tuple(pictures.shape)}."
            )
        if not pictures.sum(dtype=torch.float64).isfinite():
            raise InvalidValue("X must hold finite numbers only; it has a NaN or an infinity. Leave that picture out.")
        return pictures


def _whitening(moments: Tensor) -> Tensor:
    """The inverse root of the second moments, their eigenvalues raised by a ridge. A common factor does not matter."""
    values, vectors = torch.linalg.eigh(moments)
    values = values.clamp(min=0)
    roots = (values + _RIDGE * values.mean().clamp(min=1e-12)).rsqrt()
    return ((vectors * roots) @ vectors.T).to(torch.float32)
