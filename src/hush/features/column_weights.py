"""Sparse rows whose columns count less the more often they occur: a private inverse document frequency.

Words that are in every text tell little and take most of a row's length. One sum is released with Gaussian noise: that
of s(x), where s is the square of a row of length 1, entry by entry, shortened to 1/10. Columns are then divided by the
root of their sum. Sums that the noise hides count as its spread, which treats all rare columns alike.
"""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_array, check_is_fitted

from hush.features.private_transformer import Account, PrivateTransformer, as_in_fit

_MOST = 0.1  # the length of a row of squares: of a text of a hundred different words or more
_SEEN = 1.0  # spreads of the noise that a sum must reach to be told from 0


class PrivateColumnWeights(PrivateTransformer):
    """Weigh the columns of sparse rows, as of `HashedNGrams`, by noisy sums; rows that come out have length 1.

    >>> rows = csr_array(numpy.tile([[3.0, 1.0, 0.0], [3.0, 0.0, 1.0]], (5_000, 1)))
    >>> weights = PrivateColumnWeights().fit(rows).scale_
    >>> bool(weights[0] < weights[1])
    True

    Args:
        noise_multiplier: Of the sum; it costs 1 / noise_multiplier^2 in mu^2.
        random_state: A seed for tests; never release such a fit. None is fresh entropy.
    """

    def __init__(self, noise_multiplier: float = 40.0, *, random_state: int | None = None) -> None:
        self.noise_multiplier = noise_multiplier
        self.random_state = random_state

    def fit(self, X: Any, y: object = None, account: Account | None = None) -> PrivateColumnWeights:
        """Release the sum; `account` is charged before any noise is drawn."""
        rows = _unit(X)
        rng = self._begin(account)
        squares = rows.multiply(rows).tocsr()
        lengths = numpy.sqrt(numpy.asarray(squares.multiply(squares).sum(axis=1), dtype=numpy.float64)).ravel()
        shortened = diags_array(numpy.minimum(1.0, _MOST / numpy.maximum(lengths, 1e-12))) @ squares
        total = numpy.asarray(shortened.sum(axis=0), dtype=numpy.float64).ravel()
        noisy = self._noisy(total, _MOST, rng)
        self.scale_ = (1 / numpy.sqrt(noisy.clip(min=_SEEN * self.noise_multiplier * _MOST))).astype(numpy.float32)
        self.n_features_in_ = len(self.scale_)
        return self

    def transform(self, X: Any) -> Any:
        """Sparse rows of length 1, as float32. Each depends on itself and on what was released."""
        check_is_fitted(self, "scale_")
        weighed: NDArray[numpy.float32] = (as_in_fit(_unit(X), self.n_features_in_) @ diags_array(self.scale_)).tocsr()
        return normalize(weighed, copy=False)


def _unit(X: Any) -> Any:
    rows = check_array(X, accept_sparse="csr", dtype=numpy.float32)
    return normalize(csr_array(rows))
