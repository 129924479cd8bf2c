"""What the teachers voted. Private: the counts are never printed, logged or put into a message.

>>> votes = VoteCounts([[240, 10, 0], [130, 110, 10]], num_teachers=250)
>>> votes
VoteCounts(num_queries=2, num_classes=3, num_teachers=250)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy
from numpy.typing import ArrayLike, NDArray

from hush import _check
from hush.errors import InvalidValue

Integers = NDArray[numpy.int64]
_LEAST_CLASSES = 2


@dataclass(frozen=True, eq=False)
class VoteCounts:
    """How many teachers voted for each class, a row for each query; every row sums to `num_teachers`.

    One person's data trained one teacher only, so between neighbours one vote of a row moves from a class to another.
    That is all that the costs in `hush.pate` rest on, and why a row that does not sum up is refused: a table of labels,
    of weights or of votes that some teachers did not cast has another sensitivity.

    | case | result |
    |---|---|
    | a single row | one query |
    | no queries, shape (0, classes) | fine |
    | fractions, negative counts, fewer than two classes | refused |
    | a row that does not sum to `num_teachers` | refused, by its number alone |
    """

    counts: Integers = field(repr=False)
    num_teachers: int

    def __init__(self, counts: ArrayLike, num_teachers: int) -> None:
        object.__setattr__(self, "num_teachers", _check.whole("num_teachers", num_teachers))
        object.__setattr__(self, "counts", _checked(counts, self.num_teachers))

    @classmethod
    def from_labels(cls, labels: ArrayLike, num_classes: int) -> VoteCounts:
        """Count the labels of an integer array of shape (teachers, queries), each in 0 .. num_classes - 1."""
        num_classes = _check.whole("num_classes", num_classes, least=_LEAST_CLASSES)
        array = _whole_numbers("labels", labels)
        if array.ndim != 2 or not len(array):
            raise InvalidValue(f"labels must have shape (teachers, queries); got shape {array.shape}.")
        if array.size and (array.min() < 0 or array.max() >= num_classes):
            raise InvalidValue(f"labels must lie in 0 .. {num_classes - 1}; every teacher votes on every query.")
        teachers, queries = array.shape
        places = array + num_classes * numpy.arange(queries)
        counts = numpy.bincount(places.reshape(-1), minlength=queries * num_classes)
        return cls(counts.reshape(queries, num_classes), teachers)

    @property
    def num_queries(self) -> int:
        """How many rows."""
        return int(self.counts.shape[0])

    @property
    def num_classes(self) -> int:
        """How many columns."""
        return int(self.counts.shape[1])

    def __len__(self) -> int:
        return self.num_queries

    def __getitem__(self, queries: slice | NDArray[numpy.bool_] | Integers) -> VoteCounts:
        """The votes of some queries."""
        return VoteCounts(numpy.atleast_2d(self.counts[queries]), self.num_teachers)

    def __repr__(self) -> str:
        return (
            f"VoteCounts(num_queries={self.num_queries}, num_classes={self.num_classes}, "
            f"num_teachers={self.num_teachers})"
        )


def _checked(counts: ArrayLike, num_teachers: int) -> Integers:
    array = _whole_numbers("counts", counts)
    array = array.reshape(1, -1) if array.ndim == 1 else array.copy()
    if array.ndim != 2 or array.shape[1] < _LEAST_CLASSES:
        raise InvalidValue(f"counts must have shape (queries, classes), two classes or more; got shape {array.shape}.")
    wrong = numpy.flatnonzero(
        (array.sum(axis=1) != num_teachers) | (array < 0).any(axis=1) | (array > num_teachers).any(axis=1)
    )
    if len(wrong):
        raise InvalidValue(
            f"every row of counts must be 0 or above and sum to num_teachers={num_teachers}; row {wrong[0]} does not. "
            "For a table of labels use VoteCounts.from_labels."
        )
    array.flags.writeable = False
    return array


def _whole_numbers(name: str, values: ArrayLike) -> Integers:
    array = numpy.asarray(values)
    if array.dtype.kind not in "iu":
        raise InvalidValue(f"{name} must be an array of whole numbers; got numbers of type {array.dtype}.")
    if array.dtype.kind == "u" and array.size and int(array.max()) > numpy.iinfo(numpy.int64).max:
        raise InvalidValue(f"{name} must fit into 64 bits.")
    return array.astype(numpy.int64)
