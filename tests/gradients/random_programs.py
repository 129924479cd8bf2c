"""Random models: a few dozen kinds of steps put together by chance, on sizes from {2, 3, 4} so that equal sizes abound.

Each axis is a list of factors, one of which over all axes is the batch ("B"). A step is chosen among those that keep
the examples apart, so the loop over single examples is always defined, and it says what the gradients are.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIZES = (2, 3, 4)
Axis = list[Any]  # factors: whole numbers, and "B" once
Step = Callable[[Tensor, int], Tensor]


def _size(axis: Axis, count: int) -> int:
    result = 1
    for factor in axis:
        result *= count if factor == "B" else factor
    return result


class Program(nn.Module):
    """A random model of `length` steps, with the shapes that it expects."""

    def __init__(self, seed: int, length: int = 6) -> None:
        super().__init__()
        self.chance = random.Random(seed)
        torch.manual_seed(seed)
        self.shape: list[Axis] = [
            ["B"],
            *([self.chance.choice(SIZES)] for _ in range(self.chance.choice((1, 2, 2, 3)))),
        ]
        self.inputs = tuple(_size(axis, 1) for axis in self.shape[1:])
        self.weights = nn.ParameterList()
        self.steps: list[tuple[str, Step]] = []
        while len(self.steps) < length:
            getattr(self, f"_{self.chance.choice(KINDS)}")()
        self._used()

    def forward(self, x: Tensor) -> Tensor:
        count = len(x)
        for _, step in self.steps:
            x = step(x, count)
        return x

    def loss(self, _: nn.Module, x: Tensor) -> Tensor:
        return (self(x).flatten(1) + 0.3).square().sum(1)

    def batch(self, count: int) -> tuple[Tensor]:
        return (torch.randn(count, *self.inputs, dtype=torch.float64),)

    # --- bookkeeping ----------------------------------------------------------------------------------------------

    def _add(self, name: str, step: Step) -> None:
        self.steps.append((name, step))

    @property
    def _batch_axis(self) -> int:
        return next(i for i, axis in enumerate(self.shape) if "B" in axis)

    def _free(self) -> list[int]:
        """The axes without the batch."""
        return [i for i, axis in enumerate(self.shape) if "B" not in axis]

    def _extent(self, index: int) -> int:
        return _size(self.shape[index], 1)

    def _small(self) -> bool:
        return _size([factor for axis in self.shape for factor in axis], 1) <= 150

    # --- moving ---------------------------------------------------------------------------------------------------

    def _permute(self) -> None:
        order = list(range(len(self.shape)))
        self.chance.shuffle(order)
        self.shape = [self.shape[i] for i in order]
        self._add("permute", lambda x, _: x.permute(order))

    def _merge(self) -> None:
        if len(self.shape) < 3:
            return
        at = self.chance.randrange(len(self.shape) - 1)
        self.shape[at : at + 2] = [self.shape[at] + self.shape[at + 1]]
        self._reshape("merge")

    def _split(self) -> None:
        wide = [i for i, axis in enumerate(self.shape) if len(axis) > 1]
        if wide:
            at = self.chance.choice(wide)
            cut = self.chance.randrange(1, len(self.shape[at]))
            self.shape[at : at + 1] = [self.shape[at][:cut], self.shape[at][cut:]]
            self._reshape("split")

    def _reshape(self, name: str) -> None:
        shape = [list(axis) for axis in self.shape]
        self._add(name, lambda x, count: x.reshape([_size(axis, count) for axis in shape]))

    def _flip(self) -> None:
        at = self.chance.choice(self._free() or [self._batch_axis])
        if self.shape[at] == ["B"] or "B" not in self.shape[at]:
            self._add("flip", lambda x, _: x.flip(at) if x.shape[at] > 1 else x)
            if "B" in self.shape[at]:
                self._weighted()
                self._add("flip back", lambda x, _: x.flip(self._batch_axis))

    def _sorted_batch(self) -> None:
        """Examples in another order for one step, and back."""
        at = self._batch_axis
        if self.shape[at] == ["B"] and self.chance.random() < 0.3:
            way = self.chance.choice(("flip", "roll", "index"))
            turn = {
                "flip": lambda x: x.flip(at),
                "roll": lambda x: x.roll(1, at),
                "index": lambda x: x.index_select(at, torch.arange(x.shape[at] - 1, -1, -1)),
            }[way]
            back = (lambda x: x.roll(-1, at)) if way == "roll" else turn
            self._add(way, lambda x, _: turn(x))
            self._times_weight()
            self._add(f"{way} back", lambda x, _: back(x))

    def _choose(self) -> None:
        free = [i for i in self._free() if self._extent(i) > 1]
        if free:
            at = self.chance.choice(free)
            index = torch.tensor([self.chance.randrange(self._extent(at)) for _ in range(self.chance.choice(SIZES))])
            self.shape[at] = [len(index)]
            self._add("index_select", lambda x, _: x.index_select(at, index))

    def _select(self) -> None:
        free = self._free()
        if len(free) > 1:
            at = self.chance.choice(free)
            which = self.chance.randrange(self._extent(at))
            del self.shape[at]
            self._add("select", lambda x, _: x.select(at, which))

    def _double(self) -> None:
        if self._free() and self._small():
            at = self.chance.choice(self._free())
            self.shape[at] = [2, *self.shape[at]]
            self._add("cat", lambda x, _: torch.cat([x, -x], at))

    def _stack(self) -> None:
        if self._small():
            at = self.chance.randrange(len(self.shape) + 1)
            self.shape.insert(at, [2])
            self._add("stack", lambda x, _: torch.stack([x, torch.sin(x)], at))

    def _unsqueeze(self) -> None:
        at = self.chance.randrange(len(self.shape) + 1)
        if len(self.shape) < 5:
            self.shape.insert(at, [1])
            self._add("unsqueeze", lambda x, _: x.unsqueeze(at))

    # --- without weights ------------------------------------------------------------------------------------------

    def _pointwise(self) -> None:
        function = self.chance.choice((torch.tanh, torch.sin, F.gelu, lambda x: x.clone().tanh_(), lambda x: x * 0.5))
        self._add("pointwise", lambda x, _: function(x))

    def _along(self) -> None:
        if self._free():
            at = self.chance.choice(self._free())
            function = self.chance.choice((torch.softmax, torch.cumsum, lambda x, dim: x.sort(dim).values))
            self._add("along", lambda x, _: torch.tanh(function(x, dim=at)))

    def _reduce(self) -> None:
        if len(self._free()) > 1:
            at = self.chance.choice(self._free())
            function = self.chance.choice((torch.mean, torch.amax, lambda x, dim: x.norm(dim=dim)))
            del self.shape[at]
            self._add("reduce", lambda x, _: function(x, dim=at))

    def _constant(self) -> None:
        shape, count_at = [list(axis) for axis in self.shape], self._batch_axis
        whole = self.chance.random() < 0.5

        def step(x: Tensor, count: int) -> Tensor:
            wanted = [_size(axis, count) if whole or i != count_at else 1 for i, axis in enumerate(shape)]
            return x + x.new_ones(wanted) * 0.1

        self._add("constant", step)

    def _product(self) -> None:
        """A frozen matrix on the left or the right."""
        if len(self.shape) >= 2:
            left = self.chance.random() < 0.5
            at = len(self.shape) - (2 if left else 1)
            if at in self._free():
                wide = self.chance.choice(SIZES)
                matrix = torch.randn(wide, self._extent(at), dtype=torch.float64)
                self.shape[at] = [wide]
                self._add("frozen", lambda x, _: torch.tanh(matrix @ x if left else x @ matrix.T))

    def _gram(self) -> None:
        """The product of the tensor with itself, over its last axis."""
        if len(self.shape) >= 3 and not {len(self.shape) - 1, len(self.shape) - 2} - set(self._free()):
            self.shape[-1] = list(self.shape[-2])
            self._add("gram", lambda x, _: torch.tanh(x @ x.transpose(-1, -2)))

    def _written(self) -> None:
        if self._free():
            at = self.chance.choice(self._free())

            def step(x: Tensor, _: int) -> Tensor:
                result = x.clone()
                result.select(at, 0).mul_(0.5)
                result[(slice(None),) * at + (0,)] = 0.2
                return result

            self._add("write", step)

    # --- with weights ---------------------------------------------------------------------------------------------

    def _weighted(self) -> None:
        getattr(self, f"_{self.chance.choice(WEIGHTED)}")()

    def _used(self) -> None:
        """Every program ends with a weight, and with the examples first."""
        self._times_weight()
        at = self._batch_axis
        if len(self.shape[at]) > 1:
            where = self.shape[at].index("B")
            parts = [part for part in (self.shape[at][:where], ["B"], self.shape[at][where + 1 :]) if part]
            self.shape[at : at + 1] = parts
            self._reshape("apart")
            at = self._batch_axis
        self._add("examples first", lambda x, _: x.movedim(at, 0))

    def _linear(self) -> None:
        last = len(self.shape) - 1
        if last in self._free():
            wide, turned = self.chance.choice(SIZES), self.chance.random() < 0.3
            weight = self._weight_of([self._extent(last), wide] if turned else [wide, self._extent(last)])
            bias = self._weight_of([wide])
            self.shape[last] = [wide]
            self._add("linear", lambda x, _: torch.tanh(F.linear(x, weight.t() if turned else weight, bias)))

    def _times(self) -> None:
        left, last = self.chance.random() < 0.5, len(self.shape) - 1
        at = last - 1 if left else last
        if at >= 0 and at in self._free() and len(self.shape) >= 2:
            wide, narrow = self.chance.choice(SIZES), self._extent(at)
            weight = self._weight_of([wide, narrow])
            self.shape[at] = [wide]
            self._add("matmul", lambda x, _: torch.tanh(weight @ x if left else x @ weight.T))

    def _times_weight(self) -> None:
        """A parameter by broadcasting, perhaps expanded or repeated by hand before."""
        shape, at = [list(axis) for axis in self.shape], self._batch_axis
        start = self.chance.randrange(len(shape))
        own = [1 if i == at or self.chance.random() < 0.3 else _size(axis, 1) for i, axis in enumerate(shape)][start:]
        weight, way = self._weight_of(own), self.chance.choice(("plain", "plain", "expand", "repeat"))
        multiply = self.chance.random() < 0.5

        def step(x: Tensor, count: int) -> Tensor:
            wanted = [_size(axis, count) for axis in shape]
            value: Tensor = weight * 1.5 if way == "repeat" else weight
            if way == "expand":
                value = value.expand(wanted)
            elif way == "repeat" and start <= at:
                value = value.repeat([wanted[at] if i == at - start else 1 for i in range(value.ndim)])
            return x * value if multiply else x + value

        self._add(f"broadcast, {way}", step)

    def _weight_of(self, shape: list[int]) -> Tensor:
        fitting = [value for value in self.weights if list(value.shape) == shape]
        if fitting and self.chance.random() < 0.4:
            return self.chance.choice(fitting)
        self.weights.append(nn.Parameter(torch.randn(shape, dtype=torch.float64) / 2))
        return self.weights[-1]

    def _normal(self) -> None:
        last = len(self.shape) - 1
        if last in self._free() and self._extent(last) > 1:
            weight, bias = self._weight_of([self._extent(last)]), self._weight_of([self._extent(last)])
            self._add("layer_norm", lambda x, _: F.layer_norm(x, x.shape[-1:], weight, bias, 0.1))

    def _einsum(self) -> None:
        free = self._free()
        if free:
            at, wide = self.chance.choice(free), self.chance.choice(SIZES)
            weight = self._weight_of([wide, self._extent(at)])
            letters = "abcdefgh"[: len(self.shape)]
            result = letters.replace(letters[at], "z")
            self.shape[at] = [wide]
            self._add("einsum", lambda x, _: torch.tanh(torch.einsum(f"{letters},z{letters[at]}->{result}", x, weight)))

    def _lookup(self) -> None:
        if self._small() and len(self.shape) < 5:
            table = self._weight_of([2, self.chance.choice(SIZES)])
            self.shape.append([table.shape[1]])
            self._add("embedding", lambda x, _: F.embedding((x > 0).long(), table) * torch.tanh(x).unsqueeze(-1))

    def _convolve(self) -> None:
        if len(self.shape) == 3 and self.shape[0] == ["B"]:
            wide = self.chance.choice(SIZES)
            weight, bias = self._weight_of([wide, self._extent(1), 1]), self._weight_of([wide])
            self.shape[1] = [wide]
            self._add("conv1d", lambda x, _: torch.tanh(F.conv1d(x, weight, bias)))

    def _joined(self) -> None:
        if self._free() and self._small():
            at, shape = self.chance.choice(self._free()), [list(axis) for axis in self.shape]
            own = [1 if "B" in axis else _size(axis, 1) for axis in shape]
            weight = self._weight_of(own)
            self.shape[at] = [2, *self.shape[at]]
            self._add("cat with weight", lambda x, count: torch.cat(
                [x, weight.expand([_size(axis, count) for axis in shape])], at))  # fmt: skip

    def _where(self) -> None:
        shape, at = self.shape, self._batch_axis
        weight = self._weight_of([1 if i == at else _size(axis, 1) for i, axis in enumerate(shape)])
        self._add("where", lambda x, _: torch.where(x > 0, x, weight))

    def _parts(self) -> None:
        """A slice of a larger parameter."""
        last = len(self.shape) - 1
        if last in self._free():
            weight = self._weight_of([4, self._extent(last) + 1])
            wide, column = self.chance.choice((2, 3)), self.chance.choice((0, 1))
            stop = column + self._extent(last)
            self.shape[last] = [wide]
            self._add("slice", lambda x, _: torch.tanh(F.linear(x, weight[1 : 1 + wide, column:stop])))


WEIGHTED = ("linear", "times", "times_weight", "normal", "einsum", "lookup", "convolve", "joined", "where", "parts")
MOVING = ("permute", "merge", "split", "flip", "sorted_batch", "choose", "select", "double", "stack", "unsqueeze")
OTHER = ("pointwise", "along", "reduce", "constant", "product", "gram", "written")
KINDS = (*WEIGHTED, *MOVING, "permute", "merge", "split", *OTHER)
