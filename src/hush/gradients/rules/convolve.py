"""Convolutions of any kind: each example's weight gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hush.gradients import correlation
from hush.gradients.indexing import is_batched
from hush.gradients.layout import Layout
from hush.gradients.rules.products import is_weight, plain
from hush.gradients.tape import rule
from hush.gradients.uses import Rows, Sums, Use

if TYPE_CHECKING:
    from hush.gradients.tape import Tape

_PLAIN = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_DEFAULTS: dict[str, Any] = {"bias": None, "stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1}


def convolution_uses(
    gradient: Tensor, inputs: Tensor | None, settings: correlation.Settings, *, has_bias: bool
) -> tuple[Use | None, Use | None]:
    """How a convolution used its weight, where `inputs` are given, and its bias."""
    use = None
    if inputs is not None:
        use = correlation.use_of(inputs.to(gradient.dtype), gradient, settings)
    if not has_bias:
        return use, None
    sums = Sums(gradient)
    is_held = use is not None and any(tensor is gradient for tensor in use.held())
    return use, sums if is_held else Rows(sums.rows())


@rule(torch.conv1d, torch.conv2d, torch.conv3d)
def convolution(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """Correlation of the input with the weight."""
    return _convolution(tape, func, {**_DEFAULTS, **dict(zip(_PLAIN, args, strict=False)), **kwargs}, transposed=False)


@rule(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)
def transposed_convolution(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """The adjoint of a correlation."""
    given = {**_DEFAULTS, **dict(zip(_TRANSPOSED, args, strict=False)), **kwargs}
    return _convolution(tape, func, given, transposed=True)


def _convolution(tape: Tape, func: Any, given: dict[str, Any], *, transposed: bool) -> Tensor:
    inputs, weight, bias = given.pop("input"), given.pop("weight"), given.pop("bias")
    if not transposed:
        given.pop("output_padding")
    layout = tape.layout(inputs, func, [value for value in (weight, bias) if value is not None])
    if layout != Layout(0) or inputs.ndim != weight.ndim:
        raise tape.no_rule(func, [weight], "the examples must lie on axis 0")
    if is_batched((weight, bias)):
        raise tape.no_rule(func, [weight, *([] if bias is None else [bias])], "a kernel or bias made of the batch")
    output = func(inputs, plain(tape, weight), plain(tape, bias), **given)

    settings = correlation.Settings.of(weight, inputs.ndim - 2, transposed=transposed, **given)

    def write(gradient: Tensor, *inputs: Tensor) -> None:
        has_bias = bias is not None and tape.is_weight(bias)
        use, sums = convolution_uses(gradient, inputs[0] if inputs else None, settings, has_bias=has_bias)
        if use is not None:
            tape.note(weight, use, func)
        if sums is not None:
            tape.note(bias, sums, func)

    return tape.tap(output, layout, write, *([inputs] if is_weight(tape, weight) else []))
