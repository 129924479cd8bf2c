"""A table of your own, CSV or Parquet, with a public schema."""

from __future__ import annotations

import csv
import gzip
import lzma
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import torch
from torch.utils.data import TensorDataset

from hush import _check
from hush.data import encoding
from hush.data.dataset import Dataset
from hush.data.schema import FORMAT, Category, Column, Number, Schema, schema_text
from hush.errors import InvalidValue, MissingExtra, UnreadableFile

ENDINGS = (".csv", ".csv.gz", ".csv.xz", ".parquet")
READ_FROM_ROWS = "ranges and categories were read from the rows and declared public"
_LOOKED_AT = 100  # rows, for the types in a template
_MOST_VALUES = 100  # of a category that is read from the rows
_MISSING = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"})

Path_ = str | os.PathLike[str]


def from_table(path: Path_, schema: Schema, *, test: Path_ | None = None, test_share: float = 0.2) -> Dataset:
    """A table's rows as a data set, by a public schema and nothing else.

    Without a second file `test`, a share of the rows (of the people, where the schema names a `person`) is kept for
    testing. Each row is put into its part by the sha256 of its own content, so that no row decides about another. The
    test rows are not trained on and no guarantee covers what is said about them.

    Raises:
        UnreadableFile: the file is not a table or lacks a column.
        InvalidValue: a row's target is not what the schema says.
    """
    share = _check.number("test_share", test_share)
    if not 0 <= share < 1:
        raise InvalidValue(f"test_share must be 0 or above and below 1; got {share!r}.")
    wanted = [column.name for column in (*schema.columns, schema.target)] + [n for n in (schema.person,) if n]
    table = read_table(path, wanted)
    in_test = encoding.in_test_part(_keys(table, schema.person), 0.0 if test is not None else share)
    kept = np.flatnonzero(~in_test).tolist()
    if not kept:
        raise InvalidValue(f"{Path(path).name} has no rows to learn from.")
    train = _part(table, schema, kept)
    held: TensorDataset | None
    if test is not None:
        held = _part(read_table(test, wanted), schema, None)
    else:
        held = _part(table, schema, np.flatnonzero(in_test).tolist()) if in_test.any() else None
    people = None if schema.person is None else encoding.people_of(_take(table[schema.person], kept))
    return _described(Path(path), schema, train, held, people)


def _described(
    path: Path, schema: Schema, train: TensorDataset, test: TensorDataset | None, people: torch.Tensor | None
) -> Dataset:
    target = schema.target
    return Dataset(
        name=_stem(path),
        train=train,
        test=test,
        num_classes=len(target.values) if isinstance(target, Category) else None,
        input_shape=(schema.width,),
        num_examples=schema.num_examples,
        source=f"the file {path.name}",
        licence="your own",
        people=people,
        target_range=None if isinstance(target, Category) else (target.low, target.high),
    )


def _part(table: encoding.Cells, schema: Schema, rows: Sequence[int] | None) -> TensorDataset:
    cells = table if rows is None else {name: _take(texts, rows) for name, texts in table.items()}
    return TensorDataset(encoding.features(cells, schema), encoding.targets(cells, schema.target))


def _take(texts: Sequence[str], rows: Sequence[int]) -> list[str]:
    return [texts[row] for row in rows]


def _keys(table: encoding.Cells, person: str | None) -> Sequence[str]:
    return table[person] if person is not None else list(map("\x1f".join, zip(*table.values(), strict=True)))


def template(path: Path_, target: str) -> str:
    """A schema to fill in: names and types of the columns, and no value of any row.

    A CSV's types are a guess from its first rows; look at them before you fill in the rest.
    """
    header, rows = _beginning(Path(path))
    if target not in header:
        raise InvalidValue(f"the table has no column {target!r} for --target; it has {', '.join(header)}.")
    columns = []
    for place, name in enumerate(header):
        is_number = _all_numbers([row[place] for row in rows if place < len(row)])
        facts = {"type": "number", "low": None, "high": None} if is_number else {"type": "category", "values": None}
        columns.append({"name": name, **facts})
    return schema_text({"format": FORMAT, "target": target, "person": None, "num_examples": None}, columns)


