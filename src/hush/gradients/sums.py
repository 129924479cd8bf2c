"""Each parameter's sum over examples of factor times gradient, from its uses.

What a sum was made of is freed on the way, and large output gradients that nobody else needs are scaled in place. A
bias whose gradients are a weight's output gradients gets its sum from the weight's product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from hush.gradients.uses import Outer, Rows, Use, is_dense

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
    claims, biases = _Claims(uses, foreign), _biases(uses, factors)
    for shared in biases.values():
        del uses[shared]
    found: dict[str, Tensor] = {}
    for name in claims.order(uses, shapes):
        total = None
        for use in _emptied(uses.pop(name)):
            bias = biases.get(name)
            if bias is None:
                part = use.weighted(factors[name], scratch=claims.ended(use))
            else:
                assert isinstance(use, Outer)
                part, other = use.weighted_both(factors[name], scratch=claims.ended(use, times=2))
                found[bias] = _like(other, shapes[bias])
            total = part if total is None else total + part
            del use
        assert total is not None
        found[name] = _like(total, shapes[name])
    return {name: found[name] if name in found else torch.zeros_like(value) for name, value in shapes.items()}


def _emptied(uses: list[Use]) -> Iterator[Use]:
    """One after the other, and none is kept."""
    while uses:
        yield uses.pop()


def place(tensor: Tensor) -> int:
    """Where its memory begins."""
    return tensor.data_ptr() - int(tensor.storage_offset()) * tensor.element_size()


class _Claims:
    """How many uses still hold each memory. Where no tensor is large, there is nothing to ask and nothing to order."""

    def __init__(self, uses: Mapping[str, list[Use]], foreign: Callable[[], set[int]]) -> None:
        held = [tensor for found in uses.values() for use in found for tensor in use.held()]
        self._holders: dict[int, int] = {}
        if any(tensor.nbytes >= _LARGE for tensor in held):
            for tensor in held:  # small ones too: they may be parts of a large one
                spot = place(tensor)
                self._holders[spot] = self._holders.get(spot, 0) + 1
        self._foreign = foreign

    def order(self, uses: Mapping[str, list[Use]], shapes: Mapping[str, nn.Parameter]) -> list[str]:
        """The names of those that free most first."""
        if not self._holders:
            return list(uses)
        return sorted(uses, key=lambda name: _freed(uses[name], shapes[name]), reverse=True)

    def ended(self, use: Use, *, times: int = 1) -> bool:
        """Take back a use's claims, `times` of them on its output gradients; whether these may be overwritten now."""
        if not self._holders:
            return False
        held = use.held()
        spots = [place(tensor) for tensor in held]
        last = spots[-1]
        is_alone = self._holders[last] == times and use.scales_outputs and held[-1].nbytes >= _LARGE
        for spot in (*spots, *[last] * (times - 1)):
            self._holders[spot] -= 1
        return is_alone and is_dense(held[-1]) and last not in self._foreign()


def _biases(uses: Mapping[str, list[Use]], factors: Mapping[str, Tensor]) -> dict[str, str]:
    """For weights that met one place of each example: the parameter whose gradients are their output gradients."""
    alone = {name: found[0] for name, found in uses.items() if len(found) == 1}
    rows = {use.values.data_ptr(): name for name, use in alone.items() if type(use) is Rows}
    found = {}
    for name, use in alone.items():
        if type(use) is not Outer or use.places != 1:
            continue
        other = rows.pop(use.outputs.data_ptr(), None)
        if other is not None and factors[other] is factors[name] and _is_same(alone[other], use):
            found[name] = other
    return found


def _is_same(rows: Use, outer: Outer) -> bool:
    (values,), outputs = rows.held(), outer.outputs
    is_whole = values.numel() == outputs.numel() and values.dtype == outputs.dtype and len(values) == len(outputs)
    return is_whole and values.is_contiguous() and outputs.is_contiguous()


def _like(total: Tensor, parameter: Tensor) -> Tensor:
    total = total if total.shape == parameter.shape else total.reshape(parameter.shape)
    return total if total.dtype == parameter.dtype else total.to(parameter.dtype)


def _freed(uses: list[Use], parameter: Tensor) -> float:
    """How much memory is gained by making this sum; vectors come first, since they share what matrices overwrite."""
    if parameter.ndim < 2 and all(type(use) is Rows for use in uses):
        return math.inf
    return sum(tensor.nbytes for use in uses for tensor in use.held()) - parameter.nbytes
