"""Layer, group, instance, RMS and (frozen) batch normalisation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hush.errors import NotIsolated
from hush.gradients.layout import Layout, by_example
from hush.gradients.rules.products import plain
from hush.gradients.tape import rule
from hush.gradients.uses import Rows

if TYPE_CHECKING:
    from hush.gradients.tape import Tape


@rule(torch.layer_norm)
def layer_norm(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """The affine part's gradients come from the saved mean and scale."""
    inputs, shape, weight, bias = (*args, None, None)[:4]
    layout = tape.layout(inputs, func, [value for value in (weight, bias) if value is not None])
    if layout.axis >= inputs.ndim - len(shape):
        if tape.count == 1:
            raise tape.no_rule(func, [weight], "the one example lies on the axis that is normalised")
        raise NotIsolated("layer_norm normalises over the examples of a batch; normalise over features only.")
    epsilon = args[4] if len(args) > 4 else kwargs.get("eps", 1e-5)
    output, mean, scale = torch.native_layer_norm(inputs, shape, plain(tape, weight), plain(tape, bias), epsilon)

    def write(gradient: Tensor, inputs: Tensor, mean: Tensor, scale: Tensor) -> None:
        outputs = _places(gradient, layout, tape.count, len(shape))
        if weight is not None and tape.is_weight(weight):
            # sum of scale times (x - mean) g, with mean and scale the same for all features of a place
            products = _places((inputs - mean).mul_(gradient), layout, tape.count, len(shape))
            scales = by_example(scale, layout, tape.count).reshape(tape.count, 1, -1).to(products.dtype)
            tape.note(weight, Rows(torch.bmm(scales, products).view(tape.count, *weight.shape)), func)
        if bias is not None and tape.is_weight(bias):
            tape.note(bias, Rows(outputs.sum(1).view(tape.count, *bias.shape)), func)

    return tape.tap(output, layout, write, inputs, mean.detach(), scale.detach())


def _places(tensor: Tensor, layout: Layout, count: int, ndim: int) -> Tensor:
    return by_example(tensor, layout, count).reshape(count, -1, math.prod(tensor.shape[tensor.ndim - ndim :]))


def _affine(tape: Tape, normal: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """weight * x + bias for each channel (axis 1), noted by the rules of arithmetic."""
    ones = [1] * (normal.ndim - 2)
    normal = normal if weight is None else normal * weight.view(-1, *ones)
    return normal if bias is None else normal + bias.view(-1, *ones)


@rule(torch.group_norm)
def group_norm(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """Normalise natively, then scale and shift each channel."""
    inputs, groups, weight, bias = (*args, None, None)[:4]
    layout = tape.layout(inputs, func, [value for value in (weight, bias) if value is not None])
    if layout != Layout(0):
        raise tape.no_rule(func, [weight], "the examples must lie on axis 0")
    epsilon = args[4] if len(args) > 4 else kwargs.get("eps", 1e-5)
    count, channels, places = inputs.shape[0], inputs.shape[1], math.prod(inputs.shape[2:])
    output, mean, scale = torch.native_group_norm(
        inputs.contiguous(), plain(tape, weight), plain(tape, bias), count, channels, places, groups, epsilon
    )

    def write(gradient: Tensor, inputs: Tensor, mean: Tensor, scale: Tensor) -> None:
        outputs = gradient.reshape(count, channels, places)
        total = outputs.sum(2)
        if weight is not None and tape.is_weight(weight):
            # sum of g (x - mean) scale, with mean and scale the same for all channels of a group
            width = channels // groups
            products = torch.linalg.vecdot(outputs, inputs.reshape(count, channels, places))
            means, scales = mean.repeat_interleave(width, 1), scale.repeat_interleave(width, 1)
            tape.note(weight, Rows((products - means * total) * scales), func)
        if bias is not None and tape.is_weight(bias):
            tape.note(bias, Rows(total), func)

    return tape.tap(output, layout, write, inputs, mean.detach(), scale.detach())


@rule(torch.instance_norm)
def instance_norm(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """Normalise natively, then scale and shift each channel."""
    inputs, weight, bias, mean, variance, use_input, *rest = args
    with tape:
        normal = func(inputs, None, None, mean, variance, use_input, *rest)
        return _affine(tape, normal, weight, bias)


@rule(torch.rms_norm)
def rms_norm(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """Normalise natively, then scale."""
    inputs, shape, weight = args[:3]
    with tape:
        return func(inputs, shape, None, *args[3:], **kwargs) * weight


@rule(torch.batch_norm)
def batch_norm(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """With fixed statistics it is an affine map; with the batch's own it mixes examples."""
    inputs, weight, bias, mean, variance, training, *rest = args
    if training:
        raise NotIsolated(
            "batch_norm in training mode mixes the examples of a batch; use GroupNorm, or keep the module in eval "
            "mode with statistics from public data."
        )
    with tape:
        return _affine(tape, func(inputs, None, None, mean, variance, False, *rest), weight, bias)
