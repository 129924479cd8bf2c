"""Near worst-case neighbours for private linear models, what a fit releases on them, and the sharpest look at it.

A statistic here is the logarithm of the ratio of the two exact densities at what was released, or something that grows
with it. It is a function of the output and of the two tables, and not of the noise that is in use, so a lower bound on
epsilon from its samples holds for whatever noise made them; and no other statistic proves more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
from scipy.special import expit

from hush import mechanisms
from hush.linear.objective import ObjectivePlan
from hush.linear.problem import Problem
from hush.privacy import Relation

Floats = numpy.ndarray
Table = tuple[Floats, Floats]
ACROSS = 0.45  # how far the odd row leans towards the direction of the others


def pulled_tables(relation: Relation, norm: float, pull: int, *, intercept: bool) -> tuple[Table, Table]:
    """Rows of one class that pull the weights one way, and a row of the other class that is nearly across.

    Its gradient has nearly full length, and nothing but the regulariser curves the objective where it points.
    A replaced row's gradient becomes nearly the opposite; with an intercept, whose column is constant, the difference
    comes to 0.7 of that.
    """
    along = numpy.array([1.0, 0.0])
    odd, label, others = numpy.array([ACROSS, math.sqrt(1 - ACROSS**2)]), 0, (numpy.array([-1.0, 1.0]), 1)
    if intercept and relation == "add_remove":
        odd = numpy.array([-0.6, 0.8])
    elif intercept:
        along, odd, others = numpy.zeros(2), numpy.array([0.0, 1.0]), (numpy.array([0.0, -1.0]), 0)
    common, labels = numpy.tile(along, (pull, 1)), numpy.ones(pull, int)
    first = norm * numpy.vstack([common, odd]), numpy.append(labels, label)
    if relation == "add_remove":
        return first, (norm * common, labels)
    return first, (norm * numpy.vstack([common, odd * others[0]]), numpy.append(labels, others[1]))


def flipped_tables(relation: Relation, norm: float) -> tuple[Table, Table]:
    """Two short rows and a long one, which is removed or changes its class: at weights 0 its gradient turns round."""
    rows, labels = norm * numpy.array([[0.1, 0.0], [0.0, 0.1], [0.6, 0.8]]), numpy.array([0, 1, 1])
    if relation == "add_remove":
        return (rows, labels), (rows[:-1], labels[:-1])
    return (rows, labels), (rows, numpy.array([0, 1, 0]))


def single_tables(relation: Relation, norm: float) -> tuple[Table, Table]:
    """One row of full length with the largest target beside a row of zeros, for least squares; or its opposite."""
    common, zero = numpy.zeros((1, 2)), numpy.zeros(1)
    rows = norm * numpy.vstack([common, [[1.0, 0.0]]])
    first = rows, numpy.append(zero, 1.0)
    return first, (common, zero) if relation == "add_remove" else (rows, numpy.append(zero, -1.0))


def turned_tables(relation: Relation, norm: float, *, intercept: bool) -> tuple[Table, Table]:
    """As `single_tables`; replaced, the row is at a right angle to the first once the target counts: u.v = 0.

    There both statistics together move by all of the bound (theory/adassp.md), and neither one does alone.
    """
    first, other = single_tables(relation, norm)
    if relation == "add_remove":
        return first, other
    cosine = -0.5 if intercept else 0.25
    turned = norm * numpy.array([[0.0, 0.0], [cosine, math.sqrt(1 - cosine**2)]])
    return first, (turned, other[1])


# What a fit hands to the Gaussian mechanism -------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A value, and the standard deviation that was asked for."""

    value: Floats
    settings: dict[str, float]

    @property
    def stddev(self) -> float:
        return self.settings["sensitivity"] * self.settings["noise_multiplier"]


