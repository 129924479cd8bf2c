"""Settings with a known truth, and that truth for one or two steps in all: closed form and real-space integrals.

With one step's loss L(u) under its density P, two steps have delta(e) = integral of P(u) * delta_1(e - L(u)) du, where
delta_1 is the closed form of the other step. The integral is taken twice, on panels of two widths.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import mpmath as mp
import numpy as np


@dataclass(frozen=True)
class Setting:
    """Phases of (sampling_prob, noise_multiplier, steps), a delta and a relation."""

    phases: tuple[tuple[float, float, int], ...]
    delta: float
    relation: str

    def directions(self) -> tuple[str, ...]:
        return ("replace",) if self.relation == "replace_one" else ("remove", "add")

    def sampled(self) -> list[tuple[float, float, int]]:
        """(q, m, steps) of the phases that sample."""
        return [(q, 1 / s, steps) for q, s, steps in self.phases if q < 1]

    def gaussian(self) -> mp.mpf:
        """Squared mu of the phases that do not."""
        factor = 2 if self.relation == "replace_one" else 1
        return mp.fsum(steps * (factor / mp.mpf(s)) ** 2 for q, s, steps in self.phases if q == 1)


def draw(rng: np.random.Generator) -> Setting:
    """One setting of the sweep."""
    count = int(rng.integers(1, 6)) if rng.random() < 0.6 else 1
    phases = []
    for _ in range(count):
        q = float(10 ** rng.uniform(-5, 0))
        if rng.random() < 0.05:
            q = 1.0
        noise = float(10 ** rng.uniform(math.log10(0.3), 2))
        phases.append((q, noise, round(10 ** rng.uniform(0, 6))))
    delta = float(10 ** rng.uniform(-30, -3))
    return Setting(tuple(phases), delta, ("add_remove", "replace_one")[int(rng.integers(2))])


def draw_few(rng: np.random.Generator) -> Setting:
    """One or two steps with rare large losses."""
    kind = int(rng.integers(3))
    phases = [(float(10 ** rng.uniform(-5, -2)), float(rng.uniform(0.3, 1.0)), 1 + (kind == 1))]
    if kind == 2:
        phases.append((float(10 ** rng.uniform(-5, -1)), float(10 ** rng.uniform(-0.5, 0.5)), 1))
    delta = float(10 ** rng.uniform(-30, -6))
    return Setting(tuple(phases), delta, ("add_remove", "replace_one")[int(rng.integers(2))])


def reference_rows() -> dict[str, Setting]:
    """Well-known settings by name; the rows with a closed form are left out."""
    rows = {
        "c01": ((0.01, 4.0, 10_000), 1e-5),
        "c02": ((0.01, 2.0, 20_000), 1e-5),
        "c03": ((0.01, 4.0, 20_000), 1e-5),
        "c04": ((0.01, 8.0, 20_000), 1e-5),
        "c05": ((1e-4, 1.0, 1_000_000), 1e-6),
        "c06": ((0.01, 4.0, 10_000), 1e-10),
        "c07": ((0.01, 0.5, 1_000), 1e-5),
        "c08": ((0.01, 0.5, 10_000), 1e-5),
        "c11": ((0.08192, 3.0, 2_500), 1e-5),
        "c14": ((0.2, 1.0, 500), 1e-5),
        "c15": ((0.001, 50.0, 100), 1e-6),
        "c17": ((0.01, 1.0, 1_000), 1e-15),
        "c18": ((1e-5, 0.6, 100_000), 1e-8),
    }
    settings = {name: Setting((phase,), delta, "add_remove") for name, (phase, delta) in rows.items()}
    three = ((0.01, 4.0, 2000), (0.02, 2.0, 500), (0.005, 1.0, 5000))
    settings["c13"] = Setting(three, 1e-5, "add_remove")
    settings["c16"] = Setting(tuple((0.01, 1 + 0.02 * i, 50) for i in range(100)), 1e-5, "add_remove")
    for name in ("c01", "c02", "c07"):
        settings[name + " replace"] = Setting(settings[name].phases, 1e-5, "replace_one")
    return settings


def fine_log(q: mp.mpf, m: mp.mpf, u: mp.mpf) -> mp.mpf:
    return mp.log(1 - q + q * mp.exp(m * u - m * m / 2))


def tail(x: mp.mpf) -> mp.mpf:
    """Chance that a standard normal exceeds x."""
    return mp.erfc(x / mp.sqrt(2)) / 2


def one_step(q: float, s: float, direction: str, e: mp.mpf) -> mp.mpf:
    """delta of one step for any real e: the chance above the loss's threshold, less e^e times the other one."""
    q, m, x = mp.mpf(q), 1 / mp.mpf(s), mp.exp(e)
    if direction == "replace":  # a g^2 + (1-q)(1-x) g - a x = 0 for g = e^{mu}
        a, half = q * mp.exp(-m * m / 2), (1 - q) * (x - 1)
        root = mp.sqrt(half * half + 4 * a * a * x)
        u = mp.log((half + root) / (2 * a) if half > 0 else 2 * a * x / (root - half)) / m
        return (1 - q) * (1 - x) * tail(u) + q * (tail(u - m) - x * tail(u + m))
    inside = (x - 1 + q) if direction == "remove" else (1 / x - 1 + q)
    if inside <= 0:
        return 1 - x if direction == "remove" else mp.mpf(0)
    u = mp.log(inside / q) / m + m / 2
    if direction == "remove":
        return q * tail(u - m) - inside * tail(u)
    return (1 - x * (1 - q)) * tail(-u) - x * q * tail(m - u)


