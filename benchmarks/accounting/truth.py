"""Independent truth for the exact accountant: epsilon to 16 digits and more, slowly. Imports nothing from hush.

    python -m benchmarks.accounting.truth sweep OUT.json --seed 101 --count 60    random settings, contour integral
    python -m benchmarks.accounting.truth few OUT.json --seed 202 --count 30      one or two steps, real space
    python -m benchmarks.accounting.truth reference OUT.json --limit 300          rows c01..c18 without closed form

Contour: delta(epsilon) = 1/(2 pi i) * integral over Re z = c of M(z) e^{-z epsilon} / (z (z + 1)) dz (Alghamdi et al.
2023), by the trapezoid rule, for the whole composition with nothing cut off. With w(u) = 1 - q + q e^{mu - m^2/2},

    M(z) = integral of normal density(u) * w(u)^A * w(-u)^B du
    remove: A = 1 + z, B = 0     add: A = -z, B = 0     replace: A = 1 + z, B = -z.

Doubles only plan (abscissa, steps, number of digits); every number that counts is a fixed-point integer or an mpf.
Each contour value is computed twice, on two lines with two grids, and both must agree to 15 digits.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import count
from operator import mul
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

from benchmarks.accounting.truth_few import (
    Setting,
    by_real_space,
    draw,
    draw_few,
    fine_log,
    largest_added,
    reference_rows,
)

LOG10 = math.log(10)


# Planning, in doubles ------------------------------------------------------------------------------------------


def powers(direction: str, z: complex) -> tuple[complex, complex]:
    """A and B of the module's formula."""
    return {"remove": (1 + z, 0), "add": (-z, 0), "replace": (1 + z, -z)}[direction]


def rough_log(q: float, m: float, u: Any) -> Any:
    """log w(u) in doubles, real or complex."""
    v = m * u - m * m / 2 + math.log(q) - math.log1p(-q)
    return math.log1p(-q) + np.where(np.real(v) > 0, v, 0) + np.log1p(np.exp(np.where(np.real(v) > 0, -v, v)))


def rough_exponent(q: float, m: float, direction: str, z: complex, u: Any) -> Any:
    a, b = powers(direction, z)
    total = -u * u / 2 + a * rough_log(q, m, u)
    return total + b * rough_log(q, m, -u) if b else total


def log_sum(exponent: Any) -> float:
    top = exponent.max()
    return float(top + math.log(np.exp(exponent - top).sum()))


def wide_grid(q: float, m: float, c: float, direction: str) -> Any:
    """Points that hold all that counts of one step's integrand at order c, at most 15 000 of them."""
    need, ends = 450.0, []
    at_rest = float(rough_log(q, m, np.float64(0.0)))
    for side in (-1.0, 1.0):
        u = 2 * (c + 2) * m + 60.0
        for _ in range(40):  # from outside: u^2/2 is at most what the powers of w can gain, plus need
            rise = abs(float(rough_log(q, m, np.float64(side * u))) - at_rest)
            gain = (c + 1) * rise if (side > 0) == (direction != "add") else 0.0
            if direction == "replace" and side > 0:
                gain += c * (at_rest - math.log1p(-q))
            u = min(u, math.sqrt(2 * (gain + need)))
        ends.append(side * u)
    return np.linspace(*ends, int(min((ends[1] - ends[0]) / 0.05, 15_000)))


def rough_moment(setting: Setting, direction: str, c: float) -> float:
    """log M(c) of the composition, to planning accuracy."""
    total = float(setting.gaussian()) * (c * c + c) / 2
    for q, m, steps in setting.sampled():
        u = wide_grid(q, m, c, direction)
        log_mass = log_sum(rough_exponent(q, m, direction, c, u).real) + math.log(
            (u[1] - u[0]) / math.sqrt(2 * math.pi)
        )
        total += steps * log_mass
    return total


def chernoff(c: Any) -> Any:
    return c * np.log(c) - (c + 1) * np.log1p(c)


@dataclass
class Plan:
    """The line: abscissa, height step, highest node, log M(c) - c epsilon - log delta, and the wanted digits."""

    c: float
    step: float
    top: float
    swell: float
    digits: float


@lru_cache(maxsize=4)
def rough_moments(setting: Setting, direction: str) -> tuple[Any, Any]:
    """Orders, and log M at each, as far as that is below 3000."""
    orders, moments = np.geomspace(1e-2, 1e10, 220), []
    for c in orders:
        moments.append(rough_moment(setting, direction, float(c)))
        if moments[-1] > 3000:
            break
    kept = [index for index, moment in enumerate(moments) if abs(moment) > 1e-9]
    return orders[kept], np.array(moments)[kept]


