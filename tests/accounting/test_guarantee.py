"""`accounting.guarantee` and `accounting.delta`: what they answer at the edges, and what they refuse."""

from __future__ import annotations

import math

import pytest

from hush import accounting
from hush.accounting import rdp
from hush.errors import HushError, InvalidValue, UnsupportedEvent
from hush.events import (
    ApproximateDP,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    GaussianDP,
    Laplace,
    NotPrivate,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
    Repeated,
    ZeroConcentratedDP,
)
from hush.privacy import Budget, Relation

RELATIONS = ("add_remove", "replace_one", "zero_out")


def sampled(sampling_prob: float, noise_multiplier: float, steps: int) -> Event:
    return Repeated(PoissonSampled(Gaussian(noise_multiplier), sampling_prob), steps)


STEPS = sampled(0.01, 4.0, 10_000)


# The answer --------------------------------------------------------------------------------------------------------


def test_an_answer_says_what_was_asked():
    found = accounting.guarantee(STEPS, delta=1e-5, relation="replace_one", method="exact")
    assert (found.delta, found.relation, found.method, found.proven) == (1e-5, "replace_one", "exact", True)
    assert 0 < found.epsilon_lower <= found.epsilon
    assert found.notes == ("by contour",)


def test_exact_and_add_remove_are_the_defaults():
    assert accounting.guarantee(STEPS, delta=1e-5) == accounting.guarantee(
        STEPS, delta=1e-5, relation="add_remove", method="exact"
    )


@pytest.mark.parametrize("method", accounting.METHODS)
def test_no_method_is_below_the_exact_lower_end(method):
    exact = accounting.guarantee(STEPS, delta=1e-5)
    found = accounting.guarantee(STEPS, delta=1e-5, method=method)
    assert found.method == method
    assert found.proven == (method != "gdp_clt")
    assert not found.proven or found.epsilon >= exact.epsilon_lower


def test_zeroing_out_is_accounted_as_removing():
    ours, theirs = (accounting.guarantee(STEPS, delta=1e-5, relation=relation) for relation in RELATIONS[::2])
    assert (ours.epsilon_lower, ours.epsilon) == (theirs.epsilon_lower, theirs.epsilon)


MIXED = Composed(sampled(0.01, 1.0, 100), Repeated(Laplace(5.0), 3), RandomizedResponse(0.3, 4), PureDP(0.1))
ROUND_TRIPS = [
    (STEPS, 1e-5),
    (STEPS, 1e-20),
    (sampled(0.001, 0.8, 500), 1e-7),
    (sampled(1.0, 20.0, 100), 1e-9),
    (sampled(0.3, 2.0, 1), 1e-8),
    (Composed(sampled(0.02, 2.0, 100), sampled(0.1, 8.0, 50), Gaussian(5.0)), 1e-6),
    (MIXED, 1e-6),
    (Composed(STEPS, ApproximateDP(0.1, 1e-7)), 1e-6),
]


@pytest.mark.parametrize(("event", "delta"), ROUND_TRIPS)
@pytest.mark.parametrize("relation", RELATIONS[:2])
def test_delta_at_both_ends_of_epsilon_brackets_delta(event, delta, relation):
    found = accounting.guarantee(event, delta=delta, relation=relation)
    above = accounting.delta(event, epsilon=found.epsilon, relation=relation)
    below = accounting.delta(event, epsilon=found.epsilon_lower, relation=relation)
    assert above.delta_lower <= delta <= below.delta
    assert above.delta == pytest.approx(delta, rel=1e-4)
    assert below.delta_lower == pytest.approx(delta, rel=1e-4)


# Edges -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-30, 1e-5])
@pytest.mark.parametrize("event", [Composed(), GaussianDP(0.0), PureDP(0.0)])
def test_nothing_costs_nothing(event, delta, relation):
    found = accounting.guarantee(event, delta=delta, relation=relation)
    assert (found.epsilon_lower, found.epsilon) == (0.0, 0.0)


@pytest.mark.parametrize("event", [Composed(), GaussianDP(0.0), PureDP(0.0)])
def test_nothing_never_fails(event):
    assert accounting.delta(event, epsilon=0.0).delta == 0.0


