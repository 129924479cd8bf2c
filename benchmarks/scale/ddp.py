"""A private step of several processes beside the step of plain DDP (and of plain FSDP2) with the same model and rows.

    python -m benchmarks.scale.ddp [--processes 1 2 4] [--repeats 15] [--out benchmarks/results]

Every process runs on one thread. The steps to be compared are interleaved round by round in the same processes; a
round's time is that of the slowest process. Ratios are medians over rounds, to the plain step of the same round; rounds
that other work on the machine disturbed are taken again. Rows of other numbers of processes stay as they are.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.idle import ticks
from benchmarks.scale import pages

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
NAMES = ("MLP 784-1000-10", "MLP 784-2048-2048-10", "tanh CNN", "transformer d=256 L=4 T=128")
OTHERS = 0.1  # of the cores
LEAST_SECONDS = 8.0  # of a model's rounds: short steps vary more and are repeated more often
Step = Callable[[], None]


def _share(batch: Any, rank: int, size: int) -> Any:
    from hush.gradients.batches import take

    return take(batch, slice(rank, None, size))


def passes(row: Any, rank: int, size: int) -> Step:
    """Forward and backward of this process's share alone."""
    import torch

    from hush.gradients.batches import call

    torch.manual_seed(0)
    model, batch = row.make().train(), _share(row.batch(), rank, size)

    def step() -> None:
        model.zero_grad()
        call(row.loss_fn, model, batch).mean().backward()

    return step


def plain(row: Any, rank: int, size: int, *, sharded: bool) -> Step:
    """Forward, backward, reduction and update by torch alone."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from hush.gradients.batches import call

    torch.manual_seed(0)
    model = row.make().train()
    model = shard(model) if sharded else DistributedDataParallel(model)
    batch, optimizer = _share(row.batch(), rank, size), torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        call(row.loss_fn, model, batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def private(row: Any, rank: int, size: int, *, sharded: bool) -> Step:
    """The same by Hush: clipped, summed, charged in memory, noised."""
    import torch

    from hush import PrivateGradients, TrainingPlan

    torch.manual_seed(0)
    model = row.make().train()
    model = shard(model) if sharded else model
    plan = TrainingPlan(
        noise_multiplier=1.0, sampling_prob=0.01, expected_batch_size=100, steps=100_000, clip_norm=1.0, delta=1e-5
    )
    batch, optimizer = _share(row.batch(), rank, size), torch.optim.SGD(model.parameters(), lr=1e-3)
    gradients = PrivateGradients(model, plan)

    def step() -> None:
        gradients.backward(row.loss_fn, batch)
        optimizer.step()
        optimizer.zero_grad()

    return step


def shard(model: Any) -> Any:
    """Every part with parameters of its own, then the whole."""
    from torch.distributed.fsdp import fully_shard

    parts = model.layers.layers if hasattr(model, "layers") else model.children()
    for part in parts:
        if any(True for _ in part.parameters()):
            fully_shard(part)
    return fully_shard(model)


STEPS: dict[str, Callable[[Any, int, int], Step]] = {
    "plain DDP": lambda row, rank, size: plain(row, rank, size, sharded=False),
    "Hush": lambda row, rank, size: private(row, rank, size, sharded=False),
    "plain FSDP2": lambda row, rank, size: plain(row, rank, size, sharded=True),
    "Hush on FSDP2": lambda row, rank, size: private(row, rank, size, sharded=True),
}


def timed(steps: dict[str, Step], repeats: int) -> dict[str, list[tuple[float, float]]]:
    """For each step and round: seconds of the slowest process, and processor seconds of all.

    A round in which other work took more than a tenth of the cores is not counted, whatever it gave, and another one
    is taken. Where that is so for two of three rounds the measurement ends without a result.
    """
    for _ in range(2):
        spent = sum(one_step(step)[0] for step in steps.values())
    repeats = max(repeats, int(LEAST_SECONDS / spent))
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    gc.disable()
    for _ in range(3 * repeats):
        before, start, used = ticks(), time.perf_counter(), time.process_time()
        one = {name: one_step(step) for name, step in steps.items()}
        idle, total = (after - first for after, first in zip(ticks(), before, strict=True))
        cores = (time.perf_counter() - start) * (os.cpu_count() or 1)
        if _is_quiet(1 - idle / max(total, 1), (time.process_time() - used) / cores):
            for name, times in one.items():
                found[name].append(times)
        gc.collect()
        if len(next(iter(found.values()))) == repeats:
            break
    else:
        raise SystemExit("other work took too much of this machine; measure again when it is over.")
    gc.enable()
    return found


def one_step(step: Step) -> tuple[float, float]:
    """Seconds of the slowest process, and processor seconds of all."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    wall, used = time.perf_counter(), time.process_time()
    step()
    spent = torch.tensor([time.perf_counter() - wall, time.process_time() - used], dtype=torch.float64)
    slowest, total = spent[:1].clone(), spent[1:].clone()
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    dist.all_reduce(total)
    return float(slowest), float(total)


def _is_quiet(taken: float, own: float) -> bool:
    """Whether little more of the cores was taken, by what the first process saw, than by these processes together."""
    import torch
    import torch.distributed as dist

    shares = torch.tensor([taken, own])
    dist.broadcast(shares[:1], 0)
    dist.all_reduce(shares[1:])
    return float(shares[0] - shares[1]) <= OTHERS


def worker(repeats: int, out: Path) -> None:
    import torch
    import torch.distributed as dist

    from benchmarks.dpsgd.models import ROWS

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    results = []
    for row in ROWS:
        if row.name.rpartition(",")[0] not in NAMES:
            continue
        times = timed({name: make(row, rank, size) for name, make in STEPS.items()}, repeats)
        parameters = sum(value.numel() for value in row.make().parameters())
        results.append({"name": row.name, "processes": size, "parameters": parameters, **summary(times)})
        if rank == 0:
            print(json.dumps(results[-1]), flush=True)
    if rank == 0:
        out.write_text(json.dumps(results))
    dist.destroy_process_group()


def summary(times: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    def ratio(name: str, beside: str, which: int) -> float:
        pairs = zip(times[name], times[beside], strict=True)
        return statistics.median(one[which] / other[which] for one, other in pairs)

    return {
        "seconds": {name: statistics.median(wall for wall, _ in rounds) for name, rounds in times.items()},
        "over_ddp": ratio("Hush", "plain DDP", 0),
        "over_ddp_processor": ratio("Hush", "plain DDP", 1),
        "over_fsdp": ratio("Hush on FSDP2", "plain FSDP2", 0),
        "over_fsdp_processor": ratio("Hush on FSDP2", "plain FSDP2", 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=pages.RESULTS)
    parser.add_argument("--worker", action="store_true")
    chosen = parser.parse_args()
    if chosen.worker:
        worker(chosen.repeats, chosen.out)
        return
    steps = pages.by_processes("benchmarks.scale.ddp", chosen.processes, chosen.repeats, chosen.out / "scale_ddp.json")
    print(pages.write_page(steps, pages.read("scale_cost.json")))


if __name__ == "__main__":
    main()
