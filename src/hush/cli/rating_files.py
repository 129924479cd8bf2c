"""Ratings in a CSV file: columns record, item, rating and, if there are dates, day."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from hush.errors import UnreadableFile

_NEEDED = ("record", "item", "rating")


def read_ratings(path: Path) -> dict[str, Any]:
    """The columns as numbers."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            rows, header = list(reader), reader.fieldnames or ()
    except (UnicodeDecodeError, csv.Error) as error:
        raise UnreadableFile(f"{path} is not a CSV file in UTF-8: {error}.") from None
    names = [name for name in (*_NEEDED, "day") if name in header]
    if missing := [name for name in _NEEDED if name not in names]:
        raise UnreadableFile(f"{path} must have the columns {', '.join(_NEEDED)}; missing {', '.join(missing)}.")
    if not rows:
        raise UnreadableFile(f"{path} has no rows below its first line.")
    try:
        return {name: np.array([float(row[name]) for row in rows]) for name in names}
    except (TypeError, ValueError):
        raise UnreadableFile(f"{path} must hold numbers in its columns {', '.join(names)}.") from None
