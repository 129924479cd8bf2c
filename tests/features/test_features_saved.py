"""Fitted features in a file: the same features come out, and nothing secret is in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import safetensors
import safetensors.torch
import torch

from hush.errors import InvalidValue, UnreadableFile
from hush.features import HashedNGrams, PrivateScaler, Scattering, Upright, WhitenedPatches, evened, load, save

PICTURES = torch.rand(6, 1, 12, 12, generator=torch.Generator().manual_seed(0))


def fitted(seed: int | None = 3) -> list[object]:
    patches = WhitenedPatches(4, patch_size=3, cells=2, random_state=seed).fit(PICTURES)
    return [patches, PrivateScaler(random_state=seed).fit(patches.transform(PICTURES))]


def test_what_was_saved_transforms_as_before(tmp_path: Path) -> None:
    parts = fitted()
    save(parts, tmp_path / "features.safetensors")
    found = load(tmp_path / "features.safetensors")
    rows = PICTURES
    for part in parts:
        rows = part.transform(rows)  # type: ignore[attr-defined]
    assert numpy.array_equal(found.transform(PICTURES), rows)
    assert [step.event_ for _, step in found.steps] == [part.event_ for part in parts]  # type: ignore[attr-defined]
    assert all(step.random_state is None for _, step in found.steps)


@pytest.mark.parametrize(
    "part", [Scattering(root=False), Upright(width=0.2), HashedNGrams(64)], ids=["scattering", "upright", "words"]
)
def test_features_without_a_fit_keep_their_settings(part: object, tmp_path: Path) -> None:
    save([part], tmp_path / "features.safetensors")
    found = load(tmp_path / "features.safetensors").steps[0][1]
    assert found.get_params() == part.get_params()  # type: ignore[attr-defined]


def test_mixed_scattering_keeps_how_it_mixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evened, "_PICTURES", 50)
    part = Scattering(mix=True, num_directions=5).fit(PICTURES)
    save([part], tmp_path / "features.safetensors")
    monkeypatch.setattr(evened, "_PICTURES", 60)  # if it were made anew it would be another one
    found = load(tmp_path / "features.safetensors")
    assert found.transform(PICTURES).shape == (6, 5 * 9)
    assert numpy.array_equal(found.transform(PICTURES), part.transform(PICTURES))
    with pytest.raises(InvalidValue, match="call fit"):
        save([Scattering(mix=True)], tmp_path / "features.safetensors")


def test_broken_and_other_files_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "features.safetensors"
    save(fitted(), place)
    content = place.read_bytes()
    for wrong in (content[:50], content[:-9], b"", b"{}" * 40):
        place.write_bytes(wrong)
        with pytest.raises(UnreadableFile, match="features"):
            load(place)
    with pytest.raises(UnreadableFile):
        load(tmp_path / "none")
    with pytest.raises(InvalidValue, match="call fit"):
        save([PrivateScaler()], place)
    with pytest.raises(InvalidValue, match="cannot be saved"):
        save([object()], place)


def edit(place: Path, change: Callable[[dict[str, Any], list[dict[str, Any]]], object]) -> None:
    """Change tensors or entries, and write the file anew."""
    with safetensors.safe_open(place, framework="pt") as file:
        notes, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    entries = json.loads(notes["transformers"])
    change(tensors, entries)
    place.write_bytes(safetensors.torch.save(tensors, metadata={**notes, "transformers": json.dumps(entries)}))


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, entries: entries[1].pop("event"),
        lambda tensors, entries: entries[1]["event"]["of"].update(noise_multiplier=1e6),
        lambda tensors, entries: entries[1]["settings"].update(noise_multiplier=1e6),
        lambda tensors, entries: entries[1]["settings"].update(with_std=False),
        lambda tensors, entries: entries.clear(),
        lambda tensors, entries: entries.append([]),
        lambda tensors, entries: entries[0].update(settings=[]),
        lambda tensors, entries: tensors.update({"1.mean_": torch.tensor(1.0)}),
        lambda tensors, entries: tensors["1.mean_"].fill_(float("nan")),
        lambda tensors, entries: tensors.update({"0.mixing_": tensors["0.mixing_"].flatten()}),
    ],
)
def test_an_edited_file_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any], list[dict[str, Any]]], object]
) -> None:
    place = tmp_path / "features.safetensors"
    save(fitted(), place)
    edit(place, lambda tensors, entries: None)
    load(place)
    edit(place, change)
    with pytest.raises(UnreadableFile) as caught:
        load(place)
    assert "\n" not in str(caught.value)
