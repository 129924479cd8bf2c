"""Surveys, histograms, counts, sums, means and quantiles: what they are without their noise, and their edges."""

from __future__ import annotations

import itertools
import math
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hush import Rng, mechanisms
from hush.errors import InvalidValue
from hush.mechanisms import bounded
from hush.mechanisms.draws import Draws

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Draws, "floor_exponentials", lambda self, line: np.zeros(len(line.signs), np.int64))
    monkeypatch.setattr(Draws, "signs", lambda self, count: np.ones(count, np.int64))


# Randomized response -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("categories", "epsilon", "keep", "lie"),
    [(2, math.log(3), 0.75, 0.25), (2, 1.0, 0.73105858, 0.26894142), (10, 1.0, 0.23196932, 0.08533674)],
)
def test_estimate_inverts_the_published_chances(categories: int, epsilon: float, keep: float, lie: float) -> None:
    """Everybody has answer 0: the expected responses must be estimated as (1, 0, ...)."""
    total = 1_000_000
    counts = [round(keep * total), *[round(lie * total)] * (categories - 1)]
    found = mechanisms.randomized_response.estimate(
        np.repeat(np.arange(categories), counts), epsilon=epsilon, categories=categories
    )
    assert found == pytest.approx([1.0, *[0.0] * (categories - 1)], abs=2e-5)


def test_estimate_of_the_two_coins() -> None:
    """Warner's coins: a share p shows as p/2 + 1/4, so 0.4 of yes is 2 (0.4 - 1/4) = 0.3 (and not 2 (0.4 + 1/4))."""
    found = mechanisms.randomized_response.estimate(
        ["yes"] * 40 + ["no"] * 60, epsilon=math.log(3), categories=["yes", "no"]
    )
    assert found == pytest.approx([0.3, 0.7])


def test_estimates_add_up_and_are_not_clipped() -> None:
    found = mechanisms.randomized_response.estimate([0] * 20, epsilon=0.5, categories=4)
    assert found[0] > 1
    assert found[1] < 0
    assert found.sum() == pytest.approx(1.0)


def test_kinds_of_answers() -> None:
    respond = mechanisms.randomized_response
    assert respond("yes", epsilon=1.0, categories=["no", "yes"]) in {"no", "yes"}
    assert respond(2, epsilon=1.0, categories=3) in {0, 1, 2}
    assert isinstance(respond([0, 1], epsilon=1.0, categories=2), np.ndarray)
    assert respond(np.array(["a", "b"]), epsilon=50.0, categories=["a", "b"]).tolist() == ["a", "b"]
    assert respond(["a", "b"], epsilon=50.0, categories=("a", "b")) == ["a", "b"]
    assert respond([True, False], epsilon=800.0, categories=[False, True]) == [True, False]


@pytest.mark.parametrize("categories", [2**40, 2**40 + 1, 2**62])
def test_so_many_categories_need_no_table(categories: int) -> None:
    """Minutes and terabytes before; the answers themselves are as for few categories."""
    respond, last = mechanisms.randomized_response, categories - 1
    start = time.perf_counter()
    assert respond([0, 5, last], epsilon=700.0, categories=categories).tolist() == [0, 5, last]
    assert respond(np.array([0, last]), epsilon=700.0, categories=categories).tolist() == [0, last]
    assert respond(last, epsilon=700.0, categories=categories) == last
    moved = respond([7] * 2000, epsilon=1e-9, categories=categories, rng=Rng.from_seed(27))
    assert 7 not in moved
    assert moved.min() >= 0
    assert abs(moved.mean() / categories - 0.5) < 0.05  # seven standard deviations
    for outside in (categories, -1, 0.5, "1", None):
        with pytest.raises(InvalidValue, match="every answer must be one of"):
            respond([outside], epsilon=1.0, categories=categories)
    with pytest.raises(InvalidValue, match=r"at most 2\^26 for an estimate"):
        respond.estimate([0], epsilon=1.0, categories=categories)
    assert time.perf_counter() - start < 5


