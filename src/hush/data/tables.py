"""Public tables by name: Adult, Diabetes-130, California housing, Location-30."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import TensorDataset

from hush.data import encoding, files
from hush.data.dataset import Dataset
from hush.data.images import Folder
from hush.data.public_schemas import ADULT, ADULT_COLUMNS, DIABETES, HOUSING, diagnosis_group
from hush.data.registry import ADULT as ADULT_SOURCE
from hush.data.registry import DIABETES as DIABETES_SOURCE
from hush.data.registry import HOUSING as HOUSING_SOURCE
from hush.data.registry import LOCATION, Source
from hush.data.schema import Category, Schema

Table = dict[str, list[str]]


def adult(folder: Folder = None) -> Dataset:
    """32,561 + 16,281 rows of the census of 1994: is the income above 50,000 dollars?"""
    folders = files.folders_of(ADULT_SOURCE.name, folder)
    parts = [_adult_part(files.read(file, ADULT_SOURCE, folders)) for file in ADULT_SOURCE.files]
    train, test = (
        TensorDataset(encoding.features(part, ADULT), encoding.targets(part, ADULT.target)) for part in parts
    )
    return dataset(ADULT_SOURCE, ADULT, train, test)


def _adult_part(content: bytes) -> Table:
    rows = [line.rstrip(".").split(", ") for line in content.decode("ascii").splitlines()]
    rows = [row for row in rows if len(row) == len(ADULT_COLUMNS)]  # not the comment and the empty last line
    return dict(zip(ADULT_COLUMNS, map(list, zip(*rows, strict=True)), strict=True))


def diabetes130(folder: Folder = None) -> Dataset:
    """101,766 stays of 71,518 patients: readmitted, and how soon? A fifth of the patients is in the test part."""
    table = _csv(DIABETES_SOURCE, folder)
    for name in ("diag_1", "diag_2", "diag_3"):
        table[name] = [diagnosis_group(code) for code in table[name]]
    return _split(DIABETES_SOURCE, DIABETES, table, encoding.in_test_part(table["patient_nbr"]))


def california_housing(folder: Folder = None) -> Dataset:
    """20,640 districts: the median value of a house, a number. A fifth of the districts is in the test part."""
    table = _csv(HOUSING_SOURCE, folder)
    keys = list(map(",".join, zip(*table.values(), strict=True)))
    return _split(HOUSING_SOURCE, HOUSING, table, encoding.in_test_part(keys))


def location30(folder: Folder = None) -> Dataset:
    """5,010 people in 30 groups by 446 kinds of places that they went to. A fifth of them is in the test part."""
    content = files.read(LOCATION.files[0], LOCATION, files.folders_of(LOCATION.name, folder)).decode("ascii")
    rows = np.loadtxt(io.StringIO(content.replace('"', "")), delimiter=",", dtype=np.float32)
    x, y = torch.from_numpy(rows[:, 1:]), torch.from_numpy(rows[:, 0].astype(np.int64) - 1)
    x = x / x.norm(dim=1, keepdim=True).clamp(min=1)  # row by row: a row looks at no other
    in_test = torch.from_numpy(encoding.in_test_part(content.splitlines()))
    target = Category("group", tuple(map(str, range(1, 31))))
    schema = Schema(target=target, columns=(Category("places", ("any",)),))
    return dataset(LOCATION, schema, TensorDataset(x[~in_test], y[~in_test]), TensorDataset(x[in_test], y[in_test]))


def _csv(source: Source, folder: Folder) -> Table:
    content = files.read(source.files[0], source, files.folders_of(source.name, folder))
    return read_csv(io.StringIO(content.decode("utf-8"), newline=""))


def read_csv(lines: io.TextIOBase) -> Table:
    """Column name -> cells; a row that is shorter or longer than the header is refused by `csv` itself."""
    rows = csv.reader(lines)
    header = next(rows, [])
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def _split(source: Source, schema: Schema, table: Table, in_test: npt.NDArray[np.bool_]) -> Dataset:
    x, y = encoding.features(table, schema), encoding.targets(table, schema.target)
    test = torch.from_numpy(in_test)
    people = None
    if schema.person is not None:
        people = encoding.people_of([key for key, kept in zip(table[schema.person], ~in_test, strict=True) if kept])
    return dataset(source, schema, TensorDataset(x[~test], y[~test]), TensorDataset(x[test], y[test]), people)


def dataset(
    source: Source, schema: Schema, train: TensorDataset, test: TensorDataset, people: torch.Tensor | None = None
) -> Dataset:
    """A public table with its schema's facts."""
    target = schema.target
    return Dataset(
        name=source.name,
        train=train,
        test=test,
        num_classes=len(target.values) if isinstance(target, Category) else None,
        input_shape=tuple(train.tensors[0].shape[1:]),
        num_examples=len(train) if people is None else int(people.max()) + 1,
        source=source.origin,
        licence=source.licence,
        people=people,
        target_range=None if isinstance(target, Category) else (target.low, target.high),
    )


TABLES: dict[str, Callable[[Folder], Dataset]] = {
    ADULT_SOURCE.name: adult,
    DIABETES_SOURCE.name: diabetes130,
    HOUSING_SOURCE.name: california_housing,
    LOCATION.name: location30,
}
