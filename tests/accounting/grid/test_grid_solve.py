from __future__ import annotations

import math

import mpmath
import pytest
from grid_truth import atoms_delta, normal, responses, sampled_remove, two_laplaces, two_sampled_normals
from hypothesis import given, settings
from hypothesis import strategies as st

from hush import events
from hush.accounting.grid import delta_interval, epsilon_interval
from hush.errors import InvalidValue, UnsupportedEvent

G, L, P, R, F = events.Gaussian, events.Laplace, events.PoissonSampled, events.Repeated, events.FixedSizeSampled
RR = events.RandomizedResponse


def holds(interval, truth, *, width=None, slack=0.0):
    low, high = interval
    assert 0 <= low <= high
    assert low <= truth * (1 + slack)
    assert high >= truth * (1 - slack)
    if width is not None:
        assert high - low <= width * abs(truth)


# -- closed forms and published values ------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 5.0, 20.0])
def test_gaussians_are_one_gaussian(epsilon):
    found = delta_interval(R(G(4.0), 16), epsilon=epsilon, relation="add_remove")
    holds(found, normal(1.0)(epsilon), width=1e-11)
    doubled = delta_interval(R(G(4.0), 16), epsilon=epsilon, relation="replace_one")
    holds(doubled, normal(2.0)(epsilon), width=1e-11)


@pytest.mark.parametrize(
    ("epsilon", "times", "delta", "truth"),
    [
        (1e-3, 500, 1e-6, 0.0797888541705),
        (0.1, 100, 1e-5, 4.30679137252),
        (1.0, 10, 1e-5, 9.99977063453),
    ],
)
def test_pure_dp_is_kairouz_oh_viswanath(epsilon, times, delta, truth):
    for event in (events.PureDP(epsilon), RR(epsilon)):
        found = epsilon_interval(R(event, times), delta=delta, relation="replace_one")
        holds(found, truth, width=1e-10, slack=3e-12)


@pytest.mark.parametrize("at", [0.0, 0.7, 3.0, 6.0])
def test_responses_by_the_exact_sum(at):
    holds(
        delta_interval(R(events.PureDP(0.2), 40), epsilon=at, relation="add_remove"), responses(0.2, 40, at), width=1e-9
    )


@pytest.mark.parametrize(
    ("sampling_prob", "noise", "steps", "delta", "truth", "width"),
    [
        (0.01, 4.0, 10_000, 1e-5, 0.94686680076438, 1e-4),
        (0.01, 0.5, 1_000, 1e-5, 13.3608239853496, 1e-4),
        (0.08192, 3.0, 2_500, 1e-5, 6.57889585057720, 1e-4),
        (0.2, 1.0, 500, 1e-5, 38.1702472064878, 1e-5),
        (0.001, 50.0, 100, 1e-6, 0.00043957378131202, 1e-6),
        (0.01, 1.0, 1_000, 1e-15, 4.85453775060492, 1e-4),
        (0.5, 1.0, 1, 1e-5, 3.53399798544900, 1e-11),
        (0.01, 1.0, 1, 1e-5, 0.199450447796, 1e-9),
        (0.01, 0.5, 1, 1e-5, 3.02535780548, 1e-9),
    ],
)
def test_sampled_gaussian_reference_rows(sampling_prob, noise, steps, delta, truth, width):
    event = R(P(G(noise), sampling_prob), steps)
    holds(epsilon_interval(event, delta=delta, relation="add_remove"), truth, width=width, slack=2e-12)


@pytest.mark.parametrize(
    ("sampling_prob", "noise", "steps", "truth"),
    [(0.01, 4.0, 10_000, 1.993120057), (0.01, 0.5, 1_000, 15.161359599), (1.0, 20.0, 100, 4.377178096)],
)
def test_replace_one_reference_rows(sampling_prob, noise, steps, truth):
    event = R(P(G(noise), sampling_prob), steps)
    holds(epsilon_interval(event, delta=1e-5, relation="replace_one"), truth, width=1e-4, slack=1e-9)


# -- few steps, by quadrature ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "at"), [(1.0, 1.0, 0.4), (1.0, 1.0, 1.9), (0.5, 0.2, 0.0), (2.0, 0.3, 1.1)]
)
def test_two_laplaces(first, second, at):
    event = events.Composed(L(1 / first), L(1 / second))
    holds(delta_interval(event, epsilon=at, relation="add_remove"), two_laplaces(first, second, at), width=1e-4)
    halved = events.Composed(L(2 / first), L(2 / second))
    holds(delta_interval(halved, epsilon=at, relation="replace_one"), two_laplaces(first, second, at), width=1e-4)


