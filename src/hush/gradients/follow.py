"""Where the batch lies in a function's result, for functions that do not meet a parameter.

Nothing is concluded from sizes that happen to be equal. A function is followed where `functions.py` says what it does;
otherwise the result is UNKNOWN. What an UNKNOWN operand touches is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hush.errors import NoRule, NotIsolated
from hush.gradients import functions as kinds
from hush.gradients.functions import CLOSED as CLOSED
from hush.gradients.functions import EXPANDING as EXPANDING
from hush.gradients.functions import PASSIVE as PASSIVE
from hush.gradients.functions import both as _both
from hush.gradients.indexing import ALIASES, arguments, check_unshared, flat, is_batched, structural, tensors_in, write
from hush.gradients.layout import (
    UNKNOWN,
    Layout,
    broadcast,
    fits_together,
    layout_of,
    mark,
    only,
    reduced,
    reshaped,
)
from hush.gradients.recall import key_of, recalled

_SEQUENCES = (tuple, list)
BATCH_NORM_MIXES = (
    "batch_norm in training mode mixes the examples of a batch; use GroupNorm, or keep the module in eval mode with "
    "statistics from public data."
)
INSTANCE_NORM_KEEPS = (
    "instance_norm in training mode writes statistics of the batch into its running mean and variance; set "
    "track_running_stats=False, or keep the module in eval mode."
)

__all__ = ["CLOSED", "EXPANDING", "PASSIVE", "_both", "check_statistics", "follow", "terms"]

Known = list[tuple[Tensor, Layout]]


def follow(func: Any, args: Any, kwargs: Any, result: Any, tensors: Sequence[Tensor], count: int) -> None:
    """Mark the result, or all tensors in it, with where the batch lies.

    Raises:
        NoRule: The function writes a part of the batch to where it cannot be followed.
        NotIsolated: The function mixes the examples of a batch.
    """
    if func in kinds.CONSTANT or _reads_kind_alone(func, args):
        _mark_constant(func, args, kwargs, result, tensors)
        return
    _check_writes(func, args, kwargs, result)
    check_statistics(func, args, kwargs)
    if func is kinds.BROADCAST:
        _mark_broadcast(tensors, result, count)
        return
    if func is torch.Tensor.__setitem__:
        target, place, value = args
        write(target, place, value, count)
        return
    if func in kinds.POINTWISE and count > 1 and isinstance(result, Tensor) and _is_alike(func, result, tensors):
        return
    key = None if _reads_values(func, args, kwargs) else key_of(func, args, kwargs, count)
    for index, tensor in enumerate([result] if isinstance(result, Tensor) else flat(result)):
        if isinstance(tensor, Tensor):
            is_given = any(tensor is given for given in tensors)
            answer = partial(_place, func, args, kwargs, tensor, index, tensors, count)
            place = recalled(key, index, tensor.shape, answer)
            if is_given and not _changes_itself(func, tensor, tensors):
                _check_place(func, tensor, place, count)
            mark(tensor, place)


def _changes_itself(func: Any, target: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Return whether each number that is written depends on what was there, and on no other part of the batch."""
    others = (tensor for tensor in tensors if tensor is not target)
    return func in kinds.POINTWISE and all(layout_of(tensor) is None for tensor in others)


def _check_place(func: Any, tensor: Tensor, place: Layout, count: int) -> None:
    """Reject a function that wrote into one of its operands where views of it would keep an old mark."""
    before = layout_of(tensor)
    if before in (None, UNKNOWN):
        check_unshared(tensor, _name(func))
    elif place != before and count > 1:
        raise NoRule(f"{_name(func)} writes examples in another order into a part of the batch.")


def _check_writes(func: Any, args: Any, kwargs: Any, result: Any) -> None:
    if func in kinds.BACKWARD:
        raise NoRule("a backward pass inside the model or loss_fn, whose gradients are not those of the loss.")
    if kwargs.get("out") is not None:  # other views of that memory would keep their marks
        raise NoRule(f"{_name(func)} writes a part of the batch into the tensor given as out.")
    if result is None and func not in kinds.SILENT and _name(func) != "__get__":
        raise NoRule(f"{_name(func)} returns nothing, and may write a part of the batch anywhere.")


