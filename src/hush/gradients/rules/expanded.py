"""A parameter as one copy per example, so that the ordinary backward pass gives each example's gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hush.gradients.layout import Layout, mark
from hush.gradients.precision import wide
from hush.gradients.uses import Lookup, Rows

if TYPE_CHECKING:
    from hush.gradients.tape import Tape

LOOKED_UP = "_hush_looked_up"
_LARGEST_DIAGONAL = 5e7


class Fork(torch.autograd.Function):
    """Plain values, expanded; on the way back their gradient is written."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, anchor: Tensor, shape: list[int], write: Callable[..., None]) -> Tensor:  # noqa: D102
        ctx.write = write
        return values.expand(shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: D102
        with torch._C.DisableTorchFunction():
            ctx.write(wide(gradients[0]))
        return None, None, None, None


_fork: Callable[..., Tensor] = Fork.apply


def per_example(tape: Tape, weight: Tensor, ndim: int, layout: Layout, func: Any) -> Tensor:
    """The weight with an axis for the examples, where an operand of `ndim` axes and this layout has its own."""
    from hush.gradients.tape import source_of

    right = ndim - layout.axis  # the axis, counted from the right
    extent = weight.shape[-right] if weight.ndim >= right else 1
    if layout.is_plain and extent in (1, tape.count) and right > 1 and _is_looked_up(weight):
        return _looked_up(tape, weight, right, func)
    if extent == 1:
        return _spread(_expanded(tape, weight, weight, right, func), right, layout)
    if not layout.is_plain or extent != tape.count:
        raise tape.no_rule(func, [weight], "its shape does not fit one copy per example")
    source = source_of(weight)
    if source is not None and (source.ndim < right or source.shape[-right] == 1):
        return _expanded(tape, source, weight, right, func).expand(weight.shape)
    return _diagonal(tape, weight, right, func)


def _expanded(tape: Tape, base: Tensor, weight: Tensor, right: int, func: Any) -> Tensor:
    pad = max(right - base.ndim, 0)
    values = base.detach().reshape((1,) * pad + base.shape)
    shape = list(values.shape)
    shape[-right] = tape.count

    def write(gradient: Tensor) -> None:
        tape.note(base, Rows(gradient.movedim(-right, 0).reshape(tape.count, *base.shape)), func)

    copies = _fork(values, tape.anchor, shape, write)
    mark(copies, Layout(copies.ndim - right))
    return copies


def _spread(copies: Tensor, right: int, layout: Layout) -> Tensor:
    """Repeated so that it fits an axis that holds more than the examples."""
    if layout.is_plain:
        return copies
    axis, count = copies.ndim - right, copies.shape[-right]
    shape = [*copies.shape[:axis], layout.outer, count, layout.inner, *copies.shape[axis + 1 :]]
    spread = copies.unsqueeze(axis).unsqueeze(axis + 2).expand(shape).flatten(axis, axis + 2)
    mark(spread, Layout(axis, layout.outer, layout.inner))
    return spread


def _is_looked_up(weight: Tensor) -> bool:
    """Whether these are rows of a table as they were read, and nothing was written into them since."""
    found = getattr(weight, LOOKED_UP, None)
    return found is not None and found[3] == weight._version


def _looked_up(tape: Tape, weight: Tensor, right: int, func: Any) -> Tensor:
    """Rows of a table under numbers that do not come from the batch: positions, kinds of token."""
    table, index, num_rows, _ = getattr(weight, LOOKED_UP)
    pad = max(right - weight.ndim, 0)
    values, index = weight.detach().reshape((1,) * pad + weight.shape), index.reshape((1,) * pad + index.shape)
    axis = values.ndim - right
    shape = list(values.shape)
    shape[axis] = tape.count

    def write(gradient: Tensor) -> None:
        numbers = index.expand(shape[:-1]).movedim(axis, 0).reshape(tape.count, -1)
        outputs = gradient.movedim(axis, 0).reshape(tape.count, -1, weight.shape[-1])
        tape.note(table, Lookup(numbers, outputs, num_rows), func)

    copies = _fork(values, tape.anchor, shape, write)
    mark(copies, Layout(axis))
    return copies


def _diagonal(tape: Tape, weight: Tensor, right: int, func: Any) -> Tensor:
    """A derived weight with one entry per example: example b's gradient is zero in all entries but its own."""
    if tape.count * weight.numel() > _LARGEST_DIAGONAL:
        raise tape.no_rule(func, [weight], "one entry per example, and too large to write out")
    axis = weight.ndim - right

    def write(gradient: Tensor) -> None:
        rows = gradient.new_zeros(tape.count, *weight.shape)
        rows.movedim(axis + 1, 1).diagonal(dim1=0, dim2=1).copy_(gradient.movedim(axis, -1))
        tape.note(weight, Rows(rows), func)

    copies = _fork(weight.detach(), tape.anchor, list(weight.shape), write)
    mark(copies, Layout(axis))
    return copies
