"""What is publicly known about a table's columns: the ranges of numbers, the values of categories.

A schema is all that decides how a table becomes numbers, so nothing is learned from the private rows. A range or a list
of values that was read from the rows would itself need privacy: one person can be the largest, or the only one.

>>> schema = Schema(
...     target=Category("income", ("low", "high")),
...     columns=(Number("age", low=18, high=90), Category("sector", ("public", "private"))),
... )
>>> schema.width                                  # age, age is missing, public, private, any other value
5
>>> Schema.from_json(schema.to_json()) == schema
True
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hush import _check
from hush.errors import InvalidValue, UnreadableFile

FORMAT = "hush schema 1"


@dataclass(frozen=True)
class Number:
    """A number between two public bounds; what lies outside is moved to the bound.

    With `cuts` (rising, public) it becomes one indicator per interval instead of one value between 0 and 1.
    """

    name: str
    low: float
    high: float
    cuts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        low, high = (_check.number(f"{end} of column {self.name!r}", getattr(self, end)) for end in ("low", "high"))
        if not low < high or not math.isfinite(high - low):
            raise InvalidValue(f"column {self.name!r} needs low below high; got {low!r} and {high!r}.")
        rising = all(one < other for one, other in zip(self.cuts, self.cuts[1:], strict=False))
        if not rising or not all(low < _check.number("a cut", cut) <= high for cut in self.cuts):
            raise InvalidValue(f"the cuts of column {self.name!r} must rise from above low to high; got {self.cuts}.")

    @property
    def width(self) -> int:
        """How many features it becomes; the last one says that the value is missing."""
        return len(self.cuts) + 2


@dataclass(frozen=True)
class Category:
    """One of some public values; everything else, also a missing value, is "other"."""

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        fine = all(isinstance(value, str) for value in self.values) and len(set(self.values)) == len(self.values)
        if not self.values or not fine:
            raise InvalidValue(f"column {self.name!r} needs a list of different texts as values; got {self.values!r}.")

    @property
    def width(self) -> int:
        """How many features it becomes; the last one is "other"."""
        return len(self.values) + 1


Column = Number | Category


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The public description of a table.

    Columns that are not named are not read. `person` names the column that says whose row it is: then a person's rows
    are protected together. `num_examples` is a public figure for the number of rows, or of people where there is a
    `person`; it may be rounded, and sets nothing but the sampling probability.
    """

    target: Column
    columns: tuple[Column, ...]
    person: str | None = None
    num_examples: int | None = None

    def __post_init__(self) -> None:
        names = [column.name for column in (*self.columns, self.target)]
        names += [] if self.person is None else [self.person]
        if len(set(names)) != len(names):
            raise InvalidValue(f"a schema names each column once; got {', '.join(names)}.")
        if not self.columns:
            raise InvalidValue("a schema needs at least one column beside the target.")
        if self.num_examples is not None:
            _check.whole("num_examples", self.num_examples)

    @property
    def width(self) -> int:
        """The number of features."""
        return sum(column.width for column in self.columns)

    def to_json(self) -> str:
        """The schema as a file's text."""
        entries = [_entry(column) for column in (*self.columns, self.target)]
        data = {"format": FORMAT, "target": self.target.name, "person": self.person, "num_examples": self.num_examples}
        return schema_text(data, entries)

    @classmethod
    def from_json(cls, text: str | bytes) -> Schema:
        """The schema of a file's text; a template that is not filled in is refused, by column."""
        data = _object(text)
        columns = [column for entry in data["columns"] if (column := _column(entry)) is not None]
        target = next((column for column in columns if column.name == data.get("target")), None)
        if target is None:
            raise UnreadableFile(f"the schema describes no column of the name of its target, {data.get('target')!r}.")
        rest = tuple(column for column in columns if column is not target and column.name != data.get("person"))
        person, size = data.get("person"), data.get("num_examples")
        if person is not None and not isinstance(person, str):
            raise UnreadableFile(f'"person" in a schema is the name of a column or null; got {person!r}.')
        return cls(target=target, columns=rest, person=person, num_examples=size)


def schema_text(data: Mapping[str, Any], columns: list[dict[str, Any]]) -> str:
    """A schema file: one line per public fact and per column, easy to fill in."""
    heads = [f'  "{key}": {json.dumps(value, ensure_ascii=False)}' for key, value in data.items()]
    rows = ",\n".join("    " + json.dumps(column, ensure_ascii=False) for column in columns)
    return "{\n" + ",\n".join([*heads, f'  "columns": [\n{rows}\n  ]']) + "\n}\n"


def _entry(column: Column) -> dict[str, Any]:
    if isinstance(column, Category):
        return {"name": column.name, "type": "category", "values": list(column.values)}
    cuts = {"cuts": list(column.cuts)} if column.cuts else {}
    return {"name": column.name, "type": "number", "low": column.low, "high": column.high, **cuts}


def _object(text: str | bytes) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableFile("a schema must be JSON; write a template with --write-schema and fill it in.") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("columns"), list):
        raise UnreadableFile(f'a schema is a JSON object with "format": "{FORMAT}" and a list "columns".')
    return data


def _column(entry: Any) -> Column | None:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str):
        raise UnreadableFile(f'each column of a schema is an object with a "name"; got {entry!r}.')
    match entry.get("type"):
        case "ignore":
            return None
        case "number":
            if entry.get("low") is None or entry.get("high") is None:
                raise UnreadableFile(
                    f"the schema has no bounds for {name!r}: fill in low and high from public knowledge, not from the "
                    'rows, or set its type to "ignore".'
                )
            return Number(name, entry["low"], entry["high"], tuple(_list(entry, "cuts", name)))
        case "category":
            if not entry.get("values"):
                raise UnreadableFile(
                    f"the schema has no values for {name!r}: fill them in from public knowledge, not from the rows, or "
                    'set its type to "ignore".'
                )
            return Category(name, tuple(_list(entry, "values", name)))
    raise UnreadableFile(f"the type of column {name!r} must be number, category or ignore; got {entry.get('type')!r}.")


def _list(entry: dict[str, Any], key: str, name: str) -> list[Any]:
    value = entry.get(key, [])
    if not isinstance(value, list):
        raise UnreadableFile(f'"{key}" of column {name!r} must be a list; got {value!r}.')
    return value
