"""Output perturbation: the minimiser of a regularised objective, plus noise.

One row more moves the minimiser of a sum of losses + alpha/2 |w|^2 by at most (length of a gradient) / alpha, one row
replaced by twice that, because the objective is alpha-strongly convex [chaudhuri11, Cor. 8, in the sum's form:
alpha is their n Lambda]. Without the regulariser there is no bound at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy

from hush import accounting, events, mechanisms
from hush.linear.counting import Count, split_epsilon, split_gaussian
from hush.linear.problem import Constants, Floats, Problem
from hush.linear.solver import minimise
from hush.linear.vector_noise import gamma_norm, on_grid
from hush.privacy import Budget, Relation
from hush.rng import Rng

TOLERANCE = 1e-6  # of the gradient, as a share of one row's
_WEIGHT = 0.4  # a guess at the length of a good weight vector, over the root of its dimension
_SAFE = 1 - 1e-9


@dataclass(frozen=True)
class OutputPlan:
    """The noise for one budget; all of it public. Lengths are those at alpha 1."""

    contribution: float  # one row's, at alpha 1
    noise_multiplier: float  # of Gaussian noise; 0 for pure privacy
    scale: float  # of the Gamma law at alpha 1; 0 for Gaussian noise
    alpha: float | None
    count: Count | None  # how the number of rows is learned where alpha needs it and it is private
    tolerance: float
    event: events.Event

    @classmethod
    @lru_cache(maxsize=64)
    def for_budget(cls, budget: Budget, constants: Constants, *, alpha: float | None, relation: Relation) -> OutputPlan:
        """The plan; `alpha` None means the one that fits noise and number of rows."""
        counted = alpha is None and relation == "add_remove"
        tolerance = TOLERANCE * constants.gradient
        contribution = constants.gradient + 2 * tolerance
        count, noise, scale = None, 0.0, 0.0
        main: events.Event
        if budget.delta > 0:
            rest = Budget(epsilon=budget.epsilon * _SAFE, delta=budget.delta * _SAFE)
            noise = accounting.noise_for(rest, sampling_prob=1.0, steps=1, relation=relation)
            count, noise = split_gaussian(noise) if counted else (None, noise)
            main = events.Gaussian(noise)
        else:
            count, epsilon = split_epsilon(budget.epsilon * _SAFE) if counted else (None, budget.epsilon * _SAFE)
            scale = contribution * (2 if relation == "replace_one" else 1) / epsilon * (1 + 1e-12)
            main = events.PureDP(epsilon)
        return cls(
            contribution=contribution,
            noise_multiplier=noise,
            scale=scale,
            alpha=alpha,
            count=count,
            tolerance=tolerance,
            event=main if count is None else events.Composed(count.event, main),
        )

    def default_alpha(self, num_rows: float, dimension: int) -> float:
        """Where the loss from noise, about n |noise|^2 / (8 dimension), and from alpha |w|^2 / 2 are least together."""
        squared = dimension * (dimension + 1) * self.scale**2
        if self.noise_multiplier:
            squared = dimension * (self.contribution * self.noise_multiplier) ** 2
        weight = _WEIGHT**2 * dimension
        return float((num_rows * squared / (2 * dimension * weight)) ** (1 / 3))


def fit(problem: Problem, plan: OutputPlan, rng: Rng) -> tuple[Floats, float]:
    """The released weights, and the alpha that was used."""
    alpha = plan.alpha
    if alpha is None:
        num_rows = float(len(problem.rows)) if plan.count is None else plan.count.release(len(problem.rows), rng)
        alpha = plan.default_alpha(max(num_rows, 1.0), problem.dimension)
    linear = numpy.zeros(problem.dimension)
    weights = minimise(problem, alpha=alpha, linear=linear, tolerance=plan.tolerance)
    if plan.noise_multiplier:
        contribution = plan.contribution / alpha
        noisy = mechanisms.gaussian(weights, sensitivity=contribution, noise_multiplier=plan.noise_multiplier, rng=rng)
        return numpy.asarray(noisy), alpha
    scale = plan.scale / alpha
    noise = gamma_norm(rng, problem.dimension, scale)
    return on_grid(weights + noise, scale * math.sqrt(problem.dimension)), alpha
