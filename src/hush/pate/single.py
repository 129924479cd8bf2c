"""One torch module at a time: teachers that cannot be stacked, and plain students."""

from __future__ import annotations

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from hush.pate.recipe import Recipe, draw_rows, make_optimizer


def train_module(module: nn.Module, x: Tensor, y: Tensor, recipe: Recipe, stream: torch.Generator) -> nn.Module:
    """Train the module in place, by the recipe, and return it ready to predict."""
    wanted = [value for value in module.parameters() if value.requires_grad]
    optimizer, schedule = make_optimizer(wanted, recipe, recipe.steps)
    module.train()
    for _ in range(recipe.steps):
        part = draw_rows([len(x)], recipe.rows_per_step, stream)[0]
        rows = x[part] if recipe.augment is None else recipe.augment(x[part], stream)
        loss = functional.cross_entropy(module(rows), y[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return module.eval()


@torch.no_grad()
def classes(module: nn.Module, x: Tensor) -> NDArray[numpy.int64]:
    """The class that the module names for each row; its mode is left as it was."""
    was_training = module.training
    module.eval()
    found = [module(rows).argmax(dim=1) for rows in x.split(1_000)]
    module.train(was_training)
    return torch.cat(found).numpy() if found else numpy.empty(0, numpy.int64)
