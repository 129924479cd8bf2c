"""A table's cells as features and targets, by a schema alone.

Every column adds at most 1 to the squared length of a row, and the rows are divided by the square root of the number of
columns: no row is longer than 1, whatever it holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hush.data.schema import Category, Column, Number, Schema
from hush.errors import InvalidValue, UnreadableFile

Cells = Mapping[str, Sequence[str]]  # column -> the text of each row
Floats = npt.NDArray[np.float32]
_TEST_SHARE = 0.2


def features(cells: Cells, schema: Schema) -> Tensor:
    """The rows as features, each of Euclidean length at most 1."""
    blocks = [_block(column, _cells_of(cells, column.name)) for column in schema.columns]
    return torch.from_numpy(np.concatenate(blocks, axis=1) / np.float32(np.sqrt(len(blocks))))


def targets(cells: Cells, column: Column) -> Tensor:
    """Class numbers, or values between 0 and 1 for a number."""
    texts = _cells_of(cells, column.name)
    if isinstance(column, Category):
        numbers = _positions(column, texts)
        _refuse_rows(numbers == len(column.values), column.name, f"one of {', '.join(column.values)}")
        return torch.from_numpy(numbers)
    values = _numbers(texts)
    _refuse_rows(np.isnan(values), column.name, "a number")
    return torch.from_numpy(_scaled(column, values).astype(np.float32))


def _refuse_rows(wrong: npt.NDArray[np.bool_], name: str, wanted: str) -> None:
    """The message names a row and never shows what it holds: messages end in logs."""
    if wrong.any():
        row = int(wrong.argmax()) + 1
        raise InvalidValue(f"the target {name!r} of row {row} must be {wanted}; correct it or leave the row out.")


def _cells_of(cells: Cells, name: str) -> Sequence[str]:
    if name not in cells:
        raise UnreadableFile(f"the table has no column {name!r}; it has {', '.join(cells)}.")
    return cells[name]


def _block(column: Column, texts: Sequence[str]) -> Floats:
    result = np.zeros((len(texts), column.width), dtype=np.float32)
    rows = np.arange(len(texts))
    if isinstance(column, Category):
        result[rows, _positions(column, texts)] = 1
        return result
    values = _numbers(texts)
    missing = np.isnan(values)
    result[missing, -1] = 1
    known = rows[~missing]
    if column.cuts:
        result[known, np.searchsorted(column.cuts, values[known], side="right")] = 1
    else:
        result[known, 0] = _scaled(column, values[known])
    return result


def _positions(column: Category, texts: Sequence[str]) -> npt.NDArray[np.int64]:
    places = {value: place for place, value in enumerate(column.values)}
    other = len(column.values)
    return np.fromiter((places.get(text, other) for text in texts), dtype=np.int64, count=len(texts))


def _numbers(texts: Sequence[str]) -> npt.NDArray[np.float64]:
    return np.fromiter((number(text) for text in texts), dtype=np.float64, count=len(texts))


def number(text: str) -> float:
    """A number, infinite ones too (a bound takes them in); NaN where there is none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _scaled(column: Number, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    inside = np.clip(values, column.low, column.high)
    return np.asarray((inside - column.low) / (column.high - column.low))


def people_of(texts: Sequence[str]) -> Tensor:
    """A number for each person, the same for all the rows of one."""
    return torch.from_numpy(np.unique(np.asarray(texts, dtype=object).astype(str), return_inverse=True)[1].ravel())


def in_test_part(keys: Sequence[str], share: float = _TEST_SHARE) -> npt.NDArray[np.bool_]:
    """Which rows are kept for testing: each by the sha256 of its own key, so that no row decides about another.

    A split by position would not do: one row more would move all that follow it to other parts, and the training rows
    of two neighbouring tables would differ in more than one.
    """
    limit = int(share * 2**32)
    marks = (int.from_bytes(hashlib.sha256(key.encode("utf-8", "replace")).digest()[:4], "big") for key in keys)
    return np.fromiter((mark < limit for mark in marks), dtype=np.bool_, count=len(keys))
