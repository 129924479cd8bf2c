"""Lots: the rows of one step, where a row is not simply one unit.

A plain batch has one row per unit. A `Lot` says more: how much each row's loss counts (0 for padding, 1/K for each of K
augmented copies) and which rows belong to one unit, whose gradients are added before they are clipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hush.errors import InvalidValue
from hush.gradients.batches import Batch, mapped, num_examples, tensors


@dataclass(frozen=True)
class Lot:
    """The rows of one step.

    `weights` (rows,) multiplies each row's loss, None for 1. `groups` (rows,) numbers the unit of each row, None where
    every row is a unit of its own. The first `units` units are real and the others padding; None if all are real.
    """

    batch: Batch
    weights: Tensor | None = None
    groups: Tensor | None = None
    units: int | None = None


def as_lot(batch: Batch | Lot) -> Lot:
    """A plain batch as a lot."""
    return batch if isinstance(batch, Lot) else Lot(batch)


def padded(batch: Batch, size: int) -> Lot:
    """The batch with rows of zeros up to `size`; they count nothing.

    >>> lot = padded((torch.ones(2, 3), torch.ones(2)), 4)
    >>> lot.batch[0].shape, lot.weights
    (torch.Size([4, 3]), tensor([1., 1., 0., 0.]))
    """
    count = num_examples(batch)
    device = tensors(batch)[0].device
    weights = torch.zeros(size, device=device)
    weights[:count] = 1
    grown = mapped(lambda tensor: torch.cat([tensor, tensor.new_zeros(size - count, *tensor.shape[1:])]), batch)
    return Lot(grown, weights=weights, units=count)


def augmented(lot: Lot, copies: int, augment: Callable[[Batch], Batch]) -> Lot:
    """`copies` augmented versions of each row, which count as one [De, Berrada, Hayes, Smith, Balle 2022]."""
    count = num_examples(lot.batch)
    device = tensors(lot.batch)[0].device
    if copies == 1:
        changed = augment(lot.batch) if count else lot.batch
        return Lot(_same_rows(changed, count), lot.weights, lot.groups, lot.units)
    repeated = mapped(lambda tensor: tensor.repeat_interleave(copies, dim=0), lot.batch)
    changed = augment(repeated) if count else repeated
    weights = torch.ones(count, device=device) if lot.weights is None else lot.weights
    groups = torch.arange(count, device=device) if lot.groups is None else lot.groups
    return Lot(
        _same_rows(changed, count * copies),
        weights=weights.repeat_interleave(copies) / copies,
        groups=groups.repeat_interleave(copies),
        units=lot.units,
    )


def _same_rows(batch: Batch, count: int) -> Batch:
    if num_examples(batch) != count:
        raise InvalidValue(f"augment must return as many rows as it got, {count}; got {num_examples(batch)}.")
    return batch


def to_device(value: Any, device: torch.device) -> Any:
    """A batch or lot with its tensors on this device."""
    if isinstance(value, Lot):
        batch, weights, groups = (to_device(part, device) for part in (value.batch, value.weights, value.groups))
        return Lot(batch, weights, groups, value.units)
    return mapped(lambda tensor: tensor if tensor.device == device else tensor.to(device), value)
