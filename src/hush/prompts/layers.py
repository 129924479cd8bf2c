"""Where a transformers model has its layers, and what goes into one."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from hush.errors import InvalidValue

_INPUT = "hidden_states"


def is_causal(model: nn.Module) -> bool:
    """Whether a token sees only those before it: what the model's attention layers say of themselves."""
    return any(getattr(part, "is_causal", False) is True for part in model.modules())


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The model's layers, first to last: the list of modules that has as many as the configuration says."""
    number = getattr(getattr(model, "config", None), "num_hidden_layers", None)
    for part in model.modules():
        if isinstance(part, nn.ModuleList) and len(part) == number:
            return list(part)
    raise InvalidValue(f"{type(model).__name__} has no list of {number} layers; use per_layer=False.")


def hidden_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The hidden states that a layer is called with."""
    found: Tensor = args[0] if args else kwargs[_INPUT]
    return found


def with_hidden(args: tuple[Any, ...], kwargs: dict[str, Any], hidden: Tensor) -> tuple[Any, Any]:
    """The same call with other hidden states."""
    return ((hidden, *args[1:]), kwargs) if args else (args, {**kwargs, _INPUT: hidden})