def plan_line(setting: Setting, direction: str, share: float, digits: float, epsilon: float | None) -> Plan:
    """Line at `share` of the saddle point for this epsilon (the best Rényi order where none is known)."""
    orders, moments = rough_moments(setting, direction)
    constants, log_delta = moments + chernoff(orders), math.log(setting.delta)
    if epsilon is None:
        bounds = (constants - log_delta) / orders
        best, epsilon = int(np.argmin(bounds)), max(float(bounds.min()), 0.0)
    else:
        best = int(np.argmin(constants - orders * epsilon))
    c = float(orders[best]) * share
    moment = rough_moment(setting, direction, c)
    swell = moment - c * epsilon - log_delta
    need = digits * LOG10 + 3
    # Aliases: e^{-ca} from the left, Chernoff at every higher order from the right.
    right = orders > 1.02 * c
    gaps = (constants[right] - orders[right] * epsilon - log_delta + need) / (orders[right] - c)
    period = max((need - log_delta) / c, float(gaps.min()))
    return Plan(c, 2 * math.pi / period, rough_top(setting, direction, c, swell + need), max(swell, 0.0), digits)


def rough_top(setting: Setting, direction: str, c: float, need: float) -> float:
    """The height from which |M(c + iy)| / M(c) / y is below e^-need, seen on a geometric grid."""
    y = 0.5 * c
    while y < 1e9:
        total = -float(setting.gaussian()) * y * y / 2
        for q, m, steps in setting.sampled():
            u = wide_grid(q, m, c, direction)
            fine = spacing(q, m, direction, c, y, 34.0)
            e = rough_exponent(q, m, direction, c, u).real
            kept = u[e > e.max() - 38]
            if (kept[-1] - kept[0]) / fine > 3e5:
                return math.inf
            u = np.arange(kept[0], kept[-1], fine)
            exponent = rough_exponent(q, m, direction, complex(c, y), u)
            rest = rough_exponent(q, m, direction, c, u).real
            ratio = abs(np.exp(exponent - rest.max()).sum()) / np.exp(rest - rest.max()).sum()
            total += steps * math.log(max(ratio, 1e-16))
        if total - math.log(y / c) <= -need:
            return y
        y *= 1.12
    return math.inf


def spacing(q: float, m: float, direction: str, c: float, y: float, need: float) -> float:
    """Trapezoid step with an error below e^-need of M(c), by the integrals on two shifted lines.

    Trefethen and Weideman 2014, Theorem 5.1.
    """
    u = wide_grid(q, m, c, direction)
    base = log_sum(rough_exponent(q, m, direction, c, u).real)
    best = 0.0
    for part in (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9):
        d = min(part * math.pi / m, 14 * part)
        grown = max(
            log_sum(rough_exponent(q, m, direction, complex(c, y), u + side * 1j * d).real) - base for side in (-1, 1)
        )
        best = max(best, 2 * math.pi * d / (need + 2 + max(grown, d * d / 2)))
    return best


# The sums, in integers ------------------------------------------------------------------------------------------


def nodes_of(q: float, s: float, direction: str, plan: Plan, steps: int, offset: str) -> tuple[mp.mpf, list, list]:
    """log M(c), weights over M(c) and losses, of one step."""
    m_, c = 1 / s, plan.c
    need = plan.digits * LOG10 + plan.swell + math.log(steps) + 5
    d = spacing(q, m_, direction, c, plan.top, need)
    u = wide_grid(q, m_, c, direction)
    e = rough_exponent(q, m_, direction, c, u).real
    kept = u[e > e.max() - need - 3]
    if kept[0] == u[0] or kept[-1] == u[-1]:
        raise ArithmeticError("range too small")
    low, high, pace = kept[0] - 0.5, kept[-1] + 0.5, mp.mpf(d)
    count = int((high - low) / d) + 2
    qq, m, cc = mp.mpf(q), 1 / mp.mpf(s), mp.mpf(c)
    a, b = powers(direction, cc)
    weights, losses = [], []
    for k in range(count):
        point = mp.mpf(low) + (k + mp.mpf(offset)) * pace
        forward = fine_log(qq, m, point)
        backward = fine_log(qq, m, -point) if direction == "replace" else mp.mpf(0)
        weights.append(mp.exp(-point * point / 2 + a * forward + b * backward))
        losses.append(-forward if direction == "add" else forward - backward)
    total = mp.fsum(weights)
    return mp.log(total * pace / mp.sqrt(2 * mp.pi)), [w / total for w in weights], losses


