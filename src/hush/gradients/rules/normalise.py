"""Layer, group, instance, RMS and (frozen) batch normalisation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hush.errors import NotIsolated
from hush.gradients import follow
from hush.gradients.indexing import arguments, is_batched
from hush.gradients.layout import Layout, by_example
from hush.gradients.rules.products import plain
from hush.gradients.tape import _tensors, rule
from hush.gradients.uses import Rows

if TYPE_CHECKING:
    from hush.gradients.tape import Tape


def _named(tape: Tape, func: Any, names: tuple[str, ...], args: Any, kwargs: Any) -> list[Any]:
    """Return the arguments in order, None where one is not given; a scale or shift made of the batch is refused."""
    given = arguments(names, args, kwargs)
    if given is None or is_batched([value for name, value in given.items() if name != "input"]):
        raise tape.no_rule(
            func, _tensors([*args, *kwargs.values()]), "arguments that it does not know, or of the batch"
        )
    return [given.get(name) for name in names]


@rule(torch.layer_norm)
def layer_norm(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """The affine part's gradients come from the saved mean and scale."""
    names = ("input", "normalized_shape", "weight", "bias", "eps", "cudnn_enable")
    inputs, shape, weight, bias, eps, _ = _named(tape, func, names, args, kwargs)
    layout = tape.layout(inputs, func, [value for value in (weight, bias) if value is not None])
    if layout.axis >= inputs.ndim - len(shape):
        if tape.count == 1:
            raise tape.no_rule(func, [weight], "the one example lies on the axis that is normalised")
        raise NotIsolated("layer_norm normalises over the examples of a batch; normalise over features only.")
    epsilon = 1e-5 if eps is None else eps
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
    names = ("input", "num_groups", "weight", "bias", "eps", "cudnn_enabled")
    inputs, groups, weight, bias, eps, _ = _named(tape, func, names, args, kwargs)
    layout = tape.layout(inputs, func, [value for value in (weight, bias) if value is not None])
    if layout != Layout(0):
        raise tape.no_rule(func, [weight], "the examples must lie on axis 0")
    epsilon = 1e-5 if eps is None else eps
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
    follow.check_statistics(func, args, kwargs)
    names = (*follow.STATISTICS, "use_input_stats", "momentum", "eps", "cudnn_enabled")
    inputs, weight, bias, *rest = _named(tape, func, names, args, kwargs)
    with tape:
        normal = func(inputs, None, None, *rest)
        return _affine(tape, normal, weight, bias)


@rule(torch.rms_norm)
def rms_norm(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """Normalise natively, then scale."""
    inputs, shape, weight, epsilon = _named(tape, func, ("input", "normalized_shape", "weight", "eps"), args, kwargs)
    with tape:
        return func(inputs, shape, None, epsilon) * weight


@rule(torch.batch_norm)
def batch_norm(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """With fixed statistics it is an affine map; with the batch's own it mixes examples."""
    follow.check_statistics(func, args, kwargs)
    names = (*follow.STATISTICS, "training", "momentum", "eps", "cudnn_enabled")
    inputs, weight, bias, *rest = _named(tape, func, names, args, kwargs)
    with tape:
        return _affine(tape, func(inputs, None, None, *rest), weight, bias)
