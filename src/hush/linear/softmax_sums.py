"""Sums of clipped softmax gradients over rows that may be gigabytes.

The gradient of one row x, (p - y) x^T, is as long as |p - y| |x|, and so it is clipped without ever being formed: a sum
is two matrix products. p - y sums to zero over the classes, and only differences of logits matter: weights and sums are
kept in classes - 1 orthonormal contrasts of the classes, which takes half of the work off for two classes.

Rows of float32 stay float32, in parts of a few thousand rows whose sums are added in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray
from scipy.linalg import helmert
from scipy.sparse import issparse

Floats = NDArray[numpy.float64]
Labels = NDArray[numpy.int64]
_AT_ONCE, _CACHED = 4_096, 512  # rows


@dataclass(frozen=True)
class Part:
    """Some rows with their lengths and labels."""

    rows: Any  # dense, or sparse in the form csr
    lengths: Floats
    labels: Labels


def in_parts(rows: Any, labels: Labels) -> list[Part]:
    """The rows in parts that are worked on at once. Read-only rows are copied: torch takes no others."""
    lengths = lengths_of(rows)
    if isinstance(rows, numpy.ndarray) and not rows.flags.writeable:
        rows = rows.copy()
    places = [slice(start, start + _AT_ONCE) for start in range(0, rows.shape[0], _AT_ONCE)]
    return [Part(rows[place], lengths[place], labels[place]) for place in places]


def lengths_of(rows: Any) -> Floats:
    """The rows' lengths, for clipping. In float32 the sum of thousands of squares would come out too small."""
    if issparse(rows):
        squares = rows.power(2).sum(axis=1, dtype=numpy.float64)
    else:
        squares = numpy.einsum("ij,ij->i", rows, rows, dtype=numpy.float64)
    return numpy.asarray(numpy.sqrt(squares), dtype=numpy.float64).ravel()


def contrasts_of(num_classes: int, dtype: Any) -> NDArray[Any]:
    """An orthonormal basis (classes - 1, classes) of what sums to zero over the classes: Helmert's."""
    return numpy.asarray(helmert(num_classes), dtype=dtype)


def clipped_sums(parts: Sequence[Part], weights: Any, contrasts: Any, clip_norms: Sequence[float]) -> Floats:
    """The sum of the clipped gradients for each run: (runs, contrasts, columns), as the weights are."""
    runs, width, columns = weights.shape
    flat = numpy.ascontiguousarray(weights.reshape(-1, columns).T)
    total = numpy.zeros((runs * width, columns))
    clips = numpy.asarray(clip_norms)
    for part in parts:
        total += (_sparse_sum if issparse(part.rows) else _dense_sum)(part, flat, contrasts, clips)
    return total.reshape(runs, width, columns)


def _sparse_sum(part: Part, flat: Any, contrasts: Any, clips: Floats) -> Any:
    slopes = _slopes(numpy.asarray(part.rows @ flat), part.lengths, part.labels, contrasts, clips)
    return (part.rows.T @ slopes.astype(flat.dtype, copy=False)).T


def _dense_sum(part: Part, flat: Any, contrasts: Any, clips: Floats) -> Any:
    """The same by few rows at once, which stay in the cache: two to four times quicker than numpy's products."""
    import torch

    weights = torch.from_numpy(flat)
    total = torch.zeros(flat.shape[1], flat.shape[0], dtype=weights.dtype)
    for start in range(0, len(part.rows), _CACHED):
        few = slice(start, start + _CACHED)
        block = torch.from_numpy(part.rows[few])
        slopes = _slopes((block @ weights).numpy(), part.lengths[few], part.labels[few], contrasts, clips)
        total.addmm_(torch.from_numpy(slopes.astype(flat.dtype, copy=False)).T, block)
    return total.numpy()


def _slopes(scores: Any, lengths: Floats, labels: Labels, contrasts: Any, clips: Floats) -> Any:
    """p - y of each row and run, in contrasts, shortened so that the gradient is no longer than the clip norm."""
    chances = _softmax(scores.reshape(-1, len(contrasts)) @ contrasts)  # one row for each row and run
    chances[numpy.arange(len(chances)), labels.repeat(len(clips))] -= 1
    slopes = (chances @ contrasts.T).reshape(len(scores), len(clips), -1)
    sizes = numpy.sqrt(numpy.einsum("nrc,nrc->nr", slopes, slopes, dtype=numpy.float64)) * lengths[:, None]
    slopes *= numpy.minimum(1.0, clips / numpy.maximum(sizes, 1e-30))[:, :, None]
    return slopes.reshape(len(scores), -1)


def _softmax(logits: Any) -> Any:
    less = logits - logits.max(axis=1, keepdims=True)
    powers = numpy.exp(numpy.maximum(less, -60.0, out=less))  # smaller ones would be denormal, and slow
    return powers / powers.sum(axis=1, keepdims=True)