def test_more_categories_than_can_be_counted_are_refused() -> None:
    with pytest.raises(InvalidValue, match=r"at most 2\^62"):
        mechanisms.randomized_response([0], epsilon=1.0, categories=2**62 + 1)


@pytest.mark.parametrize(
    ("values", "categories"),
    [([0, 2], 2), (["maybe"], ["no", "yes"]), ([], 2), ([[0, 1]], 2), ([NAN], 2), ([0], 1), ([0], 2.0), ([0], ["a"]),
     (["a"], ["a", "a"]), (["n"], "no"), ([None], 2), ([[0], [1]], 2)],
)  # fmt: skip
def test_answers_outside_the_categories_are_refused(values: Any, categories: Any) -> None:
    with pytest.raises(InvalidValue):
        mechanisms.randomized_response(values, epsilon=1.0, categories=categories)
    with pytest.raises(InvalidValue):
        mechanisms.randomized_response.estimate(values, epsilon=1.0, categories=categories)


# Histograms ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_noise")
def test_known_bins_count_what_is_theirs() -> None:
    found = mechanisms.histogram(["a", "b", "a", "x"], bins=["b", "a", "c"], epsilon=1.0)
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [1, 2, 0]
    found = mechanisms.histogram(np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0]), edges=[0, 1, 2], epsilon=1.0)
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [2, 2]
    assert found.dtype == np.int64


def test_empty_data_still_gives_noise() -> None:
    """An error on no data would tell that there are none."""
    found = mechanisms.histogram([], bins=list(range(100)), epsilon=0.1, rng=Rng.from_seed(1))
    assert len(set(np.asarray(found).tolist())) > 5
    assert mechanisms.histogram([], delta=1e-6, epsilon=1.0) == {}
    assert isinstance(mechanisms.count([], epsilon=1.0), int)
    assert isinstance(mechanisms.sum([], bounds=(0, 1), epsilon=1.0), float)
    assert 0 <= mechanisms.mean([], bounds=(0, 1), epsilon=1.0) <= 1
    assert 0 <= mechanisms.quantile([], 0.5, bounds=(0, 1), epsilon=1.0) <= 1


@pytest.mark.parametrize(
    ("epsilon", "delta", "threshold"),
    [(1.0, 1e-5, 11.8197783), (1.0, 1e-6, 14.1223634), (0.5, 1e-6, 27.2447268)],
)
def test_published_stability_thresholds(epsilon: float, delta: float, threshold: float) -> None:
    assert mechanisms.stability_threshold(epsilon, delta) == pytest.approx(threshold, abs=6e-8)
    doubled = mechanisms.stability_threshold(2 * epsilon, delta, relation="replace_one")
    assert doubled == pytest.approx(threshold, abs=6e-8)


def test_threshold_keeps_its_delta() -> None:
    """A category with one record reaches the threshold with a chance of delta at most: exp(-eps (t - 1)) / 2."""
    for epsilon, delta in itertools.product((0.01, 0.3, 1.0, 4.0), (0.4, 1e-3, 1e-9, 1e-15)):
        chance = Fraction(math.exp(-epsilon * (mechanisms.stability_threshold(epsilon, delta) - 1))) / 2
        assert float(chance) <= delta * (1 + 1e-12)
    assert mechanisms.stability_threshold(1.0, 0.9) == 1.0


def test_unknown_bins_show_the_common_ones_in_their_own_order() -> None:
    values = ["zebra"] * 500 + ["ant"] * 300 + ["one"]
    for seed in range(20):
        found = mechanisms.histogram(values, delta=1e-6, epsilon=1.0, rng=Rng.from_seed(seed))
        assert isinstance(found, dict)
        assert list(found) == ["ant", "zebra"]
        assert abs(found["zebra"] - 500) < 40
        other = mechanisms.histogram(values[::-1], delta=1e-6, epsilon=1.0, rng=Rng.from_seed(seed))
        assert list(other) == ["ant", "zebra"]
        assert all(type(count) is int for count in found.values())


