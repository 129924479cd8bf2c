"""`file.py:factory` or `package.module:factory`: code of the user's own."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from hush.errors import HushError, InvalidValue

LOADED: list[str] = []  # files of the user's own that were read in this process


def made_by(target: str) -> Any:
    """What the factory returns; an error in it becomes one line that names its place."""
    factory = _factory(target)
    try:
        return factory()
    except HushError:
        raise
    except Exception as error:
        raise InvalidValue(_told(target, error)) from error


def _factory(target: str) -> Callable[[], Any]:
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise InvalidValue(f"name a factory as file.py:function or package.module:function; got {target!r}.")
    factory = getattr(_module(place), name, None)
    if not callable(factory):
        raise InvalidValue(f"{place} has no function {name!r}.")
    return factory  # type: ignore[no-any-return]


def _module(place: str) -> ModuleType:
    try:
        if place.endswith(".py"):
            return _from_file(Path(place))
        if "" not in sys.path:
            sys.path.insert(0, "")  # as `python -m` does: modules of the folder that the user stands in
        module = importlib.import_module(place)
        LOADED.append(str(module.__file__))
        return module
    except HushError:
        raise
    except ModuleNotFoundError as error:
        raise InvalidValue(f"cannot load {place}: {error}.") from None
    except Exception as error:
        raise InvalidValue(_told(place, error)) from error


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InvalidValue(f"there is no file {path}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    LOADED.append(str(path))
    return module


def place_of(error: Exception) -> str:
    """What was raised and where: the innermost line of the user's own files, or else the last one."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if any(Path(frame.filename).name == Path(path).name for path in LOADED)]
    frame = (own or frames)[-1]
    return f"your code raised {type(error).__name__} ({Path(frame.filename).name}, line {frame.lineno})"


def _told(target: str, error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}, line {frame.lineno}"
    return f"{target} raised {type(error).__name__} ({place}): {error}"
