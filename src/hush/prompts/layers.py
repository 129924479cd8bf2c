"""Where a transformers model has its layers, what goes into one, and which tokens see which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hush.errors import InvalidValue

_INPUT = "hidden_states"
_TRIED = 3  # tokens of the text on which it is tried who sees whom


@torch.inference_mode(False)
@torch.enable_grad()
def is_causal(model: nn.Module, embedding: nn.Embedding) -> bool:
    """Whether a token sees only those before it: the first token's last state has no gradient by any later token.

    It is tried out on a text of three tokens, in evaluation mode, because few models say it of themselves.
    """
    texts, states = _tried(model, embedding)
    if len(texts) != 1 or len(texts[0]) != 1 or texts[0].shape[1] < _TRIED or not states:
        raise InvalidValue(
            f"{type(model).__name__} does not turn its own token embeddings into states (batch, tokens, width), "
            "which a soft prompt needs."
        )
    first = states[-1][0, 0].float()
    different = torch.linspace(1, 2, len(first), device=first.device)  # a plain sum is constant behind a layer norm
    (found,) = torch.autograd.grad((first * different).sum(), texts)
    return not bool(found[0, 1:].any())


def _tried(model: nn.Module, embedding: nn.Embedding) -> tuple[list[Tensor], list[Tensor]]:
    """What the embedding gave for a short text, and the last state of its tokens that a part of the model made."""
    texts: list[Tensor] = []
    states: list[Tensor] = []

    def embedded(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        texts.append(output.detach().requires_grad_())
        return texts[-1].clone()  # some models scale it in place

    def made(_: nn.Module, __: Any, output: Any) -> None:
        found = output[0] if isinstance(output, tuple) and output else output
        if isinstance(found, Tensor) and found.ndim == 3 and len(found) == 1 and found.shape[1] >= _TRIED:
            states[:] = [found]

    ids = (torch.arange(_TRIED, device=embedding.weight.device) % embedding.num_embeddings)[None]
    handles = [part.register_forward_hook(made) for part in model.modules() if part is not embedding]
    handles.append(embedding.register_forward_hook(embedded))
    try:
        with _evaluated(model):
            model(input_ids=ids, attention_mask=torch.ones_like(ids))
    finally:
        for handle in handles:
            handle.remove()
    return texts, states


@contextmanager
def _evaluated(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, without dropout; every part gets back the mode that it had."""
    modes = [(part, part.training) for part in model.modules()]
    for part, _ in modes:
        part.training = False
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


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
