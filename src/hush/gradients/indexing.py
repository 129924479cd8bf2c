"""Where the batch goes when elements are moved, read or written, and who else sees what is written.

An index that is a constant moves examples to known places, found by moving example numbers. An index that comes from
the batch has other values in the next batch, so nothing may be concluded from the values that it has in this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from hush.errors import NoRule
from hush.gradients import functions as kinds
from hush.gradients.layout import UNKNOWN, Layout, find_tag, layout_of, mark, only, read_tag, tag

_SEQUENCES = (tuple, list)
_MASKS = (torch.bool, torch.uint8)
# References to the memory of a tensor that no other tensor shares: the tensor's own, and that of the Python object by
# which this is asked.
_UNSHARED = 2


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield all tensors in an argument, also those that are the bounds of a slice."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, _SEQUENCES):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, slice):
        yield from tensors_in((value.start, value.stop, value.step))
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


ALIASES = {"axis": "dim", "keepdims": "keepdim"}  # names of NumPy that torch takes for its own


def arguments(names: Sequence[str], args: Any, kwargs: Any) -> dict[str, Any] | None:
    """Return the arguments by name; None where one is unexpected or given twice."""
    named = {ALIASES.get(name, name): value for name, value in kwargs.items()}
    given = dict(zip(names, args, strict=False))
    is_twice = len(named) < len(kwargs) or bool(given.keys() & named.keys())
    return None if is_twice or len(args) > len(names) or not named.keys() <= {*names} else {**given, **named}


def flat(result: Any) -> list[Any]:
    """Return the items of nested tuples and lists in order."""
    if isinstance(result, tuple | list):
        return [item for part in result for item in ([part] if isinstance(part, Tensor) else flat(part))]
    return []


def is_batched(value: Any) -> bool:
    """Return whether any tensor in an argument depends on the batch."""
    return any(layout_of(tensor) is not None for tensor in tensors_in(value))


def check_unshared(target: Tensor, name: str) -> None:
    """Reject a write of a part of the batch into memory that other tensors share, unless it is followed there.

    Views of a constant carry no mark, and would still count as constants after the write. Those of some rows of the
    batch are not followed, and what they are a part of would keep its mark.
    """
    if layout_of(target) not in (None, UNKNOWN):
        return
    with torch._C.DisableTorchFunction():
        uses = torch._C._storage_Use_Count(target.untyped_storage()._cdata)
    if uses > _UNSHARED or target._is_view():
        raise NoRule(f"{name} writes a part of the batch into memory that another tensor shares; write into a copy.")


# --- moving ------------------------------------------------------------------------------------------------------


def structural(
    func: Any, args: Any, kwargs: Any, out: Tensor, index: int, count: int, places: Sequence[tuple[Tensor, Layout]]
) -> Layout:
    """The same function on example numbers in place of values shows where each example went."""
    if not args:
        return UNKNOWN
    if func in kinds.CATENATING and (place := _catenated(args, kwargs, places)) is not None:
        return place
    if is_batched((args[1:], kwargs)) and func not in kinds.ALIKE_SHAPE:
        return read_by_batch(func, args, kwargs, out, count)
    if func in kinds.REPEATING and len(args) + len(kwargs) < 2:
        return UNKNOWN  # its only operand says how often: where that comes from the batch, nothing stays in place
    if not out.numel() and len(places) == 1:  # it holds nothing of anybody
        [(tensor, place)] = places
        fits = out.ndim == tensor.ndim and out.shape[place.axis] == tensor.shape[place.axis]
        return place if fits else UNKNOWN
    try:
        found = func(_tagged(args[0], count), *args[1:], **kwargs)
    except (RuntimeError, ValueError, IndexError, TypeError):
        return UNKNOWN
    found = found if isinstance(found, Tensor) else flat(found)[index]
    return read_tag(found, count, [place for _, place in places]) if found.shape == out.shape else UNKNOWN


def _catenated(args: Any, kwargs: Any, places: Sequence[tuple[Tensor, Layout]]) -> Layout | None:
    """Tensors with the same layout, joined along another axis; None where it takes a closer look."""
    given = arguments(("tensors", "dim"), args, kwargs)
    axis = None if given is None else given.get("dim", 0)
    first, place = places[0]
    same = len(places) == len(args[0]) and all(other == place and t.ndim == first.ndim for t, other in places)
    return place if same and type(axis) is int and axis % first.ndim != place.axis else None


def _tagged(value: Any, count: int) -> Any:
    """Example numbers in place of values; -1 where the batch plays no part."""
    if isinstance(value, Tensor):
        layout = layout_of(value)
        if layout is None:
            return torch.full((1,) * value.ndim, -1, dtype=torch.int64).expand(value.shape)
        return tag(value.shape, layout, count)
    if isinstance(value, tuple | list):
        return type(value)(_tagged(item, count) for item in value)
    return value


# --- reading -----------------------------------------------------------------------------------------------------


def read_by_batch(func: Any, args: Any, kwargs: Any, out: Tensor, count: int) -> Layout:
    """Return where the batch lies after `func` read `args[0]` under an index that comes from the batch."""
    if func not in kinds.BY_INDEX or not isinstance(args[0], Tensor):
        return UNKNOWN
    if func is Tensor.__getitem__:
        return _taken(args[0], args[1], out, count) if len(args) == 2 and not kwargs else UNKNOWN
    given = {**dict(zip(("input", "dim", "index"), args, strict=False)), **kwargs}
    if func in kinds.ALONG_INDEX and "indices" in given:
        return _along(args[0], given.pop("indices"), given, out)
    if func in kinds.ALONG_INDEX and func not in _GATHER:  # take_along_dim(input, indices, dim)
        given = {**dict(zip(("input", "index", "dim"), args, strict=False)), **kwargs}
    index = given.pop("index", None)
    if not isinstance(index, Tensor):
        return UNKNOWN
    return _along(args[0], index, given, out) if func in kinds.ALONG_INDEX else _selected(args[0], index, given, out)


_GATHER = kinds.both("gather")


def _axis(given: dict[str, Any], ndim: int) -> int | None:
    axis = given.get("dim", given.get("axis"))
    if not given.keys() <= {"input", "dim", "axis", "sparse_grad"} or type(axis) is not int:
        return None
    return axis % ndim


def _along(source: Tensor, index: Tensor, given: dict[str, Any], out: Tensor) -> Layout:
    """Along one axis: what is chosen in a line of the other axes stays in that line."""
    axis = _axis(given, out.ndim)
    places = {place for tensor in (source, index) if (place := layout_of(tensor)) is not None}
    if axis is None or len(places) != 1 or not source.ndim == index.ndim == out.ndim:
        return UNKNOWN
    place = places.pop()
    # A constant source may be read at any place. The line of another example must not be read.
    if place == UNKNOWN or (axis == place.axis and layout_of(source) is not None):
        return UNKNOWN
    extents = {tensor.shape[place.axis] for tensor in (source, index) if layout_of(tensor) is not None}
    return place if extents == {out.shape[place.axis]} else UNKNOWN


def _selected(source: Tensor, index: Tensor, given: dict[str, Any], out: Tensor) -> Layout:
    """Slices of a constant, chosen by a vector of numbers."""
    axis, place = _axis(given, out.ndim), layout_of(index)
    if axis is None or place is None or place == UNKNOWN or index.ndim != 1 or layout_of(source) is not None:
        return UNKNOWN
    return Layout(axis, place.outer, place.inner)


def _taken(source: Tensor, index: Any, out: Tensor, count: int) -> Layout:
    """`source[index]`: the examples that the source and each index bring to an element must agree.

    The source is read with example numbers in place of its values. These are the same along all axes but the batch's,
    so what an index from the batch holds plays no part as long as it does not go along that axis.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    if any(is_batched(item) and not isinstance(item, Tensor) for item in items):
        return UNKNOWN  # bounds of slices, and lists of tensors
    axes = _axes(items, source.ndim)
    place = layout_of(source)
    if axes is None or UNKNOWN in (place, *(layout_of(item) for item in items if isinstance(item, Tensor))):
        return UNKNOWN
    shown = [] if place is None else [tag(source.shape, place, count)[tuple(items)]]
    for number, item in enumerate(items):
        layout = layout_of(item) if isinstance(item, Tensor) else None
        if layout is None:
            continue
        if item.dtype in _MASKS or (place is not None and axes[number] == place.axis):
            return UNKNOWN  # how many elements, or which examples, are chosen depends on the values
        sizes, ones = list(source.shape), [1] * source.ndim
        sizes[axes[number]] = ones[axes[number]] = count
        numbers = torch.arange(count).view(ones).expand(sizes)
        shown.append(numbers[(*items[:number], tag(item.shape, layout, count), *items[number + 1 :])])
    if any(found.shape != out.shape or not torch.equal(found, shown[0]) for found in shown):
        return UNKNOWN
    return read_tag(shown[0], count)


