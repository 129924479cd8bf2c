"""The state of a model and its loss function, which a forward or backward pass must leave as it was.

Whatever a pass writes down (a running mean, a cached activation, a list in a closure) can carry one batch's private
rows into later steps or into the released model without noise. So everything that is within reach is compared before
and after each pass:

| what | how | changed |
|---|---|---|
| parameters, and their `.grad` | identity, version, and values where `in_full` | restored, `NotIsolated` |
| buffers and tensors in attributes | the same | restored, `NotIsolated` unless it does not depend on the examples |
| other attributes of modules; what `loss_fn` and the model's own classes reach in closures, globals and class bodies |
  values, containers by their items | the same |
| `training` flags | value | restored |

A counter or a table of positions that grows with the length of the inputs changes too, without seeing any example. It
is told apart by a trial: the pass is run again from the restored state, on made-up rows of the same shapes. What
changes in the same way there does not depend on the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from hush.errors import InvalidValue, NotIsolated
from hush.gradients.batches import LossFunction
from hush.gradients.prints import SMALL, Printer, print_of, version_of
from hush.gradients.reach import GONE, Modules, reach

_TABLES = (nn.Embedding, nn.EmbeddingBag)
_MARK = "_hush_layout"


def check_tables(modules: Modules) -> None:
    """Raise `NotIsolated` for an embedding that rewrites its rows during the forward pass."""
    for name, module in modules:
        if isinstance(module, _TABLES) and module.max_norm is not None:
            raise NotIsolated(
                f"{name or 'the model'} ({type(module).__name__}) has max_norm, which rewrites the rows that a batch "
                "looks up without any noise; set max_norm to None."
            )


def check_initialised(name: str, parameter: Tensor) -> None:
    """Raise `InvalidValue` for a parameter of a lazy module that has no shape yet."""
    if is_lazy(parameter):
        raise InvalidValue(
            f"{name} has no shape yet, because its module is lazy; call the model once on made-up rows first."
        )


class ReadOnly(TorchFunctionMode):
    """Rejects functions that write into a parameter, before they do."""

    def __init__(self, modules: Modules) -> None:
        super().__init__()
        self._memory = parameter_memory(modules)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        check_write(func, args, kwargs or {}, self._memory)
        return func(*args, **(kwargs or {}))


def memory_of(tensor: Tensor) -> int:
    """Return a number that tensors share if and only if they share their memory, on every device."""
    with torch._C.DisableTorchFunction():
        try:
            return int(tensor.untyped_storage()._cdata)
        except NotImplementedError:  # inside a transformation of torch.func there is none
            return -1


def parameter_memory(modules: Modules) -> dict[int, str]:
    """Return each parameter's memory with its name."""
    return {
        memory_of(value): f"{path}.{name}" if path else name
        for path, module in modules
        for name, value in module._parameters.items()
        if value is not None and value.layout is torch.strided and type(value.data) is Tensor
    }


_writing: dict[Any, bool] = {}


