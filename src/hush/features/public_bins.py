"""Rows of a table as ones and zeros: categories and bins whose edges are public, never read from the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from hush.data import Schema
from hush.data.encoding import features
from hush.errors import InvalidValue


class PublicBins(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Columns of a table, by a public schema, as rows of length at most 1. Nothing is spent: there is no event.

    >>> from hush.data import Category, Number
    >>> columns = (Number("age", 0, 100, cuts=(18, 65)), Category("sex", ("f", "m")))
    >>> schema = Schema(target=Category("y", ("0", "1")), columns=columns)
    >>> PublicBins(schema).transform({"age": ["30", "70"], "sex": ["f", "?"]}).shape
    (2, 7)

    Args:
        schema: The categories, and the cuts between bins (`Number(cuts=...)`) or the bounds of the numbers.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def fit(self, X: Mapping[str, Sequence[str]], y: object = None) -> PublicBins:
        """Nothing is learned."""
        return self

    def transform(self, X: Mapping[str, Sequence[str]]) -> NDArray[numpy.float32]:
        """One row for each entry of the columns, which are lists of texts by name."""
        if not isinstance(X, Mapping):
            raise InvalidValue(f"X must be a mapping from column names to lists of texts; got {type(X).__name__}.")
        if len({len(cells) for cells in X.values()}) > 1:
            raise InvalidValue("X must have the same number of rows in every column; some are shorter than others.")
        return numpy.asarray(features({name: list(map(str, cells)) for name, cells in X.items()}, self.schema))

    def __sklearn_tags__(self) -> Any:
        """Scikit-learn's description: there is nothing to fit."""
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags
