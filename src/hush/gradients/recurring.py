"""Rows of a data set that come again and again: what depends on a row alone is computed once.

The first layer of a model sees the rows themselves, step after step. A batch's tensor may say which rows of the data
set it holds (`note_origin`), and the layer then asks its `Origin` for what it would compute of each row.

    >>> import torch
    >>> data = torch.arange(16.0).reshape(2, 8)
    >>> rows = note_origin(data[[1, 0]], Origin(Memory(2, room=100), torch.tensor([1, 0])))
    >>> origin = origin_of(rows)
    >>> origin.known("sums", rows, 1, lambda some: some.sum(1, keepdim=True)).tolist()
    [[92.0], [28.0]]
    >>> origin.known("sums", rows, 1, lambda some: some * 0).tolist()  # nothing is asked for again
    [[92.0], [28.0]]

Which rows a tensor is said to hold is a hint, and nothing rests on it: a row is known again only if a weighted sum of
all its values is what it was, each time. So rows that were changed meanwhile, by whomever and at whatever place between
the data set and the layer, are computed anew. A change that escapes this is one that leaves the sum within 1e-6 of
|row| |weights|: of the size of rounding, or aimed at the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

_CLOSE = 1e-6  # what another order of summing changes is smaller
_MANY = 8  # channels from which it is quicker to sum over them first

_origins: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # beside the tensors: a batch that is saved takes no data


class Memory:
    """What is kept of `count` rows, in at most `room` numbers. It is as private as they are."""

    def __init__(self, count: int, *, room: int) -> None:
        self._count, self._left = count, room
        self._tables: dict[Hashable, Tensor] = {}

    def table(self, key: Hashable, width: int, like: Tensor) -> Tensor | None:
        """A line for each row, NaN until it is known: `width` numbers, their row's sum, and how near it must be.

        None where there is no room for it.
        """
        if key not in self._tables and self._count * (width + 2) <= self._left:
            self._tables[key] = like.new_full((self._count, width + 2), torch.nan)
            self._left -= self._tables[key].numel()
        return self._tables.get(key)


@dataclass(frozen=True, eq=False)
class Origin:
    """Which rows of a data set a tensor holds."""

    memory: Memory
    rows: Tensor

    def has_room(self, what: Hashable, values: Tensor, width: int) -> bool:
        """Whether `width` numbers of each row can be kept under this name."""
        return self.memory.table(_key(what, values), width, values) is not None

    def known(self, what: Hashable, values: Tensor, width: int, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """`compute(values)`, a line of `width` numbers for each row, where only rows that are new are computed."""
        table = self.memory.table(_key(what, values), width, values)
        if table is None:
            return compute(values)
        found, (sums, size) = table.index_select(0, self.rows), _weighed(values)
        new = ~((found[:, width] - sums).abs_() <= found[:, width + 1])  # NaN, of either, is new
        if bool(new.any()):
            places = new.nonzero()[:, 0]
            fresh = values if len(places) == len(values) else values.index_select(0, places)
            near = torch.linalg.vector_norm(fresh.flatten(1), dim=1) * (_CLOSE * size)
            near.masked_fill_(~torch.isfinite(near), torch.nan)  # rows too large to be known again
            lines = torch.cat([compute(fresh), torch.stack([sums[places], near], dim=1)], dim=1)
            found[places] = lines
            table[self.rows[places]] = lines
        return found[:, :width]


def _key(what: Hashable, values: Tensor) -> Hashable:
    cast = torch.is_autocast_enabled(values.device.type)  # products are coarser then
    return what, values.shape[1:], values.dtype, values.device, cast


def _weighed(values: Tensor) -> tuple[Tensor, float]:
    """The sum by which each row is known, and the length of its weights.

    A map's weight is that of its pixel times that of its channel: two products that use all threads, where one vector's
    weights would be read by one.
    """
    if values.ndim < 3:
        weights, size = _weights(values.shape[1], values.dtype, values.device)
        return values @ weights, size
    maps = values.flatten(2)
    (channels, wide), (pixels, high) = (_weights(count, maps.dtype, maps.device) for count in maps.shape[1:])
    sums = (channels @ maps) @ pixels if len(channels) >= _MANY else (maps @ pixels) @ channels
    return sums, wide * high


@lru_cache(maxsize=16)
def _weights(count: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, float]:
    """Without any order that the changes of a row could share; and their length."""
    places = torch.arange(1, count + 1, dtype=torch.float64, device=device)
    found = torch.sin(places * places)
    return found.to(dtype), float(torch.linalg.vector_norm(found))


def note_origin(tensor: Tensor, origin: Origin | None) -> Tensor:
    """The tensor, with a note of which rows it holds."""
    if origin is not None:
        _origins[tensor] = origin
    return tensor


def origin_of(tensor: Tensor) -> Origin | None:
    """Which rows the tensor holds, where it was said."""
    found: Origin | None = _origins.get(tensor) if _origins.data else None
    return found


def part(tensor: Tensor, index: Tensor | slice) -> Tensor:
    """Some of a tensor's rows, which know where they come from if it does."""
    origin = origin_of(tensor)
    return note_origin(tensor[index], None if origin is None else Origin(origin.memory, origin.rows[index]))
