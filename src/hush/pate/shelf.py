"""A folder of trained teachers: a file for each block, and the settings that made them.

Everything in it is private: the teachers remember their rows, and the key tells whose they are. Nothing is pickled.
A run that was interrupted goes on with the next block; a changed setting, or changed data, is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from hush.errors import ResumeRefused, UnreadableFile

SETTINGS = "teachers.json"
_FORMAT = 1


class Shelf:
    """Where blocks of teachers are kept."""

    def __init__(self, folder: Path, settings: dict[str, Any], key: bytes) -> None:
        self.folder = folder
        self.key = key
        wanted = json.loads(json.dumps({"format": _FORMAT, **settings}))
        path = folder / SETTINGS
        if path.exists():
            self.key = _agreed(path, wanted)
            return
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):
            folder.chmod(0o700)
        _replace(path, json.dumps({**wanted, "private": True, "key": key.hex()}, indent=1).encode())

    def read(self, block: int) -> tuple[dict[str, Tensor], dict[int, str]] | None:
        """The tensors and the failures of a block; None if it is not there yet."""
        path = self._path(block)
        if not path.exists():
            return None
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                failures = json.loads((file.metadata() or {})["failures"])
        except (safetensors.SafetensorError, OSError, KeyError, ValueError):
            raise UnreadableFile(
                f"{path.name} cannot be read; delete it, and its teachers are trained again."
            ) from None
        return tensors, {int(teacher): str(kind) for teacher, kind in failures.items()}

    def write(self, block: int, tensors: dict[str, Tensor], failures: dict[int, str]) -> None:
        """Keep a block, whole or not at all."""
        apart = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
        _replace(self._path(block), safetensors.torch.save(apart, {"failures": json.dumps(failures)}))

    def _path(self, block: int) -> Path:
        return self.folder / f"block-{block:05d}.safetensors"


def _agreed(path: Path, wanted: dict[str, Any]) -> bytes:
    """The key of the folder, if its settings are the wanted ones."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        key = bytes.fromhex(found.pop("key"))
        found.pop("private")
    except (OSError, ValueError, KeyError, AttributeError):
        raise UnreadableFile(f"{path} is not a folder of teachers, or was edited; choose another folder.") from None
    changed = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
    if changed:
        raise ResumeRefused(
            f"{path.parent} holds teachers made with another {', '.join(changed)}; go on with the same, or choose "
            "another folder."
        )
    return key


def digest(values: Any) -> str:
    """A fingerprint of an array or a tensor, for the private folder."""
    if values is None:
        return ""
    array = numpy.ascontiguousarray(values.detach().cpu().numpy() if isinstance(values, Tensor) else values)
    content = repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes()
    return hashlib.sha256(f"{array.dtype} {array.shape} ".encode() + content).hexdigest()


def _replace(target: Path, content: bytes) -> None:
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, target)
    finally:
        with suppress(OSError):
            scratch.unlink()


def labels_tensor(labels: numpy.ndarray[Any, numpy.dtype[numpy.int64]]) -> Tensor:
    """Labels as a tensor of the smallest whole numbers that hold them."""
    small = labels.size == 0 or labels.max() < 128
    return torch.from_numpy(labels).to(torch.int8 if small else torch.int64)