def _reads_kind_alone(func: Any, args: Any) -> bool:
    """Return whether a constant takes the dtype or the shape of a part of the batch, and nothing else."""
    alike = func in kinds.ALIKE_DTYPE or func in kinds.ALIKE_SHAPE
    return alike and bool(args) and isinstance(args[0], Tensor) and layout_of(args[0]) is None


def _mark_constant(func: Any, args: Any, kwargs: Any, result: Any, tensors: Sequence[Tensor]) -> None:
    """Leave the result unmarked, unless a value of the batch is copied into it or its size depends on the values."""
    if func in kinds.ALIKE_DTYPE:
        return
    others = (*args[1:], *(value for name, value in kwargs.items() if name not in ("input", "self")))
    is_copied = func in kinds.CONSTANT and is_batched(others)
    if is_copied or any(layout_of(tensor) == UNKNOWN for tensor in tensors):
        mark(result, UNKNOWN)


def check_statistics(func: Any, args: Any, kwargs: Any) -> None:
    """Reject normalisation by statistics of the whole batch, and statistics of the batch that a module keeps."""
    if func is kinds.BATCH_NORM and kwargs.get("training", args[5] if len(args) > 5 else True):
        raise NotIsolated(BATCH_NORM_MIXES)
    if func is kinds.INSTANCE_NORM:
        given = {**dict(zip((*STATISTICS, "use_input_stats"), args, strict=False)), **kwargs}
        if given.get("use_input_stats", True) and given.get("running_mean") is not None:
            raise NotIsolated(INSTANCE_NORM_KEEPS)


STATISTICS = ("input", "weight", "bias", "running_mean", "running_var")  # how both begin


def _mark_broadcast(tensors: Sequence[Tensor], result: Any, count: int) -> None:
    for given, wide in zip(tensors, result, strict=True):
        place = layout_of(given)
        if place is None:
            continue
        if place != UNKNOWN:
            added = wide.ndim - given.ndim
            place = only(wide.shape) if count == 1 else Layout(place.axis + added, place.outer, place.inner)
        mark(wide, place)


