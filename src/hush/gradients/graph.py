"""The uses of parameters, read off torch's own graph where every function in it is one of a short list.

A forward pass that nobody follows is as quick as one without privacy, and leaves a graph: from the losses back to the
parameters, with what each function kept. Each function listed here makes row b of its result, along axis 0, of row b of
what it takes and of parameters. So if

    no function was called beside those of the list, since some leave no node (in place, without gradients),
    every node between the losses and the parameters is of the list,
    and what enters beside the parameters is a tensor of the batch, as it came,

then row b of every input and of every output gradient is example b's. One backward pass gives the output gradients of
the nodes that met parameters, and computes no parameter's gradient.

A reading is compared with the tape, on a few examples, whenever a graph has other nodes than those read before: what a
node means is torch's to change. Tensors are told apart by identity.

Whatever else a graph holds, if only a constant that is added, makes it unreadable: the model is left to the tape, which
follows many more functions and takes more time for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, _engine_run_backward
from torch.overrides import TorchFunctionMode

from hush.errors import NoRule
from hush.gradients.batches import Batch, LossFunction, call, checked_losses, num_examples, tensors
from hush.gradients.correlation import Settings
from hush.gradients.functions import PASSIVE
from hush.gradients.layers import dense, join, together
from hush.gradients.layout import Layout
from hush.gradients.precision import exact_arithmetic
from hush.gradients.rules.convolve import convolution_uses
from hush.gradients.rules.products import linear_uses
from hush.gradients.scripted import no_scripts
from hush.gradients.uses import Use, merged

_run_backward: Any = _engine_run_backward
# Whether a model's graph could be read so far, with the loss function that this was seen with.
_readable: WeakKeyDictionary[nn.Module, tuple[ref[Any], bool]] = WeakKeyDictionary()

_LEAF, _TURNED = "torch::autograd::AccumulateGrad", "TBackward0"
_WIDE = (torch.float32, torch.float64)
_FIRST = Layout(0)
_SIGNED, _WRAPPED = 1 << 63, 1 << 64  # a negative axis is kept as an unsigned number

Parameter = tuple[str, nn.Parameter]
Signature = tuple[Any, ...]  # the nodes of a graph in order, with the parameters that they met
_verified: WeakKeyDictionary[nn.Module, set[Signature]] = WeakKeyDictionary()


class Unreadable(Exception):
    """There is something in the graph that the list does not hold."""


class _Meeting(NamedTuple):
    """A node that met parameters, their names, and how its output gradient becomes their uses."""

    node: Any
    names: tuple[str, str | None]
    uses: Callable[[Tensor], tuple[Use | None, Use | None]]
    dense: Callable[[Tensor], Use | None] | None = None  # of weight and bias together, at once


def may_serve(model: nn.Module, loss_fn: LossFunction) -> bool:
    """Whether the graph of this model and loss function could be read so far."""
    seen, readable = _readable.get(model, (None, False))
    return readable and seen is not None and seen() is loss_fn


def expect(model: nn.Module, loss_fn: LossFunction, *, readable: bool) -> None:
    """Note, after a pass by the tape, whether it saw nothing but functions that leave listed nodes."""
    seen, _ = _readable.get(model, (None, False))
    if seen is None or seen() is not loss_fn:  # what could not be read is not tried again
        with suppress(TypeError):  # a callable to which there are no weak references is left to the tape
            _readable[model] = ref(loss_fn), readable


def uses(
    model: nn.Module, trainable: Mapping[str, nn.Parameter], loss_fn: LossFunction, batch: Batch
) -> tuple[dict[str, list[Use]], Signature]:
    """Each used parameter's uses, after one forward and one backward pass, and its nodes.

    Raises:
        Unreadable: There is something in the graph that the list does not hold.
    """
    count = num_examples(batch)
    reader, watch = _Reader(trainable, batch, count), _Watch()
    try:
        with no_scripts(), watch:
            losses = call(loss_fn, model, batch)
        losses = checked_losses(losses, count)
        if watch.saw_others:
            raise Unreadable
        meetings = reader.meetings(losses)
        with exact_arithmetic():
            return _gathered(losses, meetings), reader.signature
    except (Unreadable, NoRule, AttributeError) as reason:  # a node of another version of torch may lack an attribute
        drop(model, loss_fn)
        raise Unreadable from reason


def drop(model: nn.Module, loss_fn: LossFunction) -> None:
    """Leave this model to the tape from now on."""
    _readable.pop(model, None)
    expect(model, loss_fn, readable=False)


def is_verified(model: nn.Module, signature: Signature) -> bool:
    """Return whether a reading of such a graph of this model was compared with the tape before."""
    return signature in _verified.get(model, ())


def verify(model: nn.Module, signature: Signature) -> None:
    """Note that a reading of such a graph agreed with the tape."""
    _verified.setdefault(model, set()).add(signature)


def _gathered(losses: Tensor, meetings: Sequence[_Meeting]) -> dict[str, list[Use]]:
    edges = tuple([GradientEdge(meeting.node, 0) for meeting in meetings])
    gradients = _run_backward((losses,), (torch.ones_like(losses),), False, False, edges, True, accumulate_grad=False)
    names = [name for meeting in meetings for name in meeting.names if name is not None]
    are_used_once = len(set(names)) == len(names)
    found: dict[str, list[Use]] = {}
    for meeting, gradient in zip(meetings, gradients, strict=True):
        if gradient is None:
            continue
        both = meeting.dense(gradient) if are_used_once and meeting.dense is not None else None
        if both is None:
            (weight, bias), (use, rows) = meeting.names, meeting.uses(gradient)
            both = together(weight, use, bias, rows) if are_used_once else None
            for name, one in ((weight, use), (bias, rows)) if both is None else ():
                if name is not None and one is not None:
                    found.setdefault(name, []).append(one)
        if both is not None:
            found[meeting.names[0]] = [both]
    if not are_used_once:
        found = {name: merged(some) for name, some in found.items()}
        join(found)
    return found


class _Watch(TorchFunctionMode):
    """Stops at functions beside `FUNCTIONS`: some change what passes through and leave no node (without gradients)."""

    def __init__(self) -> None:
        super().__init__()
        self.saw_others = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if func not in FUNCTIONS and func not in PASSIVE:
            self.saw_others = True
            raise Unreadable
        return func(*args, **(kwargs or {}))


class _Reader:
    """Goes from the losses of `count` examples back to the parameters."""

    def __init__(self, trainable: Mapping[str, nn.Parameter], batch: Batch, count: int) -> None:
        self._names = {id(value): name for name, value in trainable.items()}
        self._given = [(value, value._version) for value in tensors(batch)]
        self.count = count
        self.signature: Signature = ()

    def meetings(self, losses: Tensor) -> list[_Meeting]:
        """The nodes that met parameters; `Unreadable` if a node is not of the list."""
        found: list[_Meeting] = []
        pending: list[Any] = [losses.grad_fn]
        seen = set()
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            name = "" if node is None else node.name()
            read = _READERS.get(name)
            if read is None or isinstance(node, torch._C._FunctionBase):
                raise Unreadable
            place, meeting = read(self, node)
            self.signature += (name, None if meeting is None else meeting.names)
            if meeting is not None:
                found.append(meeting)
            if place is not None:
                pending.append(node.next_functions[place][0])
        if not found or any(value._version != version for value, version in self._given):
            raise Unreadable  # or something wrote into the batch
        return found

    def is_given(self, tensor: Tensor) -> bool:
        """Whether this is a tensor of the batch, or a view of one with the same elements in the same order."""
        given = next((value for value, _ in self._given if tensor is value or tensor._base is value), None)
        if given is None or tensor.dtype != given.dtype or tensor.shape[:1] != (self.count,):
            return False
        if tensor.shape == given.shape:
            return tensor.stride() == given.stride()
        return tensor.numel() == given.numel() and tensor.is_contiguous() and given.is_contiguous()

    def parameter(self, node: Any) -> Parameter:
        """The trainable parameter that a node stands for, and its name."""
        value = node.variable if node is not None and node.name() == _LEAF else None
        name = self._names.get(id(value))
        if value is None or name is None or value.dtype not in _WIDE:
            raise Unreadable
        return name, value

    def before(self, behind: Any, place: int, inputs: Tensor) -> int | None:
        """Where to go on: nowhere, if what the node took is of the batch itself."""
        if behind[place][0] is not None:
            return place
        if not self.is_given(inputs):
            raise Unreadable
        return None


Read = tuple[int | None, _Meeting | None]


def _elementwise(reader: _Reader, node: Any) -> Read:
    return 0, None


def _view(reader: _Reader, node: Any) -> Read:
    """The order of the elements stays; so do the rows, if there are as many before and after."""
    sizes = node._saved_self_sym_sizes, node._input_metadata[0].shape
    if any(tuple(size[:1]) != (reader.count,) for size in sizes):
        raise Unreadable
    return 0, None


def _log_softmax(reader: _Reader, node: Any) -> Read:
    axis = node._saved_dim if node._saved_dim < _SIGNED else node._saved_dim - _WRAPPED
    axes = len(node._input_metadata[0].shape)
    if axes < 2 or axis % axes == 0:
        raise Unreadable
    return 0, None


def _nll_loss(reader: _Reader, node: Any) -> Read:
    if node._saved_reduction != 0 or node._saved_weight is not None or not reader.is_given(node._saved_target):
        raise Unreadable
    return 0, None


def _addmm(reader: _Reader, node: Any) -> Read:
    if node._saved_alpha != 1 or node._saved_beta != 1:
        raise Unreadable
    behind = node.next_functions
    return _product(reader, node, node._saved_mat1, behind[1:], reader.parameter(behind[0][0]), 1)


def _mm(reader: _Reader, node: Any) -> Read:
    return _product(reader, node, node._saved_self, node.next_functions, None, 0)


def _product(reader: _Reader, node: Any, inputs: Any, behind: Any, bias: Parameter | None, place: int) -> Read:
    """Rows times a weight, or times its transpose."""
    factor = behind[1][0]
    is_turned = factor is not None and factor.name() == _TURNED
    weight, value = reader.parameter(factor.next_functions[0][0] if is_turned else factor)
    if bias is not None and bias[1].shape != (value.shape[:1] if is_turned else value.shape[1:]):
        raise Unreadable
    goes_on = reader.before(behind, 0, inputs) is not None
    inputs = inputs.detach()

    def uses(gradient: Tensor) -> tuple[Use | None, Use | None]:
        outer, rows = linear_uses(gradient, inputs, _FIRST, reader.count, has_bias=bias is not None)
        return outer if outer is None or is_turned else replace(outer, transposed=True), rows

    def at_once(gradient: Tensor) -> Use | None:
        return dense(weight, inputs, gradient, None if bias is None else bias[0], transposed=not is_turned)

    meeting = _Meeting(node, (weight, None if bias is None else bias[0]), uses, at_once)
    return place if goes_on else None, meeting


def _convolution(reader: _Reader, node: Any) -> Read:
    behind = node.next_functions
    weight, value = reader.parameter(behind[1][0])
    has_bias = bool(node._saved_bias_sym_sizes_opt) and node._saved_bias_sym_sizes_opt[0] != 0
    bias = reader.parameter(behind[2][0])[0] if has_bias else None
    saved = node._saved_input
    inputs = saved.detach()
    if inputs.ndim != value.ndim or inputs.shape[0] != reader.count:
        raise Unreadable
    settings = Settings.plain(
        tuple(value.shape), node._saved_stride, node._saved_padding, node._saved_dilation, node._saved_groups,
        node._saved_transposed, node._saved_output_padding,
    )  # fmt: skip

    def uses(gradient: Tensor) -> tuple[Use | None, Use | None]:
        return convolution_uses(gradient, inputs, settings, has_bias=bias is not None)

    return reader.before(behind, 0, saved), _Meeting(node, (weight, bias), uses)


_READERS: dict[str, Callable[[_Reader, Any], Read]] = {
    **{f"{name}Backward0": _elementwise for name in ("Relu", "Tanh", "Sigmoid", "Gelu", "Silu", "Elu", "Softplus")},
    "ViewBackward0": _view,
    "LogSoftmaxBackward0": _log_softmax,
    "NllLossBackward0": _nll_loss,
    "AddmmBackward0": _addmm,
    "MmBackward0": _mm,
    "ConvolutionBackward0": _convolution,
}
_F, _N = torch._C._nn, nn.functional
# Functions of which the tape knows that they leave such nodes, or none.
FUNCTIONS: frozenset[Any] = frozenset(
    (
        _F.linear, torch.conv1d, torch.conv2d, torch.conv3d, _N.cross_entropy,
        torch.relu, torch.Tensor.relu, _N.relu, torch.relu_, torch.tanh, torch.Tensor.tanh, torch.sigmoid,
        torch.Tensor.sigmoid, _F.gelu, _N.silu, _F.elu, _N.elu, _F.softplus,
        torch.flatten, torch.Tensor.flatten, torch.Tensor.view, torch.Tensor.reshape,
    )
)  # fmt: skip
