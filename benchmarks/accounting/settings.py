"""The settings that the accounting benchmarks run on: the classic rows and the random sweep."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hush import events

Phase = tuple[float, float, int]  # sampling_prob, noise_multiplier, steps


@dataclass(frozen=True)
class Setting:
    name: str
    phases: tuple[Phase, ...]
    delta: float
    relation: str = "add_remove"

    @cached_property
    def event(self) -> events.Event:
        return events.Composed(*(events.Repeated(_step(q, noise), steps) for q, noise, steps in self.phases))


def _step(sampling_prob: float, noise_multiplier: float) -> events.Event:
    return events.PoissonSampled(events.Gaussian(noise_multiplier), sampling_prob)


CLASSIC = (
    Setting("c01 classic", ((0.01, 4, 10_000),), 1e-5),
    Setting("c02 lot 600 of 60,000", ((0.01, 2, 20_000),), 1e-5),
    Setting("c03", ((0.01, 4, 20_000),), 1e-5),
    Setting("c04", ((0.01, 8, 20_000),), 1e-5),
    Setting("c05 large scale", ((1e-4, 1, 1_000_000),), 1e-6),
    Setting("c06 tiny delta", ((0.01, 4, 10_000),), 1e-10),
    Setting("c07 small noise", ((0.01, 0.5, 1_000),), 1e-5),
    Setting("c08 small noise, long", ((0.01, 0.5, 10_000),), 1e-5),
    Setting("c09 full batch", ((1.0, 20, 100),), 1e-5),
    Setting("c10 full batch", ((1.0, 10, 1_000),), 1e-5),
    Setting("c11 CIFAR-like", ((0.08192, 3, 2_500),), 1e-5),
    Setting("c12 one step", ((0.5, 1, 1),), 1e-5),
    Setting("c13 three phases", ((0.01, 4, 2_000), (0.02, 2, 500), (0.005, 1, 5_000)), 1e-5),
    Setting("c14 high epsilon", ((0.2, 1, 500),), 1e-5),
    Setting("c15 very small epsilon", ((0.001, 50, 100),), 1e-6),
    Setting("c16 100 phases", tuple((0.01, 1 + 0.02 * i, 50) for i in range(100)), 1e-5),
    Setting("c17 delta 1e-15", ((0.01, 1, 1_000),), 1e-15),
    Setting("c18 language model", ((1e-5, 0.6, 100_000),), 1e-8),
    Setting("replace-one classic", ((0.01, 4, 10_000),), 1e-5, "replace_one"),
)

BUDGETS = (
    (1.0, 1e-5, 0.01, 10_000),
    (8.0, 1e-5, 0.01, 10_000),
    (3.0, 1e-6, 0.001, 100_000),
    (8.0, 1e-5, 0.08192, 2_500),
)


def sweep(count: int, seed: int) -> list[Setting]:
    """Random settings, log-uniform over the whole range that is promised."""
    rng = np.random.default_rng(seed)
    return [_drawn(rng, index) for index in range(count)]


def _drawn(rng: np.random.Generator, index: int) -> Setting:
    count = 1 if rng.random() < 0.4 else int(rng.integers(1, 6))
    phases = tuple(_phase(rng) for _ in range(count))
    delta = float(10 ** rng.uniform(-30, -3))
    return Setting(f"s{index}", phases, delta, ("add_remove", "replace_one")[int(rng.integers(2))])


def _phase(rng: np.random.Generator) -> Phase:
    prob = 1.0 if rng.random() < 0.05 else float(10 ** rng.uniform(-5, 0))
    return prob, float(10 ** rng.uniform(np.log10(0.3), 2)), round(10 ** rng.uniform(0, 6))