def _is_alike(func: Any, result: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Mark the result of element-wise arithmetic if all operands have its shape and those of the batch one layout."""
    found, shape = None, result.shape
    for tensor in tensors:
        place = layout_of(tensor)
        if tensor.shape != shape or (place is not None and found is not None and place != found):
            return False
        if tensor is result and not _changes_itself(func, result, tensors):
            check_unshared(tensor, _name(func))
        found = place if found is None else found
    if found is not None:
        mark(result, found)
    return found is not None


def _reads_values(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether where the examples go may depend on what a tensor holds: rows chosen by an index."""
    return func in kinds.STRUCTURAL and any(True for _ in tensors_in((*args[1:], *kwargs.values())))


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", func))


def _place(func: Any, args: Any, kwargs: Any, out: Tensor, index: int, tensors: Sequence[Tensor], count: int) -> Layout:
    places = [(tensor, place) for tensor in tensors if (place := layout_of(tensor)) is not None]
    if not places or any(place == UNKNOWN for _, place in places):
        return UNKNOWN
    if count == 1:
        return only(out.shape)
    if func in kinds.STRUCTURAL:
        return structural(func, args, kwargs, out, index, count, places)
    if func in kinds.POINTWISE or (func in kinds.PAIRWISE and len(tensors) == 2):
        return _pointwise(func, args, kwargs, places, tensors, out)
    if func in kinds.REDUCING:
        return _reduced(func, *places[0], args, kwargs, out) if len(tensors) == 1 else UNKNOWN
    if func in kinds.RESHAPING:
        first, place = places[0]
        fits = args and first is args[0] and out.numel() == first.numel()
        return reshaped(first.shape, place, out.shape, count) if fits else UNKNOWN
    if func in kinds.ALONG:
        return _along(func, args, kwargs, places, out)
    if func in kinds.LAST:
        return _last(func, args, kwargs, places)
    if func in kinds.PRODUCTS:
        return _product(func, args, kwargs, places, out)
    return _by_layer(func, args, kwargs, places, out, index)


def _by_layer(func: Any, args: Any, kwargs: Any, places: Known, out: Tensor, index: int) -> Layout:
    """Functions that stand for a whole layer, with frozen weights."""
    first, place = places[0]
    # Only the first operand is of the batch, by position: as a keyword, or as a weight, it is not followed.
    leads = bool(args) and first is args[0] and len(places) == 1 and not is_batched((args[1:], kwargs))
    if func in kinds.LEADING:
        return _leading(func, args, kwargs, places, out)
    if func is kinds.BATCH_NORM:
        return place if leads and not place.axis and first.ndim > 1 else UNKNOWN
    if func in kinds.SLOPED:
        return place if leads else UNKNOWN
    if func is kinds.LINEAR:
        return place if leads and place.axis < first.ndim - 1 else UNKNOWN
    if func in kinds.NORMALISING and len(args) > 1 and isinstance(args[1], _SEQUENCES):
        return place if leads and place.axis < first.ndim - len(args[1]) else UNKNOWN
    if func in kinds.PADDING and len(args) > 1 and isinstance(args[1], _SEQUENCES):
        return place if leads and place.axis < first.ndim - len(args[1]) // 2 else UNKNOWN
    if func is kinds.EMBEDDING:
        return place if len(places) == 1 and len(args) > 1 and first is args[1] and first is not args[0] else UNKNOWN
    if func is kinds.ATTENTION:
        return _attention(places, out)
    if func in kinds.RECURRENT:
        return _recurrent(args, kwargs, places, index)
    if func is kinds.EINSUM:
        return _einsum(args, kwargs, places)
    return UNKNOWN


def _leading(func: Any, args: Any, kwargs: Any, places: Known, out: Tensor) -> Layout:
    """Axis 0 holds the examples, in the first operands alone."""
    first, place = places[0]
    num_operands = kinds.LEADING[func]
    if place.axis or any(other != place for _, other in places) or is_batched((args[num_operands:], kwargs)):
        return UNKNOWN
    # Without an axis for examples, axis 0 holds the channels, which a convolution sums over.
    if func in kinds.CONVOLUTIONS and not (len(args) > 1 and args[0].ndim == args[1].ndim):
        return UNKNOWN
    return place if out.shape[:1] == first.shape[:1] else UNKNOWN


def _attention(places: Known, out: Tensor) -> Layout:
    """All operands have the same axes. Heads that are shared (enable_gqa) make fewer of them in keys and values."""
    first, place = places[0]
    same = all(
        other == place and tensor.ndim == out.ndim and tensor.shape[place.axis] == out.shape[place.axis]
        for tensor, other in places
        if place.axis < tensor.ndim
    )
    return place if same and place.axis < min(out.ndim, first.ndim) - 2 else UNKNOWN


def _recurrent(args: Any, kwargs: Any, places: Known, index: int) -> Layout:
    """Whole sequences, not packed: (input, states, weights, ..., batch_first)."""
    if kwargs or len(args) != 9 or not isinstance(args[2], _SEQUENCES) or is_batched(args[2:]):
        return UNKNOWN
    inputs, states, axis = args[0], tensors_in(args[1]), 0 if args[8] else 1
    place = places[0][1]
    inside = Layout(1, place.outer, place.inner)  # states are (layers, batch, features) in any case
    own = layout_of(inputs)
    if inputs.ndim != 3 or own not in (None, Layout(axis, place.outer, place.inner)):
        return UNKNOWN
    if any(layout_of(state) not in (None, inside) or state.ndim != 3 for state in states):
        return UNKNOWN
    return Layout(axis, place.outer, place.inner) if index == 0 else inside


def _pointwise(func: Any, args: Any, kwargs: Any, places: Known, tensors: Sequence[Tensor], out: Tensor) -> Layout:
    if func in kinds.WHERE and len(args) + len(kwargs) < 3:
        return UNKNOWN
    fits = fits_together([tensor.shape for tensor in tensors], out.shape)
    return broadcast([(tensor.shape, layout) for tensor, layout in places], out.shape) if fits else UNKNOWN


def _along(func: Any, args: Any, kwargs: Any, places: Known, out: Tensor) -> Layout:
    """All axes stay, but for what happens along one that is not the batch's."""
    (first, place), (names, usual) = places[0], kinds.ALONG[func]
    given = arguments(names, args, kwargs)
    axis = None if given is None else given.get("dim", usual)
    if type(axis) is not int or out.ndim != first.ndim:
        return UNKNOWN
    if any(other != place or tensor.ndim != first.ndim for tensor, other in places):
        return UNKNOWN
    stays = place.axis != axis % first.ndim and out.shape[place.axis] == first.shape[place.axis]
    return place if stays else UNKNOWN


def _last(func: Any, args: Any, kwargs: Any, places: Known) -> Layout:
    """A last axis is added, or taken away."""
    first, place = places[0]
    if not args or first is not args[0] or len(places) > 1:
        return UNKNOWN
    if func is kinds.ONE_HOT:  # without a number of classes, the largest number in the batch says how many there are
        given = arguments(("input", "num_classes"), args, kwargs)
        num_classes = None if given is None else given.get("num_classes")
        return place if type(num_classes) is int and num_classes >= 0 else UNKNOWN
    return place if func is not torch.view_as_complex or place.axis < first.ndim - 1 else UNKNOWN


def _product(func: Any, args: Any, kwargs: Any, places: Known, out: Tensor) -> Layout:
    """Matrix products: leading axes are aligned at the right, but for the last two."""
    names = kinds.PRODUCTS[func]
    given = arguments((*names, "beta", "alpha"), args, kwargs) or {}
    operands: list[Any] = [given.get(name) for name in names]
    if not all(isinstance(value, Tensor) for value in operands):
        return UNKNOWN
    if any(isinstance(given.get(name), Tensor) for name in ("beta", "alpha")):
        return UNKNOWN
    operands = operands[::-1] if func is torch.Tensor.__rmatmul__ else operands
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


def _einsum(args: Any, kwargs: Any, places: Known) -> Layout:
    if kwargs or len(args) < 2 or not isinstance(args[0], str) or "." in args[0]:
        return UNKNOWN
    operands = list(args[1:]) if isinstance(args[1], Tensor) else list(args[1])
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


_REDUCTIONS = ("input", "dim", "keepdim", "dtype", "unbiased", "correction")


def _reduced(func: Any, first: Tensor, place: Layout, args: Any, kwargs: Any, out: Tensor) -> Layout:
    named = {ALIASES.get(name, name): value for name, value in kwargs.items()}
    has_order = func in kinds.WITH_ORDER
    known = {*_REDUCTIONS, "p", "ord"} if has_order else {*_REDUCTIONS}
    rest = args[2:] if has_order else args[1:]
    if not args or first is not args[0] or len(named) < len(kwargs) or not named.keys() <= known:
        return UNKNOWN
    dims = named["dim"] if "dim" in named else rest[0] if rest else None
    dims = [dims] if type(dims) is int else dims
    # No axis, or an empty list of axes, stands for all. A flag in the place of an axis belongs to another overload.
    if not isinstance(dims, _SEQUENCES) or not dims or any(type(dim) is not int for dim in dims):
        return UNKNOWN
    keeps = out.ndim == first.ndim
    if not keeps and out.ndim != first.ndim - len(dims):  # more axes are gone: count_nonzero(0, 1) takes each by itself
        return UNKNOWN
    return reduced(place, first.ndim, dims, keeps)
