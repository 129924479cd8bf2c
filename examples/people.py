"""User-level privacy: hospital stays, where one patient can have many. Needs the file of diabetes130.

The plan's unit is a person. Sampling draws people, with all their rows; the gradients of a person's rows are added and
clipped together, so the guarantee covers everything that the data hold about one patient.
"""

import sys

import torch
from torch import nn
from torch.nn import functional

from hush import Budget, TrainingPlan, data, fit


def loss_fn(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(x), y, reduction="none")


def main(steps: int = 200) -> float:
    stays = data.load("diabetes130")
    people = stays.num_examples  # public: the number of patients, not of rows
    print(f"{len(stays.train):,} stays of {people:,} patients; at most {int(stays.people.bincount().max())} of one")
    plan = TrainingPlan.for_budget(
        Budget(epsilon=3.0, delta=1e-6),
        sampling_prob=0.05,
        expected_batch_size=people // 20,
        steps=steps,
        clip_norm=0.5,
        unit="person",
    )
    model = nn.Linear(*stays.input_shape, stays.num_classes)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=20.0, momentum=0.9)
    run = fit(plan, model, stays.train, loss_fn=loss_fn, optimizer=optimizer, people=stays.people)
    x, y = stays.test.tensors
    accuracy = float((model(x).argmax(1) == y).double().mean())
    print(f"test accuracy {100 * accuracy:.2f} %, proven {run.guarantee}")
    for note in run.notes:
        print(f"note: {note}")
    return accuracy


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
