"""What a model and its loss function can write to, as far as Python shows it, and prints of values.

Attributes of modules; closures, globals, defaults and attributes of functions; bodies of classes. Libraries are left
out: they keep nothing of a user's rows there.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy
import torch
from torch import Tensor, nn

from hush.errors import NotIsolated
from hush.gradients.batches import LossFunction

Modules = list[tuple[str, nn.Module]]
_PLAIN = {int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size}
_CODE = (type, types.ModuleType, types.BuiltinFunctionType, types.FunctionType, types.MethodType, property)
_OWN = frozenset(nn.Module().__dict__)  # attributes that torch itself keeps on every module
_LIBRARIES = ("torch", "torchvision", "transformers", "peft", "hush", "numpy", "random", "builtins", "functools")
_SET = "_non_persistent_buffers_set"
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
_OPENED = ("builtins", "transformers", "torch.distributions")  # libraries whose objects are settings or values
_DEPTH = 8  # levels of containers and plain objects that are looked into


class Table(NamedTuple):
    """Named values that a pass must leave alone, and how to read and write them."""

    label: str  # before a key, in messages
    read: Callable[[], dict[str, Any]]
    write: Callable[[str, Any], None]


GONE = object()
_reached: WeakKeyDictionary[nn.Module, tuple[Any, Any, list[Table], Modules]] = WeakKeyDictionary()


def reach(model: nn.Module, modules: Modules, loss_fn: LossFunction, *, anew: bool) -> tuple[list[Table], Modules]:
    """Return what the model and its loss function can write to, as far as Python shows it: tables, and modules."""
    seen, known, tables, others = _reached.get(model, (None, None, [], []))
    now = [len(modules), *(id(hook) for _, module in modules for hook in _hooks(module))]
    if anew or seen is None or seen() is not loss_fn or known != now:
        reach = Reach(modules, loss_fn)
        others = reach.modules
        tables = [*(_attributes(path, module) for path, module in (*modules, *others)), *reach.tables]
        try:
            _reached[model] = ref(loss_fn), now, tables, others
        except TypeError:  # a callable to which there are no weak references is looked at anew each time
            _reached.pop(model, None)
    return tables, others


def _hooks(module: nn.Module) -> Iterator[Any]:
    for hooks in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks):
        if hooks:
            yield from hooks.values()


def _attributes(path: str, module: nn.Module) -> Table:
    values = module.__dict__
    is_wrapped = "_orig_mod" in module._modules  # by torch.compile, which keeps its own books there

    def read() -> dict[str, Any]:
        return {} if is_wrapped else {key: value for key, value in values.items() if key not in _OWN or key == _SET}

    def write(key: str, value: Any) -> None:
        values.pop(key, None) if value is GONE else values.__setitem__(key, value)

    return Table(f"attribute {path}." if path else "attribute ", read, write)


class Reach:
    """Finds the variables that functions of the user can write to: closures, globals, defaults and attributes."""

    def __init__(self, modules: Modules, loss_fn: LossFunction, name: str = "loss_fn") -> None:
        self.tables: list[Table] = []
        self.modules: Modules = []  # that are no part of the model, such as a loss with centres of its own
        self._seen: set[int] = set()
        self._modules = {id(module) for _, module in modules}
        self._follow(loss_fn, name)
        for _, module in modules:
            for hook in _hooks(module):
                self._follow(hook, "hook")
            for kind in type(module).__mro__:
                self._class(kind)
            for key, value in module.__dict__.items():
                if isinstance(value, _FUNCTIONS) and key not in _OWN:
                    self._follow(value, f"attribute {key}")

    def _follow(self, value: Any, name: str) -> None:
        """Go on with a function, a method, a partial function or a callable object."""
        if id(value) in self._seen or id(value) in self._modules:
            return
        self._seen.add(id(value))
        if (inner := getattr(value, "__wrapped__", None)) is not None:
            self._follow(inner, name)
        if isinstance(value, nn.Module):
            found = [(f"{name}'s module {path}", module) for path, module in value.named_modules()]
            self.modules += [(path, module) for path, module in found if id(module) not in self._modules]
            self._modules.update(id(module) for _, module in found)
            for _, module in found:
                for kind in type(module).__mro__:
                    self._class(kind)
        elif isinstance(value, functools.partial):
            self._follow(value.func, name)
            for item in (*value.args, *value.keywords.values()):
                self._follow(item, name)
        elif isinstance(value, types.MethodType):
            self._follow(value.__func__, name)
            self._follow(value.__self__, name)
        elif isinstance(value, types.FunctionType):
            self._function(value, name)
        elif not isinstance(value, _CODE) and not _is_library(type(value)):
            self._class(type(value))
            if hasattr(value, "__dict__"):
                self._table(f"{name}.", value.__dict__)

    def _function(self, function: types.FunctionType, name: str) -> None:
        if _is_library(function):
            return
        used = {key: function.__globals__[key] for key in _names(function.__code__) if key in function.__globals__}
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self._table(f"{name}'s variable ", function.__globals__, used)
        for key, value in used.items():
            if isinstance(value, types.ModuleType) and _is_own(value):
                self._table(f"{name}'s variable {key}.", vars(value), dict.fromkeys(_names(function.__code__)))
        self._cells(name, cells)
        self._table(f"{name}'s attribute ", function.__dict__)
        defaults = {"defaults": function.__defaults__, "keywords": function.__kwdefaults__}
        if any(defaults.values()):
            self.tables.append(Table(f"{name}'s ", lambda: defaults, lambda key, value: None))
        contents = [cell.cell_contents for cell in cells.values() if _is_filled(cell)]
        for value in (*used.values(), *contents):
            if callable(value) or isinstance(value, types.MethodType):
                self._follow(value, name)

    def _class(self, kind: type) -> None:
        if id(kind) in self._seen or _is_library(kind):
            return
        self._seen.add(id(kind))

        def read() -> dict[str, Any]:
            return {key: value for key, value in vars(kind).items() if not key.startswith("__") and not _is_code(value)}

        def write(key: str, value: Any) -> None:
            delattr(kind, key) if value is GONE else setattr(kind, key, value)

        self.tables.append(Table(f"{kind.__name__}.", read, write))
        for value in [*vars(kind).values()]:
            function = getattr(value, "__func__", value)
            if isinstance(function, types.FunctionType):
                self._follow(function, kind.__name__)

    def _table(self, label: str, values: dict[str, Any], used: Mapping[str, Any] | None = None) -> None:
        if id(values) in self._seen and used is None:
            return
        self._seen.add(id(values))

        def read() -> dict[str, Any]:
            keys = [*values] if used is None else used
            return {key: values[key] for key in keys if key in values and not _is_code(values[key])}

        def write(key: str, value: Any) -> None:
            values.pop(key, None) if value is GONE else values.__setitem__(key, value)

        self.tables.append(Table(label, read, write))

    def _cells(self, name: str, cells: Mapping[str, Any]) -> None:
        if not cells:
            return

        def read() -> dict[str, Any]:
            found = {key: cell.cell_contents for key, cell in cells.items() if _is_filled(cell)}
            return {key: value for key, value in found.items() if not _is_code(value)}

        def write(key: str, value: Any) -> None:
            if value is not GONE:
                cells[key].cell_contents = value

        self.tables.append(Table(f"{name}'s variable ", read, write))


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not GONE
    except ValueError:
        return False


def _is_library(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "").partition(".")[0] in _LIBRARIES


def _is_own(module: types.ModuleType) -> bool:
    """Return whether a module is the user's, and no library."""
    root = module.__name__.partition(".")[0]
    return root not in _LIBRARIES and root not in sys.stdlib_module_names


