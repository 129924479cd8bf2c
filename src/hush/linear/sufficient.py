"""Linear regression from noisy sufficient statistics: X'X and X'y in one Gaussian release.

One row adds x x' and x y. Stacked with the right weights they are one vector, so one noise serves both. An entry of
x x' off the diagonal occurs twice; in the isometric form sqrt(2) x_i x_j the length of x x' is |x|^2 exactly, and the
noise there is smaller by sqrt(2) than independent noise on the upper triangle would be.

[wang18] regularises by a separate release of the smallest eigenvalue. Here the noisy matrix's own eigenvalues decide,
direction by direction: where one is below half of the noise's spectral norm it is raised to that. That is
post-processing and costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from hush import events, mechanisms
from hush.errors import InvalidValue
from hush.privacy import Budget, Relation
from hush.rng import Rng

Floats = NDArray[numpy.float64]
_TARGET_WEIGHT = 0.5  # of x y against x x', over the length of a row
_FLOOR = 0.5  # of the noise's spectral norm
_MARGIN = 1e-6  # added to the sensitivity: more than rounding adds to a sum of millions of rows
_SAFE = 1 - 1e-9


@dataclass(frozen=True)
class SufficientPlan:
    """The noise for one budget. Rows have length at most `row_norm`, targets lie in [-1, 1]."""

    row_norm: float
    noise_multiplier: float
    relation: Relation
    event: events.Event

    @classmethod
    def for_budget(cls, budget: Budget, row_norm: float, relation: Relation) -> SufficientPlan:
        """The plan."""
        if budget.delta == 0:
            raise InvalidValue("method 'adassp' needs a delta above 0, such as 1e-6; or use method 'output'.")
        noise = mechanisms.gaussian_noise_for(budget.epsilon * _SAFE, budget.delta * _SAFE, 1.0)
        event: events.Event = events.Gaussian(noise)
        if relation == "replace_one":  # the sensitivity below is that of a replacement already
            event = events.GaussianDP(math.nextafter(1 / noise, math.inf))
        return cls(row_norm, noise, relation, event)

    @property
    def weight(self) -> float:
        """The factor before y, so that x x' and x y get their shares of the noise."""
        return _TARGET_WEIGHT * self.row_norm

    @property
    def sensitivity(self) -> float:
        """How far one row moves the stacked vector (x x', sqrt(2) weight x y).

        More or fewer: sqrt(|x|^4 + 2 weight^2 |x|^2). Replaced: with u = (x, weight y), the stacked vector is u u'
        without its last entry, and |u u' - v v'|^2 = |u|^4 + |v|^4 - 2 (u.v)^2 is at most 2 (|x|^2 + weight^2)^2.
        """
        square, weight = self.row_norm**2, self.weight**2
        if self.relation == "replace_one":
            return math.sqrt(2) * (square + weight) * (1 + _MARGIN)
        return math.sqrt(square**2 + 2 * weight * square) * (1 + _MARGIN)


def fit(rows: Floats, targets: Floats, plan: SufficientPlan, rng: Rng) -> Floats:
    """The released weights."""
    matrix, vector = rows.T @ rows, rows.T @ targets
    size = len(vector)
    above = numpy.triu_indices(size, 1)
    stacked = numpy.concatenate([numpy.diag(matrix), math.sqrt(2) * matrix[above], math.sqrt(2) * plan.weight * vector])
    noisy = numpy.asarray(
        mechanisms.gaussian(stacked, sensitivity=plan.sensitivity, noise_multiplier=plan.noise_multiplier, rng=rng)
    )
    diagonal, upper, last = numpy.split(noisy, [size, len(noisy) - size])
    matrix = numpy.diag(diagonal)
    matrix[above] = upper / math.sqrt(2)
    matrix.T[above] = matrix[above]
    return _solve(matrix, last / (math.sqrt(2) * plan.weight), plan.sensitivity * plan.noise_multiplier)


def _solve(matrix: Floats, vector: Floats, stddev: float) -> Floats:
    """The solution with small eigenvalues raised: the spectral norm of the noise is about stddev sqrt(2 size)."""
    values, vectors = numpy.linalg.eigh(matrix)
    floor = _FLOOR * stddev * math.sqrt(2 * len(vector))
    return numpy.asarray(vectors @ ((vectors.T @ vector) / numpy.maximum(values, floor)))