@pytest.mark.parametrize(("s", "q", "at"), [(1.0, 0.3, 0.5), (0.7, 0.05, 2.0), (2.0, 0.5, 0.1)])
def test_two_sampled_gaussians(s, q, at):
    found = delta_interval(R(P(G(s), q), 2), epsilon=at, relation="add_remove")
    truth = two_sampled_normals(s, q, at)
    assert found[1] >= truth * (1 - mpmath.mpf(10) ** -12)
    holds(found, truth, width=1e-5, slack=1e-10)  # remove is the larger direction here


def test_mixture_of_responses_by_direct_convolution():
    quarter, half = math.exp(-0.25), math.exp(-0.5)
    first = [(0.25, 1 / (1 + quarter)), (-0.25, quarter / (1 + quarter))]
    truth_mass = 1 / (1 + 3 * half)
    second = [(0.5, truth_mass), (0.0, 2 * truth_mass * half), (-0.5, truth_mass * half)]
    event = events.Composed(R(RR(0.25), 6), R(RR(0.5, 4), 5))
    for at in (0.0, 0.6, 2.0, 3.5):
        truth = atoms_delta([(first, 6), (second, 5)], at)
        holds(delta_interval(event, epsilon=at, relation="zero_out"), truth, width=1e-9, slack=1e-14)


def test_approximate_dp_adds_its_mass():
    event = R(events.ApproximateDP(0.3, 1e-7), 20)
    kept = (1 - mpmath.mpf(1e-7)) ** 20
    for at in (0.0, 1.0, 3.0, 6.5):
        truth = 1 - kept + kept * responses(0.3, 20, at)
        holds(delta_interval(event, epsilon=at, relation="add_remove"), truth, width=1e-8, slack=1e-14)


def test_sampled_pure_dp_two_atoms():
    q, e = mpmath.mpf("0.25"), mpmath.mpf(1)
    up, down = 1 - q + q * mpmath.exp(e), 1 - q + q * mpmath.exp(-e)
    p = 1 / (1 + mpmath.exp(-e))  # P's mass at +1; Q's is 1 - p
    high = (1 - q) * (1 - p) + q * p
    for at in (0.0, 0.4, 1.5):
        remove = add = mpmath.mpf(0)
        for k in range(7):
            loss = (6 - k) * mpmath.log(up) + k * mpmath.log(down)
            remove += math.comb(6, k) * high ** (6 - k) * (1 - high) ** k * max(0, 1 - mpmath.exp(at - loss))
            add += math.comb(6, k) * (1 - p) ** (6 - k) * p**k * max(0, 1 - mpmath.exp(at + loss))
        found = delta_interval(R(P(events.PureDP(1.0), 0.25), 6), epsilon=at, relation="add_remove")
        holds(found, max(remove, add), width=1e-8, slack=1e-14)


# -- tiny deltas ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-20, 1e-30])
def test_tiny_delta_of_sampled_gaussians(delta):
    low, high = epsilon_interval(R(P(G(1.0), 0.1), 2), delta=delta, relation="add_remove")
    assert high - low < 1e-6 * high
    assert two_sampled_normals(1.0, 0.1, high) <= delta * (1 + 1e-9)
    assert two_sampled_normals(1.0, 0.1, low) >= delta * (1 - 1e-9)


@pytest.mark.parametrize("delta", [1e-20, 1e-30])
def test_tiny_delta_of_responses(delta):
    low, high = epsilon_interval(R(events.PureDP(0.1), 400), delta=delta, relation="add_remove")
    assert responses(0.1, 400, high) <= delta
    assert responses(0.1, 400, low) >= delta
    assert high - low < 1e-9 * high


# -- fixed-size sampling --------------------------------------------------------------------------------------------


def test_one_fixed_size_sample_is_the_amplified_replace_curve():
    base, share = normal(2 / 1.5), mpmath.mpf("0.1")
    for relation in ("replace_one", "zero_out", "add_remove"):
        for at in (0.0, 0.3, 1.0):
            inner = mpmath.log((mpmath.exp(at) - 1 + share) / share)
            truth = share * base(inner)
            found = delta_interval(F(G(1.5), 10, 100), epsilon=at, relation=relation)
            holds(found, truth, width=1e-11, slack=1e-15)


def test_fixed_size_takes_declared_guarantees_in_twos_unless_they_are_for_replacement():
    def largest(event, relation):
        return epsilon_interval(event, delta=0.0, relation=relation)

    event = F(events.PureDP(0.5), 10, 100)
    holds(largest(event, "replace_one"), math.log1p(0.1 * math.expm1(0.5)), width=1e-13, slack=1e-14)
    for relation in ("add_remove", "zero_out"):
        holds(largest(event, relation), math.log1p(0.1 * math.expm1(1.0)), width=1e-13, slack=1e-14)


def test_composed_fixed_size_samples_are_symmetric_and_larger_than_one_direction():
    event = R(F(G(2.0), 10, 1000), 50)
    replace = epsilon_interval(event, delta=1e-5, relation="replace_one")
    add_remove = epsilon_interval(event, delta=1e-5, relation="add_remove")
    assert add_remove[1] < replace[0]  # C is above both directions at every epsilon
    assert replace[1] - replace[0] < 1e-4 * replace[1]


# -- another library ------------------------------------------------------------------------------------------------

OTHERS = {
    "laplace": (R(L(2.0), 10), [("laplace", 2.0, 1.0, 10)]),
    "sampled laplace": (R(P(L(0.8), 0.1), 30), [("laplace", 0.8, 0.1, 30)]),
    "response": (R(RR(0.4, 5), 20), [("response", 0.4, 5, 20)]),
    "mixture": (
        events.Composed(R(L(3.0), 8), R(P(G(1.2), 0.05), 60), R(RR(0.3, 3), 4)),
        [("laplace", 3.0, 1.0, 8), ("gaussian", 1.2, 0.05, 60), ("response", 0.3, 3, 4)],
    ),
}


def their_epsilon(rows, delta, *, pessimistic):
    from dp_accounting.pld import privacy_loss_distribution as pld

    options = {"value_discretization_interval": 1e-4, "pessimistic_estimate": pessimistic}
    total = None
    for kind, parameter, second, count in rows:
        if kind == "laplace":
            one = pld.from_laplace_mechanism(parameter, sampling_prob=second, **options)
        elif kind == "gaussian":
            one = pld.from_gaussian_mechanism(parameter, sampling_prob=second, **options)
        else:
            one = pld.from_randomized_response(second / (math.exp(parameter) + second - 1), second, **options)
        several = one.self_compose(count)
        total = several if total is None else total.compose(several)
    return total.get_epsilon_for_delta(delta)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("delta", [1e-4, 1e-7])
def test_agrees_with_dp_accounting(name, delta):
    event, rows = OTHERS[name]
    low, high = epsilon_interval(event, delta=delta, relation="add_remove")
    assert low <= their_epsilon(rows, delta, pessimistic=True) * (1 + 1e-9)
    assert high >= their_epsilon(rows, delta, pessimistic=False) * (1 - 1e-9)
    assert high == pytest.approx(their_epsilon(rows, delta, pessimistic=True), rel=2e-3)
    assert high - low < 1e-5 * high


# -- edges (one test per row of the table in solve.py) --------------------------------------------------------------


def test_empty_composition_costs_nothing():
    for event in (events.Composed(), events.PureDP(0.0), R(events.GaussianDP(0.0), 5)):
        assert epsilon_interval(event, delta=0.0, relation="add_remove") == (0.0, 0.0)
        assert delta_interval(event, epsilon=0.0, relation="add_remove") == (0.0, 0.0)


@pytest.mark.parametrize(
    ("event", "truth"),
    [(R(L(2.0), 10), 5.0), (R(RR(0.3, 4), 7), 2.1), (R(G(1.0), 3), math.inf), (R(P(G(1.0), 0.1), 3), math.inf)],
)
def test_delta_zero_is_the_largest_loss(event, truth):
    low, high = epsilon_interval(event, delta=0.0, relation="add_remove")
    assert low <= truth <= high
    assert high == truth or high - low < 1e-13 * high


def test_delta_under_the_mass_at_infinity_is_infinite():
    event = R(events.ApproximateDP(0.1, 1e-6), 10)
    assert epsilon_interval(event, delta=9e-6, relation="add_remove") == (math.inf, math.inf)
    assert math.isfinite(epsilon_interval(event, delta=1.1e-5, relation="add_remove")[1])