def _is_code(value: Any) -> bool:
    """Return whether this is a part of a program or a module, which is looked at for itself, and not data."""
    return isinstance(value, (*_CODE, nn.Module))


# --- prints: values that are equal if nothing has changed --------------------------------------------------------


class Printer:
    """Turns values into tuples that differ when the values do, and keeps copies of containers to restore them."""

    def __init__(self, known: Collection[int] = (), *, exact: bool = False) -> None:
        self._known = known  # modules that are looked at for themselves
        self.exact = exact  # by value, so that the prints of different objects can be compared
        self.containers: list[tuple[Any, Any]] = []
        self.tensors: list[Tensor] = []
        self._seen: set[int] = set()

    def of(self, value: Any, depth: int = 0) -> Any:
        """Return the print of a value."""
        kind = type(value)
        if kind in _PLAIN:
            return ("nan",) if value != value else value
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, torch.Generator):
            return id(value), value.initial_seed()
        if isinstance(value, _CODE) or id(value) in self._known:
            return id(value)
        identity = 0 if self.exact else id(value)
        if isinstance(value, numpy.ndarray | numpy.generic):
            is_whole = value.dtype != object and value.nbytes <= 1 << 24
            return identity, value.shape, value.tobytes() if is_whole else id(value)
        if depth >= _DEPTH or id(value) in self._seen:
            return identity
        if isinstance(value, tuple):
            return kind, tuple([self.of(item, depth + 1) for item in value])
        if isinstance(value, list | deque):
            self._keep(value, list(value))
            return identity, kind, tuple([self.of(item, depth + 1) for item in value])
        if isinstance(value, dict):
            self._keep(value, dict(value))
            return identity, kind, tuple([(str(key), self.of(item, depth + 1)) for key, item in value.items()])
        if isinstance(value, set):
            self._keep(value, set(value))
            return identity, kind, frozenset(map(str, value))
        inner = getattr(value, "__dict__", None)
        if isinstance(value, functools.partial):
            return identity, self.of((value.args, value.keywords), depth + 1)
        if _is_library(kind) and not kind.__module__.startswith(_OPENED) and not isinstance(value, nn.Module):
            return id(value)
        self._seen.add(id(value))
        if type(inner) is not dict:
            return identity, kind, self.of(_state(value), depth + 1)
        self._keep(inner, dict(inner))
        return identity, kind, tuple([(key, self.of(item, depth + 1)) for key, item in inner.items()])

    def _keep(self, container: Any, copy: Any) -> None:
        self._seen.add(id(container))
        self.containers.append((container, copy))

    def _tensor(self, value: Tensor) -> Any:
        if torch._C._functorch.is_functorch_wrapped_tensor(value):  # has no values outside of its transformation
            return id(value)
        self.tensors.append(value)
        if not self.exact:
            return id(value), version_of(value)
        if type(value) is not Tensor or value.layout is not torch.strided:
            return id(value)
        plain = value.detach().cpu().contiguous().reshape(-1)
        return value.shape, value.dtype, plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def _state(value: Any) -> Any:
    """Return what an object without a dictionary holds, as pickle would save it; None where it cannot be told."""
    if isinstance(value, types.GeneratorType):
        return dict(value.gi_frame.f_locals) if value.gi_frame is not None else None
    try:
        found = value.__reduce_ex__(4)
    except Exception:  # files, locks and the like
        return None
    return found[1:3] if isinstance(found, tuple) else found


