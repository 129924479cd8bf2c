"""Canaries that are data: rows with a wrong label, blank rows, or rows of the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from hush import _check
from hush.errors import InvalidValue

CanaryKind = Literal["mislabelled", "blank"]
_MOST = 1_000


@dataclass(frozen=True)
class Split:
    """Data without canaries, and the canaries."""

    rest: Dataset[Any]
    canaries: Dataset[Any]


def split(
    dataset: Dataset[Any],
    canaries: CanaryKind | Dataset[Any],
    num_canaries: int | None,
    num_classes: int | None,
    stream: numpy.random.Generator,
) -> Split:
    """The canaries that were asked for, and what else is trained on. Nothing here looks at a coin."""
    if not isinstance(canaries, str):
        return _own(dataset, canaries, num_canaries)
    _check.one_of("canaries", canaries, ("mislabelled", "blank"))
    inputs, labels = _pair(dataset)
    number = _check.whole("num_canaries", _usual(len(inputs)) if num_canaries is None else num_canaries)
    classes = _check.whole("num_classes", int(labels.max()) + 1 if num_classes is None else num_classes, least=2)
    if canaries == "blank":
        return Split(TensorDataset(inputs, labels), _blank(inputs, labels, number, classes, stream))
    if number >= len(inputs):
        raise InvalidValue(f"num_canaries must be below the number of rows, {len(inputs)}; got {number}.")
    order = torch.from_numpy(stream.permutation(len(inputs)))
    chosen, kept = order[:number], order[number:]
    shifts = torch.from_numpy(stream.integers(1, classes, number)).to(labels)
    wrong = (labels[chosen] + shifts) % classes
    return Split(TensorDataset(inputs[kept], labels[kept]), TensorDataset(inputs[chosen], wrong))


def _usual(rows: int) -> int:
    return max(1, min(_MOST, rows // 4))


def _own(dataset: Dataset[Any], canaries: Dataset[Any], number: int | None) -> Split:
    if not hasattr(canaries, "__getitem__") or not hasattr(canaries, "__len__") or not len(canaries):
        raise InvalidValue("canaries must be 'mislabelled', 'blank', or a map-style data set with at least one item.")
    if number is not None and number != len(canaries):
        if number > len(canaries):
            raise InvalidValue(f"num_canaries must be at most {len(canaries)}, what was given; got {number}.")
        canaries = _first(canaries, number)
    return Split(dataset, canaries)


def _first(canaries: Dataset[Any], number: int) -> Dataset[Any]:
    if isinstance(canaries, TensorDataset):
        return TensorDataset(*(tensor[:number] for tensor in canaries.tensors))
    return torch.utils.data.Subset(canaries, range(number))


def _blank(inputs: Tensor, labels: Tensor, number: int, classes: int, stream: numpy.random.Generator) -> TensorDataset:
    """Row i is zero but for feature i, which is 1; a single canary is all zero."""
    features = inputs[0].numel()
    if number > features:
        raise InvalidValue(f"there are {features} blank canaries, one per feature; num_canaries is {number}.")
    rows = torch.zeros(number, features, dtype=inputs.dtype, device=inputs.device)
    if number > 1:
        rows[torch.arange(number), torch.from_numpy(stream.permutation(features)[:number])] = 1
    drawn = torch.from_numpy(stream.integers(0, classes, number)).to(labels)
    return TensorDataset(rows.reshape(number, *inputs.shape[1:]), drawn)


def _pair(dataset: Dataset[Any]) -> tuple[Tensor, Tensor]:
    from hush.audit.gradient_canaries import tensors_of

    tensors = tensors_of(dataset)
    if tensors is None or len(tensors) != 2 or tensors[1].is_floating_point() or tensors[1].ndim != 1:
        raise InvalidValue(
            "canaries can be made for a TensorDataset of inputs and class labels; "
            "for other data give canaries of your own."
        )
    return tensors[0], tensors[1]