def gaussian_calls(monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> list[Call]:
    """What goes through the Gaussian mechanism while `run` runs."""
    seen, real = [], mechanisms.gaussian

    def spy(value: Any, **settings: Any) -> Any:
        seen.append(Call(numpy.atleast_1d(value), {k: v for k, v in settings.items() if k != "rng"}))
        return real(value, **settings)

    with monkeypatch.context() as patched:
        patched.setattr(mechanisms, "gaussian", spy)
        run()
    return seen


def gaussian_statistics(pair: tuple[list[Call], list[Call]], count: int) -> tuple[Floats, Floats]:
    """The log ratio of the densities, but for factors, of `count` real releases of the same values on each side."""
    found = []
    for side in pair:
        total = numpy.zeros(count)
        for call, one, other in zip(side, *pair, strict=True):
            released = numpy.asarray(mechanisms.gaussian(numpy.tile(call.value, (count, 1)), **call.settings))
            total += released @ (one.value - other.value) / one.stddev**2
        found.append(total)
    return found[0], found[1]


# Noise with a Gamma norm on a minimiser -----------------------------------------------------------------------------


def nearer(released: Floats, one: Floats, other: Floats) -> Floats:
    """How much nearer to the first minimiser than to the second: grows with the densities' ratio."""
    return numpy.asarray(numpy.linalg.norm(released - other, axis=1) - numpy.linalg.norm(released - one, axis=1))


# Objective perturbation ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weighted:
    """A logistic problem of two classes by its distinct rows and how often each occurs: thousands cost as one."""

    rows: Floats
    signs: Floats
    times: Floats

    @classmethod
    def of(cls, problem: Problem) -> Weighted:
        table = numpy.column_stack([problem.rows, 2.0 * problem.labels - 1])
        distinct, times = numpy.unique(table, axis=0, return_counts=True)
        return cls(distinct[:, :-1], distinct[:, -1], times.astype(float))

    def gradients(self, weights: Floats) -> Floats:
        return numpy.asarray((-self.times * self.signs * expit(-self.signs * (weights @ self.rows.T))) @ self.rows)

    def hessians(self, weights: Floats) -> Floats:
        chances = expit(weights @ self.rows.T)
        return numpy.einsum("nk,ki,kj->nij", self.times * chances * (1 - chances), self.rows, self.rows)

    def minimisers(self, alpha: float, linear: Floats, tolerance: float) -> Floats:
        """For many linear terms at once: Newton's method, damped so that it converges for logistic losses."""
        weights = numpy.zeros_like(linear)
        for _ in range(500):
            gradient = self.gradients(weights) + alpha * weights + linear
            if numpy.linalg.norm(gradient, axis=1).max() <= tolerance:
                return weights
            matrices = self.hessians(weights) + alpha * numpy.eye(linear.shape[1])
            step = numpy.linalg.solve(matrices, gradient[:, :, None])[:, :, 0]
            weights = weights - step / (1 + 0.7 * numpy.linalg.norm(step, axis=1, keepdims=True))
        raise AssertionError("the test's own solver did not converge")

    def log_densities(self, weights: Floats, plan: ObjectivePlan) -> Floats:
        """Of the exact minimiser, up to a constant: the noise's density at b(w), times the determinant of db/dw."""
        noise = numpy.linalg.norm(self.gradients(weights) + plan.alpha * weights, axis=1)
        matrices = self.hessians(weights) + plan.alpha * numpy.eye(weights.shape[1])
        exponent = noise**2 / (2 * plan.scale**2) if plan.gaussian else noise / plan.scale
        return numpy.asarray(numpy.linalg.slogdet(matrices)[1] - exponent)


def gamma_norms(count: int, dimension: int, scale: float) -> Floats:
    """The law of `vector_noise.gamma_norm`, many at a time."""
    rng = numpy.random.default_rng()
    directions = rng.standard_normal((count, dimension))
    lengths = rng.gamma(dimension, scale, (count, 1))
    return numpy.asarray(directions / numpy.linalg.norm(directions, axis=1, keepdims=True) * lengths)