def version_of(tensor: Tensor) -> int:
    """Return how often the tensor was written to, as torch counts it."""
    return 0 if tensor.is_inference() else tensor._version


def print_of(value: Any) -> Any:
    """Return something that is equal for values that are equal, whichever objects they are."""
    return Printer(exact=True).of(value)


def _is_next(old: Any, new: Any) -> bool:
    """Return whether a print is that of the next whole number, or of a list of numbers as before or next.

    Who counts calls keeps that. Any other number could be one that was read from the rows.
    """
    if type(old) is int and type(new) is int:
        return new == old + 1
    is_list = isinstance(old, tuple) and isinstance(new, tuple) and old[:2] == new[:2] and len(old) == len(new) == 3
    if not is_list or old[1] is not list or len(old[2]) != len(new[2]):
        return False
    return all(one == other or _is_next(one, other) for one, other in zip(old[2], new[2], strict=True))


class Stateless:
    """A function that keeps nothing from one call to the next, by check."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function, self._name = function, name

    def __call__(self, *args: Any) -> Any:
        """Call the function; raise `NotIsolated` if that changed what it can reach."""
        tables = Reach([], self._function, self._name).tables
        printer = Printer()
        before = [{key: printer.of(value) for key, value in table.read().items()} for table in tables]
        result = self._function(*args)
        printer = Printer()
        for table, old in zip(tables, before, strict=True):
            for key, value in table.read().items():
                before_it, now = old.get(key, GONE), printer.of(value)
                if now != before_it and not _is_next(before_it, now):
                    raise NotIsolated(
                        f"{self._name} changes {table.label}{key}, by which rows of one batch could reach the next; "
                        "let it keep nothing between calls."
                    )
        return result
