"""Samplers: who is drawn, and whether the event says what the draw did."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from hush import Rng, accounting, events
from hush.errors import InvalidValue
from hush.sampling import (
    FullBatch,
    OrderedPasses,
    Poisson,
    Sampling,
    TruncatedPoisson,
    bernoulli_rows,
    draws,
    filling_chance,
    max_batch_size_for,
)

GAUSSIAN = events.Gaussian(noise_multiplier=1.0)


def stream(seed: int = 0) -> np.random.Generator:
    return Rng.from_seed(seed).stream("sampling")


@pytest.mark.parametrize("probability", [1e-18, 1e-9, 1e-3, 0.05, 0.19, 0.2, 0.7, 1.0])
@pytest.mark.parametrize("number", [0, 1, 17, 5_000])
def test_rows_are_distinct_ascending_and_inside(probability: float, number: int) -> None:
    source = stream()
    for _ in range(5):
        rows = bernoulli_rows(number, probability, source)
        assert rows.dtype == np.int64
        assert (np.diff(rows) > 0).all()
        assert not len(rows) or (rows[0] >= 0 and rows[-1] < number)
        if probability == 1:
            assert len(rows) == number


def test_streams_decide_the_draw() -> None:
    first, second = (bernoulli_rows(5_000, 0.05, stream(seed)) for seed in (1, 1))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, bernoulli_rows(5_000, 0.05, stream(2)))


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Poisson(0.01), events.PoissonSampled(GAUSSIAN, 0.01)),
        (FullBatch(), GAUSSIAN),
        (TruncatedPoisson(0.01, 10, 10), events.PoissonSampled(GAUSSIAN, 0.01)),  # the other 9 never fill it
    ],
)
def test_events_say_what_the_sampler_does(sampling: Sampling, expected: events.Event) -> None:
    assert not isinstance(sampling, OrderedPasses)
    assert sampling.event(GAUSSIAN) == expected


def test_draws_give_every_step_and_can_begin_later() -> None:
    for steps in (1, 7, 500):
        assert sum(1 for _ in draws(Poisson(0.1), 20, steps=steps, stream=stream())) == steps
    passes = OrderedPasses(rows_per_step=3, num_examples=7)
    whole = [rows.tolist() for rows in draws(passes, 7, steps=5, stream=stream())]
    assert whole == [[0, 1, 2], [3, 4, 5], [6], [0, 1, 2], [3, 4, 5]]
    assert [rows.tolist() for rows in draws(passes, 7, steps=5, stream=stream(), first=2)] == whole[2:]


@pytest.mark.parametrize(("batch_size", "number", "steps"), [(3, 7, 10), (1, 4, 4), (5, 5, 3), (4, 9, 13)])
def test_ordered_passes_take_part_as_often_as_they_say(batch_size: int, number: int, steps: int) -> None:
    passes = OrderedPasses(batch_size, number)
    used: dict[int, list[int]] = {row: [] for row in range(number)}
    for step, rows in enumerate(draws(passes, number, steps=steps, stream=stream())):
        for row in rows.tolist():
            used[row].append(step)
    assert max(map(len, used.values())) == passes.participations(steps)
    gaps = [later - sooner for turns in used.values() for sooner, later in itertools.pairwise(turns)]
    assert all(gap == passes.steps_per_pass for gap in gaps)


@pytest.mark.parametrize("sampling", [TruncatedPoisson(0.5, 3, 10), OrderedPasses(3, 10)])
def test_a_larger_data_set_than_planned_is_refused(sampling: Sampling) -> None:
    with pytest.raises(InvalidValue, match="at most 10 examples"):
        sampling.draw(11, step=0, stream=stream())


# Truncation ----------------------------------------------------------------------------------------------------


def test_truncated_batches_keep_the_cap() -> None:
    sampling, source = TruncatedPoisson(0.5, 8, 30), stream()
    sizes = [len(sampling.draw(30, step=0, stream=source)) for _ in range(300)]
    assert max(sizes) == 8
    assert min(sizes) < 15


@pytest.mark.parametrize(
    ("number", "prob", "cap"), [(10, 0.3, 5), (59_999, 0.01, 780), (1_000, 1e-3, 30), (50, 0.9, 50)]
)
def test_filling_chance_is_the_binomial_tail_from_above(number: int, prob: float, cap: int) -> None:
    with mpmath.workdps(50):
        q = mpmath.mpf(prob)
        terms = (
            mpmath.binomial(number, k) * q**k * (1 - q) ** (number - k) for k in range(cap, min(number, cap + 2000) + 1)
        )
        truth = mpmath.fsum(terms)
        found = filling_chance(number, prob, cap)
        assert truth < found <= truth * (1 + mpmath.mpf("1.1e-9"))


def test_the_cap_that_is_found_is_the_smallest() -> None:
    cap = max_batch_size_for(5_000, 0.02, failure=1e-10)
    assert filling_chance(4_999, 0.02, cap) <= 1e-10 < filling_chance(4_999, 0.02, cap - 1)
    assert max_batch_size_for(5, 0.9, failure=0.0) == 5  # the four others never fill a batch of five


def binomial_tail(number: int, prob: Fraction, least: int) -> Fraction:
    """Return P(Binomial(number, prob) >= least), exactly."""
    return sum(
        (math.comb(number, k) * prob**k * (1 - prob) ** (number - k) for k in range(least, number + 1)), Fraction(0)
    )


@pytest.mark.parametrize("prob", [0.25, 0.5, 0.875])
@pytest.mark.parametrize("num_examples", [1, 2, 5, 12])
def test_truncation_fails_where_the_other_examples_fill_the_batch(num_examples: int, prob: float) -> None:
    """Neither one example more or less, nor one place more or less, has this chance; so none of the two can be off."""
    for cap in range(1, num_examples + 2):
        sampling = TruncatedPoisson(prob, cap, num_examples=num_examples)
        truth = binomial_tail(num_examples - 1, Fraction(prob), cap)
        assert truth <= Fraction(sampling.failure) <= min(truth * Fraction(1 + 1.1e-9), Fraction(1))
        if sampling.failure == 1:
            with pytest.raises(InvalidValue, match="max_batch_size must be one that 12 examples"):
                sampling.event(events.Gaussian(1.0))
            continue
        sampled = events.PoissonSampled(events.Gaussian(1.0), prob)
        failure = events.ApproximateDP(epsilon=0.0, delta=sampling.failure)
        expected = sampled if truth == 0 else events.Composed(sampled, failure)
        assert sampling.event(events.Gaussian(1.0)) == expected


Array = NDArray[np.float64]
GRID = np.linspace(-9.0, 9.0, 20_001)


def truncated_density(values: list[float], prob: float, cap: int, noise: float) -> Array:
    """The density on the grid of a noisy sum over a truncated Poisson sample, by summing over every sample."""
    total = np.zeros_like(GRID)
    for chosen in subsets(len(values)):
        weight = prob ** len(chosen) * (1 - prob) ** (len(values) - len(chosen))
        kept = list(itertools.combinations(chosen, cap)) if len(chosen) > cap else [chosen]
        for rows in kept:
            total += weight / len(kept) * norm.pdf(GRID, sum(values[row] for row in rows), noise)
    return total


def subsets(number: int) -> Iterator[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(range(number), size) for size in range(number + 1))


def hockey_stick(p: Array, q: Array, epsilon: float) -> float:
    return float(np.trapezoid(np.maximum(0.0, p - math.exp(epsilon) * q), GRID))


@pytest.mark.parametrize("others", [[1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [-1.0, -1.0, -1.0], [0.5, -0.3, 0.9]])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_truncated_event_bounds_the_true_cost(others: list[float], epsilon: float) -> None:
    """The mechanism in full, for four examples of one number each, against what the accountant makes of its event."""
    prob, cap, noise = 0.4, 1, 0.6
    sampling = TruncatedPoisson(prob, cap, num_examples=len(others) + 1)
    event = sampling.event(events.Gaussian(noise))
    truths = {}
    pairs = {
        "add_remove": ([*others, 1.0], others),
        "zero_out": ([*others, 1.0], [*others, 0.0]),
        "replace_one": ([*others, 1.0], [*others, -1.0]),
    }
    for relation, (left, right) in pairs.items():
        p, q = (truncated_density(values, prob, cap, noise) for values in (left, right))
        truths[relation] = max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))
        bound = accounting.delta(event, epsilon=epsilon, relation=relation)  # type: ignore[arg-type]
        assert truths[relation] <= bound.delta + 1e-7


def test_truncation_has_a_cost_of_its_own() -> None:
    """A pair of neighbours that a plain Poisson event would promise too much for: the new one drives another out."""
    others, prob, cap, noise, epsilon = [-1.0] * 5, 0.8, 1, 0.4, 8.0
    p, q = (truncated_density(values, prob, cap, noise) for values in ([*others, 1.0], others))
    truth = max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))
    sampling = TruncatedPoisson(prob, cap, num_examples=6)
    poisson = events.PoissonSampled(events.Gaussian(noise), prob)
    assert accounting.delta(poisson, epsilon=epsilon).delta < 0.01 < 0.08 < truth
    assert truth <= accounting.delta(sampling.event(events.Gaussian(noise)), epsilon=epsilon).delta
