"""A private gradient beside an ordinary one, and beside other libraries: time and memory, interleaved in one process.

    python -m benchmarks.dpsgd.run [--repeats 15] [--threads 2] [--out benchmarks/results]

Times are medians over rounds of the ratio to the ordinary forward and backward pass of the same round. Memory is the
largest total of tensors alive at once beside model and batch, which does not depend on machine or allocator. Each peer
that holds single gradients takes the batch whole or in the physical batches, of those tried, in which it is quickest.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
PEERS = ("opacus hooks", "opacus ghost", "jax-privacy")
MOST_STEPS = 64  # that a row takes, with rehearsals
PHYSICAL = (64, 16, 4)  # examples at most
MOST_BYTES = 4e9  # of all examples' gradients, above which a batch is not tried whole


def fresh(row: Any) -> Iterator[Any]:
    """A new batch for every step, so that nothing profits from having seen it; made before the first step."""
    return iter([row.batch() for _ in range(MOST_STEPS)])


def ordinary(row: Any) -> Callable[[], None]:
    import torch

    from hush.gradients.batches import call

    torch.manual_seed(0)
    model, batches = row.make().train(), fresh(row)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        call(row.loss_fn, model, next(batches)).mean().backward()

    return step


def hush(row: Any) -> Callable[[], None]:
    import torch

    from hush.gradients import clipped_sum

    torch.manual_seed(0)
    model, batches = row.make().train(), fresh(row)

    def step() -> None:
        clipped_sum(model, row.loss_fn, next(batches), 1.0, method="tape")

    return step


def _step(library: str, row: Any, size: int) -> Callable[[], None]:
    if library == "hush":
        return hush(row)
    if library == "jax-privacy":
        from benchmarks.dpsgd.peers_jax import step_of

        return step_of(row.name, size)
    from benchmarks.dpsgd import peers_opacus

    return peers_opacus.hooks(row, size) if library == "opacus hooks" else peers_opacus.ghost(row)


def sizes(row: Any) -> list[int]:
    """Physical batches to try: divisors of the batch, and the whole batch where its gradients are not too large."""
    from hush.gradients.batches import num_examples

    count = num_examples(row.batch())
    found = {max(size for size in range(1, most + 1) if count % size == 0) for most in PHYSICAL if most < count}
    whole = count * sum(value.nbytes for value in row.make().parameters()) <= MOST_BYTES
    return sorted({*found, count} if whole else found)


def _ready(library: str, row: Any) -> tuple[Callable[[], None], int] | str:
    """The step that is quickest after two rehearsals and its physical batch, or why all of them fail."""
    best, failure = None, ""
    for size in (0,) if library in ("hush", "opacus ghost") else sizes(row):
        try:
            step = _step(library, row, size)
            step()
            taken = _seconds(step)
        except Exception as error:  # whatever a peer raises is its result
            failure = f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
            continue
        if best is None or taken < best[0]:
            best = taken, step, size
        del step
        gc.collect()
    return failure if best is None else best[1:]


def time_row(row: Any, repeats: int) -> dict[str, Any]:
    """Each library in turn beside the ordinary pass, so that no peer's memory or threads disturb another."""
    plain = ordinary(row)
    plain()
    result: dict[str, Any] = {}
    for library in ("hush", *PEERS):
        found = _ready(library, row)
        if isinstance(found, str):
            result[library] = found
            continue
        step, size = found
        times = [(_seconds(plain), _seconds(step)) for _ in range(repeats)]
        if library == "hush":
            result["ordinary_ms"] = 1e3 * statistics.median(before for before, _ in times)
        elif size:
            result.setdefault("physical", {})[library] = size
        result[library] = statistics.median(own / before for before, own in times)
        del step, found
        gc.collect()
    return result


def _seconds(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def memory_row(row: Any) -> dict[str, float]:
    """Megabytes of all tensors that are alive at once, beside model and batch."""
    from hush.gradients.memory import peak_bytes

    sizes = {}
    for library, make in (("ordinary", ordinary), ("hush", hush)):
        step = make(row)
        step()
        sizes[library] = peak_bytes(step) / 1e6
    return {"ordinary_mb": sizes["ordinary"], "hush_mb": sizes["hush"], "ratio": sizes["hush"] / sizes["ordinary"]}


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--rows", type=int, nargs="*")
    options = parser.parse_args()
    if not options.no_peers:  # threads of two libraries that spin while they wait slow each other down
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    from benchmarks.dpsgd.models import ROWS

    torch.set_num_threads(options.threads)
    if options.no_peers:
        global PEERS
        PEERS = ()
    results = {}
    for index in options.rows or range(len(ROWS)):
        row = ROWS[index]
        results[row.name] = {**time_row(row, options.repeats), "memory": memory_row(row)}
        print(json.dumps({row.name: results[row.name]}), flush=True)
    mean = math.exp(statistics.fmean(math.log(found["hush"]) for found in results.values()))
    options.out.mkdir(parents=True, exist_ok=True)
    summary = {"threads": options.threads, "repeats": options.repeats, "geometric_mean": mean, "rows": results}
    name = "dpsgd_alone" if options.no_peers else "dpsgd"
    (options.out / f"{name}.json").write_text(json.dumps(summary, indent=2) + "\n")
    (options.out / f"{name}.md").write_text(_table(summary))
    print(_table(summary))


def _table(summary: dict[str, Any]) -> str:
    lines = [
        "# A private gradient, as a multiple of the ordinary forward and backward pass",
        "",
        f"{summary['threads']} threads, median of {summary['repeats']} interleaved rounds. "
        f"Geometric mean for Hush: {summary['geometric_mean']:.3f}x.",
        "",
        f"| {' | '.join(('model', 'ordinary, ms', 'Hush', *PEERS, 'memory'))} |",
        "|---" * (4 + len(PEERS)) + "|",
    ]
    for name, row in summary["rows"].items():
        cells = [f"{row[peer]:.2f}x" if isinstance(row[peer], float) else f"fails ({row[peer]})" for peer in PEERS]
        ends = (name, f"{row['ordinary_ms']:.1f}", f"{row['hush']:.2f}x"), (f"{row['memory']['ratio']:.2f}x",)
        lines.append(f"| {' | '.join((*ends[0], *cells, *ends[1]))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
