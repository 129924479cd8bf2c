"""Membership inference on Location-30 and a part of CIFAR-10: without privacy, at epsilon 8, at epsilon 1.

    HUSH_DATA=... python -m benchmarks.attacks.membership [location30|cifar10] [number of shadow models]

Two targets, the first pair of the models; the other models are the shadows. Private shadow models are trained as
privately as their targets. Settings were fixed by looking at accuracy alone. Writes results and the guide's picture.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from benchmarks.attacks.record import PICTURES, keep
from hush import Budget, Rng, TrainingPlan, attacks, data, fit
from hush.attacks.plots import draw_curves

SEED, DELTA = 7, 1e-5
ROWS = {"location30": 5_010, "cifar10": 2_000}


class Task:
    def __init__(self, name: str) -> None:
        found = data.load(name)
        assert found.test is not None
        parts = (found.train.tensors, found.test.tensors)
        x, y = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        chosen = torch.from_numpy(Rng.from_seed(SEED).stream("pool").permutation(len(x))[: ROWS[name]].copy())
        self.name, self.x, self.y = name, x[chosen], y[chosen]
        if name == "cifar10":
            self.x = (self.x - 0.5) / 0.25

    def model(self) -> nn.Module:
        if self.name == "location30":
            return nn.Sequential(nn.Linear(446, 128), nn.ReLU(), nn.Linear(128, 30))
        return nn.Sequential(
            *(nn.Conv2d(3, 16, 5, stride=3), nn.Tanh(), nn.Conv2d(16, 32, 3, stride=2), nn.Tanh()),
            *(nn.Flatten(), nn.Linear(512, 10)),
        )

    @property
    def recipe(self) -> attacks.Recipe:
        if self.name == "location30":
            return attacks.Recipe(epochs=30)
        return attacks.Recipe(epochs=40, learning_rate=2e-3)


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), y, reduction="none")


def private_training(task: Task, epsilon: float) -> Callable[[Tensor, Tensor], nn.Module]:
    half = len(task.x) // 2
    plan = TrainingPlan.for_budget(
        Budget(epsilon=epsilon, delta=DELTA), sampling_prob=0.2, expected_batch_size=half // 5, steps=150, clip_norm=1.0
    )

    def train(x: Tensor, y: Tensor) -> nn.Module:
        model = task.model()
        optimizer = torch.optim.SGD(model.parameters(), lr=2.0 if task.name == "location30" else 0.5, momentum=0.5)
        fit(plan, model, TensorDataset(x, y), loss_fn=loss_fn, optimizer=optimizer, progress=False)
        return model

    return train


def measured(task: Task, epsilon: float | None, count: int) -> dict[str, Any]:
    rng, start = Rng.from_seed(SEED), time.process_time()
    if epsilon is None:
        models = attacks.train_shadows(task.model, task.x, task.y, count=count + 2, recipe=task.recipe, rng=rng)
    else:
        train = private_training(task, epsilon)
        models = attacks.train_shadows_with(train, task.x, task.y, count=count + 2, rng=rng)
    right = models.log_probs.argmax(axis=-1) == models.labels
    seconds = time.process_time() - start
    shadows = models.without([0, 1])
    results = {name: pooled(models, shadows, attack) for name, attack in ATTACKS.items()}
    for name, result in results.items():
        above = None if epsilon is None else result.is_above(epsilon, DELTA)
        print(task.name, epsilon, name, result, "" if above is None else f"above the limit: {above}", flush=True)
    return {
        "data": task.name,
        "epsilon": "infinity" if epsilon is None else epsilon,
        "delta": DELTA,
        "shadows": count,
        "train_accuracy": float(right[models.included].mean()),
        "test_accuracy": float(right[~models.included].mean()),
        "cpu_seconds_of_training": round(seconds, 1),
        "attacks": {
            name: {
                **result.to_dict(),
                "surely_above_limit": None if epsilon is None else result.is_above(epsilon, DELTA),
                "highest_ratio_from_10_accused": highest_ratio(result, least=10),
            }
            for name, result in results.items()
        },
        "_results": results,
    }


def highest_ratio(result: attacks.AttackResult, least: int) -> float:
    """The largest TPR / FPR of the plain curve where at least that many non-members are accused."""
    enough = result.roc.false_positive_rate * result.num_nonmembers >= least - 0.5
    return float((result.roc.true_positive_rate[enough] / result.roc.false_positive_rate[enough]).max())


ATTACKS: dict[str, Callable[[Any, attacks.Shadows, Any], attacks.AttackResult]] = {
    "loss threshold": lambda model, shadows, members: attacks.loss_threshold(model, shadows.x, shadows.y, members),
    "shadow models": attacks.shadow_models,
    "RMIA, offline": attacks.rmia,
    "LiRA, offline": lambda model, shadows, members: attacks.lira(model, shadows, members, mode="offline"),
    "LiRA, online": attacks.lira,
}


def pooled(models: attacks.Shadows, shadows: attacks.Shadows, attack: Any) -> attacks.AttackResult:
    """The attack on both models of the first pair, as one result of twice the examples."""
    found = []
    for number in (0, 1):

        def target(x: Tensor, number: int = number) -> Any:
            return models.predict(x)[number]

        found.append(attack(target, shadows, models.included[number]))
    scores, members = (np.concatenate([getattr(item, name) for item in found]) for name in ("scores", "members"))
    return attacks.AttackResult(found[0].method, scores, members)


def main(name: str = "location30", count: str = "32") -> None:
    torch.manual_seed(SEED)
    task, rows = Task(name), []
    for epsilon in (None, 8.0, 1.0):
        rows.append(measured(task, epsilon, int(count)))
    curves = {}
    for row in rows:
        results = row.pop("_results")
        word = "without privacy" if row["epsilon"] == "infinity" else f"epsilon {row['epsilon']:g}"
        curves[f"LiRA, {word}"] = results["LiRA, online"]
        if row["epsilon"] == "infinity":
            curves["loss threshold, without privacy"] = results["loss threshold"]
    keep(f"membership_{name}", rows)
    title = {"location30": "Location-30", "cifar10": "CIFAR-10, 2,000 pictures"}[name]
    draw_curves(curves, PICTURES / f"membership-{name}.png", title=f"Who was trained on? {title}", limit=(1.0, DELTA))


if __name__ == "__main__":
    main(*sys.argv[1:])
