"""The same network as in mnist_cnn.py, in a loop of your own: `PrivateGradients` fills `.grad`, the rest is torch."""

import sys

import torch
from mnist_cnn import loss_fn
from torch import nn

from hush import Budget, PrivateGradients, TrainingPlan, data


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
    private = PrivateGradients(model, plan)
    for batch in plan.batches(mnist.train):  # sampled as the plan says; an empty batch is a step too
        private.backward(loss_fn, batch)  # clipped, summed, noised, divided by expected_batch_size
        optimizer.step()
        optimizer.zero_grad()
    x, y = mnist.test.tensors
    accuracy = float((model(x).argmax(1) == y).double().mean())
    print(f"test accuracy {100 * accuracy:.2f} %, proven {private.guarantee()}")
    return accuracy


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
