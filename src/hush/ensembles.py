"""Many small models of one shape, trained together: one step of all of them is one batch of matrix products.

Shadow models of an attack, or teachers, each see rows of their own. Trained one after the other, they spend most of
their time on the way into and out of torch; together they share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hush import _check
from hush.errors import InvalidValue
from hush.rng import Rng

State = dict[str, Tensor]
Forward = Callable[[State, Tensor], Tensor]  # stacked weights, (models, rows, ...) -> (models, rows, classes)
_ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.LeakyReLU, nn.SiLU, nn.Softplus, nn.Identity)
_OPTIMIZERS = ("adam", "sgd")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How each model is trained: cross-entropy, in shuffled passes over its own rows. No privacy."""

    epochs: int = 50
    rows_per_step: int = 32
    learning_rate: float = 1e-3
    optimizer: str = "adam"
    momentum: float = 0.9
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for name in ("epochs", "rows_per_step"):
            _check.whole(name, getattr(self, name))
        _check.positive("learning_rate", self.learning_rate)
        _check.nonnegative("weight_decay", self.weight_decay)
        _check.nonnegative("momentum", self.momentum)
        _check.one_of("optimizer", self.optimizer, _OPTIMIZERS)

    def build(self, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        """The optimizer, in the form that takes one pass over the weights."""
        fused = all(value.device.type == "cpu" for value in parameters)
        if self.optimizer == "adam":
            return torch.optim.Adam(
                parameters, lr=self.learning_rate, weight_decay=self.weight_decay, fused=fused or None
            )
        return torch.optim.SGD(
            parameters,
            lr=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            fused=fused or None,
        )


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trained models of one shape."""

    count: int
    state: State = field(repr=False)  # each parameter with the models in front
    _forward: Forward = field(repr=False)
    _load: Callable[[State, int], nn.Module] = field(repr=False)

    @torch.no_grad()
    def outputs(self, x: Tensor, *, rows_at_once: int = 2_000) -> Tensor:
        """What each model says of each row: (models, rows, classes)."""
        wide = (x_part.expand(self.count, *x_part.shape) for x_part in x.split(rows_at_once))
        return torch.cat([self._forward(self.state, part) for part in wide], dim=1)

    def member(self, number: int) -> nn.Module:
        """One of the models, by itself."""
        if not 0 <= number < self.count:
            raise InvalidValue(f"number must be 0 to {self.count - 1}; got {number}.")
        return self._load(self.state, number)


def train_ensemble(
    make_model: Callable[[], nn.Module],
    x: Tensor,
    y: Tensor,
    parts: Sequence[Tensor],
    *,
    recipe: Recipe | None = None,
    rng: Rng | None = None,
) -> Ensemble:
    """Train one model on each part of the rows, all at once.

    The same weights, but for rounding, as training each alone on the same order of rows. Parts may differ in size:
    every model takes the steps of the largest, and one with fewer rows begins its next pass a little earlier.

    Args:
        make_model: Gives a new model; called once for each part. Random starts are its own affair.
        x: All rows, (rows, ...).
        y: Their classes, whole numbers.
        parts: For each model the numbers of its rows.
        recipe: How to train.
        rng: Where the order of the rows comes from.
    """
    recipe, rng = recipe or Recipe(), rng or Rng.from_entropy()
    if not parts or any(len(part) == 0 for part in parts):
        raise InvalidValue("parts must name at least one row for each model.")
    models = [make_model() for _ in parts]
    state, forward, load = _stacked(models)
    learning = {name for name, value in models[0].named_parameters() if value.requires_grad}
    optimizer = recipe.build([value.requires_grad_() for name, value in state.items() if name in learning])
    for rows in row_orders(parts, recipe, rng):
        index = rows.reshape(-1)
        batch = x.index_select(0, index).reshape(len(parts), -1, *x.shape[1:])
        outputs = forward(state, batch)
        loss = functional.cross_entropy(outputs.flatten(0, 1), y.index_select(0, index), reduction="sum")
        optimizer.zero_grad()
        (loss / rows.shape[1]).backward()
        optimizer.step()
    for model in models:
        model.eval()  # whoever asks them from now on asks without dropout
    return Ensemble(len(parts), {name: value.detach() for name, value in state.items()}, forward, load)


def row_orders(parts: Sequence[Tensor], recipe: Recipe, rng: Rng) -> list[Tensor]:
    """The rows of each step, (models, rows_per_step): shuffled passes, each model's from a stream of its own.

    >>> orders = row_orders([torch.arange(4), torch.arange(4, 7)], Recipe(epochs=1, rows_per_step=2), Rng.from_seed(1))
    >>> len(orders), sorted(torch.cat(orders, dim=1)[0].tolist())
    (2, [0, 1, 2, 3])
    """
    steps = recipe.epochs * -(-max(map(len, parts)) // recipe.rows_per_step)
    length = steps * recipe.rows_per_step
    lines = []
    for number, part in enumerate(parts):
        stream = rng.stream(f"rows of model {number}")
        passes = [stream.permutation(len(part)) for _ in range(-(-length // len(part)))]
        lines.append(part[torch.from_numpy(np.concatenate(passes)[:length])])
    return list(torch.stack(lines).split(recipe.rows_per_step, dim=1))


def _stacked(models: Sequence[nn.Module]) -> tuple[State, Forward, Callable[[State, int], nn.Module]]:
    if _is_layered(models[0]):
        return _layered(models)
    return _mapped(models)


def _is_layered(model: nn.Module) -> bool:
    if not isinstance(model, nn.Sequential) or not all(value.requires_grad for value in model.parameters()):
        return False
    return all(type(layer) in (nn.Linear, *_ELEMENTWISE) or _is_flat(layer) for layer in model)


def _is_flat(layer: nn.Module) -> bool:
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)


def _layered(models: Sequence[nn.Module]) -> tuple[State, Forward, Callable[[State, int], nn.Module]]:
    """Linear layers and elementwise functions, as batched products on weights that are kept transposed.

    A gradient then has the layout of its weight, and is taken over without a copy.
    """
    layers: list[nn.Module] = list(models[0])  # type: ignore[call-overload]
    state: State = {}
    for place, layer in enumerate(layers):
        if isinstance(layer, nn.Linear):
            same: list[nn.Linear] = [model[place] for model in models]  # type: ignore[index]
            state[f"{place}.weight"] = torch.stack([item.weight.detach().t() for item in same]).contiguous()
            if layer.bias is not None:
                state[f"{place}.bias"] = torch.stack([item.bias.detach()[None] for item in same])

    def forward(weights: State, x: Tensor) -> Tensor:
        for place, layer in enumerate(layers):
            if isinstance(layer, nn.Linear):
                weight, bias = weights[f"{place}.weight"], weights.get(f"{place}.bias")
                x = torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)
            else:
                x = x.flatten(2) if isinstance(layer, nn.Flatten) else layer(x)
        return x

    def load(weights: State, number: int) -> nn.Module:
        plain = {
            name: value[number].t() if name.endswith("weight") else value[number, 0] for name, value in weights.items()
        }
        models[number].load_state_dict(plain)
        return models[number]

    return state, forward, load


def _mapped(models: Sequence[nn.Module]) -> tuple[State, Forward, Callable[[State, int], nn.Module]]:
    """Any other model, by torch's vmap."""
    from torch.func import functional_call, stack_module_state, vmap

    if any(layer for layer in models[0].modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)):
        raise InvalidValue("batch normalisation cannot be trained in an ensemble; use GroupNorm, or train one by one.")
    parameters, buffers = stack_module_state(list(models))
    state: State = {**{name: value.detach().clone() for name, value in parameters.items()}, **buffers}
    template = models[0]

    def call(weights: State, x: Tensor) -> Tensor:
        return functional_call(template, weights, (x,))  # type: ignore[no-any-return]

    def forward(weights: State, x: Tensor) -> Tensor:
        return vmap(call, randomness="different")(weights, x)

    def load(weights: State, number: int) -> nn.Module:
        models[number].load_state_dict({name: value[number] for name, value in weights.items()})
        return models[number]

    return state, forward, load
