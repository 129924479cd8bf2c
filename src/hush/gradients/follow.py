"""Where the batch lies in a function's result, for functions that do not meet a parameter.

Nothing is concluded from sizes that happen to be equal. A function is followed where `functions.py` says what it does;
otherwise the result is UNKNOWN. What an UNKNOWN operand touches is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hush.errors import NoRule
from hush.gradients import functions as kinds
from hush.gradients.functions import CLOSED as CLOSED
from hush.gradients.functions import EXPANDING as EXPANDING
from hush.gradients.functions import PASSIVE as PASSIVE
from hush.gradients.functions import both as _both
from hush.gradients.layout import (
    UNKNOWN,
    Layout,
    broadcast,
    find_tag,
    fits_together,
    layout_of,
    mark,
    only,
    read_tag,
    reduced,
    reshaped,
    tag,
)
from hush.gradients.recall import key_of, recalled

_SEQUENCES = (tuple, list)

__all__ = ["CLOSED", "EXPANDING", "PASSIVE", "_both", "follow", "terms"]

Known = list[tuple[Tensor, Layout]]


def follow(func: Any, args: Any, kwargs: Any, result: Any, tensors: Sequence[Tensor], count: int) -> None:
    """Mark the result, or all tensors in it, with where the batch lies."""
    if func in kinds.CONSTANT:
        return
    if func in kinds.BACKWARD:
        raise NoRule("a backward pass inside the model or loss_fn, whose gradients are not those of the loss.")
    if func is kinds.BROADCAST:
        for given, wide in zip(tensors, result, strict=True):
            place = layout_of(given)
            if place is not None:
                known = place != UNKNOWN
                mark(wide, Layout(place.axis + wide.ndim - given.ndim, place.outer, place.inner) if known else UNKNOWN)
        return
    if func is torch.Tensor.__setitem__:
        target, place, value = args
        _write(target, place, value, count)
        return
    if func in kinds.POINTWISE and count > 1 and isinstance(result, Tensor) and _is_alike(result, tensors):
        return
    key = None if _reads_values(func, args, kwargs) else key_of(func, args, kwargs, count)
    for index, tensor in enumerate([result] if isinstance(result, Tensor) else _list(result)):
        if isinstance(tensor, Tensor):
            before = layout_of(tensor) if any(tensor is given for given in tensors) else None
            answer = partial(_place, func, args, kwargs, tensor, index, tensors, count)
            place = recalled(key, index, tensor.shape, answer)
            if (
                before is not None and place != before and count > 1
            ):  # other views of the same memory would keep the old mark
                raise NoRule(f"{_name(func)} writes examples in another order into a part of the batch.")
            mark(tensor, place)


def _is_alike(result: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Mark the result of element-wise arithmetic if all operands have its shape and those of the batch one layout."""
    found, shape = None, result.shape
    for tensor in tensors:
        place = layout_of(tensor)
        if tensor.shape != shape or (place is not None and found is not None and place != found):
            return False
        found = place if found is None else found
    if found is not None:
        mark(result, found)
    return found is not None


