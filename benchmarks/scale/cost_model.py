"""What a private step costs on many machines: communication, memory and time, by formulas, held against measurements.

    python -m benchmarks.scale.cost_model                    1 to 1,000 workers, 1e6 to 1e11 parameters
    python -m benchmarks.scale.cost_model --measure 1 2 4    the formulas beside real steps of so many processes here

With P parameters, W workers and a lot of B examples, one step of a worker

    computes    B / W examples, `overhead` times as long as an ordinary pass back and forth of 6 P operations a token
    sends       whole model: 2 (W - 1) / W * 4 P bytes (one ring all-reduce)
                sharded:     3 (W - 1) / W * 4 P bytes (gather forwards, gather backwards, scatter of the sums), and
                copies 4 P bytes into and out of each of these
    draws       P / W normal numbers, for its own slice
    updates     P parameters, or P / W where they are sharded
    keeps       whole model: 4 P (2 + states) bytes;  sharded: 4 P / W (2 + states), and twice its largest module;
                and the activations and their gradients of B / W examples, which the tape holds until the sums are made

A share that does not fit into memory is computed in pieces. A sharded model then gathers and scatters once a piece.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.scale import pages

BYTES = 4
ENGINES = ("whole", "sharded")


@dataclass(frozen=True)
class Machine:
    """One worker and its link to the others."""

    operations: float  # a second, in an ordinary pass back and forth
    bandwidth: float  # bytes a second, each way
    gathering: float  # the same for gather and scatter, if they are slower than an all-reduce
    latency: float  # seconds that a collective takes at least, per doubling of the workers
    normals: float  # numbers a second; the cipher runs on the CPU
    updates: float  # parameters a second
    copying: float  # bytes a second, read and written
    memory: float  # bytes


@dataclass(frozen=True)
class Job:
    """One training step."""

    parameters: float
    lot: float
    tokens: float = 1.0  # uses of a parameter by an example
    layers: float = 4.0
    states: float = 0.0  # numbers that the optimizer keeps per parameter: 0 for SGD, 1 with momentum, 2 for Adam
    overhead: float = 1.25  # of a private gradient over an ordinary one, as benchmarks.dpsgd measures it

    @property
    def activations(self) -> float:
        """Bytes that the tape holds of one example: inputs and output gradients of all layers."""
        width = math.sqrt(self.parameters / (12 * self.layers))  # a transformer's layer has 12 width^2 parameters
        return 2 * BYTES * 16 * width * self.layers * self.tokens


@dataclass(frozen=True)
class Cost:
    """Seconds of a step by what they are spent on, and bytes kept by one worker."""

    compute: float
    communication: float
    noise: float
    update: float
    memory: float

    @property
    def seconds(self) -> float:
        return self.compute + self.communication + self.noise + self.update


def cost(job: Job, machine: Machine, workers: int, engine: str) -> Cost:
    """What the formulas say. Nothing overlaps: the norms must be known before the first sum can be sent."""
    sharded = engine == "sharded"
    sent = (workers - 1) / workers * BYTES * job.parameters
    rounds = 3 * job.layers if sharded else 2
    copied = 6 * BYTES * job.parameters / machine.copying
    wire = 3 * sent / machine.gathering + copied if sharded else 2 * sent / machine.bandwidth
    share = 1 / workers if sharded else 1.0
    held = BYTES * job.parameters * share * (2 + job.states) + sharded * 2 * BYTES * job.parameters / job.layers
    return Cost(
        compute=job.lot / workers * 6 * job.parameters * job.tokens * job.overhead / machine.operations,
        communication=wire + (rounds + 1) * math.log2(workers) * machine.latency,  # one more for the word of all
        noise=job.parameters / workers / machine.normals,
        update=job.parameters * share / machine.updates,
        memory=held + job.lot / workers * job.activations,
    )


# One accelerator with 80 GB, half of its peak in mixed precision, a 200 Gbit/s link, and one core that draws noise.
ACCELERATOR = Machine(
    operations=1.5e14,
    bandwidth=2.5e10,
    gathering=2.5e10,
    latency=2e-5,
    normals=1e8,
    updates=1e11,
    copying=1e12,
    memory=8e10,
)
WORKERS = (1, 8, 64, 512, 1000)
SIZES = (1e6, 1e7, 1e8, 1e9, 1e10, 1e11)


def reference(parameters: float) -> Job:
    """Fine-tuning a transformer: lots of 4,096 examples of 256 tokens, with Adam."""
    return Job(parameters, lot=4096, tokens=256, layers=max(4.0, 2 * parameters**0.16), states=2)


def in_pieces(job: Job, machine: Machine, workers: int, engine: str) -> Cost:
    """The same with the share in pieces that fit, or one example at a time if none does."""
    found = cost(job, machine, workers, engine)
    share = job.lot / workers
    fixed = found.memory - share * job.activations
    rows = min(share, max(1.0, (machine.memory - fixed) // job.activations))
    pieces = math.ceil(share / rows) if engine == "sharded" else 1
    return replace(found, memory=fixed + rows * job.activations, communication=pieces * found.communication)


def tables() -> str:
    lines = [
        "| parameters | workers | engine | compute, s | communication, s | noise, s | step, s | memory, GB | fits |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for size in SIZES:
        for workers in WORKERS:
            for engine in ENGINES:
                found = in_pieces(reference(size), ACCELERATOR, workers, engine)
                fits = "yes" if found.memory <= ACCELERATOR.memory else "no"
                lines.append(
                    f"| {size:.0e} | {workers} | {engine} | {found.compute:.3g} | {found.communication:.3g} | "
                    f"{found.noise:.3g} | {found.seconds:.3g} | {found.memory / 1e9:.3g} | {fits} |"
                )
    return "\n".join(lines)


# Held against measurements ------------------------------------------------------------------------------------------


def median_of(work: Callable[[], object], repeats: int) -> float:
    import torch.distributed as dist

    times = []
    for _ in range(repeats):
        dist.barrier()
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measured_machine(row_of: Any, job: Job, repeats: int) -> Machine:
    """This machine as its processes find it while all of them do the same; computing by plain passes of the model."""
    import torch
    import torch.distributed as dist

    from benchmarks.scale.ddp import passes
    from hush.gradients.noise import NoiseSource
    from hush.rng import Rng
    from hush.training.sharded import _reduce_scatter

    size, count = dist.get_world_size(), 4_000_000
    row, part, few = torch.randn(count), torch.empty(count // dist.get_world_size()), torch.zeros(16)
    source, some = NoiseSource(Rng()), torch.zeros(400_000)
    weights = torch.nn.Parameter(torch.zeros(count))
    weights.grad = row
    both = median_of(passes(row_of, dist.get_rank(), size), repeats)
    copy = median_of(row.clone, repeats)
    fast, slow = median_of(lambda: dist.all_reduce(row), repeats), median_of(lambda: dist.all_reduce(few), repeats)
    all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # newer and older torch
    gather = median_of(lambda: all_gather(row, part), repeats)
    gather += median_of(lambda: _reduce_scatter(part, row), repeats)
    noise = median_of(lambda: source.add({"": some}, 1.0), repeats)
    update = median_of(torch.optim.SGD([weights], lr=0.0).step, repeats)
    sent = (size - 1) / size * BYTES * count
    return Machine(
        operations=job.lot / size * 6 * job.parameters * job.tokens / both,
        bandwidth=2 * sent / fast if size > 1 else math.inf,
        gathering=2 * sent / gather if size > 1 else math.inf,
        latency=slow / math.log2(size) if size > 1 else 0.0,
        normals=len(some) / noise,
        updates=count / update,
        copying=BYTES * count / copy,
        memory=math.inf,
    )


def measure(repeats: int, out: Path) -> None:
    """One launch: the machine, then steps of two models by both engines, beside what the formulas say."""
    import torch
    import torch.distributed as dist

    from benchmarks.dpsgd.models import ROWS
    from benchmarks.scale.ddp import private

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size, found = dist.get_world_size(), []
    jobs = {ROWS[1].name: (512, 1, 3), ROWS[4].name: (16, 128, 4)}
    for row in (ROWS[1], ROWS[4]):
        lot, tokens, layers = jobs[row.name]
        parameters = sum(value.numel() for value in row.make().parameters())
        job = Job(parameters, lot=lot, tokens=tokens, layers=layers)
        for engine in ENGINES:
            step = private(row, dist.get_rank(), size, sharded=engine == "sharded")
            step()
            machine = measured_machine(row, job, repeats)
            real = median_of(step, repeats)
            said = cost(job, machine, size, engine)
            parts = {"compute": said.compute, "communication": said.communication, "noise": said.noise}
            names = {"model": row.name, "processes": size, "engine": engine}
            found.append({**names, "measured": real, "said": said.seconds, **parts})
    if dist.get_rank() == 0:
        out.write_text(json.dumps(found))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", type=int, nargs="+", default=[])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, default=pages.RESULTS)
    parser.add_argument("--worker", action="store_true")
    chosen = parser.parse_args()
    if chosen.worker:
        measure(chosen.repeats, chosen.out)
    elif chosen.measure:
        place = chosen.out / "scale_cost.json"
        costs = pages.by_processes("benchmarks.scale.cost_model", chosen.measure, chosen.repeats, place)
        print(pages.write_page(pages.read("scale_ddp.json"), costs))
    else:
        print(tables())


if __name__ == "__main__":
    main()
