"""Vote counts: what is refused, and that nothing prints them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hush.errors import InvalidValue
from hush.pate import VoteCounts


def test_labels_are_counted_as_one_would_by_hand() -> None:
    labels = np.array([[0, 2], [1, 2], [0, 2], [0, 1]])
    votes = VoteCounts.from_labels(labels, num_classes=3)
    assert votes.counts.tolist() == [[3, 1, 0], [0, 1, 3]]
    assert (votes.num_teachers, votes.num_queries, votes.num_classes, len(votes)) == (4, 2, 3, 2)


@given(st.integers(1, 6), st.integers(0, 5), st.integers(2, 4), st.integers(0, 10**6))
def test_counts_of_labels_agree_with_a_plain_loop(teachers: int, queries: int, classes: int, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(classes, size=(teachers, queries))
    counts = VoteCounts.from_labels(labels, classes).counts
    assert counts.shape == (queries, classes)
    for query in range(queries):
        assert counts[query].tolist() == [list(labels[:, query]).count(label) for label in range(classes)]


def test_one_row_is_one_query() -> None:
    assert VoteCounts([3, 1, 0], num_teachers=4).counts.shape == (1, 3)


@pytest.mark.parametrize(
    "counts",
    [
        [[3, 2, 0]],  # a vote too many
        [[3, 0, 0]],  # a teacher did not vote
        [[5, -1, 0]],
        [[4]],
        [[[4, 0]]],
        [[3.0, 1.0, 0.0]],
        [[True, True, True]],
        [[2**62, 2**62, 2**62, 2**62 + 4]],  # sums to 4 in 64 bits
    ],
)
def test_what_cannot_be_counts_is_refused(counts: list[object]) -> None:
    with pytest.raises(InvalidValue):
        VoteCounts(counts, num_teachers=4)


def test_a_table_of_labels_is_not_taken_for_counts() -> None:
    labels = np.random.default_rng(0).integers(10, size=(250, 640))
    with pytest.raises(InvalidValue, match="from_labels"):
        VoteCounts(labels, num_teachers=250)


@pytest.mark.parametrize("labels", [[[0, 3]], [[-1, 0]], [0, 1], np.empty((0, 4), int), [[0.0, 1.0]]])
def test_what_cannot_be_labels_is_refused(labels: object) -> None:
    with pytest.raises(InvalidValue):
        VoteCounts.from_labels(labels, num_classes=3)


def test_neither_print_nor_message_tells_a_count() -> None:
    votes = VoteCounts([[173, 77]], num_teachers=250)
    assert "173" not in f"{votes} {votes!r}"
    with pytest.raises(InvalidValue) as caught:
        VoteCounts([[250, 0], [173, 76]], num_teachers=250)
    assert "row 1" in str(caught.value)
    assert not any(number in str(caught.value) for number in ("173", "76", "249"))


def test_counts_are_a_copy_that_nobody_can_change() -> None:
    given_counts = np.array([[3, 1]])
    votes = VoteCounts(given_counts, num_teachers=4)
    given_counts[0, 0] = 9
    assert votes.counts.tolist() == [[3, 1]]
    with pytest.raises(ValueError, match="read-only"):
        votes.counts[0, 0] = 2


def test_a_part_of_the_queries() -> None:
    votes = VoteCounts([[3, 1], [2, 2], [0, 4]], num_teachers=4)
    assert votes[1:].counts.tolist() == [[2, 2], [0, 4]]
    assert len(votes[np.array([False, False, False])]) == 0
