"""What an attack reads from a model's answer: the loss, and the log-odds of the true class, without overflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hush import _check
from hush.errors import InvalidValue

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Model = Callable[[Any], Any]  # rows -> logits or probabilities, as a tensor or an array
Outputs = Literal["logits", "probabilities"]
_KINDS = ("logits", "probabilities")
_SMALLEST = 1e-300  # a probability that a float rounded to 0


def answers(model: Model, x: Any) -> Floats:
    """What the model says of these rows, as numbers. A torch module is asked in eval mode and without gradients."""
    import torch

    with torch.no_grad(), at_rest(model):
        return as_array(model(x))


@contextmanager
def at_rest(model: Any) -> Iterator[None]:
    """A torch module in eval mode, and afterwards back in the mode of each of its parts; other models as they are."""
    modules = list(model.modules()) if hasattr(model, "modules") and hasattr(model, "eval") else []
    modes = [part.training for part in modules]
    if modules:
        model.eval()
    try:
        yield
    finally:
        for part, mode in zip(modules, modes, strict=True):
            part.training = mode


def as_array(values: Any) -> Floats:
    """A tensor or a sequence as an array of doubles."""
    detached = values.detach().cpu() if hasattr(values, "detach") else values
    return np.asarray(detached, dtype=np.float64)


def as_labels(y: Any, classes: int, rows: int) -> Labels:
    """Class numbers from 0, one per row."""
    labels = np.asarray(y.detach().cpu() if hasattr(y, "detach") else y)
    if labels.shape != (rows,) or labels.dtype.kind not in "iu":
        raise InvalidValue(f"y must hold {rows} class numbers; got shape {labels.shape} of {labels.dtype}.")
    if rows and not (labels.min() >= 0 and labels.max() < classes):
        raise InvalidValue(f"y must be 0 to {classes - 1}; got {labels.min()} to {labels.max()}.")
    return labels.astype(np.int64)


def log_probabilities(values: Any, outputs: Outputs = "logits") -> Floats:
    """The logarithm of each class's probability, (..., rows, classes). One output is taken as that of class 1.

    >>> np.exp(log_probabilities([[0.0], [1000.0]])).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    _check.one_of("outputs", outputs, _KINDS)
    found = as_array(values)
    if found.ndim == 0 or not np.isfinite(found).all():
        raise InvalidValue("a model's outputs must be finite numbers, one row per example; some are not.")
    if found.ndim == 1:
        found = found[:, None]
    if outputs == "logits":
        wide = np.concatenate([np.zeros_like(found), found], axis=-1) if found.shape[-1] == 1 else found
        top = wide.max(axis=-1, keepdims=True)
        return np.asarray(wide - top - np.log(np.exp(wide - top).sum(axis=-1, keepdims=True)))
    wide = np.concatenate([1 - found, found], axis=-1) if found.shape[-1] == 1 else found
    if wide.min() < -1e-6 or np.abs(wide.sum(axis=-1) - 1).max() > 1e-3:
        raise InvalidValue('probabilities must be 0 or above and sum to 1; for raw scores say outputs="logits".')
    return np.asarray(np.log(np.maximum(wide, _SMALLEST)))


def log_odds(log_probs: Floats, labels: Labels) -> Floats:
    """log(p / (1 - p)) of the true class, the scaled confidence of LiRA [carlini22].

    The probability of the other classes is summed up, not taken from 1, so that a confident model keeps its digits.

    >>> logits = log_probabilities([[1.0, 2.0, -3.0], [-1.0, 1.0, 0.0]])
    >>> log_odds(logits, np.array([1, 2])).round(6).tolist()
    [0.98185, -1.126928]
    """
    own = _of_class(log_probs, labels)
    others = np.where(np.arange(log_probs.shape[-1]) == labels[:, None], -np.inf, log_probs)
    top = others.max(axis=-1)
    rest: Floats = top + np.log(np.exp(others - top[..., None]).sum(axis=-1))
    return np.asarray(own - rest)


def cross_entropy(log_probs: Floats, labels: Labels) -> Floats:
    """The loss of each example.

    >>> cross_entropy(log_probabilities([[1.0, 2.0, -3.0]]), np.array([1])).round(8).tolist()
    [0.31817543]
    """
    return -_of_class(log_probs, labels)


def _of_class(log_probs: Floats, labels: Labels) -> Floats:
    index = np.broadcast_to(labels[:, None], (*log_probs.shape[:-1], 1))
    return np.asarray(np.take_along_axis(log_probs, index, axis=-1)[..., 0])
