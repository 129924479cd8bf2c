"""Each parameter's sum over examples of factor times gradient, from its uses.

What a sum was made of is freed on the way, and large output gradients that nobody else needs are scaled in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import torch
from torch import Tensor, nn

from hush.gradients.layers import tells_both
from hush.gradients.precision import wide_dtype
from hush.gradients.state import memory_of
from hush.gradients.uses import Rows, Use, is_dense

_LARGE = 1 << 20  # bytes from which it pays to ask whether a tensor may be overwritten


def weighted(
    shapes: Mapping[str, nn.Parameter],
    uses: dict[str, list[Use]],
    factors: Mapping[str, Tensor],
    foreign: Callable[[], set[int]],
) -> dict[str, Tensor]:
    """Each parameter's sum, zeros where it has no use; those that free most come first. The uses are taken out.

    `foreign` tells the places of tensors that belong to the user, which nothing here may overwrite.
    """
    claims = _Claims(uses, foreign)
    found: dict[str, Tensor] = {}

    def add(name: str, part: Tensor) -> None:
        found[name] = part if name not in found else found[name] + part

    for name in claims.order(uses, shapes):
        for use in _emptied(uses.pop(name)):
            if tells_both(use):
                part, other = use.weighted_both(factors[name], scratch=claims.ended(use))
                add(use.bias, other)
            else:
                part = use.weighted(factors[name], scratch=claims.ended(use))
            add(name, part)
            del use
    return {
        name: _like(found[name], value) if name in found else torch.zeros_like(value, dtype=wide_dtype(value.dtype))
        for name, value in shapes.items()
    }


def _emptied(uses: list[Use]) -> Iterator[Use]:
    """One after the other, and none is kept."""
    while uses:
        yield uses.pop()


class _Claims:
    """How many uses still hold each memory. Where no tensor is large, there is nothing to ask and nothing to order."""

    def __init__(self, uses: Mapping[str, list[Use]], foreign: Callable[[], set[int]]) -> None:
        held = [tensor for found in uses.values() for use in found for tensor in use.held()]
        self._holders: dict[int, int] = {}
        if any(tensor.nbytes >= _LARGE for tensor in held):
            for tensor in held:  # small ones too: they may be parts of a large one
                spot = memory_of(tensor)
                self._holders[spot] = self._holders.get(spot, 0) + 1
        self._foreign = cache(foreign)

    def order(self, uses: Mapping[str, list[Use]], shapes: Mapping[str, nn.Parameter]) -> list[str]:
        """The names of those that free most first."""
        if not self._holders:
            return list(uses)
        return sorted(uses, key=lambda name: _freed(uses[name], shapes[name]), reverse=True)

    def ended(self, use: Use) -> bool:
        """Take back a use's claims; whether its output gradients may be overwritten now."""
        if not self._holders:
            return False
        held = use.held()
        spots = [memory_of(tensor) for tensor in held]
        last = spots[-1]
        is_alone = self._holders[last] == 1 and use.scales_outputs and held[-1].nbytes >= _LARGE
        for spot in spots:
            self._holders[spot] -= 1
        return is_alone and is_dense(held[-1]) and last not in self._foreign()


def _like(total: Tensor, parameter: Tensor) -> Tensor:
    total = total if total.shape == parameter.shape else total.reshape(parameter.shape)
    return total.to(wide_dtype(parameter.dtype))


def _freed(uses: list[Use], parameter: Tensor) -> float:
    """How much memory is gained by making this sum; vectors come first, since they share what matrices overwrite."""
    if parameter.ndim < 2 and all(type(use) is Rows for use in uses):
        return math.inf
    return sum(tensor.nbytes for use in uses for tensor in use.held()) - parameter.nbytes
