"""Shards: disjoint, a person in one of them, and no one else moves when a person comes or goes."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hush import Rng
from hush.errors import InvalidValue
from hush.pate.shards import deal, new_key

KEY = bytes(range(32))
RELATIONS = ("add_remove", "replace_one", "zero_out")


@pytest.mark.parametrize("relation", RELATIONS)
@given(rows=st.integers(5, 80), teachers=st.integers(1, 5), key=st.binary(min_size=32, max_size=32))
@settings(max_examples=40, deadline=None)
def test_shards_are_disjoint_and_hold_every_row(relation: str, rows: int, teachers: int, key: bytes) -> None:
    shards = deal(rows, num_teachers=teachers, key=key, relation=relation)  # type: ignore[arg-type]
    parts = shards.all_rows()
    assert len(parts) == teachers
    assert sorted(numpy.concatenate(parts).tolist()) == list(range(rows))
    assert all(numpy.array_equal(part, shards.rows(teacher)) for teacher, part in enumerate(parts))


@pytest.mark.parametrize("relation", RELATIONS)
@given(people=st.lists(st.integers(0, 12), min_size=30, max_size=60))
@settings(max_examples=40, deadline=None)
def test_all_rows_of_a_person_go_to_one_teacher(relation: str, people: list[int]) -> None:
    teachers = min(4, len(set(people)))
    shards = deal(len(people), num_teachers=teachers, key=KEY, groups=people, relation=relation)  # type: ignore[arg-type]
    for person in set(people):
        assert len({int(shards.teacher_of_row[row]) for row, who in enumerate(people) if who == person}) == 1


@given(people=st.lists(st.integers(0, 40), min_size=60, max_size=90), gone=st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_nobody_moves_when_a_person_leaves(people: list[int], gone: int) -> None:
    """Under add_remove neighbours must differ in one shard: all other people keep their teacher."""
    rest = [person for person in people if person != gone]
    if not rest:
        return
    before = deal(len(people), num_teachers=5, key=KEY, groups=people)
    after = deal(len(rest), num_teachers=5, key=KEY, groups=rest)
    kept = [teacher for teacher, person in zip(before.teacher_of_row, people, strict=True) if person != gone]
    assert kept == after.teacher_of_row.tolist()


def test_even_shards_would_move_others() -> None:
    """The reason for two ways of dealing: with even shards other people change their teacher."""
    people = list(range(60))
    before = deal(60, num_teachers=5, key=KEY, groups=people, relation="replace_one")
    after = deal(59, num_teachers=5, key=KEY, groups=people[1:], relation="replace_one")
    assert before.teacher_of_row[1:].tolist() != after.teacher_of_row.tolist()


def test_replacing_relations_deal_evenly() -> None:
    sizes = [len(part) for part in deal(103, num_teachers=10, key=KEY, relation="replace_one").all_rows()]
    assert max(sizes) - min(sizes) == 1


def test_hashed_shards_are_as_even_as_chance() -> None:
    """Binomial sizes: mean 240, standard deviation 15.5; a fixed key, so no false alarm."""
    sizes = numpy.array([len(part) for part in deal(60_000, num_teachers=250, key=KEY).all_rows()])
    assert sizes.min() > 150
    assert sizes.max() < 340
    assert 12 < sizes.std() < 19


def test_another_key_deals_otherwise() -> None:
    first, second = (deal(200, num_teachers=10, key=bytes([value] * 32)).teacher_of_row for value in (1, 2))
    assert (first == second).mean() < 0.3
    assert new_key() != new_key()
    assert new_key(Rng.from_seed(1)) == new_key(Rng.from_seed(1))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"num_teachers": 0}, "num_teachers"),
        ({"num_teachers": 11, "relation": "replace_one"}, "at most"),
        ({"groups": [1, 2]}, "one value for each"),
        ({"groups": [0.5] * 10}, "name a person"),
        ({"relation": "both"}, "relation"),
    ],
)
def test_bad_arguments_are_refused(changed: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        deal(10, **{"num_teachers": 2, "key": KEY, **changed})  # type: ignore[arg-type]
