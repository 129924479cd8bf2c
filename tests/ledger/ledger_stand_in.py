"""A small accountant for the ledger's tests, in closed form: pure epsilons add, Gaussians compose by their mu."""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import ndtr

from hush import events
from hush.privacy import Guarantee, Relation


def guarantee(
    event: events.Event, *, delta: float, relation: Relation = "add_remove", method: str = "exact"
) -> Guarantee:
    pure, mu_squared = 0.0, 0.0
    for part, times in events.flat(event):
        pure += times * pure_epsilon(part)
        mu_squared += times * gaussian_mu(part) ** 2
    mu = math.sqrt(mu_squared) * (2 if relation == "replace_one" else 1)
    epsilon = pure + (gaussian_epsilon(mu, delta) if mu else 0.0)
    return Guarantee(epsilon=epsilon * (1 + 1e-12), delta=delta, relation=relation, method=method)


def pure_epsilon(event: events.Event) -> float:
    match event:
        case events.PureDP(epsilon):
            return epsilon
        case events.Laplace(scale):
            return 1 / scale
        case events.NotPrivate():
            return math.inf
    return 0.0


def gaussian_mu(event: events.Event) -> float:
    match event:
        case events.Gaussian(noise_multiplier):
            return 1 / noise_multiplier
        case events.PoissonSampled(inner, sampling_prob):  # no bound, but good enough to have a number here
            return 2 * sampling_prob * gaussian_mu(inner)
    return 0.0


def gaussian_epsilon(mu: float, delta: float) -> float:
    if delta == 0:
        return math.inf

    def excess(epsilon: float) -> float:
        return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)) - delta

    return float(brentq(excess, 0.0, mu * mu + 40 * mu)) if excess(0.0) > 0 else 0.0
