"""Linear layers, matrix products, einsum and bilinear forms."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hush.gradients import follow
from hush.gradients.indexing import is_batched
from hush.gradients.layout import Layout, by_example, layout_of, mark
from hush.gradients.rules.elementwise import reference
from hush.gradients.rules.expanded import per_example
from hush.gradients.tape import _tensors, rule
from hush.gradients.uses import Outer, Rows

if TYPE_CHECKING:
    from hush.gradients.tape import Tape


_FIRST = Layout(0)


def plain(tape: Tape, weight: Tensor | None) -> Tensor | None:
    """The values of a weight, without its gradient."""
    return weight.detach() if weight is not None and tape.is_weight(weight) else weight


def is_weight(tape: Tape, value: object) -> bool:
    """Whether this is a tensor whose per-example gradient is wanted."""
    return isinstance(value, Tensor) and tape.is_weight(value)


def places(tensor: Tensor, layout: Layout, count: int) -> Tensor:
    """(batch, T, features): everything between the example and the last axis counts as places."""
    if tensor.ndim == 2 and layout == _FIRST:
        return tensor.unsqueeze(1)
    return by_example(tensor, layout, count).reshape(count, -1, tensor.shape[-1])


def note_outer(tape: Tape, weight: Tensor, use: Outer, func: Any) -> None:
    """Note the use of a matrix; views of a parameter are led back to it."""
    base = weight._base
    if base is not None and id(base) in tape._names and base.ndim == 2 and weight.ndim == 2:
        offset = int(weight.storage_offset()) - int(base.storage_offset())
        if weight.shape == base.shape[::-1] and weight.stride() == base.stride()[::-1] and not offset:
            tape.note(base, replace(use, transposed=not use.transposed), func)
            return
        row, column = divmod(offset, base.shape[1])
        inside = row + weight.shape[0] <= base.shape[0] and column + weight.shape[1] <= base.shape[1]
        if weight.stride() == base.stride() and base.is_contiguous() and inside:
            right, left = use.sides()
            left = F.pad(left, (row, base.shape[0] - row - weight.shape[0]))
            right = F.pad(right, (column, base.shape[1] - column - weight.shape[1]))
            sides = (left, right) if use.transposed else (right, left)
            tape.note(base, Outer(*sides, use.transposed), func)
            return
    tape.note(weight, use, func)


@rule(torch._C._nn.linear)
def linear(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """x W^T + b, for inputs of any rank."""
    inputs, weight, bias = _named(args, kwargs, ("input", "weight", "bias"))
    if is_weight(tape, inputs) or (not is_weight(tape, weight) and not isinstance(bias, Tensor)):
        return _expanded_product(tape, func, inputs, weight, bias)
    layout = tape.layout(inputs, func, [weight])
    if layout.axis == inputs.ndim - 1:
        raise tape.no_rule(func, [weight], "the examples lie on the axis that is summed over")
    if is_batched((weight, bias)):
        raise tape.no_rule(func, [weight], "a weight or bias made of the batch")
    if weight.ndim != 2:
        raise tape.no_rule(func, [weight], "a weight vector")
    if bias is not None and bias.shape != weight.shape[:1]:  # one number for all features
        with tape:
            return func(inputs, weight) + bias
    inputs = inputs.contiguous()
    # As one matrix: torch itself would do many small products where the weight needs no gradient.
    matrix = inputs if inputs.ndim == 2 else inputs.reshape(-1, inputs.shape[-1])
    output = func(matrix, plain(tape, weight), plain(tape, bias))
    output = output if inputs.ndim == 2 else output.view(*inputs.shape[:-1], weight.shape[0])

    def write(gradient: Tensor, *inputs: Tensor) -> None:
        has_bias = bias is not None and tape.is_weight(bias)
        outer, rows = linear_uses(gradient, inputs[0] if inputs else None, layout, tape.count, has_bias=has_bias)
        if outer is not None:
            note_outer(tape, weight, outer, func)
        if rows is not None:
            tape.note(bias, rows, func)

    return tape.tap(output, layout, write, *([inputs] if is_weight(tape, weight) else []))


def linear_uses(
    gradient: Tensor, inputs: Tensor | None, layout: Layout, count: int, *, has_bias: bool
) -> tuple[Outer | None, Rows | None]:
    """How x W^T + b used its weight, where `inputs` are given, and its bias."""
    outputs = places(gradient, layout, count)
    outer = None if inputs is None else Outer(places(inputs, layout, count).to(outputs.dtype), outputs)
    if not has_bias:
        return outer, None
    is_plain = gradient.ndim == 2 and layout == _FIRST
    return outer, Rows(gradient if is_plain else outputs.sum(1) if outputs.shape[1] > 1 else outputs.squeeze(1))


def _expanded_product(tape: Tape, func: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    with tape:
        product = torch.matmul(inputs, weight.t())
        return product if bias is None else product + bias


@rule(*follow._both("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv"))
def matmul(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """x @ W and W @ x; a weight with axes of its own before the last two becomes one copy per example."""
    if len(args) + len(kwargs) != 2 or not kwargs.keys() <= {"other", "mat2", "vec"}:
        raise tape.no_rule(func, _tensors([*args, *kwargs.values()]), "operands by names that it does not know")
    left, right = list(args) + list(kwargs.values())
    if func is torch.Tensor.__rmatmul__:
        left, right = right, left
    if is_weight(tape, left) and is_weight(tape, right):
        raise tape.no_rule(func, [left, right])
    weight, inputs = (left, right) if is_weight(tape, left) else (right, left)
    layout = tape.layout(inputs, func, [weight])
    if weight is right and weight.ndim == 2 and inputs.ndim >= 2 and layout.axis < inputs.ndim - 1:
        return _times(tape, inputs, weight, layout, func)
    if weight.ndim >= 2 and layout.axis < inputs.ndim - 2:
        copies = per_example(tape, weight, inputs.ndim, layout, func)
        output = torch.matmul(copies, inputs) if weight is left else torch.matmul(inputs, copies)
        mark(output, Layout(output.ndim - (inputs.ndim - layout.axis), layout.outer, layout.inner))
        return output
    if weight is right and weight.ndim == 1 and layout.axis < inputs.ndim - 1:
        with tape:
            return torch.sum(inputs * weight, dim=-1)
    raise tape.no_rule(func, [weight], "the examples lie on an axis of the product")


def _times(tape: Tape, inputs: Tensor, weight: Tensor, layout: Layout, func: Any) -> Tensor:
    inputs, shape = inputs.contiguous(), (*inputs.shape[:-1], weight.shape[1])
    output = torch.mm(inputs.reshape(-1, inputs.shape[-1]), weight.detach()).view(shape)

    def write(gradient: Tensor, inputs: Tensor) -> None:
        outputs = places(gradient, layout, tape.count)
        use = Outer(places(inputs, layout, tape.count).to(outputs.dtype), outputs, transposed=True)
        note_outer(tape, weight, use, func)

    return tape.tap(output, layout, write, inputs)


@rule(*follow._both("addmm", "baddbmm"))
def addmm(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """bias + x @ W; with a vector of biases it is a linear layer whose weight lies the other way."""
    if len(args) != 3 or "out" in kwargs:
        raise tape.no_rule(func, list(_tensors(args)), "operands by name")
    bias, inputs, weight = args
    with tape:
        if (
            not kwargs
            and bias.shape == weight.shape[1:]
            and is_weight(tape, weight)
            and weight.ndim == 2
            and not is_weight(tape, inputs)
        ):
            return F.linear(inputs, weight.t(), bias)
        product = torch.matmul(inputs, weight)
        alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
        product = product if alpha == 1 else product * alpha
        return product + (bias if beta == 1 else bias * beta)


@rule(torch.functional.einsum)
def einsum(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """The weight's term gets the label of the examples."""
    equation, operands = args[0], list(args[1:])
    if len(operands) == 1 and isinstance(operands[0], tuple | list):
        operands = list(operands[0])
    other, layout = reference(tape, func, list(_tensors(operands)))
    weights = [value for value in operands if tape.is_weight(value)]
    terms, result = follow.terms(equation)
    term = terms[next(index for index, value in enumerate(operands) if value is other)]
    if "..." in equation or not layout.is_plain:
        raise tape.no_rule(func, weights, "an ellipsis, or merged axes")
    label = term[layout.axis]
    for index, value in enumerate(operands):
        place = layout_of(value)
        if place is not None and terms[index][place.axis] != label:
            raise tape.no_rule(func, weights, "two labels for the examples")
        if tape.is_weight(value):
            if label in terms[index]:
                raise tape.no_rule(func, weights, "the weight has an axis of its own for the examples")
            operands[index] = per_example(tape, value, value.ndim + 1, Layout(0), func)
            terms[index] = label + terms[index]
    output: Tensor = torch.einsum(f"{','.join(terms)}->{result}", *operands)
    if label not in result:
        raise tape.no_rule(func, weights, "the examples are summed over")
    mark(output, Layout(result.index(label)))
    return output


@rule(torch.bilinear, F.bilinear)
def bilinear(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """x1 W x2 + b as a linear layer on the products of all pairs."""
    first, second, weight, bias = _named(args, kwargs, ("input1", "input2", "weight", "bias"))
    with tape:
        pairs = (first.unsqueeze(-1) * second.unsqueeze(-2)).flatten(-2)
        return F.linear(pairs, weight.reshape(weight.shape[0], -1), bias)


def _named(args: Any, kwargs: Any, names: tuple[str, ...]) -> list[Any]:
    """The arguments in order, given by place or by name."""
    if len(args) == len(names):
        return list(args)
    values = list(args) + [None] * (len(names) - len(args))
    return [kwargs.get(name, value) for name, value in zip(names, values, strict=True)]
