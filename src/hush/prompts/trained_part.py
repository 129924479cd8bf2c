"""Which part of a model is trained, and state dicts that hold that part alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from hush.errors import InvalidValue


def train_only(model: nn.Module, modules: Sequence[str]) -> list[str]:
    """Freeze the model but for these modules, such as ("classifier",), and give the names of what is trained.

    A module is named by its whole name or by what the name ends in.

    >>> train_only(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), ["1"])
    ['1.weight', '1.bias']
    """
    model.requires_grad_(False)
    for name in [modules] if isinstance(modules, str) else modules:
        found = [part for key, part in model.named_modules() if key == name or key.endswith(f".{name}")]
        if not any(True for part in found for _ in part.parameters()):
            near = [key for key, part in model.named_modules() if key and any(True for _ in part.parameters())]
            raise InvalidValue(f"the model has no module {name!r} with parameters; its last ones are {near[-3:]}.")
        for part in found:
            part.requires_grad_(True)
    return [key for key, value in model.named_parameters() if value.requires_grad]


def keep_trained_part(model: nn.Module) -> None:
    """From here on, `model.state_dict()` holds only the parameters that are trainable now.

    Loading such a state leaves the others as they are. Use it for an adapted model before `fit` with a folder: the
    run and its checkpoints are then as small as the adapter.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    >>> _ = train_only(model, ["1"]); keep_trained_part(model); list(model.state_dict())
    ['1.weight', '1.bias']
    """
    trained = frozenset(name for name, value in model.named_parameters() if value.requires_grad)
    rest = [name for name in model.state_dict() if name not in trained]

    def drop(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
        for name in rest:
            state.pop(prefix + name, None)

    def fill(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        held = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
        for name in rest:
            state.setdefault(prefix + name, held[name].detach())

    model.register_state_dict_post_hook(drop)
    model.register_load_state_dict_pre_hook(fill)
