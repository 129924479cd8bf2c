"""A folder of what shadow models say of their pool: a file for each model, and which rows each was trained on.

Nothing is pickled. A run that was interrupted goes on with the models that are missing; another pool is refused.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
from torch import Tensor

from hush.errors import InvalidValue, ResumeRefused, UnreadableFile

Flags = npt.NDArray[np.bool_]
_START = "shadows.safetensors"


class ShadowShelf:
    """Where answers of shadow models are kept; `included` is the folder's own where it has one."""

    def __init__(self, folder: Path, included: Flags, x: Any, y: Any, outputs: str) -> None:
        self._folder = folder
        wanted = {"format": 1, "models": len(included), "outputs": outputs, "x": _digest(x), "y": _digest(y)}
        start = folder / _START
        if start.exists():
            found, tensors = _read(start)
            changed = sorted(name for name in wanted if str(wanted[name]) != found.get(name))
            if changed or "included" not in tensors:
                raise ResumeRefused(f"{folder} holds shadow models with another {', '.join(changed)}; choose another.")
            self.included: Flags = tensors["included"].astype(np.bool_)
            return
        folder.mkdir(parents=True, exist_ok=True)
        self.included = included
        facts = {name: str(value) for name, value in wanted.items()}
        _replace(start, safetensors.numpy.save({"included": included.astype(np.uint8)}, facts))

    def read(self, number: int) -> npt.NDArray[Any] | None:
        """What a model says of the pool; None if it is not there yet."""
        path = self._path(number)
        return _read(path)[1]["said"] if path.exists() else None

    def write(self, number: int, said: Any) -> None:
        """Keep a model's answers, whole or not at all."""
        array = np.ascontiguousarray(said.detach().cpu().numpy() if isinstance(said, Tensor) else np.asarray(said))
        _replace(self._path(number), safetensors.numpy.save({"said": array}))

    def predictor(self, pool: Any) -> Callable[[Any], Any]:
        """All answers, for the pool itself."""

        def predict(x: Any) -> Any:
            if x is not pool:
                raise InvalidValue(
                    "these shadow models are gone and answer for their pool alone; train without folder=."
                )
            return np.stack([_read(self._path(number))[1]["said"] for number in range(len(self.included))])

        return predict

    def _path(self, number: int) -> Path:
        return self._folder / f"model-{number:05d}.safetensors"


def _digest(values: Any) -> str:
    array = np.ascontiguousarray(values.detach().cpu().numpy() if isinstance(values, Tensor) else values)
    return hashlib.sha256(f"{array.dtype} {array.shape} ".encode() + array.tobytes()).hexdigest()


def _read(path: Path) -> tuple[dict[str, str], dict[str, npt.NDArray[Any]]]:
    try:
        with safetensors.safe_open(path, framework="np") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, ValueError):
        raise UnreadableFile(f"{path} cannot be read; delete it, and its model is trained again.") from None


def _replace(target: Path, content: bytes) -> None:
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        scratch.write_bytes(content)
        os.replace(scratch, target)
    finally:
        with suppress(OSError):
            scratch.unlink()
