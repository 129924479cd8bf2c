"""Logistic losses as functions of one flat weight vector, with the constants that privacy rests on.

Rows have length at most `row_norm`. With two classes the weights are one vector and the loss of a row is
log(1 + exp(-t w.x)), t = +-1. With K > 2 classes it is the cross-entropy of a softmax. Adding the same vector to all
classes changes nothing, so the weights live in the K-1 dimensions that are left: logits = contrast @ W @ x, where the
columns of `contrast` are orthonormal and each sums to zero. No noise is spent on the direction that has no meaning.

The constants, for one row (theory/objective-perturbation.md has the proofs):

    classes    length of a gradient    rank of the Hessian    its trace                 its largest eigenvalue
    2          row_norm                1                      row_norm^2 / 4            row_norm^2 / 4
    K          sqrt(2) row_norm        K - 1                  row_norm^2 (K - 1) / K    row_norm^2 / 2
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
from numpy.typing import NDArray

Floats = NDArray[numpy.float64]
BLOCK = 512  # rows that are summed at a time where rounding is bounded
_UNIT = 2.0**-53
_LARGE, _SPARSE = 100_000, 0.25  # entries, and the share of them that may be other than zero


@dataclass(frozen=True)
class Constants:
    """What one row can do, whatever it holds."""

    gradient: float  # the length of its gradient is at most this
    rank: int  # of its Hessian
    trace: float  # of its Hessian, at most
    curvature: float  # the largest eigenvalue of its Hessian, at most

    @classmethod
    def of(cls, num_classes: int, row_norm: float) -> Constants:
        """The constants for rows of at most this length."""
        if num_classes == 2:
            return cls(row_norm, 1, row_norm**2 / 4, row_norm**2 / 4)
        return cls(math.sqrt(2) * row_norm, num_classes - 1, row_norm**2 * (1 - 1 / num_classes), row_norm**2 / 2)


def contrast(num_classes: int) -> Floats:
    """Orthonormal columns that each sum to zero (Helmert's), one fewer than there are classes."""
    result = numpy.zeros((num_classes, num_classes - 1))
    for column in range(num_classes - 1):
        result[: column + 1, column] = 1
        result[column + 1, column] = -(column + 1)
        result[:, column] /= math.sqrt((column + 1) * (column + 2))
    return result


@dataclass(frozen=True)
class Problem:
    """The sum of the rows' losses. `labels` are class numbers 0 .. num_classes - 1."""

    rows: Floats
    labels: NDArray[numpy.int64]
    num_classes: int
    row_norm: float

    @property
    def outputs(self) -> int:
        """Weight vectors: 1 for two classes, else one fewer than the classes."""
        return self.num_classes - 1

    @property
    def dimension(self) -> int:
        """Numbers that are learned."""
        return int(self.outputs * self.rows.shape[1])

    @property
    def constants(self) -> Constants:
        """What one row can do."""
        return Constants.of(self.num_classes, self.row_norm)

    @cached_property
    def _signs(self) -> Floats:
        return numpy.asarray(2.0 * self.labels - 1.0, dtype=numpy.float64)

    @cached_property
    def _contrast(self) -> Floats:
        return contrast(self.num_classes)

    def value(self, weights: Floats) -> float:
        """The sum of the losses."""
        if self.num_classes == 2:
            return float(numpy.logaddexp(0, -self._signs * (self.rows @ weights)).sum())
        logits = self._logits(self.rows, weights)
        top = logits.max(axis=1)
        chosen = logits[numpy.arange(len(logits)), self.labels]
        return float((numpy.log(numpy.exp(logits - top[:, None]).sum(axis=1)) + top - chosen).sum())

    def gradient(self, weights: Floats, clip_norm: float) -> Floats:
        """The sum of the gradients, each clipped to a length, which may be infinite."""
        return self._gradient_of(slice(None), self._compact, weights, clip_norm)

    @cached_property
    def _compact(self) -> Any:
        """The rows without their zeros, where most entries are zero and there are many."""
        if self.rows.size < _LARGE or numpy.count_nonzero(self.rows) > _SPARSE * self.rows.size:
            return self.rows
        from scipy.sparse import csr_array

        return csr_array(self.rows)

    @cached_property
    def _lengths(self) -> Floats:
        return numpy.asarray(numpy.linalg.norm(self.rows, axis=1))

    def careful_gradient(self, weights: Floats) -> tuple[Floats, float]:
        """The sum of the gradients, block by block, and a bound on the length of its error from rounding.

        A sum of k terms in any order is off by at most k units times the sum of their sizes, so blocks and `fsum`
        replace the number of rows by BLOCK. An inner product of d entries is off by d + 2 units times the product of
        the lengths; a loss's slope moves by at most half of that, and by some units of its own.
        """
        starts = range(0, len(self.rows), BLOCK)
        parts = numpy.array([self._block_gradient(slice(start, start + BLOCK), weights) for start in starts])
        parts = parts.reshape(-1, self.dimension)
        total = numpy.array([math.fsum(column) for column in parts.T.tolist()])
        in_logits = (self.rows.shape[1] + 4) * self.row_norm * float(numpy.linalg.norm(weights)) * math.sqrt(2)
        units = BLOCK + 40 + 4 * self.num_classes + in_logits
        error = 2 * units * _UNIT * len(self.rows) * self.constants.gradient * math.sqrt(self.outputs)
        return total, error

    def hessian(self, weights: Floats) -> Floats:
        """The sum of the Hessians."""
        if self.num_classes == 2:
            spread = _logistic(self.rows @ weights)
            return numpy.asarray((self.rows * (spread * (1 - spread))[:, None]).T @ self.rows)
        chances = _softmax(self._logits(self.rows, weights))
        mixed = chances @ self._contrast  # E[contrast rows], one per example
        size = self.rows.shape[1]
        result = numpy.empty((self.dimension, self.dimension))
        for one in range(self.outputs):
            for other in range(one + 1):
                second = chances @ (self._contrast[:, one] * self._contrast[:, other]) - mixed[:, one] * mixed[:, other]
                block = (self.rows * second[:, None]).T @ self.rows
                result[one * size : (one + 1) * size, other * size : (other + 1) * size] = block
                result[other * size : (other + 1) * size, one * size : (one + 1) * size] = block.T
        return result

    def hessian_product(self, weights: Floats, direction: Floats) -> Floats:
        """The sum of the Hessians times a vector, without the matrix."""
        if self.num_classes == 2:
            spread = _logistic(self.rows @ weights)
            return numpy.asarray(((spread * (1 - spread)) * (self.rows @ direction)) @ self.rows)
        chances = _softmax(self._logits(self.rows, weights))
        moved = self._logits(self.rows, direction)
        change = chances * (moved - (chances * moved).sum(axis=1, keepdims=True))
        return numpy.asarray(((change @ self._contrast).T @ self.rows).ravel())

    def _block_gradient(self, part: slice, weights: Floats) -> Floats:
        return self._gradient_of(part, self.rows[part], weights, math.inf)

    def _gradient_of(self, part: slice, rows: Any, weights: Floats, clip_norm: float) -> Floats:
        if self.num_classes == 2:
            signs = self._signs[part]
            slopes = -signs * _logistic(-signs * (rows @ weights))
            return numpy.asarray((slopes * self._clip(part, numpy.abs(slopes), clip_norm)) @ rows)
        chances = _softmax(self._logits(rows, weights))
        chances[numpy.arange(rows.shape[0]), self.labels[part]] -= 1
        chances *= self._clip(part, numpy.linalg.norm(chances, axis=1), clip_norm).reshape(-1, 1)
        return numpy.asarray(((chances @ self._contrast).T @ rows).ravel())

    def _clip(self, part: slice, slopes: Floats, clip_norm: float) -> Floats:
        """What shortens each gradient to the clip norm; 1 where there is none."""
        if clip_norm == math.inf:
            return numpy.ones(1)
        return numpy.asarray(clip_norm / numpy.maximum(slopes * self._lengths[part], clip_norm))

    def _logits(self, rows: Any, weights: Floats) -> Floats:
        return numpy.asarray(rows @ weights.reshape(self.outputs, -1).T @ self._contrast.T)

    def class_weights(self, weights: Floats) -> Floats:
        """One weight vector per class; for two classes one row, that of the second class against the first."""
        table = weights.reshape(self.outputs, -1)
        return table if self.num_classes == 2 else numpy.asarray(self._contrast @ table)


def _logistic(values: Floats) -> Floats:
    from scipy.special import expit

    return numpy.asarray(expit(values))


def _softmax(logits: Floats) -> Floats:
    powers = numpy.exp(logits - logits.max(axis=1, keepdims=True))
    return numpy.asarray(powers / powers.sum(axis=1, keepdims=True))
