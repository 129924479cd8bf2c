"""Full-batch noisy gradient descent with exact accounting.

Sums of gradients are released, each with Gaussian noise: together they are one Gaussian mechanism with
mu = sqrt(steps) / (noise of a step), exactly, since each may depend on those before it [dong22, Cor. 3.3]. What is made
of them (step sizes, momentum, averages) costs nothing. With the noise of all steps fixed, more steps cost time only.

Nothing is searched for. The mean loss curves by at most the largest eigenvalue of one Hessian, and its inverse is a
stable step. Momentum is set so that the whole way, steps * step size / (1 - momentum), is as long as the regulariser
asks: (number of rows) / alpha; the number of steps follows. The second half of the iterates is averaged, which takes
off most of the noise along those directions that are learned early.

Gradients are clipped to 0.35 of the longest that they can be. At weights 0 all rows pull with half of that length, so
the longest are clipped from the start: what is learned is a logistic loss that goes on as a straight line for rows on
the wrong side. It has the same best classes and half of the noise, and its probabilities lean to 0 and 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy

from hush import accounting, events, mechanisms
from hush.errors import InvalidValue
from hush.linear.counting import Count, split_gaussian
from hush.linear.problem import Constants, Floats, Problem
from hush.privacy import Budget, Relation
from hush.rng import Rng

CLIP_SHARE = math.sqrt(0.125)  # of the longest that a gradient can be; what is longer is clipped
WEIGHT = 3.2  # a guess at the length of good weights, over the root of their dimension
_MARGIN = 1e-6  # added to a row's contribution: more than rounding adds to a sum of millions of rows
_LEAST_FRICTION = 3.0  # over the number of steps: momentum must be spent before the end
_STEPS = (50, 500)  # the fewest and the most, where none are given
_SAFE = 1 - 1e-9


@dataclass(frozen=True)
class GradientPlan:
    """The noise for one budget; all of it public."""

    steps: int | None  # None: as many as the noisy number of rows asks for
    alpha: float
    noise_multiplier: float  # of all steps together
    count: Count | None  # how the number of rows is learned, where it is private
    event: events.Event

    @classmethod
    @lru_cache(maxsize=64)
    def for_budget(
        cls, budget: Budget, constants: Constants, *, steps: int | None, alpha: float | None, relation: Relation
    ) -> GradientPlan:
        """The plan; `alpha` None means the one that fits the noise."""
        if budget.delta == 0:
            raise InvalidValue("method 'gradient' needs a delta above 0, such as 1e-5; or use method 'objective'.")
        rest = Budget(epsilon=budget.epsilon * _SAFE, delta=budget.delta * _SAFE)
        whole = accounting.noise_for(rest, sampling_prob=1.0, steps=1, relation=relation)
        count, noise = split_gaussian(whole) if relation == "add_remove" else (None, whole)
        event: events.Event = events.Gaussian(noise)
        if count is not None:
            event = events.Composed(count.event, event)
        if alpha is None:
            alpha = whole * CLIP_SHARE * constants.gradient * (2 if relation == "replace_one" else 1) / WEIGHT
        return cls(steps, alpha, noise, count, event)


def fit(problem: Problem, plan: GradientPlan, rng: Rng) -> Floats:
    """The released weights: the mean of the second half of the iterates."""
    num_rows = float(len(problem.rows)) if plan.count is None else plan.count.release(len(problem.rows), rng)
    steps, step, friction = _pace(problem.constants, plan, num_rows)
    clip_norm = CLIP_SHARE * problem.constants.gradient
    noise = plan.noise_multiplier * math.sqrt(steps) * (1 + 1e-12)
    weights, speed, total = (numpy.zeros(problem.dimension) for _ in range(3))
    first = steps // 2
    for place in range(steps):
        gradient = _noisy_gradient(problem, weights, clip_norm, noise, rng) + plan.alpha * weights
        speed = (1 - friction) * speed - step * gradient
        weights = weights + speed
        if place >= first:
            total += weights
    return total / (steps - first)


def _pace(constants: Constants, plan: GradientPlan, num_rows: float) -> tuple[int, float, float]:
    """How many steps, the step size on the sum of gradients, and the friction: 1 - momentum.

    With the least friction f / steps the way is steps^2 / (f curvature) long. Twice the steps that reach 1 / alpha are
    taken, since half of them are averaged over.
    """
    curvature = constants.curvature * num_rows + plan.alpha
    steps = plan.steps
    if steps is None:
        fewest, most = _STEPS
        steps = min(most, max(fewest, math.ceil(2 * math.sqrt(_LEAST_FRICTION * curvature / plan.alpha))))
    friction = steps * plan.alpha / curvature
    return steps, 1 / curvature, min(1.0, max(friction, _LEAST_FRICTION / steps))


def _noisy_gradient(problem: Problem, weights: Floats, clip_norm: float, noise_multiplier: float, rng: Rng) -> Floats:
    contribution = clip_norm * (1 + _MARGIN)
    exact = problem.gradient(weights, clip_norm)
    return numpy.asarray(
        mechanisms.gaussian(exact, sensitivity=contribution, noise_multiplier=noise_multiplier, rng=rng)
    )
