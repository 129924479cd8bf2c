"""What `hush train --model logistic|linear|theil-sen` fits: rows within public bounds, and rows to test on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from hush import data
from hush.cli.task import is_table, read_schema
from hush.data import Dataset, encoding
from hush.data.table_file import READ_FROM_ROWS, read_table
from hush.errors import InvalidValue

Floats = NDArray[numpy.float64]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Private rows to fit on, rows to test on, and the public facts."""

    name: str
    x: Floats
    y: NDArray[Any]
    test_x: Floats
    test_y: NDArray[Any]
    classes: tuple[Any, ...] | None  # None: the target is a number
    data_norm: float | None = None  # of rows that were made by a schema
    target_range: tuple[float, float] | None = None
    num_examples: int | None = None  # a public figure
    notes: tuple[str, ...] = ()


def by_schema(name: str, params: dict[str, Any]) -> Rows:
    """Named data, or a table with a schema: its public ranges give rows of length at most 1."""
    given = [f"--{name}" for name in ("features", "classes") if params[name] is not None]
    if given:
        raise InvalidValue(f"{', '.join(given)} is for a table without a schema; a schema says it by its columns.")
    if not is_table(name):
        return _of_dataset(data.load(name, folder=params["folder"]), ())
    if params["schema"] is not None:
        described, notes = read_schema(Path(params["schema"])), ()
    else:
        if params["target"] is None:
            raise InvalidValue("--public-schema needs --target, the name of the column to learn.")
        described, notes = data.schema_from_rows(name, params["target"]), (READ_FROM_ROWS,)  # type: ignore[assignment]
    return _of_dataset(data.from_table(name, described, test=params["test"]), notes)


def _of_dataset(dataset: Dataset, notes: tuple[str, ...]) -> Rows:
    if dataset.people is not None:
        raise InvalidValue(
            "in these data a person has several rows; linear models protect single rows: use --model mlp."
        )
    if dataset.test is None:
        raise InvalidValue("there are no test rows; give some by --test.")
    (x, y), (test_x, test_y) = (part.tensors for part in (dataset.train, dataset.test))
    return Rows(
        name=dataset.name,
        x=_unit(x.numpy()),
        y=y.numpy(),
        test_x=_unit(test_x.numpy()),
        test_y=test_y.numpy(),
        classes=None if dataset.num_classes is None else tuple(range(dataset.num_classes)),
        data_norm=1.0,
        target_range=dataset.target_range,
        num_examples=dataset.num_examples,
        notes=(*dataset.notes, *notes),
    )


def _unit(rows: NDArray[Any]) -> Floats:
    """Rows of a schema are of length at most 1 already; pictures lose their mean and get length 1, each by itself."""
    flat = rows.reshape(len(rows), -1).astype(numpy.float64)
    if rows.ndim == 2:
        return flat
    flat -= flat.mean(axis=1, keepdims=True)
    return numpy.asarray(flat / numpy.maximum(numpy.linalg.norm(flat, axis=1, keepdims=True), 1e-6))


def by_columns(name: str, params: dict[str, Any], numeric: bool) -> Rows:
    """Columns of numbers as they are, for bounds that are given as options."""
    if not is_table(name):
        raise InvalidValue("bounds by options are for a table of your own: --data FILE.csv or FILE.parquet.")
    target = params["target"]
    if target is None:
        raise InvalidValue("--target is needed: the name of the column to learn.")
    table = read_table(name)
    features = params["features"].split(",") if params["features"] else [key for key in table if key != target]
    for column in (*features, target):
        if column not in table:
            raise InvalidValue(f"the table has no column {column!r}; it has {', '.join(table)}.")
    classes = None if numeric else _classes(params)
    x, y = _table(table, features, target, numeric)
    if params["test"] is not None:
        held = _table(read_table(params["test"]), features, target, numeric)
        return _rows(name, x, y, *held, classes)
    keys = list(map("\x1f".join, zip(*table.values(), strict=True)))
    test = encoding.in_test_part(keys)
    return _rows(name, x[~test], y[~test], x[test], y[test], classes)


def _rows(name: str, x: Floats, y: Any, test_x: Floats, test_y: Any, classes: tuple[str, ...] | None) -> Rows:
    return Rows(name=Path(name).stem, x=x, y=y, test_x=test_x, test_y=test_y, classes=classes)


def _classes(params: dict[str, Any]) -> tuple[str, ...]:
    if not params["classes"]:
        raise InvalidValue("--classes is needed: the values that the target can have, such as --classes no,yes.")
    return tuple(params["classes"].split(","))


def _table(table: dict[str, list[str]], features: Sequence[str], target: str, numeric: bool) -> tuple[Floats, Any]:
    x = numpy.stack([_numbers(table, column) for column in features], axis=1)
    return x, _numbers(table, target) if numeric else numpy.array(table.get(target, []))


def _numbers(table: dict[str, list[str]], column: str) -> Floats:
    if column not in table:
        raise InvalidValue(f"the table has no column {column!r}.")
    values = numpy.array([encoding.number(text) for text in table[column]], dtype=numpy.float64)
    if not numpy.isfinite(values).all():
        raise InvalidValue(f"the column {column!r} must hold numbers only; fill in what is missing, or use --schema.")
    return values
