"""What `hush attack membership` does: a target and its shadows on random halves of the rows, then the attacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hush import _check, attacks
from hush.attacks import AttackResult, Recipe, Shadows
from hush.attacks.signals import answers
from hush.cli import job, task
from hush.cli.output import waiting
from hush.cli.recipes import MOMENTUM
from hush.cli.user_code import made_by
from hush.errors import InvalidValue
from hush.privacy import Budget
from hush.rng import Rng
from hush.training import fit

METHODS = ("loss_threshold", "shadow_models", "lira", "lira_offline", "rmia")
_TARGETS = 2  # one pair of models: what one was trained on, the other was not


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The options of `hush attack membership`."""

    epsilon: float | None
    delta: float | None
    model: str | None
    shadows: int
    rows: int
    epochs: int
    methods: tuple[str, ...]
    seed: int | None


@dataclass(frozen=True, kw_only=True)
class Found:
    """The results by method, and what the models know of their own rows and of others."""

    results: dict[str, AttackResult]
    train_accuracy: float
    test_accuracy: float
    budget: Budget | None
    model: str


def methods_of(word: str) -> tuple[str, ...]:
    """The methods that `--method` names."""
    return METHODS if word == "all" else (_check.one_of("--method", word, (*METHODS, "all")),)


def on_data(name: str, folder: Path | None, wishes: Wishes) -> Found:
    """Train and attack models on a data set by name."""
    given = task.known(name, folder)
    if given.num_classes is None:
        raise InvalidValue(f"{name} has no classes; membership attacks are for classifiers.")
    if _check.whole("--shadows", wishes.shadows, least=4) % 2:
        raise InvalidValue(f"--shadows must be even: each row is then in half of them; got {wishes.shadows}.")
    rng = Rng.from_entropy() if wishes.seed is None else Rng.from_seed(wishes.seed)
    x, y = _pool(given, wishes.rows, rng)
    counted = iter(range(10**9))  # every model starts from weights of its own

    def make(kind: str) -> nn.Module:
        number = int(rng.stream(f"model {next(counted)}").integers(2**62))
        return given.model(kind, Rng.from_seed(number))

    budget, kind = None, wishes.model or "mlp"
    with waiting(f"training {wishes.shadows + _TARGETS} models"):
        if wishes.epsilon is None:
            recipe = Recipe(epochs=_check.whole("--epochs", wishes.epochs))
            count = wishes.shadows + _TARGETS
            models = attacks.train_shadows(lambda: make(kind), x, y, count=count, recipe=recipe, rng=rng)
        else:
            models, budget = _private(given, x, y, wishes, kind, make, rng)
    right = models.log_probs.argmax(axis=-1) == models.labels
    return Found(
        results=_attacked(models, wishes.methods),
        train_accuracy=float(right[models.included].mean()),
        test_accuracy=float(right[~models.included].mean()),
        budget=budget,
        model=kind,
    )


def _pool(given: task.Task, most: int, rng: Rng) -> tuple[Tensor, Tensor]:
    parts = [part.tensors for part in (given.train, given.test) if isinstance(part, TensorDataset)]
    x, y = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    order = rng.stream("pool").permutation(len(x))[: _check.whole("--rows", most, least=50)]
    chosen = torch.from_numpy(np.ascontiguousarray(order))
    return x[chosen], y[chosen]


def _private(
    given: task.Task, x: Tensor, y: Tensor, wishes: Wishes, kind: str, make: Callable[[str], nn.Module], rng: Rng
) -> tuple[Shadows, Budget]:
    """Shadows trained as privately as the target, each with noise of its own."""
    assert wishes.epsilon is not None
    asked = job.Wishes(
        epsilon=wishes.epsilon, delta=wishes.delta, clip_norm=None, model=kind, num_examples=len(x) // 2, unit="example"
    )
    settled = job.settle(replace(given, num_examples=None if wishes.delta is not None else len(x)), asked)

    def train(rows: Tensor, classes: Tensor) -> nn.Module:
        model = make(kind)
        learning = [value for value in model.parameters() if value.requires_grad]
        optimizer = torch.optim.SGD(learning, lr=settled.learning_rate, momentum=MOMENTUM)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=settled.plan.steps)
        fit(
            settled.plan,
            model,
            TensorDataset(rows, classes),
            loss_fn=given.loss_fn,
            optimizer=optimizer,
            scheduler=scheduler,
            progress=False,
        )
        return model

    shadows = attacks.train_shadows_with(train, x, y, count=wishes.shadows + _TARGETS, rng=rng)
    return shadows, job.budget_of(settled)


def _attacked(models: Shadows, methods: tuple[str, ...]) -> dict[str, AttackResult]:
    """Each attack on both targets, as one result of twice the rows."""
    shadows = models.without(range(_TARGETS))
    found = {}
    for method in methods:
        each = [
            run(method, lambda x, number=number: models.predict(x)[number], shadows, models.included[number])
            for number in range(_TARGETS)
        ]
        scores, members = (np.concatenate([getattr(item, name) for item in each]) for name in ("scores", "members"))
        found[method] = AttackResult(each[0].method, scores, members)
    return found


def run(method: str, model: Any, shadows: Shadows, members: Any) -> AttackResult:
    """One attack by its name."""
    match method:
        case "loss_threshold":
            return attacks.loss_threshold(model, shadows.x, shadows.y, members, outputs=shadows.outputs)
        case "shadow_models":
            return attacks.shadow_models(model, shadows, members)
        case "rmia":
            return attacks.rmia(model, shadows, members)
    return attacks.lira(model, shadows, members, mode="offline" if method == "lira_offline" else "online")


def on_code(target: str, wishes: Wishes) -> Found:
    """Attack a model of the user's own: (model, x, y, members), or with a fifth, train(x, y) -> model."""
    made = made_by(target)
    if not isinstance(made, tuple) or len(made) not in (4, 5) or not callable(made[0]):
        raise InvalidValue(f"{target} must return (model, x, y, members) or (model, x, y, members, train).")
    model, x, y, members = made[:4]
    if len(made) == 4:
        results = {"loss_threshold": attacks.loss_threshold(model, x, y, members)}
    else:
        shadows = attacks.train_shadows_with(made[4], x, y, count=wishes.shadows)
        results = {method: run(method, model, shadows, np.asarray(members)) for method in wishes.methods}
    right = np.asarray(answers(model, x)).argmax(axis=-1) == np.asarray(y)
    inside = np.asarray(members)
    budget = None
    if wishes.epsilon is not None:
        if wishes.delta is None:
            raise InvalidValue("--epsilon of your own model needs its --delta.")
        budget = Budget(epsilon=wishes.epsilon, delta=wishes.delta)
    return Found(
        results=results,
        train_accuracy=float(right[inside].mean()),
        test_accuracy=float(right[~inside].mean()),
        budget=budget,
        model=target,
    )
