"""What a model and its loss function can write to, as far as Python shows it.

Attributes of modules; closures, globals, defaults and attributes of functions; bodies of classes. Libraries are left
out: they keep nothing of a user's rows there.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from torch import nn

from hush.gradients.batches import LossFunction
from hush.gradients.prints import CODE, LIBRARIES, is_library

Modules = list[tuple[str, nn.Module]]
_OWN = frozenset(nn.Module().__dict__)  # attributes that torch itself keeps on every module
_SET = "_non_persistent_buffers_set"
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
_MANY = 1000  # items of a container, above which it is data in which no functions are looked for


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
        tables = [*(attributes(path, module) for path, module in (*modules, *others)), *reach.tables]
        try:
            _reached[model] = ref(loss_fn), now, tables, others
        except TypeError:  # a callable to which there are no weak references is looked at anew each time
            _reached.pop(model, None)
    return tables, others


def _hooks(module: nn.Module) -> Iterator[Any]:
    for hooks in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks):
        if hooks:
            yield from hooks.values()


def attributes(path: str, module: nn.Module) -> Table:
    """Return what a module keeps beside its parameters, buffers and submodules."""
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
                if key not in _OWN:
                    self._look(value, f"attribute {key}")

    def _look(self, value: Any, name: str) -> None:
        """Go on with what may run: functions, objects of one's own classes, and these in containers."""
        if isinstance(value, list | tuple | dict | set | deque):
            if len(value) <= _MANY and id(value) not in self._seen:
                self._seen.add(id(value))
                for item in value.values() if isinstance(value, dict) else value:
                    self._look(item, name)
        elif callable(value) or not is_library(type(value)):
            self._follow(value, name)

    def _follow(self, value: Any, name: str) -> None:
        """Go on with a function, a method, a partial function, a class or an object."""
        if isinstance(value, type):
            for kind in value.__mro__:
                self._class(kind)
            return
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
                for hook in _hooks(module):
                    self._follow(hook, "hook")
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
        elif not isinstance(value, CODE) and not is_library(type(value)):
            for kind in type(value).__mro__:
                self._class(kind)
            if isinstance(values := getattr(value, "__dict__", None), dict):
                self._table(f"{name}.", values)
                for item in [*values.values()]:
                    self._look(item, name)

    def _function(self, function: types.FunctionType, name: str) -> None:
        if is_library(function):
            return
        used = {key: function.__globals__[key] for key in _names(function.__code__) if key in function.__globals__}
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self._table(f"{name}'s variable ", function.__globals__, used)
        for key, value in used.items():
            if isinstance(value, types.ModuleType) and _is_own(value):
                named = set(_names(function.__code__)) & set(vars(value))
                self._table(f"{name}'s variable {key}.", vars(value), dict.fromkeys(named))
                for inner in named:
                    self._look(vars(value)[inner], name)
        self._cells(name, cells)
        self._table(f"{name}'s attribute ", function.__dict__)
        defaults = {"defaults": function.__defaults__, "keywords": function.__kwdefaults__}
        if any(defaults.values()):
            self.tables.append(Table(f"{name}'s ", lambda: defaults, lambda key, value: None))
        contents = [cell.cell_contents for cell in cells.values() if _is_filled(cell)]
        for value in (*used.values(), *contents):
            self._look(value, name)

    def _class(self, kind: type) -> None:
        if id(kind) in self._seen or is_library(kind):
            return
        self._seen.add(id(kind))

        def read() -> dict[str, Any]:
            return {key: value for key, value in vars(kind).items() if not key.startswith("__") and not _is_code(value)}

        def write(key: str, value: Any) -> None:
            delattr(kind, key) if value is GONE else setattr(kind, key, value)

        self.tables.append(Table(f"{kind.__name__}.", read, write))
        for value in [*vars(kind).values()]:
            parts = (value.fget, value.fset, value.fdel) if isinstance(value, property) else (value,)
            for part in parts:
                function = getattr(part, "__func__", part)
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


def _is_own(module: types.ModuleType) -> bool:
    """Return whether a module is the user's, and no library."""
    root = module.__name__.partition(".")[0]
    return root not in LIBRARIES and root not in sys.stdlib_module_names


def _is_code(value: Any) -> bool:
    """Return whether this is a part of a program or a module, which is looked at for itself, and not data."""
    return isinstance(value, (*CODE, nn.Module))