def test_keys_of_mixed_kinds_are_ordered_by_themselves() -> None:
    values = ["b"] * 400 + [3] * 400 + [(1, 2)] * 400 + [None] * 400
    orders = {
        tuple(map(str, mechanisms.histogram(values[start:] + values[:start], delta=1e-6, epsilon=1.0)))
        for start in range(0, 1600, 200)
    }
    assert len(orders) == 1


@pytest.mark.parametrize(
    "options",
    [{}, {"bins": [1], "delta": 1e-5}, {"bins": [1], "edges": [0, 1]}, {"bins": []}, {"bins": [1, 1]},
     {"edges": [0]}, {"edges": [1, 0]}, {"edges": [0, NAN]}, {"edges": [[0, 1]]}, {"delta": 0.0}, {"delta": 1.0},
     {"bins": [1], "relation": "zero_out"}, {"delta": 1e-5, "relation": "zero_out"}],
)  # fmt: skip
def test_bad_histograms_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        mechanisms.histogram([1, 2], epsilon=1.0, **options)


@pytest.mark.parametrize("values", [[1.0, NAN], [[1], [2]], "text", 3])
def test_bad_rows_are_refused(values: Any) -> None:
    for options in ({"bins": [1]}, {"delta": 1e-5}, {"edges": [0, 1]}):
        with pytest.raises(InvalidValue):
            mechanisms.histogram(values, epsilon=1.0, **options)


def test_a_category_has_one_form_whatever_came_first() -> None:
    """1, True and 1.0 are one key of a table, which would show the form of the first record; 0.0 and -0.0 too."""

    class Word(str):
        pass

    pairs = [([1], True), ([1], 1.0), ([0.0], -0.0), (["a"], Word("a")), ([(1, "a")], (True, "a")), ([0], False)]
    for common, odd in pairs:
        found = mechanisms.histogram([odd, *common * 500], delta=1e-6, epsilon=1.0)
        other = mechanisms.histogram([*common * 500, odd], delta=1e-6, epsilon=1.0)
        plain = mechanisms.histogram(common * 500, delta=1e-6, epsilon=1.0)
        assert repr(list(found)) == repr(list(other)) == repr(list(plain))


@pytest.mark.parametrize("value", [object(), 1j, (1.0, NAN), Fraction(1, 2), frozenset([1])])
def test_categories_with_no_plain_form_are_refused(value: Any) -> None:
    with pytest.raises(InvalidValue, match="text, numbers"):
        mechanisms.histogram(["a", value], delta=1e-6, epsilon=1.0)


# Counts, sums, means -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_noise")
def test_values_without_their_noise() -> None:
    numbers = [-5.0, 0.25, 0.5, 7.0]
    assert mechanisms.count(np.array([True, False, True]), epsilon=1.0) == 2
    assert mechanisms.count(numbers, epsilon=1.0) == 4
    assert mechanisms.sum(numbers, bounds=(0, 1), epsilon=1.0) == pytest.approx(1.75, abs=1e-8)
    assert mechanisms.sum(numbers, bounds=(0, 1), epsilon=1.0, relation="replace_one") == pytest.approx(1.75, abs=1e-8)
    assert mechanisms.mean(numbers, bounds=(0, 1), epsilon=1.0) == pytest.approx(1.75 / 4, abs=1e-8)
    assert mechanisms.mean(numbers, bounds=(0, 1), epsilon=1.0, relation="replace_one") == pytest.approx(1.75 / 4)
    far = [1e9, 1e9 + 0.5]
    assert mechanisms.mean(far, bounds=(1e9, 1e9 + 1), epsilon=1.0) == pytest.approx(1e9 + 0.25, abs=1e-6)
    assert mechanisms.sum([1e-300] * 3, bounds=(0, 1e-300), epsilon=1.0) == pytest.approx(3e-300)


