"""Pictures: digits, MNIST, Fashion-MNIST, CIFAR-10. Pixels are divided by their largest possible value, no more."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import TensorDataset

from hush.data import files
from hush.data.dataset import Dataset
from hush.data.registry import CIFAR10, CIFAR10_SHEETS, DIGITS, Source
from hush.errors import MissingExtra, UnreadableFile

Folder = str | os.PathLike[str] | None
Bytes = npt.NDArray[np.uint8]


def digits(folder: Folder = None) -> Dataset:
    """1,797 digits of 8x8 pixels; each fifth one is in the test part."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = pixels.reshape(-1, 1, 8, 8) * (255 / 16)
    is_test = np.arange(len(labels)) % 5 == 4
    parts = [_tensors(images[rows], labels[rows]) for rows in (~is_test, is_test)]
    return _dataset(DIGITS, *parts)


def from_idx(source: Source, folder: Folder = None) -> Dataset:
    """A data set in the four files of MNIST's form."""
    folders = files.folders_of(source.name, folder)
    contents = [gzip.decompress(files.read(file, source, folders)) for file in source.files]
    images, labels, test_images, test_labels = map(_idx, contents)
    train, test = ((images, labels), (test_images, test_labels))
    return _dataset(source, *(_tensors(pixels[:, None], answers) for pixels, answers in (train, test)))


def _idx(content: bytes) -> Bytes:
    """The array of an idx file of bytes: two zeros, the type 8, the number of axes, their lengths, the values."""
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise UnreadableFile("an idx file of bytes must start with 0, 0, 8; this one does not.")
    axes = content[3]
    shape = np.frombuffer(content, dtype=">i4", count=axes, offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape.tolist())


def cifar10(folder: Folder = None) -> Dataset:
    """60,000 pictures of 3x32x32, from the official binary files or from lossless sheets with the same pixels."""
    folders = files.folders_of(CIFAR10.name, folder)
    if files.has_all(CIFAR10_SHEETS, folders) and not files.has_all(CIFAR10.files, folders):
        return _from_sheets(folders)
    batches = [_binary(files.read(file, CIFAR10, folders)) for file in CIFAR10.files]
    images, labels = (np.concatenate(parts) for parts in zip(*batches[:5], strict=True))
    return _dataset(CIFAR10, _tensors(images, labels), _tensors(*batches[5]))


def _binary(content: bytes) -> tuple[Bytes, Bytes]:
    rows = np.frombuffer(content, dtype=np.uint8).reshape(10_000, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]


def _from_sheets(folders: Sequence[Path]) -> Dataset:
    read = partial(files.read, source=CIFAR10, folders=folders)
    *train, labels, test, test_labels = (read(file) for file in CIFAR10_SHEETS)
    images = np.concatenate([_sheet(content) for content in train])
    parts = ((images, _labels(labels)), (_sheet(test), _labels(test_labels)))
    return _dataset(CIFAR10, *(_tensors(pixels, answers) for pixels, answers in parts))


def _sheet(content: bytes) -> Bytes:
    """10,000 pictures of one sheet: 100 x 100 tiles of 32 x 32 RGB pixels, row by row."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow is not installed; run: pip install 'hush[data]'") from None
    Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS or 0, 3200 * 3200)
    pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    tiles = pixels.reshape(100, 32, 100, 32, 3).transpose(0, 2, 4, 1, 3)
    return tiles.reshape(10_000, 3, 32, 32)


def _labels(content: bytes) -> Bytes:
    return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))


def _tensors(pixels: npt.ArrayLike, labels: npt.ArrayLike) -> TensorDataset:
    images = torch.from_numpy(np.asarray(pixels, dtype=np.float32) / np.float32(255))
    return TensorDataset(images, torch.from_numpy(np.asarray(labels, dtype=np.int64)))


def _dataset(source: Source, train: TensorDataset, test: TensorDataset) -> Dataset:
    return Dataset(
        name=source.name,
        train=train,
        test=test,
        num_classes=10,
        input_shape=tuple(train.tensors[0].shape[1:]),
        num_examples=len(train),
        source=source.origin,
        licence=source.licence,
    )
