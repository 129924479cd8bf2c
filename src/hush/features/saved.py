"""Fitted features in one safetensors file: what was released, and the settings. No row is in it, and no seed."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import safetensors
import safetensors.torch
import torch
from safetensors import SafetensorError
from sklearn.pipeline import Pipeline, make_pipeline

from hush import events
from hush.errors import HushError, InvalidValue, UnreadableFile
from hush.features.column_weights import PrivateColumnWeights
from hush.features.ngrams import HashedNGrams
from hush.features.patches import Patches
from hush.features.pca import PrivatePCA
from hush.features.private_transformer import PrivateTransformer
from hush.features.scaler import PrivateScaler
from hush.features.scattering import Scattering
from hush.features.upright import Upright
from hush.features.whitened_patches import WhitenedPatches

FORMAT = "hush features 5"
_PATCHES = ("whitening_", "filters_", "mixing_", "picture_shape_")
_LEARNED: dict[type, tuple[str, ...]] = {
    HashedNGrams: (),
    Scattering: (),
    Upright: (),
    PrivateColumnWeights: ("scale_",),
    PrivatePCA: ("components_",),
    PrivateScaler: ("mean_", "scale_", "num_rows_"),
    Patches: _PATCHES,
    WhitenedPatches: _PATCHES,
}
_MIXED = ("mixing_", "picture_shape_")  # of a Scattering that mixes
_SIDES = {"mean_": 1, "scale_": 1, "num_rows_": 0, "picture_shape_": 1}  # the others are matrices
_KINDS = {kind.__name__: kind for kind in _LEARNED}
_NEVER_KEPT = "random_state"


def save(transformers: Sequence[Any], path: str | os.PathLike[str]) -> None:
    """Write fitted transformers, in the order in which rows go through them."""
    tensors, entries = {}, []
    for place, one in enumerate(transformers):
        if type(one) not in _LEARNED:
            raise InvalidValue(f"{type(one).__name__} cannot be saved; {', '.join(_KINDS)} can.")
        for name in _learned(one):
            if not hasattr(one, name):
                raise InvalidValue(f"{type(one).__name__} is not fitted: call fit before it is saved.")
            tensors[f"{place}.{name}"] = torch.as_tensor(getattr(one, name)).contiguous()
        settings = {key: value for key, value in one.get_params().items() if key != _NEVER_KEPT}
        entry = {"kind": type(one).__name__, "settings": settings}
        if isinstance(one, PrivateTransformer):
            entry |= {"event": events.to_dict(one.event_), "randomness": one.randomness_}
        entries.append(entry)
    content = safetensors.torch.save(tensors, metadata={"format": FORMAT, "transformers": json.dumps(entries)})
    Path(path).write_bytes(content)


def load(path: str | os.PathLike[str]) -> Pipeline:
    """The transformers of a file, as a scikit-learn pipeline that transforms as before.

    Raises:
        UnreadableFile: It is something else, or not whole.
    """
    try:
        with safetensors.safe_open(Path(path), framework="pt") as file:
            notes = file.metadata() or {}
            if notes.get("format") != FORMAT:
                raise UnreadableFile(f"{Path(path).name} holds no features of this version of Hush.")
            entries = json.loads(notes["transformers"])
            if not isinstance(entries, list) or not entries:
                raise UnreadableFile(f"{Path(path).name} names no transformer.")
            return make_pipeline(*(_transformer(place, entry, file) for place, entry in enumerate(entries)))
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, HushError):
            raise
        raise UnreadableFile(f"{Path(path).name} cannot be read as features: {str(error)[:120]}.") from None


def _transformer(place: int, entry: dict[str, Any], file: Any) -> Any:
    kind = _KINDS[entry["kind"]]
    result = kind(**entry["settings"])
    for name in _learned(result):
        tensor = file.get_tensor(f"{place}.{name}")
        if tensor.ndim != _SIDES.get(name, 2) or not tensor.sum(dtype=torch.float64).isfinite():
            raise UnreadableFile(f"{name} of {entry['kind']} has another shape, or numbers that are not finite.")
        setattr(result, name, _as_learned(name, tensor))
    if isinstance(result, PrivateTransformer):
        result.event_, result.randomness_ = events.from_dict(entry["event"]), str(entry["randomness"])
        if result.event_ != result.event():
            raise UnreadableFile(f"the event of {entry['kind']} is not that of its settings: one of them was edited.")
    if isinstance(result, PrivateScaler | PrivatePCA | PrivateColumnWeights):
        result.n_features_in_ = getattr(result, _LEARNED[kind][0]).shape[-1]
    return result


def _learned(one: Any) -> tuple[str, ...]:
    return _MIXED if isinstance(one, Scattering) and one.mix else _LEARNED[type(one)]


def _as_learned(name: str, tensor: torch.Tensor) -> Any:
    if name == "picture_shape_":
        return tuple(tensor.tolist())
    if name == "num_rows_":
        return float(tensor)
    return tensor if name in ("whitening_", "filters_", "mixing_") else numpy.asarray(tensor)
