"""The training process of test_kill.py: forked from a host that has loaded everything, one child per attempt.

The host reads one command per line: "start" forks an attempt and prints its id, "wait" prints its exit code.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hush.training import Progress, TrainingPlan, fit

STEPS, EVERY = 150, 4
PLAN = TrainingPlan(
    noise_multiplier=0.5,
    sampling_prob=0.05,
    expected_batch_size=90,
    steps=STEPS,
    clip_norm=1.0,
    delta=1e-5,
    average="ema",
)


def digits() -> TensorDataset:
    x, y = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y))


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def attempt(folder: Path, data: TensorDataset) -> None:
    """Train until the end or until somebody kills this process; each released step is one unbuffered line."""
    log = os.open(folder / "released", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(progress: Progress) -> None:
        os.write(log, f"{progress.step}\n".encode())

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    fit(
        PLAN,
        model,
        data,
        loss_fn=loss_fn,
        optimizer=optimizer,
        scheduler=scheduler,
        folder=folder / "run",
        resume=True,
        checkpoint_every=EVERY,
        callbacks=[tell],
        progress=False,
    )


def say(number: int) -> None:
    os.write(1, f"{number}\n".encode())


def main(folder: Path) -> None:
    torch.set_num_threads(1)  # a forked child must not inherit a pool of threads
    data = digits()
    for line in sys.stdin:
        if line.strip() == "start":
            child = os.fork()
            if child == 0:
                try:
                    attempt(folder, data)
                finally:
                    os._exit(0 if sys.exc_info()[0] is None else 1)
            say(child)
        else:
            say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