@pytest.mark.usefixtures("without_noise")
def test_one_record_moves_a_count_by_one_whatever_it_is() -> None:
    """An array of all records would change its kind by one of them, and with it what is counted."""
    for odd in (0, 1.5, None, "a", True, False):
        assert mechanisms.count([False] * 100 + [odd], epsilon=1.0) in {0, 1}
    assert mechanisms.count(np.array([False] * 100 + [3], dtype=object), epsilon=1.0) == 1
    assert mechanisms.count([np.False_, np.True_, 5], epsilon=1.0) == 2
    assert mechanisms.count(range(7), epsilon=1.0) == 7


@pytest.mark.parametrize("values", ["text", 3, np.float64(2), b"x", None])
def test_only_rows_are_counted(values: Any) -> None:
    with pytest.raises(InvalidValue, match="row"):
        mechanisms.count(values, epsilon=1.0)


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1 / 3, 0.1), (5.0, 7.7), (-2.0, -1.9), (1e9, 1e9 + 0.3), (0, 1e-5)])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 300.0])
def test_one_record_moves_the_sum_by_its_sensitivity_at_most(
    bounds: tuple[float, float], epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In exact numbers, against the noise that is drawn: scale * epsilon is the most that the sum may move."""
    scales: list[float] = []
    monkeypatch.setattr(
        Draws,
        "floor_exponentials",
        lambda self, line: (scales.append(line.scale), np.zeros(len(line.signs), np.int64))[1],
    )
    row = np.random.default_rng(3).uniform(bounds[0] - 1e-3, bounds[1] + 1e-3, 50)
    low, high = bounds
    for relation, centre in (("add_remove", 0.0), ("replace_one", low + (high - low) / 2)):
        totals = []
        for end in (low, high):
            other = np.append(row, end) if relation == "add_remove" else np.append(row[1:], end)
            base = row if relation == "add_remove" else np.append(row[1:], low)
            pair = [
                Fraction(bounded._noisy_total(one, centre, low, high, epsilon, relation, Draws()))  # type: ignore[arg-type]
                for one in (base, other)
            ]
            totals.append(abs(pair[0] - pair[1]))
        unit = _unit(low, high, centre, epsilon)
        assert max(totals) <= Fraction(scales[-1]) * Fraction(epsilon) * unit
        assert float(max(totals)) >= 0.99 * float(Fraction(scales[-1]) * Fraction(epsilon) * unit)


def _unit(low: float, high: float, centre: float, epsilon: float) -> Fraction:
    bits = max(8, 32 + min(0, math.frexp(epsilon)[1]))
    return Fraction(2) ** (math.frexp(max(abs(low - centre), abs(high - centre)))[1] - 1 - bits)


def test_sum_does_not_depend_on_the_order() -> None:
    row = np.random.default_rng(3).uniform(-1e6, 1e6, 1000) ** 3
    found = {
        mechanisms.sum(np.random.default_rng(seed).permutation(row), bounds=(-1e18, 1e18), epsilon=1.0, rng=rng)
        for seed, rng in ((seed, Rng.from_seed(1)) for seed in range(20))
    }
    assert len(found) == 1


def test_mean_is_held_within_the_bounds() -> None:
    for seed in range(50):
        assert -1 <= mechanisms.mean([0.5], bounds=(-1, 1), epsilon=0.01, rng=Rng.from_seed(seed)) <= 1


@pytest.mark.parametrize(
    "bounds", [(1, 1), (2, 1), (0, INF), (NAN, 1), None, 3, (0, 1, 2), ("0", "1"), (-1e308, 1e308)]
)
def test_bad_bounds_are_refused(bounds: Any) -> None:
    for name, more in (("sum", ()), ("mean", ()), ("quantile", (0.5,))):
        with pytest.raises(InvalidValue, match="bounds"):
            getattr(mechanisms, name)([1.0], *more, bounds=bounds, epsilon=1.0)


@pytest.mark.parametrize("values", [[NAN], [INF], [[1.0]], 3.0, ["a"], "text"])
def test_bad_records_are_refused(values: Any) -> None:
    for name, more in (("sum", ()), ("mean", ()), ("quantile", (0.5,))):
        with pytest.raises(InvalidValue, match="values"):
            getattr(mechanisms, name)(values, *more, bounds=(0, 1), epsilon=1.0)


def test_what_is_public_is_not_released_as_private() -> None:
    with pytest.raises(InvalidValue, match="public"):
        mechanisms.mean([], bounds=(0, 1), epsilon=1.0, relation="replace_one")
    with pytest.raises(InvalidValue, match="relation"):
        mechanisms.sum([1.0], bounds=(0, 1), epsilon=1.0, relation="zero_out")


# Quantiles -----------------------------------------------------------------------------------------------------


def quantile_law(data: list[int], level: Fraction, last: int, epsilon: float, moved: float) -> np.ndarray:
    """The chances of all candidates, one at a time by the definition."""
    target = level * len(data)
    weights = []
    for candidate in range(last + 1):
        below, upto = sum(x < candidate for x in data), sum(x <= candidate for x in data)
        distance = max(Fraction(0), below - target, target - upto)
        weights.append(math.exp(-epsilon * float(distance) / (2 * moved)))
    return np.array(weights) / math.fsum(weights)


@pytest.mark.parametrize("level", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_quantile_law_is_private_for_all_small_data(level: float) -> None:
    """Every data set of up to four records on five candidates, and every neighbour: no sampling, the law itself."""
    share, epsilon = Fraction(level), 1.0
    for size in range(4):
        for data in itertools.combinations_with_replacement(range(5), size):
            one = quantile_law(list(data), share, 4, epsilon, max(level, 1 - level))
            for new in range(5):
                two = quantile_law([*data, new], share, 4, epsilon, max(level, 1 - level))
                assert np.abs(np.log(one / two)).max() <= epsilon + 1e-12
                if data:
                    first = quantile_law(list(data), share, 4, epsilon, 1.0)
                    second = quantile_law([*data[1:], new], share, 4, epsilon, 1.0)
                    assert np.abs(np.log(first / second)).max() <= epsilon + 1e-12


@pytest.mark.parametrize("data", [[], [0], [4, 4, 4], [0, 1, 1, 3], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_quantile_draws_from_that_law(data: list[int], relation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights that are handed to the exact choice, spread over their candidates."""
    seen: list[tuple[Any, ...]] = []
    original = bounded.choose
    monkeypatch.setattr(bounded, "choose", lambda *a: (seen.append(a), original(*a))[1])
    level, epsilon, last = 0.3, 2.0, 4
    mechanisms.quantile(
        [float(x) for x in data], level, bounds=(0, 4), candidates=5, epsilon=epsilon, relation=relation
    )
    ((exponents, exponent_at, sizes, _),) = seen
    law = quantile_law(data, Fraction(level), last, epsilon, 1.0 if relation == "replace_one" else 0.7)
    spread = np.repeat(np.exp(-exponents), sizes)
    assert spread / spread.sum() == pytest.approx(law, rel=1e-12)
    assert [float(exponent_at(place)) for place in range(len(exponents))] == pytest.approx(exponents, abs=1e-12)


def test_quantile_finds_many_equal_values() -> None:
    data = [3.0] * 500 + [8.0] * 100
    for seed in range(20):
        found = mechanisms.quantile(data, 0.5, bounds=(0, 10), epsilon=1.0, rng=Rng.from_seed(seed))
        assert found == pytest.approx(3.0, abs=1e-4)


@pytest.mark.parametrize("level", [-0.1, 1.1, NAN, "half", None])
def test_bad_levels_are_refused(level: Any) -> None:
    with pytest.raises(InvalidValue, match="level"):
        mechanisms.quantile([1.0], level, bounds=(0, 1), epsilon=1.0)
    with pytest.raises(InvalidValue, match="candidates"):
        mechanisms.quantile([1.0], 0.5, bounds=(0, 1), epsilon=1.0, candidates=1)
    with pytest.raises(InvalidValue, match="candidates"):
        mechanisms.quantile([1.0], 0.5, bounds=(0, 1), epsilon=1.0, candidates=2**41)