def turning(weights: list, losses: list, step: mp.mpf, count: int, bits: int) -> list[mp.mpc]:
    """sum(weight * e^{i step k loss}) for k = 0..count-1, by small and large strides in fixed point."""
    block, one = math.isqrt(count) + 1, mp.mpf(2) ** bits

    def fixed(value: mp.mpf) -> int:
        return int(mp.nint(value * one))

    def advance(x: list[int], y: list[int], turn: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
        pairs = [((a * r - b * i) >> bits, (a * i + b * r) >> bits) for a, b, (r, i) in zip(x, y, turn, strict=True)]
        return [p[0] for p in pairs], [p[1] for p in pairs]

    def turns(angle: mp.mpf) -> list[tuple[int, int]]:
        return [(fixed(mp.cos(angle * loss)), fixed(mp.sin(angle * loss))) for loss in losses]

    small_turn, large_turn = turns(step), turns(step * block)
    x, y = [1 << bits] * len(losses), [0] * len(losses)
    small = []
    for _ in range(block):
        small.append((x, y, [a + b for a, b in zip(x, y, strict=True)]))
        x, y = advance(x, y, small_turn)
    x, y, result = [fixed(w) for w in weights], [0] * len(losses), []
    scale = mp.mpf(2) ** (-2 * bits)
    while len(result) < count:
        both = [a + b for a, b in zip(x, y, strict=True)]
        for r, i, s in small:
            rr, ii, ss = sum(map(mul, x, r)), sum(map(mul, y, i)), sum(map(mul, both, s))
            result.append(mp.mpc((rr - ii) * scale, (ss - rr - ii) * scale))
        x, y = advance(x, y, large_turn)
    return result[:count]


class Line:
    """delta(epsilon) of one direction along one planned line."""

    def __init__(self, setting: Setting, direction: str, plan: Plan, offset: str) -> None:
        most = max(steps for _, _, steps in setting.phases)
        mp.mp.dps = int(plan.digits + (plan.swell + math.log(most)) / LOG10 + 12)
        self.c, self.step, self.tolerance = mp.mpf(plan.c), mp.mpf(plan.step), mp.mpf(10) ** (-plan.digits)
        count = int(plan.top / plan.step) + 8
        self.z = [mp.mpc(self.c, k * self.step) for k in range(count)]
        gaussian = setting.gaussian() / 2
        logs = [gaussian * (z * z + z) for z in self.z]
        for q, s, steps in setting.phases:
            if q < 1:
                log_moment, weights, losses = nodes_of(q, s, direction, plan, steps, offset)
                waves = turning(weights, losses, self.step, count, int(mp.mp.dps * 3.33) + 8)
                logs = [old + steps * (log_moment + mp.log(wave)) for old, wave in zip(logs, waves, strict=True)]
        self.top = logs[0].real
        self.terms = [mp.exp(value - self.top) / (z * (z + 1)) for value, z in zip(logs, self.z, strict=True)]

    def value(self, epsilon: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
        """delta and its derivative."""
        turn, here, total, slope = mp.expj(-self.step * epsilon), mp.mpc(1), mp.mpf(0), mp.mpf(0)
        for k, (z, term) in enumerate(zip(self.z, self.terms, strict=True)):
            wave = term * here * (2 if k else 1)
            total, slope, here = total + wave.real, slope - (z * wave).real, here * turn
        scale = self.step / (2 * mp.pi) * mp.exp(self.top - self.c * epsilon)
        return total * scale, slope * scale

    def tail(self, epsilon: mp.mpf) -> mp.mpf:
        """About what is left out above the last node."""
        last = max(abs(term) for term in self.terms[-8:])
        return last * self.z[-1].imag / mp.pi * mp.exp(self.top - self.c * epsilon)

    def solve(self, delta: mp.mpf, guess: mp.mpf) -> mp.mpf:
        """Newton's method on log delta; 0 where delta(0) is within delta."""
        epsilon = guess
        for _ in range(60):
            value, slope = self.value(epsilon)
            if value <= 0 or slope >= 0:
                epsilon *= mp.mpf("0.75")  # so far out that only the error is left
                continue
            move = mp.log(value / delta) * value / -slope
            if epsilon + move <= 0:
                if self.value(mp.mpf(0))[0] <= delta:
                    return mp.mpf(0)
                move = -epsilon / 2
            epsilon += move
            if abs(move) < epsilon * self.tolerance * 10:
                return epsilon
        raise ArithmeticError("no convergence")


def cost(setting: Setting, direction: str, plan: Plan) -> float:
    """Seconds, about."""
    if not math.isfinite(plan.top):
        return math.inf
    nodes = 0.0
    for q, m, steps in setting.sampled():
        need = plan.digits * LOG10 + plan.swell + math.log(steps) + 5
        u = wide_grid(q, m, plan.c, direction)
        e = rough_exponent(q, m, direction, plan.c, u).real
        kept = u[e > e.max() - need - 3]
        nodes += (kept[-1] - kept[0]) / spacing(q, m, direction, plan.c, plan.top, need)
    count = plan.top / plan.step
    return 5e-7 * nodes * count + 1e-4 * nodes + 3e-4 * count


def by_contour(
    setting: Setting, direction: str, share: float, offset: str, limit: float, start: float | None = None
) -> mp.mpf:
    """epsilon of one direction; ArithmeticError where it would take longer than `limit` seconds."""
    epsilon = start
    for digits in (5.0, 21.0, 21.0):
        plan = plan_line(setting, direction, share, digits, epsilon)
        if not cost(setting, direction, plan) <= limit:
            raise ArithmeticError("too slow")
        line = Line(setting, direction, plan, offset)
        delta = mp.mpf(setting.delta)
        found = line.solve(delta, mp.mpf(epsilon or max(rough_epsilon(setting, direction, plan), 1e-12)))
        if digits > 20 and epsilon is not None and abs(found - epsilon) <= 0.05 * epsilon:
            if found > 0 and line.tail(found) > delta * mp.mpf(10) ** (-19):
                raise ArithmeticError("the line is too short")
            return found
        if found == 0:
            return found
        epsilon = float(found)
    raise ArithmeticError("the plan does not settle")


def rough_epsilon(setting: Setting, direction: str, plan: Plan) -> float:
    """Where Chernoff's bound at the line's own order meets delta."""
    return (rough_moment(setting, direction, plan.c) + float(chernoff(plan.c)) - math.log(setting.delta)) / plan.c


# Vectors ---------------------------------------------------------------------------------------------------------


def truth(setting: Setting, limit: float, start: float | None = None) -> tuple[mp.mpf, str]:
    """epsilon of the worse direction, and how it was found. The search may begin at `start`; it ends where it ends."""
    if sum(steps for _, _, steps in setting.phases) <= 2:
        # Add is far below remove here: checked against the largest loss it can have.
        found = by_real_space(setting)
        if setting.relation == "add_remove" and 0 < found <= 1.001 * largest_added(setting):
            raise ArithmeticError("add direction not settled")
        return found, "real space"
    worst = mp.mpf(0)
    for direction in setting.directions():
        if direction == "add" and largest_added(setting) <= worst:
            continue
        pair = [
            by_contour(setting, direction, share, offset, limit, start)
            for share, offset in ((0.72, "0.31"), (0.88, "0.77"))
        ]
        if abs(pair[0] - pair[1]) > pair[0] * mp.mpf("1e-16"):
            raise ArithmeticError(f"two lines disagree: {pair}")
        worst = max(worst, pair[0])
    return worst, "contour"


def settings(kind: str, seed: int) -> Iterator[tuple[str, Setting]]:
    """Names and settings: the reference rows, or random ones without end."""
    if kind == "reference":
        yield from reference_rows().items()
        return
    rng = np.random.default_rng(seed)
    for index in count():
        yield f"{kind} {seed}.{index}", (draw if kind == "sweep" else draw_few)(rng)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=("reference", "sweep", "few"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for one line; longer ones are skipped")
    arguments = parser.parse_args()
    rows: list[str] = []
    for name, setting in settings(arguments.kind, arguments.seed):
        start = time.time()
        try:
            epsilon, way = truth(setting, arguments.limit)
        except ArithmeticError as error:
            print("skipped", name, setting, error, flush=True)
            continue
        text = mp.nstr(epsilon, 19, min_fixed=-2, max_fixed=4)
        rows.append("  " + json.dumps({"name": name, **asdict(setting), "epsilon": text, "way": way}))
        print(f"{time.time() - start:.1f} s", rows[-1], flush=True)
        arguments.out.write_text("[\n" + ",\n".join(rows) + "\n]\n")
        if len(rows) == arguments.count:
            return


if __name__ == "__main__":
    main()