def _axes(items: list[Any], ndim: int) -> list[int] | None:
    """Return the axis that each item of an index starts at; None for kinds of items that are not followed."""
    widths = []
    for item in items:
        if isinstance(item, Tensor):
            widths.append(item.ndim if item.dtype in _MASKS else 1)
        elif item is None or item is Ellipsis:
            widths.append(0)
        elif isinstance(item, slice) or type(item) is int:
            widths.append(1)
        else:
            return None
    starts, axis = [], 0
    for item, width in zip(items, widths, strict=True):
        starts.append(axis)
        axis += ndim - sum(widths) if item is Ellipsis else width
    return starts


# --- writing -----------------------------------------------------------------------------------------------------


def write(target: Tensor, index: Any, value: Any, count: int) -> None:
    """Mark the target of `target[index] = value` with where the batch lies.

    Raises:
        NoRule: The write moves examples to other places, depends on which values the batch holds, or goes into memory
            that other tensors share.
    """
    before, layout = layout_of(target), layout_of(value) if isinstance(value, Tensor) else None
    if layout is None and not is_batched(index):
        return  # constants change no example's place
    check_unshared(target, "__setitem__")
    if UNKNOWN in (before, layout, *(layout_of(tensor) for tensor in tensors_in(index))):
        if before is not None and before != UNKNOWN:
            raise NoRule("__setitem__ writes examples that cannot be followed into a part of the batch.")
        mark(target, UNKNOWN)
    elif count == 1:
        mark(target, only(target.shape) if before is None else before)
    elif is_batched(index):
        _write_where(target, index, value)
    else:
        _write_at(target, index, value, count)


def _write_where(target: Tensor, index: Any, value: Any) -> None:
    """Write one number where a mask from the batch says so: the axes of mask and target are aligned at the left."""
    is_number = not isinstance(value, Tensor) or (value.numel() == 1 and layout_of(value) is None)
    place = layout_of(index) if isinstance(index, Tensor) and index.dtype == torch.bool else None
    if place is None or not is_number or layout_of(target) not in (None, place):
        raise NoRule("__setitem__ writes where values of the batch say: only target[mask] = number is followed.")
    mark(target, place)


def _write_at(target: Tensor, index: Any, value: Tensor, count: int) -> None:
    before, layout = layout_of(target), layout_of(value)
    assert layout is not None
    blank = torch.full(target.shape, -1) if before is None else tag(target.shape, before, count).clone()
    blank[index] = tag(value.shape, layout, count)
    if before is None:
        mark(target, find_tag(blank, count))
    elif not torch.equal(blank, tag(target.shape, before, count)):
        raise NoRule("__setitem__ writes examples in another order into a part of the batch.")
