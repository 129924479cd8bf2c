"""Rows centred and scaled by noisy means and spreads, then brought to length 1.

A linear model on rows of length 1 has the same noise whatever the number of columns, so that what matters is how the
length is spent: on what rows have in common (the mean), on columns that vary much, or evenly. One sum or two are
released, each with Gaussian noise:

    sum of (x, 1/10) over rows x of length 1: the mean and, by its last entry, the number of rows;
    sum of s(x), where s is the square of the centred row, entry by entry, shortened to 2 / sqrt(columns).

The spread needs no number of rows: bringing rows to length 1 takes every common factor off.
"""

from __future__ import annotations

import math
from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from hush import _check
from hush.features.private_transformer import Account, PrivateTransformer, checked_rows, lengths_of, unit_rows
from hush.rng import Rng

Floats = NDArray[numpy.float64]
Rows = NDArray[numpy.float32]
_COUNTED = 0.1  # the entry of each row that counts it
_SQUARE = 2.0  # over the root of the number of columns: where the row of squares is shortened
_AT_ONCE = 2_048


class PrivateScaler(PrivateTransformer):
    """Centre and scale the columns by noisy sums; every row that comes out has length 1.

    >>> rows = numpy.random.default_rng(0).normal(3, [1, 5, 9], size=(20_000, 3))
    >>> scaler = PrivateScaler(noise_multiplier=10.0).fit(rows)
    >>> numpy.linalg.norm(scaler.transform(rows[:2]), axis=1).round(4).tolist(), scaler.event_.times
    ([1.0, 1.0], 2)

    Args:
        noise_multiplier: Of each sum. They cost 2 / noise_multiplier^2 in mu^2, or half of that without the second.
        with_std: Whether columns are scaled too. Leave it off where columns come evened out, as those of
            `WhitenedPatches`: a column that hardly varies is then not made louder.
        floor: Spreads below this share of their mean are raised to it.
        random_state: A seed for tests; never release such a fit. None is fresh entropy.
    """

    def __init__(
        self,
        noise_multiplier: float = 20.0,
        *,
        with_std: bool = True,
        floor: float = 0.05,
        random_state: int | None = None,
    ) -> None:
        self.noise_multiplier = noise_multiplier
        self.with_std = with_std
        self.floor = floor
        self.random_state = random_state

    @property
    def releases(self) -> int:
        """Two sums, or one if columns are not scaled."""
        return 2 if self.with_std else 1

    def fit(self, X: ArrayLike, y: object = None, account: Account | None = None) -> PrivateScaler:
        """Release the two sums; `account` is charged before any noise is drawn."""
        rows, floor = checked_rows(X), _check.positive("floor", self.floor)
        rng = self._begin(account)
        columns = rows.shape[1]
        first = numpy.zeros(columns + 1)
        for part in _parts(rows):
            first[:-1] += unit_rows(part).sum(axis=0, dtype=numpy.float64)
        first[-1] = _COUNTED * len(rows)
        first = self._noisy(first, math.hypot(1.0, _COUNTED), rng)
        self.num_rows_ = max(1.0, float(first[-1]) / _COUNTED)
        self.mean_ = (first[:-1] / self.num_rows_).astype(numpy.float32)
        self.scale_ = self._scale(rows, floor, rng) if self.with_std else numpy.ones(columns, dtype=numpy.float32)
        self.n_features_in_ = columns
        return self

    def _scale(self, rows: Rows, floor: float, rng: Rng) -> Rows:
        columns = rows.shape[1]
        most, second = _SQUARE / math.sqrt(columns), numpy.zeros(columns)
        for part in _parts(rows):
            second += _shortened(numpy.square(unit_rows(part) - self.mean_), most).sum(axis=0, dtype=numpy.float64)
        spread = self._noisy(second, most, rng).clip(min=0.0) / self.num_rows_
        least = max(floor * float(spread.mean()), 1e-12)
        return numpy.asarray(1 / numpy.sqrt(spread.clip(min=least)), dtype=numpy.float32)

    def transform(self, X: ArrayLike) -> Rows:
        """Rows of length 1, as float32. Each depends on itself and on what was released."""
        check_is_fitted(self, "scale_")
        rows = checked_rows(X, self.n_features_in_)
        result = numpy.empty_like(rows)
        for start in range(0, len(rows), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            result[part] = unit_rows((unit_rows(rows[part]) - self.mean_) * self.scale_)
        return result


def _parts(rows: Rows) -> Any:
    return (rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE))


def _shortened(rows: Rows, most: float) -> Rows:
    return numpy.asarray(rows * numpy.minimum(1.0, most / numpy.maximum(lengths_of(rows), 1e-12)), dtype=numpy.float32)
