"""What is said about one person, against closed forms."""

from __future__ import annotations

import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from hush import accounting, events
from hush.report.person import for_one_person, most_true_positives


def shown(event: events.Event, delta: float) -> tuple[float, object]:
    found = accounting.guarantee(event, delta=delta)
    return found.epsilon, for_one_person(event, epsilon=found.epsilon, delta=delta, relation="add_remove")


@given(st.floats(0.05, 5.0), st.sampled_from([1e-9, 1e-5, 1e-3]))
def test_gaussian_noise_by_its_closed_form(mu: float, delta: float) -> None:
    _, person = shown(events.Gaussian(1 / mu), delta)
    assert person.best_guess >= norm.cdf(mu / 2)
    assert person.best_guess == pytest.approx(norm.cdf(mu / 2), rel=1e-9)
    for rate, most in person.trade_off[1:]:  # TPR = Phi(Phi^-1(FPR) + mu), exactly
        truth = norm.cdf(norm.ppf(rate) + mu) if rate < 1 else 1.0
        assert truth * (1 - 1e-12) <= most <= 1
    for without, at_most in person.outcomes:
        assert norm.cdf(norm.ppf(without) + mu) * (1 - 1e-12) <= at_most
    # the loss is N(mu^2 / 2, mu^2): the odds grow beyond the factor with the stated chance at most
    chance = norm.sf((math.log(person.odds_factor) - mu * mu / 2) / mu)
    assert chance <= person.odds_failure == 2 * delta


def test_the_trade_off_is_close_to_the_truth() -> None:
    _, person = shown(events.Gaussian(1.0), 1e-5)
    rates = [rate for rate, _ in person.trade_off if 1e-4 <= rate < 1]
    found = dict(person.trade_off)
    assert max(found[rate] / norm.cdf(norm.ppf(rate) + 1) for rate in rates) < 1.02


def test_pure_privacy_is_the_textbook_bound() -> None:
    person = for_one_person(events.RandomizedResponse(1.5), epsilon=1.5, delta=0.0, relation="add_remove")
    assert person.best_guess == pytest.approx(math.exp(1.5) / (1 + math.exp(1.5)), rel=1e-9)
    assert person.odds_factor == pytest.approx(math.exp(1.5), rel=1e-9)
    assert person.odds_failure == 0
    assert dict(person.outcomes)[0.01] == pytest.approx(0.01 * math.exp(1.5), rel=1e-9)


@given(st.floats(0.0, 6.0), st.sampled_from([1e-9, 1e-5, 0.01]))
def test_odds_of_a_bare_claim_are_twice_the_factor_at_most(epsilon: float, delta: float) -> None:
    person = for_one_person(events.ApproximateDP(epsilon, delta), epsilon=epsilon, delta=delta, relation="add_remove")
    assert math.exp(epsilon) * (1 - 1e-9) <= person.odds_factor <= 2 * math.exp(epsilon) * (1 + 1e-9)


def test_e_to_the_epsilon_alone_would_be_wrong_about_odds() -> None:
    """Why the report does not say "odds grow by e^epsilon but for delta": for Gaussian noise that is false."""
    epsilon, person = shown(events.Gaussian(1.0), 1e-5)
    assert norm.sf((epsilon - 0.5) / 1.0) > 2 * 1e-5
    assert person.odds_factor > math.exp(epsilon)


def test_more_pairs_never_loosen_a_bound() -> None:
    rates = numpy.geomspace(1e-4, 1, 20)
    one = most_true_positives(rates, numpy.array([1.0]), numpy.array([1e-3]))
    two = most_true_positives(rates, numpy.array([1.0, 0.5]), numpy.array([1e-3, 1e-2]))
    assert (two <= one).all()
    assert (two < one).any()