def _reads_values(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether where the examples go may depend on what a tensor holds: rows chosen by an index."""
    return func in kinds.STRUCTURAL and _holds_tensor((*args[1:], *kwargs.values()))


def _holds_tensor(values: Iterable[Any]) -> bool:
    return any(isinstance(v, Tensor) or (isinstance(v, _SEQUENCES) and _holds_tensor(v)) for v in values)


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", func))


def _write(target: Tensor, index: Any, value: Any, count: int) -> None:
    """Note what `target[index] = value` does to the target."""
    if not isinstance(value, Tensor) or (layout := layout_of(value)) is None:
        return  # constants change no example's place
    before = layout_of(target)
    if layout == UNKNOWN or before == UNKNOWN:
        if before != UNKNOWN and before is not None:
            raise NoRule("__setitem__ writes examples that cannot be followed into a part of the batch.")
        mark(target, UNKNOWN)
        return
    blank = torch.full(target.shape, -1) if before is None else tag(target.shape, before, count).clone()
    blank[index] = tag(value.shape, layout, count)
    if before is None:
        mark(target, find_tag(blank, count))
    elif not torch.equal(blank, tag(target.shape, before, count)):
        raise NoRule("__setitem__ writes examples in another order into a part of the batch.")


def _list(result: Any) -> Iterable[Any]:
    if isinstance(result, tuple | list):
        return [item for part in result for item in ([part] if isinstance(part, Tensor) else _list(part))]
    return ()


def _place(func: Any, args: Any, kwargs: Any, out: Tensor, index: int, tensors: Sequence[Tensor], count: int) -> Layout:
    places = [(tensor, place) for tensor in tensors if (place := layout_of(tensor)) is not None]
    if not places or any(place == UNKNOWN for _, place in places):
        return UNKNOWN
    if count == 1:
        return only(out.shape)
    if func in kinds.STRUCTURAL:
        return _structural(func, args, kwargs, out, index, count, places)
    if func in kinds.REDUCING and len(tensors) == 1:
        return _reduced(func, *places[0], args, kwargs, out)
    if func in kinds.POINTWISE or func in kinds.REDUCING:  # max and min of two tensors
        return _pointwise(places, tensors, out)
    if func in kinds.RESHAPING:
        first, place = places[0]
        fits = args and first is args[0] and out.numel() == first.numel()
        return reshaped(first.shape, place, out.shape, count) if fits else UNKNOWN
    if func in kinds.ALONG:
        return _along(func, args, kwargs, places, out)
    if func in kinds.PRODUCTS:
        return _product(func, args, places, out)
    return _by_layer(func, args, kwargs, places, out, index, count)


def _by_layer(func: Any, args: Any, kwargs: Any, places: Known, out: Tensor, index: int, count: int) -> Layout:
    """Functions that stand for a whole layer, with frozen weights."""
    first, place = places[0]
    same = all(other == place for _, other in places)
    leads = args and first is args[0] and len(places) == 1
    if func in kinds.LEADING or func is kinds.BATCH_NORM:
        return place if same and not place.axis and out.shape[:1] == first.shape[:1] else UNKNOWN
    if func is kinds.LINEAR:
        return place if leads and place.axis < first.ndim - 1 else UNKNOWN
    if func in kinds.NORMALISING:
        return place if leads and place.axis < first.ndim - len(args[1]) else UNKNOWN
    if func in kinds.PADDING:
        return place if leads and place.axis < first.ndim - len(args[1]) // 2 else UNKNOWN
    if func is kinds.EMBEDDING:
        return place if len(places) == 1 and first is args[1] else UNKNOWN
    if func is kinds.ATTENTION:
        return place if same and place.axis < out.ndim - 2 and all(t.ndim == out.ndim for t, _ in places) else UNKNOWN
    if func in kinds.RECURRENT and isinstance(args[2], tuple | list) and leads and first.ndim == 3:
        return place if index == 0 else Layout(1) if place.is_plain else UNKNOWN
    if func is kinds.EINSUM:
        return _einsum(args, places)
    return UNKNOWN


def _pointwise(places: Known, tensors: Sequence[Tensor], out: Tensor) -> Layout:
    fits = fits_together([tensor.shape for tensor in tensors], out.shape)
    return broadcast([(tensor.shape, layout) for tensor, layout in places], out.shape) if fits else UNKNOWN


def _along(func: Any, args: Any, kwargs: Any, places: Known, out: Tensor) -> Layout:
    """All axes stay, but for what happens along one that is not the batch's."""
    (first, place), (position, usual) = places[0], kinds.ALONG[func]
    given = args[position] if len(args) > position else kwargs.get("dim", usual)
    if not isinstance(given, int) or isinstance(given, bool):
        return UNKNOWN
    if any(other != place or tensor.ndim != first.ndim for tensor, other in places):
        return UNKNOWN
    if func is torch.nn.functional.one_hot or func is torch.view_as_real:
        return place
    if place.axis == given % first.ndim or (func is not torch.view_as_complex and out.ndim != first.ndim):
        return UNKNOWN
    return place if out.shape[place.axis] == first.shape[place.axis] else UNKNOWN


def _product(func: Any, args: Any, places: Known, out: Tensor) -> Layout:
    """Matrix products: leading axes are aligned at the right, but for the last two."""
    operands = [value for value in args if isinstance(value, Tensor)]
    if func is torch.Tensor.__rmatmul__:
        operands = operands[::-1]
    if len(operands) < 2 or any(all(tensor is not value for value in operands) for tensor, _ in places):
        return UNKNOWN
    *added, left, right = operands
    if left.ndim == 1:
        return UNKNOWN
    if right.ndim == 1:
        place = layout_of(left)
        return place if place is not None and layout_of(right) is None and place.axis < left.ndim - 1 else UNKNOWN
    found = {_moved(layout, tensor, out) for tensor in added if (layout := layout_of(tensor)) is not None}
    if (layout := layout_of(left)) is not None:
        found.add(_moved(layout, left, out) if layout.axis < left.ndim - 1 else UNKNOWN)
    if (layout := layout_of(right)) is not None:
        found.add(_moved(layout, right, out) if layout.axis != right.ndim - 2 else UNKNOWN)
    return found.pop() if len(found) == 1 else UNKNOWN


def _moved(layout: Layout, tensor: Tensor, out: Tensor) -> Layout:
    return Layout(out.ndim - (tensor.ndim - layout.axis), layout.outer, layout.inner)


def terms(equation: str) -> tuple[list[str], str]:
    """The labels of each operand of an einsum, and of its result."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    if not arrow:  # the labels that occur once, in alphabetical order
        result = "".join(sorted(label for label in set(left) - {","} if left.count(label) == 1))
    return left.split(","), result


def _einsum(args: Any, places: Known) -> Layout:
    operands = list(args[1:]) if isinstance(args[1], Tensor) else list(args[1])
    if not isinstance(args[0], str) or "." in args[0]:
        return UNKNOWN
    labels, result = terms(args[0])
    found = {
        (labels[index][layout.axis], layout.outer, layout.inner)
        for tensor, layout in places
        for index, value in enumerate(operands)
        if value is tensor
    }
    if len(found) != 1:
        return UNKNOWN
    label, outer, inner = found.pop()
    return Layout(result.index(label), outer, inner) if result.count(label) == 1 else UNKNOWN


def _structural(func: Any, args: Any, kwargs: Any, out: Tensor, index: int, count: int, places: Known) -> Layout:
    """The same function on example numbers in place of values shows where each example went."""
    if not args:
        return UNKNOWN
    if func in kinds.CATENATING and (place := _catenated(args, kwargs, places)) is not None:
        return place
    if isinstance(args[0], Tensor) and layout_of(args[0]) is None:
        return _by_index(func, args, kwargs, out, places)
    try:
        found = func(_tagged(args[0], count), *args[1:], **kwargs)
    except (RuntimeError, ValueError, IndexError, TypeError):
        return UNKNOWN
    found = found if isinstance(found, Tensor) else list(_list(found))[index]
    return read_tag(found, count, [place for _, place in places]) if found.shape == out.shape else UNKNOWN


def _catenated(args: Any, kwargs: Any, places: Known) -> Layout | None:
    """Tensors with the same layout, joined along another axis; None where it takes a closer look."""
    axis = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    first, place = places[0]
    same = len(places) == len(args[0]) and all(other == place and t.ndim == first.ndim for t, other in places)
    return place if same and isinstance(axis, int) and axis % first.ndim != place.axis else None


def _by_index(func: Any, args: Any, kwargs: Any, out: Tensor, places: Known) -> Layout:
    """A constant table read under numbers that come from the batch: table[index] and the like."""
    number, place = places[0]
    if func not in kinds.BY_INDEX or len(places) != 1 or not any(number is value for value in _index(args, kwargs)):
        return UNKNOWN
    if func is torch.Tensor.__getitem__:
        return place if args[1] is number and number.dtype != torch.bool else UNKNOWN
    return place if out.shape == number.shape and number.ndim == args[0].ndim else UNKNOWN


def _index(args: Any, kwargs: Any) -> Iterable[Any]:
    return (*args[1:], *kwargs.values())


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


def _reduced(func: Any, first: Tensor, place: Layout, args: Any, kwargs: Any, out: Tensor) -> Layout:
    dims = kwargs.get("dim", kwargs.get("axis"))
    rest = list(args[2:] if func in kinds.WITH_ORDER else args[1:])
    if dims is None and rest and isinstance(rest[0], int | tuple | list) and not isinstance(rest[0], bool):
        dims = rest[0]
    if dims is None or (isinstance(dims, tuple | list) and not dims):
        return UNKNOWN
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not all(isinstance(dim, int) for dim in dims):
        return UNKNOWN
    return reduced(place, first.ndim, dims, out.ndim == first.ndim)
