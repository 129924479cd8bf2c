"""What `hush train` is asked to train: data by name, a table with its schema, or the user's own code."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset as TorchDataset

from hush import data
from hush.cli import models
from hush.cli.user_code import made_by
from hush.data import Dataset, Schema
from hush.data.table_file import ENDINGS, READ_FROM_ROWS
from hush.errors import HushError, InvalidValue, UnreadableFile
from hush.rng import Rng

Loss = Callable[..., Tensor]
Model = Callable[[str, Rng], nn.Module]  # name of a model, start -> a new one


def classification_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy, one per example."""
    return functional.cross_entropy(model(x), y, reduction="none")


def regression_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Squared error, one per example."""
    error: Tensor = model(x).squeeze(1) - y
    return error.square()


@dataclass(frozen=True, kw_only=True)
class Task:
    """What to train on, and how to make the model. `num_examples` is the public figure, None if there is none."""

    name: str
    train: TorchDataset[Any]
    test: TorchDataset[Any] | None
    loss_fn: Loss
    model: Model
    num_examples: int | None
    has_recipe: bool  # Hush knows good settings for it
    own_model: bool = False
    people: Tensor | None = None
    num_classes: int | None = None
    target_range: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    public: bool = False  # its rows are public anyway, the test rows too


def known(name: str, folder: Path | None) -> Task:
    """A data set by its name."""
    return replace(_of_dataset(data.load(name, folder=folder)), public=True)


def is_table(text: str) -> bool:
    """Whether `--data` names a file and not a data set."""
    return text.endswith(ENDINGS) or os.sep in text


def table(path: str, target: str | None, schema: Path | None, public_schema: bool, test: Path | None) -> Task:
    """A table of the user's own. Without a schema, or the word that the rows' own ranges are public, it is refused."""
    if (schema is None) == (not public_schema):
        raise InvalidValue(
            f"{path} needs its public ranges and categories, and they are never read from private rows: write a "
            "template with --write-schema schema.json, fill it in, and give it by --schema schema.json; or say that "
            "they are public in this file by --public-schema."
        )
    notes: tuple[str, ...] = ()
    if schema is not None:
        described = read_schema(schema)
        if target is not None and target != described.target.name:
            raise InvalidValue(f"--target is {target!r} and the schema's target is {described.target.name!r}.")
    else:
        if target is None:
            raise InvalidValue("--public-schema needs --target, the name of the column to learn.")
        described, notes = data.schema_from_rows(path, target), (READ_FROM_ROWS,)
    task = _of_dataset(data.from_table(path, described, test=test))
    return replace(task, notes=(*task.notes, *notes))


def read_schema(path: Path) -> Schema:
    """A schema file; what is wrong with it is said with its name."""
    try:
        return Schema.from_json(path.read_bytes())
    except HushError as error:
        raise UnreadableFile(f"{path}: {error}") from None


def write_template(path: str, target: str | None, place: Path) -> None:
    """A schema to fill in; a file that is there already is not replaced."""
    if target is None:
        raise InvalidValue("--write-schema needs --target, the name of the column to learn.")
    text = data.template(path, target)
    try:
        with place.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidValue(f"{place} exists already; choose another name or delete it.") from None


def from_code(target: str, given: Task | None) -> Task:
    """The factory's model on the data that were given, or its own (model, loss_fn, dataset)."""
    made = made_by(target)
    if isinstance(made, nn.Module):
        if given is None:
            raise InvalidValue(f"{target} returned a model alone: name its data by --data, or return the three.")
        return replace(given, model=lambda name, rng: made, own_model=True, has_recipe=False)
    if not isinstance(made, tuple) or len(made) != 3 or not isinstance(made[0], nn.Module) or not callable(made[1]):
        raise InvalidValue(f"{target} must return a model or (model, loss_fn, dataset); got {type(made).__name__}.")
    if given is not None:
        raise InvalidValue(f"{target} returned its own data set: leave out --data.")
    model, loss_fn, dataset = made
    if isinstance(dataset, Dataset):
        return replace(
            _of_dataset(dataset), model=lambda name, rng: model, loss_fn=loss_fn, own_model=True, has_recipe=False
        )
    return Task(
        name=target.rpartition(":")[2],
        train=dataset,
        test=None,
        loss_fn=loss_fn,
        model=lambda name, rng: model,
        num_examples=None,
        has_recipe=False,
        own_model=True,
    )


def _of_dataset(dataset: Dataset) -> Task:
    return Task(
        name=dataset.name,
        train=dataset.train,
        test=dataset.test,
        loss_fn=regression_loss if dataset.num_classes is None else classification_loss,
        model=lambda name, rng: models.build(name, dataset, rng),
        num_examples=dataset.num_examples,
        has_recipe=True,
        people=dataset.people,
        num_classes=dataset.num_classes,
        target_range=dataset.target_range,
        notes=dataset.notes,
    )


@torch.no_grad()
def test_score(task: Task, model: nn.Module) -> tuple[str, float] | None:
    """What the test rows say of a model: ("test_accuracy", share) or ("test_error", mean distance in the unit)."""
    tensors = getattr(task.test, "tensors", None)
    if tensors is None or not len(tensors[0]) or (task.num_classes is None and task.target_range is None):
        return None
    was_training = model.training
    model.eval()
    outputs = torch.cat([model(part) for part in tensors[0].split(2_000)])
    model.train(was_training)
    if task.num_classes is not None:
        return "test_accuracy", float((outputs.argmax(1) == tensors[1]).double().mean())
    assert task.target_range is not None
    low, high = task.target_range
    distance = (outputs.squeeze(1).clamp(0, 1) - tensors[1]).abs().double().mean()
    return "test_error", float(distance) * (high - low)