@pytest.mark.parametrize("event", [NotPrivate(), Composed(STEPS, NotPrivate()), Repeated(NotPrivate(), 3)])
def test_no_privacy_is_infinite(event):
    found = accounting.guarantee(event, delta=1e-5)
    assert (found.epsilon_lower, found.epsilon) == (math.inf, math.inf)
    assert accounting.delta(event, epsilon=100.0).delta_lower == 1.0


@pytest.mark.parametrize(
    ("event", "relation", "expected"),
    [
        (PureDP(1.0), "add_remove", 1.0),
        (PureDP(0.1), "replace_one", 0.1),
        (RandomizedResponse(0.7, 5), "add_remove", 0.7),
        (Laplace(0.5), "add_remove", 2.0),
        (Laplace(0.5), "replace_one", 4.0),
        (Repeated(PureDP(0.25), 3), "add_remove", 0.75),
        (Composed(PureDP(0.5), RandomizedResponse(0.25, 3), Laplace(4.0)), "add_remove", 1.0),
        # In binary 0.1 lies a hair above a tenth, so ten of them lie above 1 and end at the next float.
        (Repeated(PureDP(0.1), 10), "add_remove", math.nextafter(1.0, 2.0)),
        (Composed(PureDP(0.1), PureDP(0.2)), "add_remove", 0.1 + 0.2),
    ],
)
def test_sums_of_pure_costs_are_rounded_up_only_where_they_are_no_floats(
    event: Event, relation: Relation, expected: float
) -> None:
    found = accounting.guarantee(event, delta=0.0, relation=relation)
    assert found.epsilon == expected
    assert expected * (1 - 1e-13) <= found.epsilon_lower <= expected
    assert Budget(epsilon=expected, delta=0.0).allows(found)
    assert not Budget(epsilon=math.nextafter(expected, 0.0), delta=0.0).allows(found)


@pytest.mark.parametrize("event", [Gaussian(5.0), STEPS, Composed(PureDP(0.1), GaussianDP(0.1))])
def test_a_gaussian_at_delta_zero_is_infinite(event):
    assert accounting.guarantee(event, delta=0.0).epsilon_lower == math.inf


@pytest.mark.parametrize(("relation", "epsilon"), [("add_remove", 1.3), ("replace_one", 2.1)])
def test_bounded_losses_add_up_at_delta_zero(relation, epsilon):
    event = Composed(PureDP(0.25), RandomizedResponse(0.25, 3), Repeated(Laplace(2.5), 2))
    found = accounting.guarantee(event, delta=0.0, relation=relation)
    assert found.epsilon_lower <= epsilon <= found.epsilon
    assert found.gap < 1e-12


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_one_laplace_release_has_a_closed_form(epsilon):
    """delta = 1 - e^{(epsilon - 1/scale) / 2}, 0 from 1/scale on."""
    truth = max(-math.expm1((epsilon - 2.0) / 2), 0.0)
    found = accounting.delta(Laplace(0.5), epsilon=epsilon)
    assert found.delta_lower <= truth + 1e-15
    assert truth - 1e-15 <= found.delta <= truth + 1e-11


@pytest.mark.parametrize("delta", [1e-5, 2.1e-10])
def test_huge_noise_costs_nothing_that_delta_does_not_cover(delta):
    """Total variation is at most the sum of q erf(1 / (2 sqrt(2) noise)) over the steps."""
    assert 5 * 0.1 * math.erf(1 / (2e9 * math.sqrt(2))) < delta
    found = accounting.guarantee(sampled(0.1, 1e9, 5), delta=delta)
    assert (found.epsilon_lower, found.epsilon) == (0.0, 0.0)


def test_huge_noise_at_a_tiny_delta_costs_a_little():
    found = accounting.guarantee(sampled(0.1, 1e9, 5), delta=1e-30)
    nearly = accounting.guarantee(GaussianDP(0.1 * math.sqrt(5) / 1e9), delta=1e-30)  # losses this small are normal
    assert found.epsilon == pytest.approx(nearly.epsilon, rel=1e-4)
    assert found.gap < 1e-6 * found.epsilon


