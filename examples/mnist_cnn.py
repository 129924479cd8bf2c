"""A network on MNIST with epsilon 3, in thirty lines. Needs the files of MNIST: see docs/guides/data.md."""

import sys

import torch
from torch import nn
from torch.nn import functional

from hush import Budget, TrainingPlan, data, fit


def loss_fn(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(x), y, reduction="none")  # one loss per example


def main(steps: int = 1_200) -> float:
    mnist = data.load("mnist")
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 8, stride=2, padding=2), nn.Tanh(), nn.MaxPool2d(2, stride=1)),
        *(nn.Conv2d(16, 32, 4, stride=2), nn.Tanh(), nn.MaxPool2d(2, stride=1)),
        *(nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10)),
    )
    budget = Budget(epsilon=3.0, delta=1e-5)
    one_shape = {"sampling": "truncated_poisson", "num_examples": 60_000}  # much faster than batches of many sizes
    plan = TrainingPlan.for_budget(
        budget, sampling_prob=1024 / 60_000, expected_batch_size=1024, steps=steps, clip_norm=0.1, **one_shape
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=4.0, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    run = fit(plan, model, mnist.train, loss_fn=loss_fn, optimizer=optimizer, scheduler=scheduler)
    x, y = mnist.test.tensors
    accuracy = float((model(x).argmax(1) == y).double().mean())
    print(f"test accuracy {100 * accuracy:.2f} %, proven {run.guarantee}")
    return accuracy


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
