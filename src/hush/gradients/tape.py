"""The tape: sees each function of the forward pass; on the way back notes what each parameter's gradient is made of.

Where a trainable parameter meets the batch, a rule runs the function on the parameter's plain values, so that the
backward pass computes the input's gradient and not the parameter's, and puts a `Tap` on the output. On the way back the
tap writes (input, output gradient) on the tape. Parameters, modules and hooks of the model stay as they are.

What is made of parameters alone (a normalised weight, a table of positions) is `derived`: it is treated as a parameter
where it meets the batch, and its gradients are pulled back to the real ones at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from hush.errors import NoRule
from hush.gradients import follow
from hush.gradients.batches import SplitBatch
from hush.gradients.functions import SIZES, has_fixed_size
from hush.gradients.layout import UNKNOWN, Layout, by_example, layout_of, mark
from hush.gradients.nodes import nodes_of
from hush.gradients.pooling import max_pool2d
from hush.gradients.precision import wide
from hush.gradients.state import check_write, memory_of
from hush.gradients.twins import twin
from hush.gradients.uses import Rows, Use, merged

_DERIVED = "_hush_derived"
_SOURCE = "_hush_source"
_VERDICTS = "_hush_verdicts"
_NUMBER = "_hush_number"
_OPEN = "_hush_open_size"
_SEQUENCES = (tuple, list)
_SIMPLE = {int, float, bool, str, type(None), torch.dtype, torch.device, torch.Size}
_USUAL = (Tensor, nn.Parameter)

_QUICKER = dict.fromkeys((torch.max_pool2d, nn.functional.max_pool2d), max_pool2d)  # the same to the last bit

_GRAPH_NODE: set[Any] = {getattr(Tensor, name).__get__ for name in ("grad_fn", "_backward_hooks")}
_CONDITIONS = {Tensor.__bool__, Tensor.item, Tensor.is_nonzero}
_VERDICT_MAKERS = {torch.all, torch.any, Tensor.all, Tensor.any, torch.sum, Tensor.sum}
_EQUAL = {torch.eq, Tensor.eq, Tensor.__eq__}

Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}


def rule(*functions: Any) -> Callable[[Rule], Rule]:
    """Register the rule for these functions."""

    def register(function: Rule) -> Rule:
        for target in functions:
            RULES[target] = function
        return function

    return register


class Tap(torch.autograd.Function):
    """The identity; on the way back it hands the gradient and what was saved to `write`."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor, write: Callable[..., None], *saved: Tensor) -> Tensor:  # noqa: D102
        ctx.write = write
        ctx.save_for_backward(*saved)
        ctx.set_materialize_grads(False)
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: D102
        saved = ctx.saved_tensors  # once: a checkpoint computes them anew
        if gradients[0] is not None:
            with torch._C.DisableTorchFunction():  # the rules' own arithmetic needs no following
                ctx.write(wide(gradients[0]), *(wide(tensor.detach()) for tensor in saved))
        return gradients[0], None, None, *[None] * len(saved)


# What Tap.apply calls: it also looks for wrappers of torch.func, which never meet a tape.
_tap: Callable[..., Tensor] = super(torch.autograd.Function, Tap).apply
_ANCHOR = torch.zeros((), requires_grad=True)  # what every tap depends on, so that the way back leads through it


