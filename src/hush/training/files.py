"""Files that are replaced whole or not at all, and state without pickle.

`pack` turns nested state (an optimizer's, a scheduler's) into JSON and a dict of tensors; `unpack` turns it back. What
neither JSON nor safetensors can hold is refused by name.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from hush.errors import InvalidValue, UnreadableFile


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """A scratch path beside `target`; what was written there takes its place, on disk when the block ends."""
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        yield scratch
        _sync(scratch)
        os.replace(scratch, target)
        with suppress(OSError):  # Windows cannot open folders, and needs no such step
            _sync(target.parent)
    finally:
        with suppress(OSError):
            scratch.unlink()


def remove_scratch(folder: Path) -> None:
    """Remove what a killed process left half written in a run's folder, by our names or by those of safetensors."""
    for name in (".*.????????????.tmp", ".tmp??????"):
        for scratch in folder.glob(name):
            with suppress(OSError):
                scratch.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(target: Path, text: str) -> None:
    """Replace a text file."""
    with replaced(target) as scratch:
        scratch.write_text(text, encoding="utf-8")


def write_tensors(target: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Replace a safetensors file; tensors that share memory are written apart."""
    apart = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    with replaced(target) as scratch:
        safetensors.torch.save_file(apart, scratch, metadata)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (safetensors.SafetensorError, OSError) as error:
        raise UnreadableFile(f"{path.name} cannot be read: {str(error)[:120]}.") from None


def pack(value: Any, tensors: dict[str, Tensor], name: str) -> Any:
    """`value` as JSON; its tensors go to `tensors` under names that begin with `name`."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Tensor():
            tensors[name] = value
            return {"tensor": name}
        case Counter():
            return {"counter": [[pack(key, tensors, name), count] for key, count in value.items()]}
        case dict():
            pairs = [[pack(key, tensors, name), pack(item, tensors, f"{name}/{key}")] for key, item in value.items()]
            return {"dict": pairs}
        case tuple() | list():
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [pack(item, tensors, f"{name}/{place}") for place, item in enumerate(value)]}
    raise InvalidValue(
        f"{name} holds a {type(value).__name__}, which cannot be written without pickle; "
        "use numbers, texts, tensors, and lists or dicts of them."
    )


def unpack(data: Any, tensors: dict[str, Tensor]) -> Any:
    """What `pack` was given."""
    match data:
        case None | bool() | int() | float() | str():
            return data
        case {"tensor": str(name)} if name in tensors:
            return tensors[name]
        case {"counter": list(pairs)}:
            return Counter({unpack(key, tensors): int(count) for key, count in pairs})
        case {"dict": list(pairs)}:
            return {unpack(key, tensors): unpack(item, tensors) for key, item in pairs}
        case {"tuple": list(items)}:
            return tuple(unpack(item, tensors) for item in items)
        case {"list": list(items)}:
            return [unpack(item, tensors) for item in items]
    raise UnreadableFile(f"this is not packed state: {str(data)[:80]}.")


def load_weights(model: torch.nn.Module, tensors: dict[str, Tensor]) -> None:
    """Give the model these weights and buffers; names and shapes must be the model's own."""
    model.load_state_dict(tensors, strict=True)
