"""Where the batch lies in a tensor, and how that follows a tensor through the functions of a model.

The examples of a batch sit on axis 0 of its tensors. Models move them: attention puts them second, flattening merges
them with the tokens. A `Layout` says which axis holds them and how: index along that axis = (outer, example, inner).
What cannot be followed exactly is `UNKNOWN`, and a parameter that meets it is left to another method.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

_MARK = "_hush_layout"


class Layout(NamedTuple):
    """The batch's place: `axis`, whose extent is outer * batch * inner."""

    axis: int
    outer: int = 1
    inner: int = 1

    @property
    def is_plain(self) -> bool:
        """Whether the axis holds nothing but the examples."""
        return self.outer == 1 and self.inner == 1


UNKNOWN = Layout(-1)


def layout_of(tensor: Tensor) -> Layout | None:
    """The layout of a tensor that depends on the batch; None for one that does not."""
    return getattr(tensor, _MARK, None)


def mark(tensor: Tensor, layout: Layout) -> None:
    """Note the layout on the tensor object."""
    setattr(tensor, _MARK, layout)


def by_example(tensor: Tensor, layout: Layout, count: int) -> Tensor:
    """The tensor with the example first: (batch, everything else in order)."""
    if layout.is_plain:
        return tensor.movedim(layout.axis, 0) if layout.axis else tensor
    parts = tensor.unflatten(layout.axis, (layout.outer, count, layout.inner))
    return parts.movedim(layout.axis + 1, 0)


def reshaped(shape: Sequence[int], layout: Layout, new_shape: Sequence[int], count: int) -> Layout:
    """The layout after a reshape, which keeps the order of the elements."""
    if 0 in shape or 0 in new_shape:
        return UNKNOWN
    stride = layout.inner * math.prod(shape[layout.axis + 1 :])  # elements from one example to the next
    right = 1
    for axis in range(len(new_shape) - 1, -1, -1):
        size = new_shape[axis]
        if stride % right == 0 and size % (stride // right * count) == 0:
            inner = stride // right
            return Layout(axis, size // (inner * count), inner)
        right *= size
        if right > stride:
            break
    return UNKNOWN


def only(shape: Sequence[int]) -> Layout:
    """A layout for a batch of one example, where all elements are its own: an axis of size 1 if there is one."""
    if not shape:
        return UNKNOWN
    return Layout(list(shape).index(1)) if 1 in shape else Layout(0, 1, shape[0])


def tag(shape: Sequence[int], layout: Layout, count: int) -> Tensor:
    """Each element's example number, as an expanded view that takes no memory."""
    index = torch.arange(count).view(1, count, 1).expand(layout.outer, count, layout.inner).reshape(-1)
    ones = [1] * len(shape)
    ones[layout.axis] = shape[layout.axis]
    return index.view(ones).expand(list(shape))


def read_tag(tagged: Tensor, count: int, like: Iterable[Layout] = ()) -> Layout:
    """The layout that an array of example numbers shows; `like` are those of what it was made of."""
    if not tagged.numel():
        return UNKNOWN
    axes = [axis for axis in range(tagged.ndim) if tagged.stride(axis) != 0 and tagged.size(axis) > 1]
    if len(axes) == 1:
        place: list[Any] = [0] * tagged.ndim
        place[axes[0]] = slice(None)
        return _pattern(tagged[tuple(place)], axes[0], count)
    return find_tag(tagged, count, like)


def find_tag(tagged: Tensor, count: int, like: Iterable[Layout] = ()) -> Layout:
    """The axis along which the examples count up; -1 stands for what no example made."""
    if not bool((tagged >= 0).any()):
        return UNKNOWN
    for outer, inner in {(1, 1): None} | {(place.outer, place.inner): None for place in like}:
        for axis in range(tagged.ndim):
            found = Layout(axis, outer, inner)
            if tagged.size(axis) == outer * count * inner:
                expected = tag(tagged.shape, found, count)
                if bool(((tagged == expected) | (tagged == -1)).all()):
                    return found
    return UNKNOWN


def _pattern(index: Tensor, axis: int, count: int) -> Layout:
    size = len(index)
    if size % count:
        return UNKNOWN
    changes = int((index != index[0]).to(torch.uint8).argmax())
    inner = changes if changes else size
    outer = size // (inner * count)
    if outer == 0 or not torch.equal(index, tag([size], Layout(0, outer, inner), count)):
        return UNKNOWN
    return Layout(axis, outer, inner)


def reduced(layout: Layout, ndim: int, dims: Sequence[int] | None, keepdim: bool) -> Layout:
    """The layout after a reduction over these axes (None: all)."""
    gone = {dim % ndim for dim in (range(ndim) if dims is None else dims)}
    if layout.axis in gone:
        return UNKNOWN
    shift = 0 if keepdim else sum(dim < layout.axis for dim in gone)
    return Layout(layout.axis - shift, layout.outer, layout.inner)


def fits_together(shapes: Sequence[Sequence[int]], out: Sequence[int]) -> bool:
    """Whether these shapes, aligned at the right, broadcast to `out`."""
    if max(map(len, shapes)) != len(out):
        return False
    for place in range(1, len(out) + 1):
        sizes = {shape[-place] for shape in shapes if len(shape) >= place} - {1}
        if len(sizes) > 1 or out[-place] not in (sizes or {1}):
            return False
    return True


def broadcast(shapes: Sequence[tuple[torch.Size, Layout | None]], out: torch.Size) -> Layout:
    """The layout of an element-wise result: shapes are aligned at the right."""
    if any(layout == UNKNOWN for _, layout in shapes):
        return UNKNOWN
    found = {
        Layout(len(out) - (len(shape) - layout.axis), layout.outer, layout.inner)
        for shape, layout in shapes
        if layout is not None
    }
    return found.pop() if len(found) == 1 else UNKNOWN
