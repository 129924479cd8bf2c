"""Which examples of a shard its prompt shows: a function of the shard, a secret key and the teacher's number alone."""

from __future__ import annotations

import hashlib

import numpy

from hush.pate.shards import Integers
from hush.rng import Rng


def shown_rows(rows: Integers, labels: Integers, most: int, key: bytes, teacher: int) -> Integers:
    """At most `most` of the shard's rows: of each label in turn, as long as there are any, in random order.

    Both the choice and the order come from the key, and no other shard is looked at.
    """
    seed = hashlib.blake2b(f"teacher {teacher}".encode(), key=key, digest_size=16).digest()
    stream = Rng.from_seed(int.from_bytes(seed, "little")).stream("shown")
    mixed = rows[stream.permutation(len(rows))]
    chosen = mixed[in_turn(labels[mixed])[:most]]
    return chosen[stream.permutation(len(chosen))]


def in_turn(labels: Integers) -> Integers:
    """Places ordered so that the first of each label come first, then the second ones, and so on.

    >>> in_turn(numpy.array([4, 4, 4, 7])).tolist()
    [0, 3, 1, 2]
    """
    seen: dict[int, int] = {}
    turns = []
    for label in labels.tolist():
        turns.append(seen.get(label, 0))
        seen[label] = turns[-1] + 1
    return numpy.argsort(numpy.array(turns, dtype=numpy.int64), kind="stable").astype(numpy.int64)
