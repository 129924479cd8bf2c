"""The data-dependent cost of 10,000 GNMax queries with 10 classes at 60 orders, beside loops over the queries.

python -m benchmarks.pate.cost [--turns 5] [--out benchmarks/results]

Times are processor seconds of one thread; the turns of the programs are interleaved and their medians are compared.
The three totals must agree before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import special, stats

from hush import Rng
from hush.pate import Answers, GNMax, VoteCounts
from hush.pate.calibrate import synthetic_votes
from hush.pate.cost import rdp_total

QUERIES, CLASSES, TEACHERS, STDDEV = 10_000, 10, 250, 40.0
ORDERS = np.geomspace(1.5, 200.0, 60)
EVERYTHING: dict[int, Answers] = {}  # what GNMax answered, by the number of queries
WANTED_SECONDS, WANTED_RATIO = 0.2, 50.0


def whole(votes: VoteCounts) -> np.ndarray:
    """Hush, from counts to the total at each order."""
    return rdp_total(GNMax(STDDEV), votes, EVERYTHING[len(votes)], ORDERS)


def loop_over_orders_too(votes: VoteCounts) -> np.ndarray:
    """The formulas as printed: a loop over queries, classes and orders, with the math module."""
    total = [0.0] * len(ORDERS)
    orders = ORDERS.tolist()
    for row in votes.counts.tolist():
        log_q = plain_log_q(row)
        for place, order in enumerate(orders):
            total[place] += plain_cost(log_q, order)
    return np.array(total)


def plain_log_q(row: list[int]) -> float:
    """Proposition 7 for one row."""
    winner = row.index(max(row))
    gaps = [row[winner] - count for label, count in enumerate(row) if label != winner]
    q = sum(0.5 * math.erfc(gap / (2 * STDDEV)) for gap in gaps)
    return math.log(min(q, 1 - 1 / len(row)))


def plain_cost(log_q: float, order: float) -> float:
    """Theorem 6 for one row and one order."""
    free = order / STDDEV**2
    mu2 = STDDEV * math.sqrt(-log_q)
    mu1 = mu2 + 1
    eps1, eps2 = mu1 / STDDEV**2, mu2 / STDDEV**2
    if mu2 <= 1 or mu1 <= order or -log_q <= eps2:
        return free
    if log_q > (mu2 - 1) * eps2 - mu2 * math.log(mu1 / (mu1 - 1) * mu2 / (mu2 - 1)):
        return free
    q = math.exp(log_q)
    log_a = (order - 1) * (math.log1p(-q) - math.log1p(-math.exp((log_q + eps2) * (1 - 1 / mu2))))
    log_b = (order - 1) * (eps1 - log_q / (mu1 - 1))
    one, two = math.log1p(-q) + log_a, log_q + log_b
    top = max(one, two)
    return min(free, (top + math.log1p(math.exp(min(one, two) - top))) / (order - 1))


def loop_with_numpy(votes: VoteCounts) -> np.ndarray:
    """A loop over queries whose orders are one numpy array, as research scripts have it."""
    total = np.zeros(len(ORDERS))
    for row in votes.counts:
        others = np.delete(row, np.argmax(row))
        logs = stats.norm.logsf((row.max() - others) / (math.sqrt(2) * STDDEV))
        log_q = min(float(special.logsumexp(logs)), math.log1p(-1 / len(row)))
        total += numpy_cost(log_q)
    return total


def numpy_cost(log_q: float) -> np.ndarray:
    """Theorem 6 for one row and all orders."""
    free = ORDERS / STDDEV**2
    mu2 = STDDEV * math.sqrt(-log_q)
    mu1 = mu2 + 1
    eps1, eps2 = mu1 / STDDEV**2, mu2 / STDDEV**2
    if mu2 <= 1 or -log_q <= eps2:
        return free
    if log_q > (mu2 - 1) * eps2 - mu2 * math.log(mu1 / (mu1 - 1) * mu2 / (mu2 - 1)):
        return free
    log_hit = math.log1p(-math.exp(log_q))
    log_a = (ORDERS - 1) * (log_hit - math.log1p(-math.exp((log_q + eps2) * (1 - 1 / mu2))))
    log_b = (ORDERS - 1) * (eps1 - log_q / (mu1 - 1))
    bound = np.logaddexp(log_hit + log_a, log_q + log_b) / (ORDERS - 1)
    return np.where(mu1 > ORDERS, np.minimum(free, bound), free)


def seconds(program: Callable[[VoteCounts], object], votes: VoteCounts) -> float:
    start = time.process_time()
    program(votes)
    return time.process_time() - start


def check(votes: VoteCounts, programs: dict[str, Callable[[VoteCounts], np.ndarray]]) -> None:
    """The loops give one total, and Hush the same but for the step of its grid, which it counts against itself."""
    ours, *loops = [program(votes) for program in programs.values()]
    for total in loops:
        np.testing.assert_allclose(total, loops[0], rtol=1e-9)
        np.testing.assert_allclose(ours, total, rtol=1e-5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    votes, _ = synthetic_votes(QUERIES, num_classes=CLASSES, num_teachers=TEACHERS, accuracy=0.8, rng=Rng.from_seed(0))
    programs = {"hush": whole, "python loop": loop_over_orders_too, "numpy per query": loop_with_numpy}
    EVERYTHING.update({len(part): GNMax(STDDEV).answer(part) for part in (votes[:500], votes)})
    check(votes[:500], programs)
    turns = [{name: seconds(program, votes) for name, program in programs.items()} for _ in range(arguments.turns)]
    medians = {name: statistics.median(turn[name] for turn in turns) for name in programs}
    result = {
        "queries": QUERIES,
        "classes": CLASSES,
        "orders": len(ORDERS),
        "turns": arguments.turns,
        "seconds": medians,
        "times faster": {name: medians[name] / medians["hush"] for name in programs if name != "hush"},
        "wanted": {"seconds below": WANTED_SECONDS, "times faster than the python loop": WANTED_RATIO},
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "pate_cost.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