@pytest.mark.parametrize("noise", [0.2, 0.1, 0.05, 0.01])
@pytest.mark.parametrize("relation", RELATIONS[:2])
def test_tiny_noise_is_between_one_hit_and_the_full_batch(noise, relation):
    found = accounting.guarantee(sampled(0.1, noise, 5), delta=1e-5, relation=relation)
    full = accounting.guarantee(sampled(1.0, noise, 5), delta=1e-5, relation=relation)
    # All five samples hold the example with chance 1e-5, so four hits are the most that delta does not cover.
    four = accounting.guarantee(sampled(1.0, noise, 4), delta=0.9, relation="add_remove")
    assert found.epsilon_lower <= full.epsilon
    assert found.epsilon >= 0.9 * four.epsilon_lower
    assert math.isfinite(found.epsilon)


def test_so_little_noise_that_only_a_bound_is_given_says_so():
    assert "bound alone" in accounting.guarantee(sampled(0.1, 0.01, 5), delta=1e-5).notes[0]


# Events with a promise instead of a mechanism --------------------------------------------------------------------


def test_gaussian_promise_is_the_gaussian_mechanism():
    promise = accounting.guarantee(GaussianDP(0.5), delta=1e-5)
    assert promise.epsilon_lower <= 1.99309140441512 <= promise.epsilon
    # A promise is for the relation in use: nothing doubles.
    assert accounting.guarantee(GaussianDP(0.5), delta=1e-5, relation="replace_one").epsilon == promise.epsilon
    assert accounting.guarantee(Gaussian(2.0), delta=1e-5, relation="replace_one").epsilon_lower > 4.377178


def test_concentrated_privacy_is_between_the_gaussian_and_its_renyi_bound():
    event = ZeroConcentratedDP(0.125)
    found = accounting.guarantee(event, delta=1e-5)
    assert found.epsilon_lower == pytest.approx(1.99309140441512, rel=1e-10)
    assert found.epsilon == pytest.approx(2.16571554518, rel=1e-9)
    assert found.epsilon == rdp.guarantee(event, delta=1e-5, relation="add_remove").epsilon
    assert "Rényi" in found.notes[0]
    delta = accounting.delta(event, epsilon=found.epsilon)
    assert delta.delta_lower < 1e-5 <= delta.delta * (1 + 1e-9)


def test_concentrated_privacy_beside_sampled_steps():
    parts = sampled(0.01, 1.0, 100)
    found = accounting.guarantee(Composed(ZeroConcentratedDP(0.125), parts), delta=1e-5)
    attained = accounting.guarantee(Composed(Gaussian(2.0), parts), delta=1e-5)
    assert found.epsilon_lower == pytest.approx(attained.epsilon_lower, rel=1e-9)
    assert found.epsilon > attained.epsilon


@pytest.mark.parametrize("relation", RELATIONS[:2])
def test_fixed_size_samples_name_their_bound(relation):
    event = Repeated(FixedSizeSampled(Gaussian(2.0), 10, 1000), 100)
    found = accounting.guarantee(event, delta=1e-5, relation=relation)
    assert any("dominating pair" in note and "Balle" in note for note in found.notes)
    assert not any("dominating" in note for note in accounting.guarantee(STEPS, delta=1e-5).notes)
    assert found.gap < 1e-4 * found.epsilon


def test_a_sampled_promise_has_no_opposite():
    with pytest.raises(UnsupportedEvent, match="GaussianDP"):
        accounting.guarantee(PoissonSampled(GaussianDP(1.0), 0.1), delta=1e-5, relation="replace_one")


# What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 1.5, math.nan, math.inf, "1e-5", None, True])
def test_bad_deltas(delta):
    assert_refused(lambda: accounting.guarantee(STEPS, delta=delta), "delta")


@pytest.mark.parametrize("epsilon", [-1e-9, math.nan, math.inf, "1", None, True])
def test_bad_epsilons(epsilon):
    assert_refused(lambda: accounting.delta(STEPS, epsilon=epsilon), "epsilon")


@pytest.mark.parametrize("ask", [accounting.guarantee, accounting.delta])
@pytest.mark.parametrize(
    ("change", "word"),
    [({"relation": "swap"}, "relation"), ({"method": "magic"}, "method"), ({"event": 4.0}, "event")],
)
def test_bad_words(ask, change, word):
    question = {"delta": 1e-5} if ask is accounting.guarantee else {"epsilon": 1.0}
    arguments = {"event": STEPS, **question, **change}
    assert_refused(lambda: ask(arguments.pop("event"), **arguments), word)


def assert_refused(call, word):
    with pytest.raises(InvalidValue, match=word) as caught:
        call()
    assert isinstance(caught.value, HushError)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)
