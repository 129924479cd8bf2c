"""The directions in which rows differ most, from one noisy matrix of second moments [Dwork et al. 2014].

A row of length 1 adds x x^T, of Frobenius norm 1. The eigenvectors of the noisy sum are what is kept.
"""

from __future__ import annotations

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from hush import _check
from hush.errors import InvalidValue
from hush.features.private_transformer import Account, PrivateTransformer, checked_rows, unit_rows

_AT_ONCE = 4_096


class PrivatePCA(PrivateTransformer):
    """Rows, brought to length 1, in the directions of the largest second moments.

    >>> rows = numpy.random.default_rng(0).normal(size=(5_000, 6)) * [9, 1, 1, 1, 1, 1]
    >>> PrivatePCA(1, noise_multiplier=5.0).fit(rows).components_.argmax()
    np.int64(0)

    Args:
        num_components: How many directions are kept.
        noise_multiplier: Of the released matrix; it costs 1 / noise_multiplier^2 in mu^2.
        random_state: A seed for tests; never release such a fit. None is fresh entropy.
    """

    def __init__(self, num_components: int, *, noise_multiplier: float, random_state: int | None = None) -> None:
        self.num_components = num_components
        self.noise_multiplier = noise_multiplier
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None, account: Account | None = None) -> PrivatePCA:
        """Release the matrix; `account` is charged before any noise is drawn."""
        rows = checked_rows(X)
        kept = _check.whole("num_components", self.num_components)
        if kept > rows.shape[1]:
            raise InvalidValue(f"num_components must be at most the {rows.shape[1]} columns; got {kept}.")
        rng = self._begin(account)
        total = numpy.zeros((rows.shape[1], rows.shape[1]))
        for start in range(0, len(rows), _AT_ONCE):
            part = unit_rows(rows[start : start + _AT_ONCE]).astype(numpy.float64)
            total += part.T @ part
        vectors = numpy.linalg.eigh(self._noisy_moments(total, rng))[1]
        components = vectors[:, : -kept - 1 : -1].T
        largest = numpy.abs(components).argmax(axis=1)
        components *= numpy.sign(components[numpy.arange(kept), largest])[
            :, None
        ]  # a direction has no sign: choose one
        self.components_ = components.astype(numpy.float32)
        self.n_features_in_ = rows.shape[1]
        return self

    def transform(self, X: ArrayLike) -> NDArray[numpy.float32]:
        """The rows' coordinates; each has length at most 1."""
        check_is_fitted(self, "components_")
        return numpy.asarray(unit_rows(checked_rows(X, self.n_features_in_)) @ self.components_.T)
