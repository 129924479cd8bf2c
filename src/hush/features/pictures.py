"""What every transformer of pictures asks of its input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hush.errors import InvalidValue


def checked(X: Any, least: int, *, divisor: int = 1) -> Tensor:
    """X as pictures (rows, channels, height, width) in float32, with sides of at least `least` that `divisor` divides.

    Raises:
        InvalidValue: It is something else, empty, or not finite.
    """
    pictures = torch.as_tensor(X, dtype=torch.float32)
    sides = pictures.shape[2:]
    if pictures.ndim != 4 or not len(pictures) or min(sides) < least or any(size % divisor for size in sides):
        divided = f" with sides that {divisor} divides," if divisor > 1 else ""
        raise InvalidValue(
            f"X must hold pictures (rows, channels, height, width){divided} of at least {least} pixels a side; got "
            f"shape {tuple(pictures.shape)}."
        )
    if not pictures.sum(dtype=torch.float64).isfinite():
        raise InvalidValue("X must hold finite numbers only; it has a NaN or an infinity. Leave that picture out.")
    return pictures