def test_not_private():
    event = events.Composed(G(1.0), events.NotPrivate())
    assert delta_interval(event, epsilon=3.0, relation="add_remove") == (1.0, 1.0)
    assert epsilon_interval(event, delta=0.5, relation="replace_one") == (math.inf, math.inf)
    sampled = R(P(events.NotPrivate(), 1e-3), 3)
    holds(
        delta_interval(sampled, epsilon=2.0, relation="add_remove"),
        1 - mpmath.mpf("0.999") ** 3,
        width=1e-9,
        slack=1e-12,
    )


def test_large_delta_needs_no_epsilon():
    low, high = epsilon_interval(R(P(G(5.0), 0.01), 10), delta=0.1, relation="add_remove")
    assert (low, high) == (0.0, 0.0)
    assert epsilon_interval(R(P(events.NotPrivate(), 1e-3), 5), delta=0.01, relation="add_remove") == (0.0, 0.0)


@pytest.mark.parametrize(
    "inner", [events.PureDP(1.0), events.ApproximateDP(1.0, 1e-6), events.GaussianDP(1.0), RR(1.0)]
)
def test_sampling_under_replace_one_is_refused_by_name(inner):
    with pytest.raises(UnsupportedEvent, match=type(inner).__name__):
        epsilon_interval(P(inner, 0.1), delta=1e-5, relation="replace_one")


@pytest.mark.parametrize("event", [events.ZeroConcentratedDP(0.1), P(R(G(1.0), 2), 0.1), F(P(G(1.0), 0.1), 1, 5)])
def test_unknown_events_are_refused(event):
    with pytest.raises(UnsupportedEvent, match="cannot bound"):
        delta_interval(event, epsilon=1.0, relation="add_remove")


def test_bad_values_are_refused():
    with pytest.raises(InvalidValue, match="delta"):
        epsilon_interval(G(1.0), delta=1.0, relation="add_remove")
    with pytest.raises(InvalidValue, match="epsilon"):
        delta_interval(G(1.0), epsilon=-1.0, relation="add_remove")
    with pytest.raises(InvalidValue, match="relation"):
        delta_interval(G(1.0), epsilon=1.0, relation="both")  # type: ignore[arg-type]


# -- properties -----------------------------------------------------------------------------------------------------

elementary = st.one_of(
    st.builds(G, st.floats(0.5, 10)),
    st.builds(L, st.floats(0.3, 10)),
    st.builds(RR, st.floats(0.05, 2), st.integers(2, 6)),
    st.builds(events.ApproximateDP, st.floats(0, 2), st.sampled_from([0.0, 1e-9])),
)
sampled = st.one_of(
    elementary,
    st.builds(P, elementary, st.floats(1e-3, 1)),
    st.builds(F, elementary, st.integers(1, 50), st.just(100)),
)
composed = st.lists(st.builds(R, sampled, st.integers(1, 40)), min_size=1, max_size=3)
relations = st.sampled_from(["add_remove", "zero_out"])


@settings(max_examples=12, deadline=None, derandomize=True)
@given(composed, relations, st.sampled_from([1e-3, 1e-6, 1e-12]))
def test_bounds_are_ordered_monotone_and_agree(parts, relation, delta):
    event = events.Composed(*parts)
    low, high = epsilon_interval(event, delta=delta, relation=relation)
    assert 0 <= low <= high
    assert math.isfinite(high)
    assert high - low <= 0.02 * high + 1e-9
    backwards = epsilon_interval(events.Composed(*reversed(parts)), delta=delta, relation=relation)
    assert backwards == pytest.approx((low, high), rel=1e-3, abs=1e-9)
    assert backwards[0] <= high
    assert low <= backwards[1]
    assert epsilon_interval(event, delta=2 * delta, relation=relation)[0] <= high
    more = epsilon_interval(events.Composed(*parts, parts[0]), delta=delta, relation=relation)
    assert more[1] >= low
    if high > 0:
        assert delta_interval(event, epsilon=high, relation=relation)[0] <= delta
    if low > 0:
        assert delta_interval(event, epsilon=low, relation=relation)[1] >= delta


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.floats(0.4, 5), st.floats(1e-3, 0.9), st.floats(0, 3))
def test_single_sampled_gaussian_is_its_closed_form(s, q, at):
    holds(delta_interval(P(G(s), q), epsilon=at, relation="add_remove"), sampled_remove(s, q)(at), slack=0)
