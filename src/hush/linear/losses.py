"""Convex losses of w.x and a target, by their slopes, for `noisy_projected_sgd`."""

from __future__ import annotations

from collections.abc import Callable

import numpy
from numpy.typing import NDArray

from hush.errors import InvalidValue

Floats = NDArray[numpy.float64]
Gradients = Callable[[Floats, Floats, Floats], Floats]  # weights, rows, targets -> one gradient per row


def _logistic(margins: Floats, targets: Floats) -> Floats:
    from scipy.special import expit

    return numpy.asarray(-targets * expit(-targets * margins))


def _hinge(margins: Floats, targets: Floats) -> Floats:
    return numpy.where(targets * margins < 1, -targets, 0.0)


def _absolute(margins: Floats, targets: Floats) -> Floats:
    return numpy.sign(margins - targets)


def _huber(margins: Floats, targets: Floats) -> Floats:
    return numpy.clip(margins - targets, -1.0, 1.0)


SLOPES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "logistic": _logistic,
    "hinge": _hinge,
    "absolute": _absolute,
    "huber": _huber,
}
VALUES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "logistic": lambda margins, targets: numpy.logaddexp(0.0, -targets * margins),
    "hinge": lambda margins, targets: numpy.maximum(0.0, 1 - targets * margins),
    "absolute": lambda margins, targets: numpy.abs(margins - targets),
    "huber": lambda margins, targets: numpy.where(
        numpy.abs(margins - targets) <= 1, (margins - targets) ** 2 / 2, numpy.abs(margins - targets) - 0.5
    ),
}


def clipped_sum(loss: str | Gradients, weights: Floats, rows: Floats, targets: Floats, clip_norm: float) -> Floats:
    """The sum of the rows' gradients, each clipped to this length; one that is not finite counts as zero."""
    if isinstance(loss, str):
        slopes = SLOPES[loss](rows @ weights, targets)
        lengths = numpy.abs(slopes) * numpy.linalg.norm(rows, axis=1)
        return numpy.asarray((slopes * _factors(lengths, clip_norm)) @ rows)
    gradients = numpy.asarray(loss(weights, rows, targets), dtype=numpy.float64)
    if gradients.shape != rows.shape:
        raise InvalidValue(f"loss must return one gradient per row, shape {rows.shape}; got {gradients.shape}.")
    gradients = numpy.where(numpy.isfinite(gradients).all(axis=1, keepdims=True), gradients, 0.0)
    return numpy.asarray(_factors(numpy.linalg.norm(gradients, axis=1), clip_norm) @ gradients)


def _factors(lengths: Floats, clip_norm: float) -> Floats:
    """What shortens gradients of these lengths to the clip norm; an infinite one gets 0."""
    return clip_norm / numpy.maximum(lengths, clip_norm)
