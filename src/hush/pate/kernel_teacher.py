"""A teacher for few rows: ridge regression on the classes with a Gaussian kernel, solved at once."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray

from hush import _check

Floats = NDArray[numpy.float32]


class KernelTeacher:
    """Fit and predict as in scikit-learn; made for features of length about 1, such as `strokes`.

    Args:
        num_classes: How many classes there are; a shard need not hold all of them.
        sharpness: The kernel is exp(-sharpness * squared distance).
        ridge: What is added to the kernel's diagonal.
    """

    def __init__(self, num_classes: int, *, sharpness: float = 2.0, ridge: float = 0.01) -> None:
        self.num_classes = _check.whole("num_classes", num_classes, least=2)
        self.sharpness = _check.positive("sharpness", sharpness)
        self.ridge = _check.positive("ridge", ridge)

    def fit(self, X: ArrayLike, y: ArrayLike) -> KernelTeacher:
        """Learn from rows and their classes."""
        from scipy import linalg

        self._rows = numpy.asarray(X, dtype=numpy.float32)
        targets = 2 * numpy.eye(self.num_classes, dtype=numpy.float32)[numpy.asarray(y)] - 1
        kernel = self._kernel(self._rows)
        kernel[numpy.diag_indices_from(kernel)] += self.ridge
        self._weights: Any = linalg.solve(kernel, targets, assume_a="pos")
        return self

    def predict(self, X: ArrayLike) -> NDArray[numpy.int64]:
        """The class of the largest score."""
        rows = numpy.asarray(X, dtype=numpy.float32)
        scores = self._kernel(rows) @ self._weights
        classes: NDArray[numpy.int64] = scores.argmax(axis=1).astype(numpy.int64)
        return classes

    def _kernel(self, rows: Floats) -> Floats:
        own = (self._rows * self._rows).sum(axis=1)
        distances = (rows * rows).sum(axis=1)[:, None] + own - 2 * (rows @ self._rows.T)
        kernel: Floats = numpy.exp(-self.sharpness * numpy.maximum(distances, 0))
        return kernel