def place_of(q: float, s: float, direction: str, e: mp.mpf) -> mp.mpf | None:
    """Where one step's loss is e, by bisection; None where it never is."""
    m = 1 / mp.mpf(s)

    def loss(u: mp.mpf) -> mp.mpf:
        forward = fine_log(mp.mpf(q), m, u)
        return forward if direction == "remove" else forward - fine_log(mp.mpf(q), m, -u)

    low, high = mp.mpf(-80), mp.mpf(200)
    if loss(low) >= e or loss(high) <= e:
        return None
    for _ in range(int(mp.mp.prec) + 12):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) < e else (low, middle)
    return low


def two_steps(
    first: tuple, second: tuple, direction: str, e: mp.mpf, width: float, reach: float, unit: mp.mpf
) -> mp.mpf:
    """delta over unit: the integral of the first step's density times the second's delta at what is left of e."""
    (q, s), (q2, s2) = first, second
    m = 1 / mp.mpf(s)

    def integrand(u: mp.mpf) -> mp.mpf:
        forward = fine_log(mp.mpf(q), m, u)
        loss = forward - fine_log(mp.mpf(q), m, -u) if direction == "replace" else forward
        return mp.exp(forward - u * u / 2) * one_step(q2, s2, direction, e - loss) / unit

    kinks = [place_of(q, s, direction, e), place_of(q, s, direction, e - mp.log(1 - mp.mpf(q2))) if q2 < 1 else None]
    turn = mp.log(1 / mp.mpf(q)) / m + m / 2
    ends = sorted({p for p in (mp.mpf(-reach), mp.mpf(reach) + m, turn, -turn, *kinks) if p is not None})
    ends = [p for p in ends if -reach <= p <= reach + m]
    points = [ends[0]]
    for a, b in pairwise(ends):
        pieces = int((b - a) / width) + 1
        points += [a + (b - a) * k / pieces for k in range(1, pieces + 1)]
    return mp.quad(integrand, points) / mp.sqrt(2 * mp.pi)


def by_real_space(setting: Setting) -> mp.mpf:
    """epsilon of one or two steps in all, of the remove or replace direction; closed form or two quadratures."""
    mp.mp.dps = 34
    steps = [(q, s) for q, s, times in setting.phases for _ in range(times)]
    direction, delta = setting.directions()[0], mp.mpf(setting.delta)
    reach = math.sqrt(2 * (-math.log(setting.delta) + 50))

    def excess(e: mp.mpf, width: float = 3.0) -> mp.mpf:
        if len(steps) == 1:
            return mp.log(one_step(*steps[0], direction, e) / delta)
        return mp.log(two_steps(steps[0], steps[1], direction, e, width, reach, delta))

    def alone(e: mp.mpf) -> mp.mpf:
        return mp.fsum(one_step(q, s, direction, e) for q, s in steps)

    low, high = mp.mpf("1e-9"), mp.mpf(400)
    if alone(mp.mpf(0)) <= delta:
        return mp.mpf(0)
    for _ in range(40):
        middle = mp.sqrt(low * high)
        low, high = (middle, high) if alone(middle) > delta else (low, middle)
    found = secant(excess, high)
    if abs(excess(found, 1.9)) > mp.mpf("1e-17"):
        raise ArithmeticError("two quadratures disagree")
    return found


def secant(excess: Callable[[mp.mpf], mp.mpf], start: mp.mpf) -> mp.mpf:
    before, here = start, start * mp.mpf("1.0001")
    old, new = excess(before), excess(here)
    for _ in range(40):
        if abs(here - before) <= abs(here) * mp.mpf("1e-19") or new == old:
            return here
        before, here = here, max(here - new * (here - before) / (new - old), here / 8)
        old, new = new, excess(here)
    raise ArithmeticError("no convergence")


def largest_added(setting: Setting) -> float:
    """No loss of the add direction exceeds this."""
    return sum(-steps * math.log1p(-q) if q < 1 else math.inf for q, _, steps in setting.phases)
