"""Shadow models: models like the target, trained by the attacker on rows whose membership the attacker knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hush import _check
from hush.attacks.shadow_shelf import ShadowShelf
from hush.attacks.signals import Floats, Labels, Model, Outputs, answers, as_labels, log_odds, log_probabilities
from hush.engines import Engine, Local, engine_of
from hush.ensembles import Ensemble, Recipe, train_ensemble
from hush.errors import InvalidValue
from hush.rng import Rng

Flags = npt.NDArray[np.bool_]
Train = Callable[[Any, Any], Model]  # rows, classes -> a model as a function


@dataclass(frozen=True, eq=False)
class Shadows:
    """Shadow models on one pool of rows.

    Attributes:
        x: The pool's rows, the same that the target is attacked on.
        y: Their classes.
        included: (models, rows): which rows each model was trained on.
        predict: Rows -> what all models say, (models, rows, classes).
        outputs: Whether they say logits or probabilities.
    """

    x: Any = field(repr=False)
    y: Any = field(repr=False)
    included: Flags = field(repr=False)
    predict: Callable[[Any], Any] = field(repr=False)
    outputs: Outputs = "logits"

    def __post_init__(self) -> None:
        included = np.asarray(self.included)
        if included.dtype != np.bool_ or included.ndim != 2 or included.shape[1] != len(self.x) or not len(included):
            raise InvalidValue(f"included must be True or False for each model and row; got shape {included.shape}.")
        object.__setattr__(self, "included", included)

    @property
    def count(self) -> int:
        """How many models."""
        return len(self.included)

    @cached_property
    def log_probs(self) -> Floats:
        """What each model says of each row of the pool, (models, rows, classes)."""
        found = log_probabilities(self.predict(self.x), self.outputs)
        if found.shape[:2] != self.included.shape:
            raise InvalidValue(f"predict must give (models, rows, classes) = {self.included.shape}; got {found.shape}.")
        return found

    @cached_property
    def labels(self) -> Labels:
        """The pool's classes, checked."""
        return as_labels(self.y, self.log_probs.shape[-1], len(self.x))

    @cached_property
    def log_odds(self) -> Floats:
        """(models, rows)."""
        return log_odds(self.log_probs, self.labels)

    def target(self, model: Model) -> Floats:
        """What the attacked model says of the pool, (rows, classes)."""
        found = log_probabilities(answers(model, self.x), self.outputs)
        if found.shape != self.log_probs.shape[1:]:
            raise InvalidValue(
                f"the model must give {self.log_probs.shape[1:]} outputs as the shadows do; got {found.shape}."
            )
        return found

    def check_target(self, members: Any) -> Flags:
        """Which rows the target saw; refused where a shadow saw exactly these, or exactly the others.

        Such a shadow is the target itself or its partner, and would tell the attack what it is asked for.
        """
        inside = np.asarray(members)
        if inside.dtype != np.bool_ or inside.shape != (len(self.x),):
            raise InvalidValue(f"members must be True or False for each of {len(self.x)} rows; got {inside.shape}.")
        same = (self.included == inside).mean(axis=1)
        if len(inside) > 1 and (found := np.flatnonzero((same == 0) | (same == 1))).size:
            raise InvalidValue(f"shadow model {found[0]} is the target or its partner; leave both out by `without`.")
        return inside

    def without(self, numbers: Sequence[int]) -> Shadows:
        """The same without some of the models, for attacks on these. Leave out the partner of a pair too."""
        keep = [number for number in range(self.count) if number not in set(numbers)]
        if not keep:
            raise InvalidValue("no shadow model would be left.")
        rest = Shadows(
            self.x, self.y, self.included[keep], lambda x: np.asarray(_array(self.predict(x)))[keep], self.outputs
        )
        rest.__dict__["log_probs"] = self.log_probs[keep]  # not asked again
        return rest


