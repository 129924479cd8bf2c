"""A whole private epoch on MNIST (sampling, loading, noise, ledger) beside a plain PyTorch loop, interleaved.

    python -m benchmarks.dpsgd.epoch [--rounds 5]

The plain loops take the same number of batches of the same expected size with the same optimizer. "ratio" is to one
that shuffles numbers and takes rows out of a tensor, the quickest that can be written; the other has a DataLoader. The
private epoch has its progress bar, which asks the odometer; send stderr elsewhere if you do not want to see it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import hush
from benchmarks.dpsgd.models import cross_entropy, small_mlp, tanh_cnn

BATCH = 600


class Clock:
    """Seconds spent in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


def plain_epoch(model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor, *, loader: bool = False) -> float:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start = time.perf_counter()
    for x, y in _loaded(inputs, labels) if loader else _taken(inputs, labels):
        optimizer.zero_grad()
        cross_entropy(model, x, y).mean().backward()
        optimizer.step()
    return time.perf_counter() - start


def _loaded(inputs: torch.Tensor, labels: torch.Tensor) -> Iterable[Any]:
    return DataLoader(TensorDataset(inputs, labels), batch_size=BATCH, shuffle=True)


def _taken(inputs: torch.Tensor, labels: torch.Tensor) -> Iterable[Any]:
    return ((inputs[rows], labels[rows]) for rows in torch.randperm(len(inputs)).split(BATCH))


def private_epoch(model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor, folder: Path) -> float:
    plan = hush.TrainingPlan.for_budget(
        hush.Budget(epsilon=3.0, delta=1e-5), sampling_prob=BATCH / len(inputs), expected_batch_size=BATCH,
        steps=len(inputs) // BATCH, clip_norm=1.0,
    )  # fmt: skip
    data = TensorDataset(inputs, labels)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ledger = hush.Ledger(folder / f"ledger-{time.time_ns()}.db")
    start = time.perf_counter()
    hush.fit(plan, model, data, loss_fn=cross_entropy, optimizer=optimizer, ledger=ledger)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.environ["FORCE_COLOR"] = "1"  # as on a terminal
    train = hush.data.load("mnist").train
    inputs, labels = train.tensors[0].float(), train.tensors[1].long()
    clock, checks, results = Clock(), Clock(), {}
    from hush.ledger import reservation
    from hush.training import step

    reservation.Reservation.step = clock.around(reservation.Reservation.step)  # type: ignore[method-assign]
    hush.accounting.Odometer.epsilon = clock.around(hush.accounting.Odometer.epsilon)  # type: ignore[method-assign]
    step.check_rows = checks.around(step.check_rows)  # type: ignore[attr-defined]
    step.kept_rows = checks.around(step.kept_rows)  # type: ignore[attr-defined]
    for name, make, shape in (("MLP 784-1000-10", small_mlp, (784,)), ("tanh CNN", tanh_cnn, (1, 28, 28))):
        shaped, ratios, beside_loader, shares, checked = inputs.reshape(-1, *shape), [], [], [], []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(options.rounds):
                plain = plain_epoch(make(), shaped, labels)
                loaded = plain_epoch(make(), shaped, labels, loader=True)
                clock.seconds = checks.seconds = 0.0
                private = private_epoch(make(), shaped, labels, Path(folder))
                ratios.append(private / plain)
                beside_loader.append(private / loaded)
                shares.append(clock.seconds / private)
                checked.append(checks.seconds / private)
        results[name] = {
            "ratio": statistics.median(ratios),
            "ratio_beside_a_loader": statistics.median(beside_loader),
            "ledger_and_odometer": statistics.median(shares),
            "spot_checks": statistics.median(checked),
        }
        print(json.dumps({name: results[name]}), flush=True)
    (options.out / "dpsgd_epoch.json").write_text(
        json.dumps({"rounds": options.rounds, "rows": results}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
