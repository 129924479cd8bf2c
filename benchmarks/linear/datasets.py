"""The data of the benchmark, as tables within public bounds. A split is fixed by its seed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hush import data
from hush.data import tables
from hush.data.public_schemas import HOUSING

TEST_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Table:
    name: str
    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray | None = None  # a published test part; without one, each seed makes its own split
    test_y: np.ndarray | None = None
    bounds: tuple[tuple[np.ndarray, np.ndarray], tuple[float, float]] | None = None  # of a regression

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        x, y = self.whole
        train, test = self.places(seed)
        return x[train], y[train], x[test], y[test]

    @cached_property
    def whole(self) -> tuple[np.ndarray, np.ndarray]:
        if self.test_x is None:
            return self.x, self.y
        return np.vstack([self.x, self.test_x]), np.concatenate([self.y, self.test_y])

    def places(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Which rows train and which test."""
        if self.test_x is not None:
            return np.arange(len(self.x)), np.arange(len(self.x), len(self.x) + len(self.test_x))
        order = np.random.default_rng(seed).permutation(len(self.x))
        cut = int(TEST_SHARE * len(order))
        return order[cut:], order[:cut]


def adult() -> Table:
    """One-hot rows of length 1, by the public schema; the published test part."""
    found = data.load("adult")
    (x, y), (test_x, test_y) = (tuple(part.numpy() for part in half.tensors) for half in (found.train, found.test))
    return Table("adult", x.astype(float), y, test_x.astype(float), test_y)


def breast_cancer() -> Table:
    """Each feature from the range in the data set's published description to [-1, 1]; rows of length at most 1."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    found_ranges = re.findall(r"\): +([\d.]+) +([\d.]+)$|^[a-z ]+: +([\d.]+) +([\d.]+)$", found.DESCR, re.MULTILINE)
    ranges = np.array([[float(word) for word in row if word] for row in found_ranges])
    assert ranges.shape == (30, 2)
    scaled = 2 * (found.data - ranges[:, 0]) / (ranges[:, 1] - ranges[:, 0]) - 1
    return Table("breast cancer", np.clip(scaled, -1, 1) / np.sqrt(30), found.target)


def synthetic() -> Table:
    """10,000 rows, 20 features: uniform directions scaled into the unit ball, labels from a logistic model."""
    rng = np.random.default_rng(2024)
    x = rng.standard_normal((10_000, 20))
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1) * rng.uniform(1, 1.5, (10_000, 1))
    weights = rng.standard_normal(20) * 2.5
    y = (rng.uniform(size=10_000) < 1 / (1 + np.exp(-x @ weights - 0.5))).astype(int)
    return Table("synthetic", x, y)


def housing() -> Table:
    """The eight numbers of California housing, in their own units, with the public ranges of the schema."""
    cells = tables._csv(tables.HOUSING_SOURCE, None)
    columns = [column for column in HOUSING.columns if hasattr(column, "low")]
    x = np.array([[float(text) if text else np.nan for text in cells[column.name]] for column in columns]).T
    y = np.array([float(text) for text in cells["median_house_value"]])
    known = ~np.isnan(x).any(axis=1)
    low, high = np.array([[column.low, column.high] for column in columns]).T
    return Table("california housing", x[known], y[known], bounds=((low, high), (0.0, 500_000.0)))