class Tape(TorchFunctionMode):
    """One forward and backward pass of a model on a batch of `count` examples.

    `parameters` are those that the forward pass sees, where they are not the model's own: gathered from shards.
    """

    def __init__(
        self,
        model: nn.Module,
        count: int,
        *,
        tolerant: bool = False,
        parameters: Mapping[str, nn.Parameter] | None = None,
    ) -> None:
        super().__init__()
        self.count, self._tolerant = count, tolerant
        self.refused: dict[str, str] = {}  # parameter -> why, where refusals are tolerated
        seen = dict(model.named_parameters()) if parameters is None else parameters
        self.parameters = {name: value for name, value in seen.items() if value.requires_grad}
        self._names = {id(value): name for name, value in self.parameters.items()}
        self._uses: dict[str, list[Use]] = {}
        self._derived: dict[int, tuple[Tensor, list[Use]]] = {}
        self.served: dict[str, set[str]] = {}  # parameter -> functions that used it, for the doctor
        self._inside: list[FunctionType] = []
        self.functions: set[Any] = set()  # that it saw
        self._met: dict[int, Tensor] = {}  # weights that have met the batch; held, so that no id is used again
        whole = dict(model.named_parameters())
        own = {name: value for name, value in whole.items() if type(value.data) is Tensor}
        buffers = {name: value for name, value in model.named_buffers() if value.layout is torch.strided}
        self._buffers = {memory_of(value): name for name, value in buffers.items() if type(value) is Tensor}
        self._is_sharded = len(own) < len(whole)
        self._memory = {memory_of(value): name for name, value in own.items() if value.layout is torch.strided}
        self.lost_at = ""  # the first function after which the examples could not be told apart
        self.is_final = False  # whether the tape's own backward pass has begun
        self.anchor = _ANCHOR
        self._held: dict[int, StorageWeakRef] = {}  # memory of parts of the batch

    # --- what the mode sees ---------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func in follow.PASSIVE or (self._is_sharded and func in _GRAPH_NODE):  # FSDP's own hooks read it
            if func in SIZES and args and hasattr(args[0], _OPEN) and not self._tolerant:
                raise NoRule(f"{_name(func)} of what {getattr(args[0], _OPEN)} made may depend on the examples.")
            return func(*args, **kwargs)
        self.functions.add(func)
        check_write(func, args, kwargs, self._memory)
        tensors = _tensors(args) + _tensors(kwargs.values()) if kwargs else _tensors(args)
        batched, weights = False, False
        for tensor in tensors:
            if not tensor.requires_grad:
                if layout_of(tensor) is None and self._is_disguised(tensor):
                    self._lose(tensor, "a function that the tape does not see")
                batched = batched or layout_of(tensor) is not None
            elif self.is_weight(tensor):
                weights = True
            else:
                batched = True
                if tensor.grad_fn is not None and layout_of(tensor) is None:  # made by what the tape does not see
                    self._lose(tensor, "a function that the tape does not see")
        is_open = isinstance(func, FunctionType) and func not in RULES and (weights or func not in follow.CLOSED)
        if is_open and func not in self._inside:
            return self._opened(func, args, kwargs)
        if not batched:
            return self._derive(func, args, kwargs) if weights else func(*args, **kwargs)
        if weights and torch.is_grad_enabled():
            return self._meet(func, args, kwargs, tensors)
        return self._followed(func, args, kwargs, tensors)

    def _opened(self, func: FunctionType, args: Any, kwargs: Any) -> Any:
        """Run a Python function so that the functions inside it are seen, and itself no second time."""
        self._inside.append(func)
        try:
            with self:
                return twin(func)(*args, **kwargs)
        finally:
            self._inside.pop()

    def is_weight(self, tensor: Tensor) -> bool:
        """Whether this is a trainable parameter, or made of trainable parameters alone."""
        return tensor.requires_grad and (id(tensor) in self._names or getattr(tensor, _DERIVED, False))

    def _derive(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in RULES and getattr(RULES[func], "derives", False):
            result = RULES[func](self, func, args, kwargs)
        else:
            result = func(*args, **kwargs)
        for tensor in _tensors((result,)):
            if id(tensor) in self._met:
                raise self.no_rule(func, [tensor], "it changes in place what has met the batch")
            if tensor.requires_grad and id(tensor) not in self._names:
                setattr(tensor, _DERIVED, True)
                if func in follow.EXPANDING:
                    setattr(tensor, _SOURCE, args[0])
        return result

    def _meet(self, func: Any, args: Any, kwargs: Any, tensors: Sequence[Tensor]) -> Any:
        self._met.update({id(tensor): tensor for tensor in tensors if self.is_weight(tensor)})
        known = RULES.get(func)
        try:
            if known is None:
                raise self.no_rule(func, tensors)
            return known(self, func, args, kwargs)
        except NoRule as reason:
            if not self._tolerant:
                raise
            self.refused.update({name: str(reason) for tensor in tensors for name in self.origins(tensor)})
            return self._followed(func, args, kwargs, tensors)

    def _followed(self, func: Any, args: Any, kwargs: Any, tensors: Sequence[Tensor]) -> Any:
        if self._buffers:
            check_write(func, args, kwargs, self._buffers, "buffer")
        if func in _CONDITIONS:
            self._check_condition(func, tensors[0])
            return func(*args, **kwargs)
        result = _QUICKER.get(func, func)(*args, **kwargs)
        made = [result] if isinstance(result, Tensor) else _tensors((result,))
        if func in _GRAPH_NODE:
            raise NoRule(f"{_name(func)} gives the model a backward pass of its own, which the tape cannot follow.")
        if not made and result is not None:
            raise NoRule(f"{_name(func)} takes values of the batch out of torch, where nobody can follow them.")
        follow.follow(func, args, kwargs, result, tensors, self.count)
        self._note_sizes(func, args, tensors, made)
        for tensor in made:
            if not tensor.requires_grad and layout_of(tensor) is not None:
                self.hold(tensor)
        if func in _VERDICT_MAKERS and len(args) == 1 and not kwargs:
            self._note_verdicts(func, tensors[0], result)
        elif func in _EQUAL and hasattr(args[0], _VERDICTS) and args[1] == getattr(args[0], _NUMBER, None):
            verdicts, version = getattr(args[0], _VERDICTS)
            if args[0]._version == version:
                setattr(result, _VERDICTS, (verdicts, result._version))  # sum() == numel() asks whether all are true
        elif not self.lost_at and any(layout_of(tensor) == UNKNOWN for tensor in made):
            self.lost_at = _name(func)
        return result

    def _note_sizes(self, func: Any, args: Any, tensors: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        """Mark results whose size may depend on values of the batch, as that of a selection does."""
        unknown = [tensor for tensor in made if layout_of(tensor) == UNKNOWN]
        if unknown:
            earlier = [getattr(tensor, _OPEN) for tensor in tensors if hasattr(tensor, _OPEN)]
            if earlier or not has_fixed_size(func, args):
                for tensor in unknown:
                    setattr(tensor, _OPEN, earlier[0] if earlier else _name(func))

    def _is_disguised(self, tensor: Tensor) -> bool:
        """Return whether a tensor that carries no layout holds a part of the batch all the same.

        Constructors (`torch.Tensor(x)`, `nn.Parameter(x)`) and `set_` give its memory another name, unseen.
        """
        if tensor.is_nested:
            raise NoRule("a nested tensor, through which the tape cannot follow the examples.")
        if type(tensor) not in _USUAL or tensor.layout is not torch.strided:
            return False
        _refuse_wrapped(tensor)
        return memory_of(tensor) in self._held

    def hold(self, tensor: Tensor) -> None:
        """Note the memory of a part of the batch."""
        with torch._C.DisableTorchFunction():
            if type(tensor) is Tensor and tensor.layout is torch.strided and not tensor.is_nested:
                _refuse_wrapped(tensor)
                number = tensor.untyped_storage()._cdata
                if number not in self._held:  # while a weak reference is kept, its number is given to no other
                    self._held[number] = StorageWeakRef(tensor.untyped_storage())

    def _lose(self, tensor: Tensor, where: str) -> None:
        self.lost_at = self.lost_at or where
        mark(tensor, UNKNOWN)

    # A model may ask whether a mask is all ones. That is one answer for the whole batch; it is each example's own if
    # all examples would give the same. Where they would not, the batch is cut into those that agree.

    def _note_verdicts(self, func: Any, tensor: Tensor, result: Tensor) -> None:
        layout = layout_of(tensor)
        if layout is not None and layout != UNKNOWN:
            with torch._C.DisableTorchFunction():
                rows = by_example(tensor.detach(), layout, self.count).reshape(self.count, -1)
                if func.__name__ == "sum":
                    if tensor.dtype is torch.bool:
                        setattr(result, _VERDICTS, (rows.all(1), result._version))
                        setattr(result, _NUMBER, tensor.numel())
                else:
                    setattr(result, _VERDICTS, (getattr(torch, func.__name__)(rows, 1), result._version))

    def _check_condition(self, func: Any, tensor: Tensor) -> None:
        verdicts, version = getattr(tensor, _VERDICTS, (None, 0))
        if verdicts is None or hasattr(tensor, _NUMBER) or tensor._version != version:
            raise NoRule(f"{_name(func)} takes values of the batch out of torch, where nobody can follow them.")
        if not bool((verdicts == verdicts[0]).all()):
            raise SplitBatch(verdicts)

    # --- what rules call ------------------------------------------------------------------------------------------

    def no_rule(self, func: Any, tensors: Sequence[Tensor], why: str = "") -> NoRule:
        """The error that names the function and the parameters that it met."""
        names = sorted({name for tensor in tensors for name in self.origins(tensor)})
        what = _name(func)
        return NoRule(f"{', '.join(names) or 'a parameter'}: no rule for {what}{': ' + why if why else ''}.")

    def origins(self, tensor: Tensor) -> list[str]:
        """The names of the parameters that a weight is made of."""
        if id(tensor) in self._names:
            return [self._names[id(tensor)]]
        if not getattr(tensor, _DERIVED, False):
            return []
        leaves = [id(node.variable) for node in nodes_of(tensor) if hasattr(node, "variable")]
        return [self._names[leaf] for leaf in leaves if leaf in self._names]

    def layout(self, tensor: Tensor, func: Any, weights: Sequence[Tensor]) -> Layout:
        """The layout of a batched tensor, or NoRule where it was lost."""
        found = layout_of(tensor)
        if found is None or found is UNKNOWN:
            raise self.no_rule(func, weights, "its input cannot be followed back to single examples")
        return found

    def tap(self, output: Tensor, layout: Layout, write: Callable[..., None], *saved: Tensor) -> Tensor:
        """The output, noted as batched; its gradient will be written."""
        base = output._base if output._is_view() else output
        if base is None or base.numel() != output.numel() or not output.is_contiguous():
            base = output = output.clone()
        if base is output:
            result: Tensor = _tap(output, self.anchor, write, *saved)
        else:  # a tap on a view would copy gradients
            shape = output.shape
            reshaped: Tensor = _tap(base, self.anchor, lambda g, *kept: write(g.reshape(shape), *kept), *saved)
            result = reshaped.view(shape)
        mark(result, layout)
        return result

    def note(self, weight: Tensor, use: Use, func: Any) -> None:
        """Write one use of a parameter, or of what is made of parameters."""
        if not self.is_final:
            raise self.no_rule(func, [weight], "a backward pass inside the model")
        name = self._names.get(id(weight))
        if name is not None:
            if self._tolerant:
                what = getattr(func, "__name__", str(func))
                self.served.setdefault(name, set()).add(f"{what} ({type(use).__name__.lower()})")
            self._uses.setdefault(name, []).append(use)
            return
        self._derived.setdefault(id(weight), (weight, []))[1].append(use)

    # --- after the backward pass ----------------------------------------------------------------------------------

    def uses(self) -> dict[str, list[Use]]:
        """Each used parameter's uses, with derived weights pulled back."""
        for weight, uses in self._derived.values():
            total = torch.stack([use.rows() for use in merged(uses)]).sum(0).reshape(self.count, *weight.shape)
            for name, rows in self._pulled_back(weight, total):
                self.served.setdefault(name, set()).add("made into another tensor (rows)")
                self._uses.setdefault(name, []).append(Rows(rows))
        self._derived.clear()
        result = {name: merged(uses) for name, uses in self._uses.items()}
        self._uses.clear()
        return result

    def _pulled_back(self, weight: Tensor, rows: Tensor) -> Iterator[tuple[str, Tensor]]:
        names = sorted(set(self.origins(weight)))
        targets = [self.parameters[name] for name in names]
        rows = rows.to(weight.dtype)

        def pull(gradient: Tensor, *, batched: bool) -> Any:
            return torch.autograd.grad(
                weight, targets, gradient, is_grads_batched=batched, retain_graph=True, allow_unused=True
            )

        try:
            found = pull(rows, batched=True)
        except RuntimeError:  # no batching rule for one of the functions
            each = zip(*(pull(row, batched=False) for row in rows), strict=True)
            found = [None if pieces[0] is None else torch.stack(list(pieces)) for pieces in each]
        yield from ((name, value) for name, value in zip(names, found, strict=True) if value is not None)


def _refuse_wrapped(tensor: Tensor) -> None:
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise NoRule("a transformation (vmap, jvp) inside the model, which the tape cannot follow.")


def _tensors(values: Any) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, _SEQUENCES):
            found += _tensors(value)
        elif type(value) in _SIMPLE:
            continue
        elif isinstance(value, slice):
            found += _tensors((value.start, value.stop, value.step))
        elif isinstance(value, dict):
            found += _tensors(value.values())
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):  # deque and the like
            found += _tensors(value)
    return found


def _name(func: Any) -> str:
    """Return the function's name; that of the attribute for a getter."""
    name = str(getattr(func, "__name__", func))
    return str(getattr(getattr(func, "__self__", None), "__name__", name)) if name in ("__get__", "__set__") else name


def source_of(weight: Tensor) -> Tensor | None:
    """What an expanded weight was expanded from."""
    return getattr(weight, _SOURCE, None)
