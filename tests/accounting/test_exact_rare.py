"""Very small samples over very many steps: a few rare large losses make up the answer, at any delta."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from hush import accounting, events
from hush.accounting import grid
from hush.accounting.exact.nodes import Nodes
from hush.accounting.exact.reading import read

# sampling_prob, noise_multiplier, steps, delta, relation, epsilon by benchmarks/accounting/truth.py
TRUTH = [
    (7.58e-7, 0.375487, 1_385_000, 0.00295, "add_remove", 0.028911670573373138),
]
# and some at which even delta(0) is within delta: nothing is spent
FREE = [(2.6e-6, 0.47, 1_400_000, 0.018), (7.4e-6, 0.65, 910_000, 0.016), (2e-7, 0.65, 56_000_000, 0.026)]


def steps_of(prob: float, noise: float, steps: int) -> events.Event:
    return events.Repeated(events.PoissonSampled(events.Gaussian(noise), prob), steps)


@pytest.mark.parametrize(("prob", "noise", "steps", "delta", "relation", "truth"), TRUTH)
def test_the_interval_holds_the_truth_and_is_narrow(prob, noise, steps, delta, relation, truth):
    found = accounting.guarantee(steps_of(prob, noise, steps), delta=delta, relation=relation)
    assert found.epsilon_lower <= truth <= found.epsilon <= found.epsilon_lower * (1 + 2e-6)


@pytest.mark.parametrize("seed", range(40))
def test_no_interval_is_wide(seed):
    draw = np.random.default_rng(seed)
    prob, noise = 10 ** draw.uniform(-7, -4), draw.uniform(0.25, 0.9)
    steps, delta = int(10 ** draw.uniform(-1.5, 1.5) / prob), 10 ** draw.uniform(-6, -1.5)
    found = accounting.guarantee(steps_of(prob, noise, steps), delta=delta)
    assert found.epsilon_lower <= found.epsilon <= found.epsilon_lower * (1 + 1e-3)


@pytest.mark.parametrize(("prob", "noise", "steps", "delta"), FREE)
def test_nothing_is_spent_where_delta_covers_all(prob, noise, steps, delta):
    event = steps_of(prob, noise, steps)
    assert accounting.guarantee(event, delta=delta).epsilon == 0
    assert grid.delta_interval(event, epsilon=0.0, relation="add_remove")[0] <= delta


@pytest.mark.parametrize(("prob", "noise", "steps"), [row[:3] for row in FREE[:2]])
def test_delta_at_zero_is_that_of_a_small_epsilon_and_hardly_more(prob, noise, steps):
    event = steps_of(prob, noise, steps)
    zero, small = (accounting.delta(event, epsilon=epsilon).delta for epsilon in (0.0, 1e-6))
    assert small * (1 - 1e-5) <= zero <= (small + math.expm1(1e-6)) * (1 + 1e-5)


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize(("prob", "noise", "lowest"), [(0.3, 0.7, -0.8), (0.02, 0.4, -0.05), (1e-4, 0.5, -1e-3)])
def test_what_has_no_nodes_is_counted(direction, prob, noise, lowest):
    phases = read(steps_of(prob, noise, 50), "add_remove").phases
    nodes = Nodes(phases, direction, math.log(1e-8), digits=15.0, fastest=50.0, lowest=lowest, has_cut=True)
    shift = 1 / noise

    def log_mixture(u: float) -> float:
        return math.log1p(prob * math.expm1(min(shift * u - shift**2 / 2, 600.0)))

    def term(u: float, order: float) -> float:
        mixture = log_mixture(u)
        loss = {"remove": mixture, "add": -mixture, "replace": mixture - log_mixture(-u)}[direction]
        density = 0.0 if direction == "add" else mixture
        return math.exp(density - u * u / 2 + order * loss) / math.sqrt(2 * math.pi)

    spacing = float(nodes.u[1] - nodes.u[0])
    for order in (0.5, 3.0, 20.0):
        # The trapezoid rule reaches half a space beyond its last nodes.
        left = quad(term, -40.0, float(nodes.u[0]) - spacing / 2, args=(order,), limit=400)[0]
        right = quad(term, float(nodes.u[-1]), 40.0, args=(order,), limit=400)[0] if direction == "add" else 0.0
        assert 50 * (left + right) <= nodes.cropped(order) * (1 + 1e-6) + nodes.far_mass


def test_layers_that_bound_nothing_are_cut_anew():
    event = steps_of(6.836982465254797e-05, 0.3273631296258385, 11_843)
    found = accounting.guarantee(event, delta=7.052481720061285e-30)
    assert found.epsilon_lower <= found.epsilon <= found.epsilon_lower * (1 + 1e-6)
