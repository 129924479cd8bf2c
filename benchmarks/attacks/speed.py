"""How quickly shadow models train together, and a thousand canaries are scored.

    HUSH_DATA=... python -m benchmarks.attacks.speed [repeats]

Both ways train the same 16 networks (446-128-30, Adam, batches of 32) for the same steps; one after the other twice,
with torch's usual Adam and with its fused one. The parts alternate; ratios are of medians, wall-clock and processor.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.attacks.language_model import DIGITS, PREFIX, CharacterModel
from benchmarks.attacks.record import keep
from hush import Rng, attacks, data
from hush.attacks.shadows import coin_flips
from hush.ensembles import Recipe, row_orders, train_ensemble

COUNT, SEED = 16, 5


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(446, 128), nn.ReLU(), nn.Linear(128, 30))


def one_after_the_other(x: torch.Tensor, y: torch.Tensor, orders: list[torch.Tensor], fused: bool) -> None:
    for number in range(COUNT):
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused or None)
        for rows in orders:
            chosen = rows[number]
            optimizer.zero_grad()
            functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def shadows(repeats: int) -> dict[str, Any]:
    found = data.load("location30")
    x, y = found.train.tensors
    recipe = Recipe(epochs=1)
    rng = Rng.from_seed(SEED)
    parts = [torch.from_numpy(row.nonzero()[0]) for row in coin_flips(COUNT, len(x), rng=rng)]
    orders = row_orders(parts, recipe, rng)
    ways: dict[str, Callable[[], Any]] = {
        "together": lambda: train_ensemble(network, x, y, parts, recipe=recipe, rng=rng),
        "one_after_the_other": lambda: one_after_the_other(x, y, orders, fused=False),
        "one_after_the_other_fused": lambda: one_after_the_other(x, y, orders, fused=True),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, work in ways.items():
            times[name].append(timed(work))
    result: dict[str, Any] = {"models": COUNT, "steps": len(orders), "threads": torch.get_num_threads()}
    for place, kind in ((0, "wall"), (1, "cpu")):
        middle = {name: statistics.median(pair[place] for pair in pairs[1:]) for name, pairs in times.items()}
        result[f"{kind}_seconds"] = {name: round(value, 3) for name, value in middle.items()}
        result[f"{kind}_speedup"] = round(middle["one_after_the_other"] / middle["together"], 2)
        result[f"{kind}_speedup_over_fused"] = round(middle["one_after_the_other_fused"] / middle["together"], 2)
    return result


def canaries(repeats: int) -> dict[str, Any]:
    """1,000 canaries on a model of a million parameters: one pass of the whole batch, against one by one."""
    torch.manual_seed(SEED)
    model = CharacterModel(66, width=168, layers=3, heads=4).eval()
    size = sum(value.numel() for value in model.parameters())
    tokens = torch.randint(0, 66, (2_000, len(PREFIX) + DIGITS), generator=torch.Generator().manual_seed(SEED))
    secret, others = tokens[:1_000], tokens[1_000:]
    passes = 0

    def counting(rows: torch.Tensor) -> torch.Tensor:
        nonlocal passes
        passes += 1
        answer: torch.Tensor = model(rows)
        return answer

    attacks.exposure(counting, secret, others, rows_at_once=1_000)
    batch = [timed(lambda: attacks.log_perplexity(model, secret, rows_at_once=1_000)) for _ in range(repeats)]
    single = [timed(lambda: attacks.log_perplexity(model, secret[:50], rows_at_once=1)) for _ in range(repeats)]
    together, alone = (statistics.median(pair[0] for pair in pairs) for pairs in (batch, single))
    return {
        "parameters": size,
        "canaries": 1_000,
        "passes_for_canaries_and_references": passes,
        "seconds_together": round(together, 3),
        "seconds_one_by_one": round(alone * 20, 3),
        "speedup": round(alone * 20 / together, 1),
    }


def main(repeats: str = "5") -> None:
    result = {"shadows": shadows(int(repeats)), "exposure": canaries(int(repeats))}
    print(result)
    keep("speed", result)


if __name__ == "__main__":
    main(*sys.argv[1:])
