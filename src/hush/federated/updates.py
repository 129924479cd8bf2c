"""A client's update: what it changed of the model it got, how large that is, and how it is clipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def update_of(model: Mapping[str, NDArray[Any]], answer: Mapping[str, Any]) -> Arrays | None:
    """What a client changed, in double precision; None if that is no finite change of the model."""
    try:
        found = {name: numpy.asarray(answer[name], dtype=numpy.float64) for name in model}
    except (KeyError, TypeError, ValueError):
        return None
    if len(answer) != len(found) or any(found[name].shape != value.shape for name, value in model.items()):
        return None
    with numpy.errstate(all="ignore"):
        update = {name: found[name] - value for name, value in model.items()}
    return update if numpy.isfinite(norm_of(update)) else None


def norm_of(update: Mapping[str, NDArray[Any]]) -> float:
    """The length of a whole update."""
    with numpy.errstate(all="ignore"):
        return float(numpy.linalg.norm([numpy.linalg.norm(value) for value in update.values()]))


def clip_factor(norm: float, clip_norm: float) -> float:
    """What an update of this length is multiplied by, so that it is no longer than the clip norm."""
    return min(1.0, clip_norm / norm) if norm > 0 else 1.0
