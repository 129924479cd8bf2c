"""Linkage: the paper's score by hand, people who stand out, and people who were not released."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from hush import Rng, data
from hush.attacks import NO_MATCH, Ratings, known_ratings, link_records
from hush.attacks.link import link_scores
from hush.errors import DataMissing, InvalidValue


def made_up(people: int, items: int, each: int, seed: int) -> Ratings:
    stream = np.random.default_rng(seed)
    item = np.concatenate([stream.choice(items, each, replace=False) for _ in range(people)])
    size = people * each
    return Ratings(np.repeat(np.arange(people), each), item, stream.integers(1, 6, size), stream.uniform(0, 2000, size))


def test_scores_are_the_formula() -> None:
    released = Ratings([0, 1, 1, 2], [7, 7, 8, 8], [5.0, 3.0, 1.0, 2.0], [10.0, 40.0, 5.0, 0.0])
    known = Ratings([4, 4], [7, 8], [4.0, 2.0], [10.0, 20.0])

    def near(stars: float, days: float) -> float:
        return math.exp(-stars / 1.5) + math.exp(-days / 30)

    weight = 1 / math.log(2)  # two people hold each film
    expected = [near(1, 0) * weight, (near(1, 30) + near(1, 15)) * weight, near(0, 20) * weight]
    assert link_scores(known, released)[0] == pytest.approx(expected)
    stars = [math.exp(-1 / 1.5) * weight, 2 * math.exp(-1 / 1.5) * weight, weight]
    assert link_scores(known, released.without_days())[0] == pytest.approx(stars)


def test_rare_films_count_more_and_unknown_ones_nothing() -> None:
    released = Ratings([0, 1, 2, 3, 0], [1, 1, 1, 1, 2], [3.0] * 5)
    common, rare = (link_scores(Ratings([0], [item], [3.0]), released)[0] for item in (1, 2))
    assert rare[0] > common[0] > 0
    assert rare[1:].tolist() == [0, 0, 0]
    assert link_scores(Ratings([0], [99], [3.0]), released).sum() == 0


def test_a_match_must_stand_out() -> None:
    released = made_up(200, 500, 30, seed=1)
    known = known_ratings(released, count=6, rating_error=1.0, day_error=10, rng=Rng.from_seed(1))
    found = link_records(known, released)
    rates = found.named(known.records)
    assert rates["correct"].value > 0.95
    assert rates["wrong"].value < 0.02
    assert sum(rate.count for rate in rates.values()) == len(known.records)
    assert (link_records(known, released, eccentricity=50).matches == NO_MATCH).all()
    first, second = np.sort(link_scores(known, released), axis=1)[:, [-1, -2]].T
    spread = link_scores(known, released).std(axis=1)
    assert found.eccentricities == pytest.approx((first - second) / spread)


def test_people_who_were_not_released_are_rarely_named() -> None:
    """The eccentricity rule's purpose: of 150 people who are not there, few are named."""
    everybody = made_up(400, 500, 30, seed=2)
    there = everybody.record < 250
    known = known_ratings(everybody.of(~there), count=6, rating_error=1.0, day_error=10, rng=Rng.from_seed(2))
    found = link_records(known, everybody.of(there))
    assert found.named(np.full(150, NO_MATCH))["wrong"].value < 0.3
    sure = link_records(known_ratings(everybody.of(there), count=6, rng=Rng.from_seed(2)), everybody.of(there))
    assert (sure.matches != NO_MATCH).mean() > 0.95


def test_known_ratings_are_as_asked() -> None:
    released = made_up(50, 100, 20, seed=3)
    known = known_ratings(released, count=5, wrong=2, rating_error=0.5, day_error=3, rng=Rng.from_seed(3))
    assert np.bincount(known.record).tolist() == [5] * 50
    assert known.day is not None
    assert released.day is not None
    truth = {
        (r, i): (s, d) for r, i, s, d in zip(released.record, released.item, released.rating, released.day, strict=True)
    }
    right = 0
    for record, item, rating, day in zip(known.record, known.item, known.rating, known.day, strict=True):
        if (record, item) in truth:
            stars, when = truth[record, item]
            right += abs(stars - rating) <= 0.5 and abs(when - day) <= 3
    assert right >= 150  # three of five of each, and now and then a wrong film that happens to fit
    assert right < 200
    fewer = Ratings([0, 0, 1], [1, 2, 1], [1.0, 2.0, 3.0])
    assert known_ratings(fewer, count=2).records.tolist() == [0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: Ratings([], [], []),
        lambda: Ratings([0], [1, 2], [1.0]),
        lambda: Ratings([0], [1], [math.nan]),
        lambda: Ratings([-1], [1], [1.0]),
        lambda: Ratings([0.5], [1], [1.0]),
        lambda: link_records(Ratings([0], [1], [1.0]), Ratings([0], [1], [1.0])),
        lambda: known_ratings(Ratings([0], [1], [1.0]), count=2),
        lambda: known_ratings(Ratings([0], [1], [1.0]), count=1, wrong=2),
    ],
)
def test_bad_ratings_are_refused(call: object) -> None:
    with pytest.raises(InvalidValue):
        call()  # type: ignore[operator]


def test_movielens_is_linked() -> None:
    if "HUSH_DATA" not in os.environ:
        pytest.skip("HUSH_DATA is not set")
    try:
        ratings = Ratings(**data.load_ratings())
    except DataMissing as error:
        pytest.skip(str(error))
    assert (len(ratings), len(ratings.records)) == (100_836, 610)
    known = known_ratings(ratings, count=8, wrong=2, rating_error=1.0, day_error=14, rng=Rng.from_seed(1))
    rates = link_records(known, ratings).named(known.records)
    assert rates["correct"].low > 0.8
    assert rates["wrong"].high < 0.05


def test_texts_are_the_published_ones() -> None:
    if "HUSH_DATA" not in os.environ:
        pytest.skip("HUSH_DATA is not set")
    try:
        text = data.load_text("tinyshakespeare")
    except DataMissing as error:
        pytest.skip(str(error))
    assert len(text) == 1_115_394
    assert text.startswith("First Citizen:")
    with pytest.raises(InvalidValue, match="tinyshakespeare"):
        data.load_text("bible")
