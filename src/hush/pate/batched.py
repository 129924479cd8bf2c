"""Equal torch teachers trained together: their weights are stacked and one pass serves them all.

A small network on a few hundred rows spends its time on calls, not on numbers. Stacked, the same calls serve a block of
teachers (`torch.func.stack_module_state`, `vmap`). Every operation is taken teacher by teacher or number by number, so
no teacher learns from another's rows; a test holds that against training each alone.

The number of steps and of rows in a step are constants of the recipe. With passes over the longest shard of a block,
one person in it would change the training of all teachers of the block, and the cost of a vote would be stated too low.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional

from hush.errors import InvalidValue
from hush.pate.recipe import Recipe, draw_rows, make_optimizer

State = dict[str, Tensor]
Rows = Sequence[NDArray[numpy.int64]]  # of each teacher
_MOST_NUMBERS = 50_000_000  # of one forward pass over queries


@dataclass(frozen=True, eq=False)
class Stack:
    """A block of equal modules with their weights stacked; the first axis is the teacher."""

    skeleton: nn.Module
    parameters: State
    buffers: State

    @classmethod
    def of(cls, modules: Sequence[nn.Module]) -> Stack:
        """Stack modules; they must be of one architecture."""
        if any(_layout(module) != _layout(modules[0]) for module in modules[1:]):
            raise InvalidValue("make_teacher must return modules of one architecture; these differ in their weights.")
        parameters, buffers = stack_module_state(list(modules))
        return cls(_skeleton(modules[0]), parameters, buffers)

    @property
    def state(self) -> State:
        """All weights and buffers, detached."""
        return {name: value.detach() for name, value in (*self.parameters.items(), *self.buffers.items())}

    def load(self, state: State) -> Stack:
        """The same architecture with these weights."""
        return Stack(self.skeleton, {k: state[k] for k in self.parameters}, {k: state[k] for k in self.buffers})

    def __call__(self, x: Tensor, *, shared: bool = False, training: bool = False) -> Tensor:
        """(teachers, rows, ...) -> (teachers, rows, classes); with `shared` all teachers get the same (rows, ...)."""
        self.skeleton.train(training)

        def one(parameters: State, buffers: State, rows: Tensor) -> Tensor:
            result: Tensor = functional_call(self.skeleton, (parameters, buffers), (rows,))
            return result

        run = vmap(one, in_dims=(0, 0, None if shared else 0), randomness="different")
        result: Tensor = run(self.parameters, self.buffers, x)
        return result


def _layout(module: nn.Module) -> list[tuple[str, torch.Size]]:
    return [(name, value.shape) for name, value in module.state_dict().items()]


def _skeleton(module: nn.Module) -> nn.Module:
    """The module without numbers of its own."""
    return copy.deepcopy(module).to("meta")


def can_stack(module: nn.Module) -> bool:
    """Whether a pass leaves the module's buffers alone; batch normalisation in training does not."""
    return not any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in module.modules())


def train_block(
    modules: Sequence[nn.Module],
    x: Tensor,
    y: Tensor,
    rows: Rows,
    recipe: Recipe,
    stream: torch.Generator,
    tick: Callable[[float], object] = lambda share: None,
) -> Stack:
    """Train one module on each shard; `tick` hears the share that is done."""
    if not all(len(shard) for shard in rows):
        raise InvalidValue("a shard without rows has no teacher to train.")
    stack = Stack.of(modules)
    sizes = [len(shard) for shard in rows]
    everyone = torch.from_numpy(numpy.concatenate(rows))
    starts = torch.tensor([0, *sizes[:-1]]).cumsum(0)[:, None]
    optimizer, schedule = make_optimizer(list(stack.parameters.values()), recipe, recipe.steps)
    for step in range(recipe.steps):
        chosen = everyone[starts + draw_rows(sizes, recipe.rows_per_step, stream)]
        some = x.index_select(0, chosen.flatten()).unflatten(0, chosen.shape)
        loss = _loss(stack, _augmented(some, recipe, stream), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        tick((step + 1) / recipe.steps)
    return stack


def _loss(stack: Stack, x: Tensor, y: Tensor) -> Tensor:
    """The sum over teachers of each one's mean loss: the gradient of a teacher is of its own rows alone."""
    outputs = stack(x, training=True)
    return functional.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="sum") / y.shape[1]


def _augmented(x: Tensor, recipe: Recipe, stream: torch.Generator) -> Tensor:
    """Changed copies, teacher by teacher: whatever the function does, it cannot mix the rows of two teachers."""
    if recipe.augment is None:
        return x
    return torch.stack([recipe.augment(rows, stream) for rows in x])


@torch.no_grad()
def predict(stack: Stack, x: Tensor) -> NDArray[numpy.int64]:
    """The class that each teacher names for each row, (teachers, rows); rows in parts that fit into memory."""
    teachers = len(next(iter(stack.parameters.values())))
    part = max(1, min(2_000, _MOST_NUMBERS // (teachers * max(1, x[:1].numel()) * 8)))
    labels = [stack(rows, shared=True).argmax(dim=2) for rows in x.split(part)]
    return torch.cat(labels, dim=1).numpy() if labels else numpy.empty((teachers, 0), numpy.int64)