def schema_from_rows(path: Path_, target: str) -> Schema:
    """Ranges and categories as they are in the rows. Only for tables whose ranges and categories are public.

    What is read here is not covered by any guarantee. A column of other texts than 100 different ones (names, notes) is
    left out, and so is one that never changes.
    """
    table = read_table(path)
    if target not in table:
        raise InvalidValue(f"the table has no column {target!r} for --target; it has {', '.join(table)}.")
    columns = [column for name, texts in table.items() if (column := _seen(name, texts, name == target)) is not None]
    wanted = next((column for column in columns if column.name == target), None)
    if wanted is None:
        raise InvalidValue(f"the target {target!r} is the same in every row, or a text that is different in most.")
    return Schema(target=wanted, columns=tuple(column for column in columns if column is not wanted))


def _seen(name: str, texts: Sequence[str], is_target: bool) -> Column | None:
    values = sorted(set(texts) - _MISSING)
    if len(values) < 2:
        return None
    whole_classes = is_target and len(values) <= 20
    if _all_numbers(values) and not whole_classes:
        numbers = [value for value in map(float, values) if np.isfinite(value)]
        return Number(name, min(numbers), max(numbers)) if len(set(numbers)) > 1 else None
    return Category(name, tuple(values)) if len(values) <= _MOST_VALUES else None


def _all_numbers(texts: Sequence[str]) -> bool:
    known = [text for text in texts if text not in _MISSING]
    return bool(known) and not any(np.isnan(encoding.number(text)) for text in known)


# Reading ---------------------------------------------------------------------------------------------------------


def read_table(path: Path_, wanted: Sequence[str] | None = None) -> dict[str, list[str]]:
    """Column -> the text of each cell; a missing cell is an empty text."""
    file = Path(path)
    if file.name.endswith(".parquet"):
        return _parquet(file, wanted)
    header, rows = _csv_rows(file, None)
    _refuse_missing(file, header, wanted)
    places = {name: place for place, name in enumerate(header) if wanted is None or name in wanted}
    return {name: [row[place].strip() for row in rows] for name, place in places.items()}


def _refuse_missing(file: Path, header: Sequence[str], wanted: Sequence[str] | None) -> None:
    missing = [name for name in wanted or () if name not in header]
    if missing:
        told = ", ".join(map(repr, missing))
        raise UnreadableFile(f"{file.name} has no column {told}; its first line names {', '.join(header)}.")


def _beginning(file: Path) -> tuple[list[str], list[list[str]]]:
    if file.name.endswith(".parquet"):
        table = _parquet(file, None, _LOOKED_AT)
        return list(table), [list(row) for row in zip(*table.values(), strict=True)]
    return _csv_rows(file, _LOOKED_AT)


def _csv_rows(file: Path, most: int | None) -> tuple[list[str], list[list[str]]]:
    openers: dict[str, Callable[..., IO[str]]] = {
        ".csv": open,
        ".csv.gz": cast(Any, gzip.open),
        ".csv.xz": cast(Any, lzma.open),
    }
    opener = next((openers[ending] for ending in openers if file.name.endswith(ending)), None)
    if opener is None:
        raise InvalidValue(f"a table's name must end in {', '.join(ENDINGS)}; got {str(file)!r}.")
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(lines)
            header = [name.strip() for name in next(rows, [])]
            body = [row for row in islice(rows, most) if row]
    except (OSError, EOFError, lzma.LZMAError, csv.Error, UnicodeDecodeError) as error:
        raise UnreadableFile(f"cannot read the table {file}: {getattr(error, 'strerror', None) or error}.") from None
    wrong = next((number for number, row in enumerate(body, 1) if len(row) != len(header)), None)
    if not header or len(set(header)) != len(header):
        raise UnreadableFile(f"the first line of {file} must name each column, and each name once.")
    if wrong is not None:
        raise UnreadableFile(f"row {wrong} of {file} has another number of cells than the first line.")
    return header, body


def _parquet(file: Path, wanted: Sequence[str] | None, most: int | None = None) -> dict[str, list[str]]:
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtra("pyarrow is not installed; run: pip install 'hush[data]'") from None
    try:
        table = parquet.read_table(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise UnreadableFile(f"cannot read the table {file}: {str(error).splitlines()[0]}") from None
    _refuse_missing(file, table.column_names, wanted)
    names = [name for name in table.column_names if wanted is None or name in wanted]
    cut = table if most is None else table.slice(0, most)
    return {name: ["" if cell is None else str(cell) for cell in cut[name].to_pylist()] for name in names}


def _stem(path: Path) -> str:
    return next((path.name.removesuffix(ending) for ending in ENDINGS if path.name.endswith(ending)), path.name)
