"""Which teacher sees whose rows: disjoint by construction, one person in one shard.

    >>> shards = deal(6, num_teachers=2, relation="replace_one", key=bytes(32))
    >>> [len(shards.rows(teacher)) for teacher in range(2)]
    [3, 3]

Each row carries the number of one teacher, so no row can be in two shards. Where a person goes depends on the person
and a secret key alone, never on a label or a feature. How the key is used depends on the relation:

| relation | a person goes to | why |
|---|---|---|
| `"add_remove"` | the teacher that the keyed hash of the person names | nobody else moves when a person comes or goes |
| `"replace_one"`, `"zero_out"` | the next teacher in turn, in the order of the hashes | shards of even size |

Even shards would not do for `"add_remove"`: without one person the turn passes to others, two teachers change and not
one, and the true cost is above the one that is stated. With a secret fresh key the other cases hold whatever the people
are called: there is a pairing of keys under which two neighbours differ in one shard, and a mixture of private results
is as private as its parts.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field

import numpy
from numpy.typing import ArrayLike, NDArray

from hush import _check
from hush.errors import InvalidValue
from hush.privacy import Relation, check_relation
from hush.rng import Rng

Integers = NDArray[numpy.int64]
KEY_BYTES = 32


@dataclass(frozen=True, eq=False)
class Shards:
    """The teacher of each row. Private: it tells which rows are there."""

    teacher_of_row: Integers = field(repr=False)
    num_teachers: int
    relation: Relation

    def rows(self, teacher: int) -> Integers:
        """The rows that this teacher sees, in the order of the data."""
        return numpy.flatnonzero(self.teacher_of_row == teacher)

    def all_rows(self) -> list[Integers]:
        """The rows of every teacher, by one sort."""
        order = numpy.argsort(self.teacher_of_row, kind="stable")
        ends = numpy.cumsum(numpy.bincount(self.teacher_of_row, minlength=self.num_teachers))
        return numpy.split(order, ends[:-1])


def new_key(rng: Rng | None = None) -> bytes:
    """A secret key: from the operating system, or from the stream "shards" of a given source."""
    return secrets.token_bytes(KEY_BYTES) if rng is None else rng.stream("shards").bytes(KEY_BYTES)


def deal(
    num_rows: int,
    *,
    num_teachers: int,
    key: bytes,
    groups: ArrayLike | None = None,
    relation: Relation = "add_remove",
) -> Shards:
    """Give every row a teacher; rows with the same value in `groups` (a person) get the same one."""
    num_rows = _check.whole("number of rows", num_rows)
    num_teachers = _check.whole("num_teachers", num_teachers)
    people, person_of_row = _people(groups, num_rows)
    if check_relation(relation) != "add_remove" and num_teachers > len(people):
        raise InvalidValue(f"num_teachers must be at most the number of people or rows; got {num_teachers}.")
    hashes = numpy.array([_hash(person, key) for person in people], dtype=numpy.uint64)
    if relation == "add_remove":
        teacher_of_person = (hashes % numpy.uint64(num_teachers)).astype(numpy.int64)
    else:
        teacher_of_person = numpy.empty(len(people), numpy.int64)
        teacher_of_person[numpy.argsort(hashes, kind="stable")] = numpy.arange(len(people)) % num_teachers
    return Shards(teacher_of_person[person_of_row], num_teachers, relation)


def _people(groups: ArrayLike | None, num_rows: int) -> tuple[list[str], Integers]:
    """The name of each person, and the person of each row; without groups a row is a person, by its number."""
    if groups is None:
        return [f"row {row}" for row in range(num_rows)], numpy.arange(num_rows)
    values = numpy.asarray(groups)
    if values.shape != (num_rows,):
        raise InvalidValue(f"groups must hold one value for each of the {num_rows} rows; got shape {values.shape}.")
    if values.dtype.kind not in "iuUSb":
        raise InvalidValue(f"groups must be whole numbers or texts, which name a person; got {values.dtype}.")
    people, person_of_row = numpy.unique(values, return_inverse=True)
    return [f"person {person}" for person in people.tolist()], person_of_row.astype(numpy.int64)


def _hash(name: str, key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), key=key, digest_size=8).digest(), "little")
