"""The teachers and students that `hush pate` offers, and the fixed features that they look at."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hush.cli import models
from hush.data import Dataset
from hush.errors import InvalidValue
from hush.pate.kernel_teacher import KernelTeacher
from hush.pate.recipe import Recipe
from hush.pate.strokes import strokes
from hush.rng import Rng

TEACHERS = ("kernel", "linear", "mlp", "cnn")
RECIPES = {
    "linear": Recipe(steps=450, rows_per_step=16, learning_rate=0.05),
    "mlp": Recipe(steps=600, rows_per_step=16, learning_rate=0.003),
    "cnn": Recipe(steps=600, rows_per_step=16, learning_rate=0.003),
}


def look(name: str, dataset: Dataset) -> Callable[[Tensor], Tensor]:
    """What a teacher sees of a row: strokes for pictures, unless the teacher is a network; the row itself elsewhere."""
    if name in ("kernel", "linear") and len(dataset.input_shape) == 3:
        return strokes
    return lambda rows: rows


def teacher(name: str, dataset: Dataset, width: int, rng: Rng) -> tuple[Callable[[], Any], Recipe | None]:
    """A function that makes a new teacher, and how it learns; `width` is the number of features it sees."""
    classes = dataset.num_classes
    assert classes is not None
    if name == "kernel":
        return lambda: KernelTeacher(classes), None
    if name == "linear":
        return lambda: nn.Linear(width, classes), RECIPES[name]
    if name in ("mlp", "cnn"):
        return lambda: models.build(name, dataset, _fresh(rng)), RECIPES[name]
    raise InvalidValue(f"--teacher must be one of {', '.join(TEACHERS)}; got {name!r}.")


def _fresh(rng: Rng) -> Rng:
    """Each teacher starts from weights of its own."""
    return Rng() if rng.is_secret else Rng.from_seed(int(rng.stream(rng.unused("teacher")).integers(2**31)))


def student(dataset: Dataset, rng: Rng) -> nn.Module:
    """A small network with batch normalisation for pictures of 16 pixels and more, a two-layer one elsewhere."""
    classes, shape = dataset.num_classes, dataset.input_shape
    assert classes is not None
    if len(shape) == 3 and min(shape[1:]) >= 16:
        return _started(_network(shape, classes), rng)
    inputs = math.prod(shape)
    return _started(
        nn.Sequential(nn.Flatten(), nn.Linear(inputs, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, classes)), rng
    )


def _network(shape: tuple[int, ...], classes: int, width: int = 16) -> nn.Sequential:
    def block(inside: int, out: int, stride: int = 1) -> tuple[nn.Module, ...]:
        size = 5 if stride == 2 else 3
        return (
            nn.Conv2d(inside, out, size, stride=stride, padding=size // 2, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
        )

    body = nn.Sequential(
        *block(shape[0], width, stride=2),
        *block(width, 2 * width),
        nn.MaxPool2d(2),
        *block(2 * width, 4 * width),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Flatten(),
    )
    with torch.no_grad():
        features = body.eval()(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(*body.train(), nn.Dropout(0.3), nn.Linear(features, classes))


@torch.no_grad()
def _started(model: nn.Sequential, rng: Rng) -> nn.Sequential:
    """torch's usual start, from our own stream."""
    stream = rng.torch_stream("student weights")
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            for parameter in layer.parameters():
                parameter.uniform_(-bound, bound, generator=stream)
    return model
