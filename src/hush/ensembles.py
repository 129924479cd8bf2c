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
from torch.optim.adam import adam

from hush import _check
from hush.errors import InvalidValue
from hush.rng import Rng

State = dict[str, Tensor]
Forward = Callable[[State, Tensor], Tensor]  # stacked weights, (models, rows, ...) -> (models, rows, classes)
_ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.LeakyReLU, nn.SiLU, nn.Softplus, nn.Identity)
_OPTIMIZERS = ("adam", "sgd")
_MODELS_AT_ONCE = 16


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
    orders = torch.stack(row_orders(parts, recipe, rng))
    if _is_layered(models[0]):
        state = _train_layers(models[0], state, x, y, orders, recipe)
    else:
        learning = {name for name, value in models[0].named_parameters() if value.requires_grad}
        _train_any(state, learning, forward, x, y, orders, recipe)
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


def _train_any(
    state: State, learning: set[str], forward: Forward, x: Tensor, y: Tensor, orders: Tensor, recipe: Recipe
) -> None:
    """Autograd on the stacked weights."""
    optimizer = recipe.build([value.requires_grad_() for name, value in state.items() if name in learning])
    for rows in orders:
        index = rows.flatten()
        outputs = forward(state, x.index_select(0, index).unflatten(0, rows.shape))
        loss = functional.cross_entropy(outputs.flatten(0, 1), y.index_select(0, index), reduction="sum")
        optimizer.zero_grad()
        (loss / rows.shape[1]).backward()
        optimizer.step()


@torch.no_grad()
def _train_layers(model: nn.Module, state: State, x: Tensor, y: Tensor, orders: Tensor, recipe: Recipe) -> State:
    """Linear layers, a few models at a time: as many as keep their weights near the processor."""
    blocks = []
    for first in range(0, orders.shape[1], _MODELS_AT_ONCE):
        chosen = slice(first, first + _MODELS_AT_ONCE)
        layers = _Layers(model, {name: value[chosen] for name, value in state.items()})
        update = _updates(layers.flat, recipe)
        rows = orders[:, chosen].flatten(1)
        batch = x.new_empty(rows.shape[1], *x.shape[1:])
        wide = batch.unflatten(0, (-1, orders.shape[2]))
        for index, classes in zip(rows, y[rows], strict=True):
            torch.index_select(x, 0, index, out=batch)
            layers.differentiate(wide, classes)
            update()
        blocks.append(layers.weights)
    return {name: torch.cat([block[name] for block in blocks]) for name in state}


def _updates(flat: Tensor, recipe: Recipe) -> Callable[[], object]:
    """One step of all weights. Adam by torch's function: its object costs as much time as a small model's products."""
    if recipe.optimizer != "adam" or flat.device.type != "cpu":
        return recipe.build([flat]).step
    assert flat.grad is not None
    first, second, step = torch.zeros_like(flat), torch.zeros_like(flat), torch.zeros(())
    none: list[Tensor] = []
    numbers = ([flat], [flat.grad], [first], [second], none, [step])
    rates = {"lr": recipe.learning_rate, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": recipe.weight_decay}
    return lambda: adam(*numbers, fused=True, amsgrad=False, maximize=False, **rates)  # type: ignore[arg-type]


class _Layers:
    """A block of stacked models in one flat tensor, and the gradient of their cross-entropy in another.

    Products write their gradients into place: no step asks for memory for them, and one call updates all weights.
    """

    def __init__(self, model: nn.Module, state: State) -> None:
        self.layers: list[nn.Module] = list(model)  # type: ignore[call-overload]
        self.flat = torch.cat([value.flatten() for value in state.values()])
        self.flat.grad = torch.zeros_like(self.flat)
        self.weights, self.gradients = self._views(self.flat, state), self._views(self.flat.grad, state)
        self.first = min(int(name.split(".")[0]) for name in state)  # nothing before it learns

    @staticmethod
    def _views(flat: Tensor, state: State) -> State:
        parts = flat.split([value.numel() for value in state.values()])
        return {name: part.view(value.shape) for part, (name, value) in zip(parts, state.items(), strict=True)}

    def differentiate(self, x: Tensor, classes: Tensor) -> None:
        """Put the gradient of each model's mean loss on its rows, (models, rows, ...), into `flat.grad`."""
        inputs: list[Tensor] = []
        results: list[Tensor] = []
        for place, layer in enumerate(self.layers):
            inputs.append(x)
            x = self._forward(place, layer, x)
            results.append(x)
            x = x.detach()
        slope = x.softmax(-1)  # the gradient of cross-entropy: the probabilities less one at the right class
        slope.view(-1, x.shape[-1]).scatter_add_(1, classes[:, None], slope.new_full((len(classes), 1), -1.0))
        slope.div_(x.shape[1])
        for place in range(len(self.layers) - 1, self.first - 1, -1):
            slope = self._backward(place, slope, inputs[place], results[place])

    def _forward(self, place: int, layer: nn.Module, x: Tensor) -> Tensor:
        if isinstance(layer, nn.Linear):
            return _product(x, self.weights, place)
        if isinstance(layer, nn.Flatten):
            return x.flatten(2)
        if place < self.first:
            return _applied(layer, x)
        if type(layer) is nn.ReLU:
            return x.relu_() if isinstance(self.layers[place - 1], nn.Linear) else x.relu()
        with torch.enable_grad():
            return _applied(layer, x.requires_grad_())

    def _backward(self, place: int, slope: Tensor, given: Tensor, result: Tensor) -> Tensor:
        layer = self.layers[place]
        if isinstance(layer, nn.Linear):
            torch.bmm(given.detach().transpose(1, 2), slope, out=self.gradients[f"{place}.weight"])
            if layer.bias is not None:
                torch.sum(slope, 1, keepdim=True, out=self.gradients[f"{place}.bias"])
            return slope if place == self.first else torch.bmm(slope, self.weights[f"{place}.weight"].transpose(1, 2))
        if isinstance(layer, nn.Flatten):
            return slope.view(given.shape)
        if type(layer) is nn.ReLU:
            passed: Tensor = torch.ops.aten.threshold_backward(slope, result, 0)  # in one pass
            return passed
        return torch.autograd.grad(result, given, slope)[0]


def _applied(layer: nn.Module, x: Tensor) -> Tensor:
    result: Tensor = layer(x.clone() if getattr(layer, "inplace", False) else x)
    return result


def _product(x: Tensor, weights: State, place: int) -> Tensor:
    weight, bias = weights[f"{place}.weight"], weights.get(f"{place}.bias")
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)


def _stacked(models: Sequence[nn.Module]) -> tuple[State, Forward, Callable[[State, int], nn.Module]]:
    if len(models[0].state_dict()) != len([*models[0].parameters(), *models[0].buffers()]):
        raise InvalidValue("a layer that stands in two places cannot be trained in an ensemble; train one by one.")
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
    """Linear layers and elementwise functions, as batched products on weights that are kept transposed."""
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
                x = _product(x, weights, place)
            else:
                x = x.flatten(2) if isinstance(layer, nn.Flatten) else _applied(layer, x)
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
