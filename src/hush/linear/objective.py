"""Objective perturbation: a random linear term in the objective, and the exact minimiser of what results.

    J(w) = sum of losses + alpha/2 |w|^2 + b.w

The map from b to the minimiser is one-to-one and smooth, so the minimiser's density is that of b times a determinant.
A neighbour moves b by at most the length of a gradient (twice that under replace_one), and the determinant by at most
e^`log_determinant` [chaudhuri11, Thm. 9; kifer12; the constants are derived anew in
theory/objective-perturbation.md]. The minimiser is found up to a certified tolerance, and that error is paid for by
noise of its own [iyengar19, approximate minima perturbation].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy

from hush import _check, events, mechanisms
from hush.errors import InvalidValue
from hush.linear.problem import Constants, Floats, Problem
from hush.linear.solver import minimise
from hush.linear.vector_noise import gamma_norm, on_grid
from hush.privacy import Budget, Relation
from hush.rng import Rng

TOLERANCE = 1e-5  # of the gradient, as a share of one row's
SOLVER_SHARE = 0.01  # of epsilon, for the distance from the exact minimiser
WEIGHT = 1.6  # a guess at the length of a good weight vector, over the root of its dimension
_SAFE = 1 - 1e-9  # calibrated values stay this far inside the budget


def log_determinant(constants: Constants, alpha: float) -> float:
    """How much one row's Hessian can change log det(Hessian + alpha).

    The product of 1 + eigenvalue/alpha over `rank` eigenvalues with a given sum is largest where they are equal. Under
    replace_one both determinants lie between that of the common rows and e^this times it: the same bound.
    """
    return constants.rank * math.log1p(constants.trace / (constants.rank * alpha))


def least_alpha(constants: Constants, epsilon: float) -> float:
    """The alpha at which the determinant takes half of epsilon; a smaller one is raised to it."""
    return constants.trace / (constants.rank * math.expm1(epsilon / (2 * constants.rank)))


def chi_delta(epsilon: float, shift: float, freedom: int) -> float:
    """delta at which a privacy loss of at most shift^2/2 + shift * chi stays below epsilon, rounded up.

    chi is the length of a standard normal vector of `freedom` dimensions. With one dimension it is twice the delta of
    Gaussian noise: 2 (Phi(m/2 - e/m) - exp(e) Phi(-m/2 - e/m)), as long as e >= m^2/2.
    """
    from scipy.special import gammaincc, gammaln

    start = epsilon / shift - shift / 2
    low = max(start, 0.0)
    high = max(low, math.sqrt(freedom)) + 14.0
    nodes, weights = _nodes()
    edges = numpy.linspace(low, high, 41)
    half = (edges[1:] - edges[:-1])[:, None] / 2
    points = edges[:-1, None] + half * (nodes + 1)
    with numpy.errstate(divide="ignore"):
        log_density = (freedom - 1) * numpy.log(points) - points**2 / 2
    density = numpy.exp(log_density - gammaln(freedom / 2) - (freedom / 2 - 1) * math.log(2))
    inside = float((half * weights * density * -numpy.expm1(-shift * (points - start))).sum())
    return (inside + float(gammaincc(freedom / 2, high**2 / 2))) * (1 + 1e-9)


@cache
def _nodes() -> tuple[Floats, Floats]:
    return numpy.polynomial.legendre.leggauss(24)


def gaussian_shift(epsilon: float, delta: float, freedom: int) -> float:
    """The largest shift whose `chi_delta` is within delta; the noise is what a row can move, over this."""
    low, high = 0.0, 1.0
    while chi_delta(epsilon, high, freedom) <= delta:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chi_delta(epsilon, middle, freedom) <= delta else (low, middle)
    if low == 0.0:
        raise InvalidValue(f"no noise in the objective meets delta {delta:g}; use a larger delta or delta 0.")
    return low


def renyi_bound(order: float, *, noise_multiplier: float, curvature: float) -> float:
    """The published Rényi bound for two classes under add/remove, for comparison [redberg23].

    `noise_multiplier` is the noise over the length of a gradient, `curvature` the trace of one Hessian over alpha.

    >>> round(renyi_bound(2.0, noise_multiplier=10.0, curvature=0.05), 8)
    0.13793546
    """
    from scipy.special import log_ndtr

    if not order > 1:
        raise InvalidValue(f"order must be above 1; got {order!r}.")
    s = 1 / _check.positive("noise_multiplier", noise_multiplier)
    tail = (math.log(2) + float(log_ndtr((order - 1) * s))) / (order - 1)
    return -math.log1p(-curvature) + order * s * s / 2 + tail


@dataclass(frozen=True)
class ObjectivePlan:
    """The noise for one budget; all of it public."""

    alpha: float
    scale: float  # of the linear term: of its Gamma law, or the standard deviation of each coordinate
    gaussian: bool
    tolerance: float
    solver_scale: float  # of the noise on the minimiser
    event: events.Event

    @classmethod
    @lru_cache(maxsize=64)
    def for_budget(
        cls, budget: Budget, constants: Constants, dimension: int, *, alpha: float | None, relation: Relation
    ) -> ObjectivePlan:
        """The plan; `alpha` None means the one that fits the noise."""
        solver_epsilon = SOLVER_SHARE * budget.epsilon * _SAFE
        epsilon = (1 - SOLVER_SHARE) * budget.epsilon * _SAFE
        moved = constants.gradient * (2 if relation == "replace_one" else 1)
        freedom = constants.rank * (2 if relation == "replace_one" else 1)
        floor = least_alpha(constants, epsilon)
        if alpha is None:
            alpha = default_alpha(_scale(epsilon, budget.delta, moved, freedom), dimension, budget.delta > 0)
        alpha = max(alpha, floor)
        scale = _scale(epsilon - log_determinant(constants, alpha), budget.delta, moved, freedom)
        main: events.Event = events.PureDP(epsilon)
        if budget.delta > 0:
            main = events.ApproximateDP(epsilon, budget.delta * _SAFE)
        tolerance = TOLERANCE * constants.gradient
        # b is rounded to a grid of 2^-24 of its scale, which counts as an error of the minimiser too.
        error = tolerance + math.sqrt(dimension) * scale * 2.0**-24
        return cls(
            alpha=alpha,
            scale=scale,
            gaussian=budget.delta > 0,
            tolerance=tolerance,
            solver_scale=2 * error / alpha / solver_epsilon,
            event=events.Composed(main, events.PureDP(solver_epsilon)),
        )


def _scale(epsilon: float, delta: float, moved: float, freedom: int) -> float:
    if delta == 0:
        return moved / epsilon * (1 + 1e-12)
    return moved / gaussian_shift(epsilon, delta * _SAFE, freedom) * (1 + 1e-12)


def default_alpha(scale: float, dimension: int, gaussian: bool) -> float:
    """The usual length of the noise over a guess at the length of good weights; nothing in it looks at the data."""
    length = scale * (math.sqrt(dimension) if gaussian else dimension)
    return length / (WEIGHT * math.sqrt(dimension))


def fit(problem: Problem, plan: ObjectivePlan, rng: Rng) -> Floats:
    """The released weights."""
    if plan.gaussian:
        nothing = numpy.zeros(problem.dimension)
        linear = numpy.asarray(mechanisms.gaussian(nothing, sensitivity=1.0, noise_multiplier=plan.scale, rng=rng))
    else:
        linear = gamma_norm(rng, problem.dimension, plan.scale)
    weights = minimise(problem, alpha=plan.alpha, linear=linear, tolerance=plan.tolerance)
    noisy = weights + gamma_norm(rng, problem.dimension, plan.solver_scale)
    return on_grid(noisy, plan.solver_scale)
