"""What was already spent on a model's weights: training them again costs more than the new run alone says.

A parameter remembers the runs that trained it. A copy of the weights, in another model or loaded from a saved run, is
known by the digest of its values.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hush.errors import TrainedBefore
from hush.events import Composed, Event
from hush.privacy import Relation
from hush.training.costs import cost
from hush.training.parts import is_sharded

_RECORDS = "_hush_trained"
_by_digest: dict[str, Earlier] = {}


@dataclass(frozen=True, eq=False)
class Earlier:
    """A run that trained some weights; `event` is None for one without privacy."""

    note: str
    event: Callable[[], Event] | None
    relation: Relation
    delta: float


def remember(parameters: Mapping[str, Tensor], record: Earlier) -> None:
    """Note on the parameters that this run trains them."""
    for value in parameters.values():
        found: list[Earlier] = getattr(value, _RECORDS, [])
        if record not in found:
            setattr(value, _RECORDS, [*found, record])


def remember_values(weights: Mapping[str, Tensor], before: Mapping[str, str], record: Earlier) -> None:
    """Note the values that a run ended with, where they are not those before, by which a copy of them is known."""
    for name, digest in digests(weights).items():
        if digest != before[name]:
            _by_digest[digest] = record


def digests(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Return a digest of each parameter's values, but for shards and single numbers."""
    return {name: _digest(value) for name, value in weights.items() if not is_sharded(value) and value.numel() > 1}


def notes_on(parameters: Mapping[str, nn.Parameter], mine: Earlier) -> list[str]:
    """Return what to say of earlier runs on these weights, and warn; an earlier part of the same run is none."""
    found: dict[int, Earlier] = {}
    for value in parameters.values():
        records: list[Earlier] = getattr(value, _RECORDS, [])
        if not records and _by_digest and not is_sharded(value) and value.numel() > 1:
            known = _by_digest.get(_digest(value))
            records = [] if known is None else [known]
        found.update({id(record): record for record in records if record is not mine and record.note != mine.note})
    if not found:
        return []
    text = _told(list(found.values()), mine)
    warnings.warn(text, TrainedBefore, stacklevel=4)
    return [text]


def _told(earlier: list[Earlier], mine: Earlier) -> str:
    if mine.event is None:
        return "these weights were trained before; the guarantee of that run does not cover this one."
    events = [record.event for record in earlier if record.event is not None]
    if len(events) < len(earlier):
        return "these weights were trained before without privacy: this guarantee does not cover that training."
    spent = Composed(*(event() for event in events))
    before = cost(spent, delta=mine.delta, relation=mine.relation)
    return (
        f"these weights were trained before, at epsilon {before.epsilon:.4g} (delta {mine.delta:g}), which this "
        "guarantee does not include; if both trainings saw the same people, compose the two events."
    )


def _digest(value: Tensor) -> str:
    plain = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(plain.numpy().tobytes()).hexdigest()
