"""Keys and values of a prompt's beginning, computed once and shared by everything that follows it.

A causal model's keys and values at a token depend on the tokens up to it alone. So the part that many prompts share,
the instruction and a teacher's demonstrations, is run once, and each question only runs its own few tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hush.prompts.packing import Row, tensors

Layers = list[tuple[Tensor, Tensor]]  # keys and values of each layer, (1, heads, tokens, width)


class PrefixCache:
    """The last few prefixes of one model, in memory only. They tell as much as the prompts do.

    A prefix is always run whole and alone, never continued from another one's keys and values: so what is computed for
    a teacher cannot depend, not even by rounding, on the teachers before it.
    """

    def __init__(self, model: Any, most: int = 2) -> None:
        self.model = model
        self._most = most
        self._kept: OrderedDict[tuple[int, ...], Layers] = OrderedDict()

    def layers(self, prefix: Sequence[int]) -> Layers:
        """Keys and values of these tokens."""
        tokens = tuple(prefix)
        if tokens not in self._kept:
            cache = _filled([], 1)
            run(self.model, torch.tensor([tokens]), cache, 0, keep=1)
            self._kept[tokens] = _layers_of(cache)
        self._kept.move_to_end(tokens)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return self._kept[tokens]

    def forget(self) -> None:
        """Drop everything."""
        self._kept.clear()

    def rows(self, prefix: Sequence[int], number: int) -> Any:
        """A cache for `number` rows that all begin with the prefix; None if it is empty."""
        return _filled(self.layers(prefix), number) if prefix else None


def run(model: Any, tokens: Tensor, cache: Any, first: int, *, keep: int = 0) -> Tensor:
    """The logits of these tokens at places `first` and on; of the last `keep` tokens only, 0 for all."""
    places = torch.arange(first, first + tokens.shape[1]).expand(tokens.shape)
    return _forward(model, keep, input_ids=tokens, position_ids=places, past_key_values=cache)


def run_packed(model: Any, rows: list[Row], cache: Any, first: int) -> Tensor:
    """The logits of the tokens that are looked at, (rows, most looked at, vocabulary), after `first` shared tokens."""
    tokens, places, mask = tensors(rows, first, model.dtype)
    keep = max(len(row.looked) for row in rows)
    given = {"input_ids": tokens, "position_ids": places, "attention_mask": mask, "past_key_values": cache}
    return _forward(model, keep, **given)


def _forward(model: Any, keep: int, **given: Any) -> Tensor:
    device = next(model.parameters()).device
    moved = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in given.items()}
    with torch.no_grad():
        logits: Tensor = model(**moved, use_cache=True, logits_to_keep=keep).logits
    return logits


def _filled(layers: Layers, number: int) -> Any:
    from transformers.cache_utils import DynamicCache

    cache = DynamicCache()
    for place, (keys, values) in enumerate(layers):
        cache.update(keys.expand(number, -1, -1, -1), values.expand(number, -1, -1, -1), place)
    return cache


def _layers_of(cache: Any) -> Layers:
    if hasattr(cache, "layers"):
        return [(layer.keys, layer.values) for layer in cache.layers]
    return list(zip(cache.key_cache, cache.value_cache, strict=True))