def writes(func: Any) -> bool:
    """Return whether a function writes into its first operand."""
    found = _writing.get(func)
    if found is None:
        name = getattr(func, "__name__", "")
        is_setter = name == "__set__" and getattr(func, "__self__", None) is Tensor.data
        in_place = (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE
        found = _writing[func] = is_setter or in_place
    return found


_IN_PLACE = {f"__i{name}__" for name in (
    "add", "sub", "mul", "truediv", "div", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul",
)} | {"__setitem__"}  # fmt: skip
_HARMLESS = {"requires_grad_", "retain_grad", "share_memory_"}


def check_write(
    func: Any, args: Any, kwargs: Mapping[str, Any], memory: Mapping[int, str], kind: str = "parameter"
) -> None:
    """Raise `NotIsolated` if the function is about to write into a parameter, or a part of the batch into a buffer."""
    target = kwargs.get("out")
    if target is None:
        if not args or not writes(func) or getattr(func, "__name__", "") in _HARMLESS:
            return
        target = args[0]
    for tensor in target if isinstance(target, tuple | list) else (target,):
        if isinstance(tensor, Tensor) and type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided:
            name = memory.get(memory_of(tensor))
            if name is not None:
                raise NotIsolated(told_of_change(f"{kind} {name}", getattr(func, "__name__", "")))


# --- a snapshot ------------------------------------------------------------------------------------------------------


class _Held:
    """A tensor that a pass must leave alone."""

    __slots__ = ("copy", "grad", "grad_version", "name", "notes", "requires_grad", "tensor", "version")

    def __init__(self, name: str, tensor: Tensor, copy: Tensor | None) -> None:
        self.name, self.tensor, self.version, self.copy = name, tensor, version_of(tensor), copy
        self.requires_grad = tensor.requires_grad
        self.grad = tensor.grad if tensor.is_leaf else None
        self.grad_version = 0 if self.grad is None else self.grad._version
        self.notes = _notes(tensor)

    def is_changed(self, *, in_full: bool) -> bool:
        """Return whether the values are others now; `in_full` compares the values themselves."""
        if version_of(self.tensor) != self.version or _notes(self.tensor) != self.notes:
            return True
        return in_full and self.copy is not None and not is_equal(self.tensor, self.copy)

    def is_marked(self) -> bool:
        """Return whether `.grad` or `requires_grad` was changed."""
        grad = self.tensor.grad if self.tensor.is_leaf else None
        other = grad is not self.grad or (grad is not None and grad._version != self.grad_version)
        return other or self.tensor.requires_grad is not self.requires_grad

    def restore(self) -> None:
        own = self.tensor.__dict__
        for key in [key for key in own if key == _MARK or (_is_note(key) and key not in self.notes)]:
            del own[key]
        with torch.no_grad():
            if self.copy is not None and not is_equal(self.tensor, self.copy):
                if self.tensor.shape != self.copy.shape:
                    self.tensor.data = self.copy.clone()
                self.tensor.detach().copy_(self.copy)
            if self.tensor.is_leaf:
                self.tensor.requires_grad_(self.requires_grad)
                self.tensor.grad = self.grad


def _notes(tensor: Tensor) -> dict[str, int]:
    """Return the attributes that were written on a tensor, but for those of this package and of torch."""
    own = tensor.__dict__
    return {key: id(value) for key, value in own.items() if _is_note(key)} if own else {}


def _is_note(key: str) -> bool:
    return not key.startswith(("_hush_", "_dynamo_", "_fsdp_", "__"))


def is_equal(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are the same, NaN being equal to NaN."""
    if one.layout is not torch.strided:
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or (one.is_floating_point() and torch.equal(one.nan_to_num(), other.nan_to_num()))


_BOOKS = {
    "_parameters": "parameter", "_buffers": "buffer", "_modules": "module", "_forward_hooks": "hook",
    "_forward_pre_hooks": "hook", "_backward_hooks": "hook", "_backward_pre_hooks": "hook",
    "_state_dict_hooks": "hook", "_state_dict_pre_hooks": "hook", "_load_state_dict_pre_hooks": "hook",
    "_load_state_dict_post_hooks": "hook",
}  # fmt: skip


def _books(module: nn.Module) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Yield what a module is made of; scripted modules have another kind of table."""
    values = module.__dict__
    for name, kind in _BOOKS.items():
        table = values.get(name)
        if isinstance(table, dict):
            yield kind, table


class Snapshot:
    """What a model and its loss function hold before a pass."""

    def __init__(self, model: nn.Module, loss_fn: LossFunction, modules: Modules, *, in_full: bool) -> None:
        tables, others = reach(model, modules, loss_fn, anew=in_full)
        modules = [*modules, *others]
        self._modules, self._in_full = modules, in_full
        self._flags = [module.training for _, module in modules]
        self._places: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = []
        self._held: list[tuple[str, _Held]] = []
        for path, module in modules:
            for kind, table in _books(module):
                self._places.append((kind, path, table, dict(table)))
            for kind, table in (("parameter", module._parameters), ("buffer", module._buffers)):
                if not table:
                    continue
                for name, value in table.items():
                    if value is not None:
                        is_kept = (in_full or kind == "buffer") and value.layout is torch.strided
                        copy = value.detach().clone() if is_kept else None
                        self._held.append((kind, _Held(f"{path}.{name}" if path else name, value, copy)))
        self._known = {id(module) for _, module in modules}
        self._printer = Printer(self._known)
        self._tables = [(table, table.read()) for table in tables]
        self._prints = [{key: self._printer.of(value) for key, value in items.items()} for _, items in self._tables]
        self._attributes = [
            _Held("", tensor, tensor.detach().clone() if in_full or tensor.numel() <= SMALL else None)
            for tensor in self._printer.tensors
        ]

    def changes(self) -> dict[str, Any]:
        """Return the names of all that is not as before, each with a print of what it is now."""
        found: dict[str, Any] = {}
        for kind, held in self._held:
            if held.is_changed(in_full=self._in_full):
                found[f"{kind} {held.name}"] = print_of(held.tensor) if kind == "buffer" else GONE
            if held.is_marked():
                found[f"the gradient of {held.name}"] = GONE
        for kind, path, place, before in self._places:
            for name in {**before, **place}:
                if place.get(name, GONE) is not before.get(name, GONE):
                    found[f"{kind} {path}.{name}" if path else f"{kind} {name}"] = print_of(place.get(name))
        printer = Printer(self._known)
        for (table, _), old in zip(self._tables, self._prints, strict=True):
            now = table.read()
            for key in {**old, **now}:
                if key not in now or key not in old or printer.of(now[key]) != old[key]:
                    found[f"{table.label}{key}"] = print_of(now.get(key))
        if any(held.is_changed(in_full=True) for held in self._attributes):  # where a copy is kept
            found.setdefault("a tensor in an attribute", GONE)
        return found

    def silent_changes(self) -> list[str]:
        """Return the names of parameters that changed, and of buffers that changed without a new version."""
        named = [(kind == "parameter", f"{kind} {held.name}", held) for kind, held in self._held]
        named += [(False, "a tensor in an attribute", held) for held in self._attributes]
        return [
            name
            for is_parameter, name, held in named
            if held.is_changed(in_full=True) and (is_parameter or version_of(held.tensor) == held.version)
        ]

    def restore(self) -> None:
        """Put everything back."""
        for _, _, place, before in self._places:
            place.clear()
            place.update(before)
        for held in (*(held for _, held in self._held), *self._attributes):
            held.restore()
        self._printer.restore()
        for table, items in self._tables:
            now = table.read()
            for key in {**items, **now}:
                if now.get(key, GONE) is not items.get(key, GONE):
                    table.write(key, items.get(key, GONE))
        self.restore_flags()

    def restore_buffers(self) -> None:
        """Put the values of buffers back."""
        for kind, held in self._held:
            if kind == "buffer":
                held.restore()

    def restore_flags(self) -> None:
        """Put the `training` flags back."""
        for (_, module), training in zip(self._modules, self._flags, strict=True):
            if module.training is not training:
                module.training = training


def told_of_change(name: str, function: str = "") -> str:
    """Return the message for something that a pass has changed."""
    by = f" (by {function})" if function else ""
    last = name.rpartition(".")[2]
    if last in ("weight_u", "weight_v", "_u", "_v"):
        advice = "spectral_norm's power iteration runs at every pass in train mode: put that module into eval mode"
    elif last.startswith(("running_", "num_batches")):
        advice = "use GroupNorm, or keep the module in eval mode with statistics from public data"
    elif name.startswith("buffer"):
        advice = "put that module into eval mode or remove the buffer"
    else:
        advice = "keep nothing there during a pass; losses are in the run's history and in callbacks"
    return f"the forward or backward pass changes {name}{by}, which would keep what it saw of the examples; {advice}."
