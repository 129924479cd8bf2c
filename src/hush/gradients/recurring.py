"""Rows of a data set that come again and again: what depends on a row alone is computed once.

The first layer of a model sees the rows themselves, step after step. A batch's tensor may say which rows of the data
set it holds (`note_origin`), and the layer then asks its `Origin` for what it would compute of each row.

    >>> import torch
    >>> data = torch.arange(16.0).reshape(2, 8)
    >>> rows = note_origin(data[[1, 0]], Origin(Memory(data), torch.tensor([1, 0])))
    >>> origin = origin_of(rows)
    >>> origin.known("sums", rows, 1, lambda some: some.sum(1, keepdim=True)).tolist()
    [[92.0], [28.0]]
    >>> origin.known("sums", rows, 1, lambda some: some * 0).tolist()  # nothing is asked for again
    [[92.0], [28.0]]

Nothing is recalled of a row that has changed. A change by torch, of the data set or of the batch on its way to the
layer, is seen by the tensor's version, as autograd sees it. A change by others raises no version; so rows are compared
by a weighted sum of their values, and if one is another than before, all is forgotten. Where the memory belongs to
others (an array of numpy, a file), every row is compared each time it comes; where it is torch's own, one of sixteen.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

_MARK = "_hush_origin"
_SHARE = 8  # what is kept of a data set takes at most this part of it
_COMPARED = 16  # one row of so many, of memory that is torch's own
_CLOSE = 1e-5  # of |row| |weights|: what rounding changes is ten times smaller


class Memory:
    """What is kept of the rows of a tensor. It is as private as they are."""

    def __init__(self, data: Tensor) -> None:
        self._data, self._version = data, data._version
        self.compared = slice(None, None, _COMPARED if data.untyped_storage().resizable() else 1)  # rows of a batch
        self._tables: dict[Hashable, Tensor] = {}

    def has_room(self, key: Hashable, width: int) -> bool:
        """Whether there is a table of this name, or room for one."""
        held = sum(table.numel() for table in self._tables.values())
        return key in self._tables or _SHARE * (held + len(self._data) * (width + 2)) <= self._data.numel()

    def table(self, key: Hashable, width: int, like: Tensor) -> Tensor:
        """A line for each row, NaN until it is known: `width` numbers, the sum to compare, and how near it must be."""
        if self._data._version != self._version:
            self._tables.clear()
            self._version = self._data._version
        if key not in self._tables:
            self._tables[key] = like.new_full((len(self._data), width + 2), torch.nan)
        return self._tables[key]


@dataclass(frozen=True, eq=False)
class Origin:
    """Which rows of a data set a tensor holds."""

    memory: Memory
    rows: Tensor

    def has_room(self, what: Hashable, values: Tensor, width: int) -> bool:
        """Whether `width` numbers of each row can be kept under this name."""
        return self.memory.has_room(_key(what, values), width)

    def known(self, what: Hashable, values: Tensor, width: int, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """`compute(values)`, a line of `width` numbers for each row, where only rows that are new are computed."""
        table, flat = self.memory.table(_key(what, values), width, values), values.flatten(1)
        found, weights = table.index_select(0, self.rows), _weights(flat.shape[1], flat.dtype, flat.device)
        few = self.memory.compared
        before, near = found[few, width:].unbind(1)
        if bool(((before - flat[few] @ weights).abs() > near).any()):  # false where it is not known
            table.fill_(torch.nan)
            found.fill_(torch.nan)
        new = torch.nonzero(found[:, width].isnan())[:, 0]
        if len(new):
            some = flat[new]
            near = torch.linalg.vector_norm(some, dim=1) * (_CLOSE * torch.linalg.vector_norm(weights))
            lines = torch.cat([compute(values[new]), torch.stack([some @ weights, near], dim=1)], dim=1)
            found[new] = lines
            table[self.rows[new]] = lines
        return found[:, :width]


def _key(what: Hashable, values: Tensor) -> Hashable:
    return what, values.shape[1:], values.dtype, values.device


@lru_cache(maxsize=8)
def _weights(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Those of the sum that is compared: without any order that the changes of a row could share."""
    places = torch.arange(1, count + 1, dtype=torch.float64, device=device)
    return torch.sin(places * places).to(dtype)


def note_origin(tensor: Tensor, origin: Origin | None) -> Tensor:
    """The tensor, with a note of which rows it holds as it is now."""
    if origin is not None:
        setattr(tensor, _MARK, (origin, tensor._version))
    return tensor


def origin_of(tensor: Tensor) -> Origin | None:
    """Which rows the tensor holds, where it says so and was not written into since."""
    origin, version = getattr(tensor, _MARK, (None, 0))
    return origin if origin is not None and tensor._version == version else None


def part(tensor: Tensor, index: Tensor | slice) -> Tensor:
    """Some of a tensor's rows, which know where they come from if it does."""
    origin = origin_of(tensor)
    return note_origin(tensor[index], None if origin is None else Origin(origin.memory, origin.rows[index]))