def _array(values: Any) -> Any:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def coin_flips(count: int, rows: int, *, rng: Rng) -> Flags:
    """Which rows each of `count` models trains on: fair coins, and each second model takes what the first left.

    Every row is then in as many models as it is out of. What a pair drew says nothing about another pair.

    >>> flips = coin_flips(4, 100, rng=Rng.from_seed(1))
    >>> flips.sum(axis=0).tolist() == [2] * 100
    True
    """
    stream = rng.stream("membership of shadow models")
    firsts = stream.random((-(-count // 2), rows)) < 0.5
    return np.stack([firsts, ~firsts], axis=1).reshape(-1, rows)[:count]


def train_shadows(
    make_model: Callable[[], nn.Module],
    x: Tensor,
    y: Tensor,
    *,
    count: int = 16,
    recipe: Recipe | None = None,
    rng: Rng | None = None,
) -> Shadows:
    """Train torch models of one shape together, each on a fair half of the pool.

    Args:
        make_model: Gives a new model, as the target's maker would.
        x: The pool's rows.
        y: Their classes, whole numbers.
        count: How many models. An even number: each row is then in half of them.
        recipe: How the target was trained, as far as the attacker knows.
        rng: Where the halves and the order of the rows come from.
    """
    rng = rng or Rng.from_entropy()
    included = coin_flips(_check.whole("count", count, least=2), len(x), rng=rng)
    parts = [torch.from_numpy(np.flatnonzero(row)) for row in included]
    ensemble: Ensemble = train_ensemble(make_model, x, y, parts, recipe=recipe, rng=rng)
    return Shadows(x, y, included, ensemble.outputs)


def train_shadows_with(
    train: Train,
    x: Any,
    y: Any,
    *,
    count: int = 16,
    outputs: Outputs = "logits",
    workers: int = 1,
    engine: str | Engine = "local",
    folder: str | Path | None = None,
    rng: Rng | None = None,
) -> Shadows:
    """Train shadow models by a function of your own, `train(rows, classes) -> model`, such as one that calls `fit`.

    Args:
        train: Gets some of the rows and their classes, and gives a model as a function.
        x: The pool's rows.
        y: Their classes, whole numbers.
        count: How many models. An even number: each row is then in half of them.
        outputs: Whether the models say logits or probabilities.
        workers: As many processes of this machine; `train` and its models must then be picklable.
        engine: "local", "ray" or `hush.engines.Ray(address=...)`: the models on the cores or machines of a cluster.
        folder: What each model says of the pool is kept there as it comes, to go on after an interruption. The models
            themselves are not kept: such shadows answer for the pool alone.
        rng: Where the halves come from.
    """
    included = coin_flips(_check.whole("count", count, least=2), len(x), rng=rng or Rng.from_entropy())
    runner = engine_of(engine)
    if _check.whole("workers", workers) > 1:
        if not isinstance(runner, Local) or folder is not None:
            raise InvalidValue("workers are processes of this machine; leave them out with an engine or a folder.")
        runner = _Processes(workers)
    if folder is not None:
        shelf = ShadowShelf(Path(folder), included, x, y, outputs)
        missing = [number for number in range(count) if shelf.read(number) is None]
        parts = (np.flatnonzero(shelf.included[number]) for number in missing)
        runner.run(
            partial(_answer_pool, train),
            parts,
            shared=(x, y),
            done=lambda index, said: shelf.write(missing[index], said),
        )
        return Shadows(x, y, shelf.included, shelf.predictor(x), outputs)
    models: dict[int, Model] = {}
    parts = (np.flatnonzero(row) for row in included)
    runner.run(partial(_train_on, train), parts, shared=(x, y), done=models.__setitem__)
    return Shadows(
        x, y, included, lambda rows: np.stack([answers(models[number], rows) for number in range(count)]), outputs
    )


class _Processes:
    """Several processes of this machine, by joblib."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def run(self, task: Any, items: Any, *, shared: tuple[Any, ...] = (), done: Any) -> None:
        from joblib import Parallel, delayed  # type: ignore[import-untyped]

        for number, result in enumerate(Parallel(n_jobs=self._workers)(delayed(task)(item, *shared) for item in items)):
            done(number, result)


def _train_on(train: Train, part: Any, x: Any, y: Any) -> Model:
    return train(x[part], y[part])


def _answer_pool(train: Train, part: Any, x: Any, y: Any) -> Any:
    return answers(train(x[part], y[part]), x)
