"""Data sets by name. Those whose files are not at hand are skipped; digits and the errors always run."""

from __future__ import annotations

import gzip
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from hush import data
from hush.data import images
from hush.data.public_schemas import diagnosis_group
from hush.errors import DataMissing, HushError, InvalidValue

# name -> rows to train on, rows to test on, shape, classes. From the data sets' own descriptions; where Hush splits,
# the two parts must add up to the published number of rows.
PUBLISHED = {
    "mnist": (60_000, 10_000, (1, 28, 28), 10),
    "fashion-mnist": (60_000, 10_000, (1, 28, 28), 10),
    "cifar10": (50_000, 10_000, (3, 32, 32), 10),
    "adult": (32_561, 16_281, None, 2),
}
SPLIT_BY_HUSH = {"diabetes130": (101_766, 3), "california-housing": (20_640, None), "location30": (5_010, 30)}


def loaded(name: str) -> data.Dataset:
    if "HUSH_DATA" not in os.environ:
        pytest.skip("HUSH_DATA is not set")
    try:
        return data.load(name)
    except DataMissing as error:
        pytest.skip(str(error))


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    digits = data.load("digits")
    pixels, labels = load_digits(return_X_y=True)
    assert digits.test is not None
    for part, rows in ((digits.test, slice(4, None, 5)), (digits.train, np.arange(len(labels)) % 5 != 4)):
        assert np.allclose(part.tensors[0].flatten(1).numpy() * 16, pixels[rows], atol=1e-5)
        assert part.tensors[1].tolist() == labels[rows].tolist()
    assert (digits.num_examples, digits.unit, digits.input_shape) == (len(digits.train), "example", (1, 8, 8))
    assert set(digits.train.tensors[1].tolist()) == set(range(10))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sets_have_their_sizes(name: str) -> None:
    rows, test_rows, shape, classes = PUBLISHED[name]
    found = loaded(name)
    assert found.test is not None
    assert (len(found.train), len(found.test), found.num_classes) == (rows, test_rows, classes)
    assert found.num_examples == rows
    if shape is not None:
        assert found.input_shape == shape
        x = found.train.tensors[0]
        assert (float(x.min()), float(x.max())) == (0.0, 1.0)
    assert int(found.train.tensors[1].max()) == classes - 1
    assert found.licence
    assert found.source


@pytest.mark.parametrize("name", SPLIT_BY_HUSH)
def test_split_sets_keep_every_row(name: str) -> None:
    rows, classes = SPLIT_BY_HUSH[name]
    found = loaded(name)
    assert found.test is not None
    assert len(found.train) + len(found.test) == rows
    assert 0.15 < len(found.test) / rows < 0.25
    assert found.num_classes == classes


@pytest.mark.parametrize("name", ["adult", "diabetes130", "california-housing", "location30"])
def test_no_row_of_a_table_is_longer_than_one(name: str) -> None:
    x = loaded(name).train.tensors[0]
    assert float(torch.linalg.vector_norm(x.double(), dim=1).max()) <= 1 + 1e-6
    assert bool(torch.isfinite(x).all())


def test_diabetes_has_several_rows_of_one_person_and_nobody_in_both_parts() -> None:
    found = loaded("diabetes130")
    assert found.people is not None
    assert found.unit == "person"
    counts = torch.bincount(found.people)
    assert found.num_examples == len(counts)
    assert int(counts.min()) == 1
    assert int(counts.max()) > 10
    assert 0.75 < len(counts) / 71_518 < 0.85  # four fifths of the published number of patients


def test_cifar10_channels_have_the_published_means() -> None:
    x = loaded("cifar10").train.tensors[0]
    assert x.double().mean(dim=(0, 2, 3)).tolist() == pytest.approx([0.49139968, 0.48215841, 0.44653091], abs=1e-6)


def test_cifar10_sheets_and_binaries_hold_the_same_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The official binary form is rebuilt from the sheets; its pinned sha256 is that of the published files."""
    from hush.data.registry import CIFAR10

    found = loaded("cifar10")
    assert found.test is not None
    parts = [*zip(found.train.tensors[0].split(10_000), found.train.tensors[1].split(10_000), strict=True)]
    parts.append((found.test.tensors[0], found.test.tensors[1]))
    for file, (x, y) in zip(CIFAR10.files, parts, strict=True):
        pixels = (x * 255).round().to(torch.uint8).flatten(1)
        (tmp_path / file.name).write_bytes(torch.cat([y[:, None].to(torch.uint8), pixels], dim=1).numpy().tobytes())
    again = data.load("cifar10", folder=tmp_path)
    assert torch.equal(again.train.tensors[0], found.train.tensors[0])
    assert torch.equal(again.train.tensors[1], found.train.tensors[1])


def test_idx_files_are_read_in_their_order() -> None:
    content = b"\0\0\x08\x02" + np.array([2, 3], dtype=">i4").tobytes() + bytes(range(6))
    assert images._idx(content).tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(HushError, match="idx"):
        images._idx(gzip.compress(content))


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(InvalidValue, match=r"digits, mnist.*did you mean 'mnist'"):
        data.load("minst")


def test_a_missing_file_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"train-images-idx3-ubyte\.gz.*torchvision"):
        data.load("mnist", folder=tmp_path)


@pytest.mark.parametrize(
    ("code", "group"),
    [
        ("250", "diabetes"),
        ("250.02", "diabetes"),
        ("390", "circulatory"),
        ("459", "circulatory"),
        ("785", "circulatory"),
        *(("460", "respiratory"), ("577.1", "digestive"), ("580", "genitourinary"), ("239", "neoplasms")),
        *(("800", "injury"), ("715", "musculoskeletal"), ("V57", "other"), ("E909", "other"), ("276", "other")),
        ("?", "other"),
    ],
)
def test_diagnoses_fall_into_their_groups(code: str, group: str) -> None:
    assert diagnosis_group(code) == group


def test_dataset_refuses_parts_that_do_not_fit() -> None:
    digits = data.load("digits")
    facts = {"name": "x", "num_classes": 10, "num_examples": None, "source": "", "licence": ""}
    with pytest.raises(InvalidValue, match="input_shape"):
        data.Dataset(train=digits.train, test=None, input_shape=(64,), **facts)
    with pytest.raises(InvalidValue, match="people"):
        data.Dataset(train=digits.train, test=None, input_shape=(1, 8, 8), people=torch.zeros(3), **facts)
    assert math.prod(digits.input_shape) == 64
