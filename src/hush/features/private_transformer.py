"""What transformers share that read something from private rows: the charge before the release, the randomness."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from hush import _check, events, mechanisms
from hush.errors import InvalidValue
from hush.rng import Rng

_MARGIN = 1e-6  # added to a row's contribution: more than float32 can add to the length of one row


class Account(Protocol):
    """What a release is charged to: an account of `hush.ledger`, or anything else with this method."""

    def charge(self, event: events.Event, /) -> object:
        """Take the event down, or raise: then nothing is released."""


class PrivateTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the transformers whose `fit` releases sums over rows with Gaussian noise.

    Attributes:
        event_: What was done to the rows: give it to the model that learns from the features as `spent`.
        randomness_: Where the noise came from.
    """

    noise_multiplier: float
    random_state: int | None
    event_: events.Event
    randomness_: str

    @property
    def releases(self) -> int:
        """How many noisy sums `fit` releases."""
        return 1

    def event(self) -> events.Event:
        """What `fit` will cost, by the settings alone."""
        one = events.Gaussian(_check.positive("noise_multiplier", self.noise_multiplier))
        return one if self.releases == 1 else events.Repeated(one, self.releases)

    def _begin(self, account: Account | None) -> Rng:
        """Charge for the releases and hand out the randomness: no noise is drawn before."""
        event, seed = self.event(), self.random_state
        rng = Rng.from_entropy() if seed is None else Rng.from_seed(_check.whole("random_state", seed, least=0))
        if account is not None:
            account.charge(event)
        self.event_, self.randomness_ = event, rng.label
        return rng

    def _noisy(self, total: NDArray[numpy.float64], contribution: float, rng: Rng) -> NDArray[numpy.float64]:
        """The sum with noise, where one row adds a vector of at most this length."""
        if not numpy.isfinite(total).all():
            raise InvalidValue("X must hold finite numbers only; the sum over its rows does not. Nothing was released.")
        length = contribution * (1 + _MARGIN)
        return numpy.asarray(
            mechanisms.gaussian(total, sensitivity=length, noise_multiplier=self.noise_multiplier, rng=rng)
        )

    def _noisy_moments(self, total: NDArray[numpy.float64], rng: Rng) -> NDArray[numpy.float64]:
        """A symmetric matrix with noise, where one row adds one of Frobenius norm at most 1.

        Its entries on the diagonal and, times sqrt 2, above it are a vector of the same length.
        """
        upper = numpy.triu_indices(len(total))
        weights = numpy.where(upper[0] == upper[1], 1.0, math.sqrt(2))
        result = numpy.zeros_like(total)
        result[upper] = result[upper[::-1]] = self._noisy(total[upper] * weights, 1.0, rng) / weights
        return result


def checked_rows(X: Any, columns: int | None = None) -> NDArray[numpy.float32]:
    """A table of numbers as float32 rows, with as many columns as in `fit` where that is given."""
    rows = numpy.asarray(X, dtype=numpy.float32)
    if rows.ndim != 2 or not rows.size:
        raise InvalidValue(f"X must be a table (rows, columns) with at least one row; got shape {rows.shape}.")
    if not numpy.isfinite(rows.sum(dtype=numpy.float64)):
        raise InvalidValue("X must hold finite numbers only; it has a NaN or an infinity. Replace it, or drop the row.")
    return as_in_fit(rows, columns)


def as_in_fit(rows: Any, columns: int | None) -> Any:
    """The rows, if they have this many columns."""
    if columns not in (None, rows.shape[1]):
        raise InvalidValue(f"X must have {columns} columns, as in fit; got {rows.shape[1]}.")
    return rows


def unit_rows(rows: NDArray[numpy.float32]) -> NDArray[numpy.float32]:
    """The rows brought to length 1; zeros stay."""
    return numpy.asarray(rows / numpy.maximum(lengths_of(rows), 1e-12), dtype=numpy.float32)


def lengths_of(rows: NDArray[numpy.float32]) -> NDArray[numpy.float64]:
    """The rows' lengths (rows, 1). Squares are summed in float64: thousands of them in float32 come out too short."""
    return numpy.asarray(numpy.sqrt(numpy.einsum("ij,ij->i", rows, rows, dtype=numpy.float64))[:, None])
