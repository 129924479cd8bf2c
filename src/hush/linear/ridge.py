"""Ridge regression with noise on its solution.

The squared error has no bounded gradient, so the weights are held in a ball of public radius: there a row's gradient is
at most row_norm (row_norm radius + 1) long, and the minimiser of sum of errors / 2 + alpha/2 |w|^2 over the ball moves
by at most that over alpha, for a replaced row twice that (theory/output-perturbation.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from hush import accounting, events, mechanisms
from hush.linear.counting import Count, split_epsilon, split_gaussian
from hush.linear.vector_noise import gamma_norm, on_grid
from hush.privacy import Budget, Relation
from hush.rng import Rng

Floats = NDArray[numpy.float64]
_SPREAD = 1.0  # a guess at the mean square of the rows over their bound, on the safe side
_MARGIN = 1e-6  # added to the sensitivity, for rounding in the sums and the solution
_SAFE = 1 - 1e-9


@dataclass(frozen=True)
class RidgePlan:
    """The noise for one budget. Rows have length at most `row_norm`, targets lie in [-1, 1]. Lengths at alpha 1."""

    row_norm: float
    radius: float
    noise_multiplier: float  # of Gaussian noise; 0 for pure privacy
    scale: float  # of the Gamma law at alpha 1; 0 for Gaussian noise
    alpha: float | None
    count: Count | None
    event: events.Event

    @classmethod
    def for_budget(
        cls, budget: Budget, *, row_norm: float, radius: float, alpha: float | None, relation: Relation
    ) -> RidgePlan:
        """The plan; `alpha` None means the one that fits noise and number of rows."""
        counted = alpha is None and relation == "add_remove"
        noise = scale = 0.0
        main: events.Event
        if budget.delta > 0:
            rest = Budget(epsilon=budget.epsilon * _SAFE, delta=budget.delta * _SAFE)
            noise = accounting.noise_for(rest, sampling_prob=1.0, steps=1, relation=relation)
            count, noise = split_gaussian(noise) if counted else (None, noise)
            main = events.Gaussian(noise)
        else:
            count, epsilon = split_epsilon(budget.epsilon * _SAFE) if counted else (None, budget.epsilon * _SAFE)
            moved = _contribution(row_norm, radius) * (2 if relation == "replace_one" else 1)
            scale = moved / epsilon * (1 + 1e-12)
            main = events.PureDP(epsilon)
        event = main if count is None else events.Composed(count.event, main)
        return cls(row_norm, radius, noise, scale, alpha, count, event)

    @property
    def contribution(self) -> float:
        """How far one row moves the minimiser at alpha 1."""
        return _contribution(self.row_norm, self.radius)

    def default_alpha(self, num_rows: float, dimension: int) -> float:
        """Where the loss from noise, n |x|^2 |noise|^2 / (2 dimension), and from alpha |w|^2 / 2 are least together."""
        squared = dimension * (dimension + 1) * self.scale**2
        if self.noise_multiplier:
            squared = dimension * (self.contribution * self.noise_multiplier) ** 2
        curvature = _SPREAD * num_rows * self.row_norm**2 / dimension
        return float((2 * curvature * squared / self.radius**2) ** (1 / 3))


def _contribution(row_norm: float, radius: float) -> float:
    return row_norm * (row_norm * radius + 1) * (1 + _MARGIN)


def fit(rows: Floats, targets: Floats, plan: RidgePlan, rng: Rng) -> tuple[Floats, float]:
    """The released weights, and the alpha that was used."""
    alpha = plan.alpha
    if alpha is None:
        num_rows = float(len(rows)) if plan.count is None else plan.count.release(len(rows), rng)
        alpha = plan.default_alpha(num_rows, rows.shape[1])
    weights = in_ball(rows.T @ rows, rows.T @ targets, alpha, plan.radius)
    if plan.noise_multiplier:
        noisy = mechanisms.gaussian(
            weights, sensitivity=plan.contribution / alpha, noise_multiplier=plan.noise_multiplier, rng=rng
        )
        return numpy.asarray(noisy), alpha
    scale = plan.scale / alpha
    return on_grid(weights + gamma_norm(rng, len(weights), scale), scale), alpha


def in_ball(matrix: Floats, vector: Floats, alpha: float, radius: float) -> Floats:
    """The minimiser of w'Gw/2 - g'w + alpha/2 |w|^2 over |w| <= radius.

    On the sphere the regulariser is raised until the length is right; the length falls with it, so bisection finds it.
    """
    values, vectors = numpy.linalg.eigh(matrix)
    values = numpy.maximum(values, 0.0) + alpha
    turned = vectors.T @ vector

    def length(extra: float) -> float:
        return float(numpy.linalg.norm(turned / (values + extra)))

    low, high = 0.0, float(numpy.linalg.norm(turned)) / radius
    if length(0.0) > radius:
        while low < (middle := (low + high) / 2) < high:
            low, high = (middle, high) if length(middle) > radius else (low, middle)
    else:
        high = 0.0
    weights = vectors @ (turned / (values + high))
    return numpy.asarray(weights * min(1.0, radius / max(math.ulp(0.0), float(numpy.linalg.norm(weights)))))
