"""Composition theorems against published values, high-precision sums and each other."""

import json
import math
import time
from pathlib import Path

import mpmath
import numpy
import pytest

from hush.accounting import composition, gdp, guarantee
from hush.accounting.composition_theorems import kairouz_middle_term
from hush.accounting.response_curve import LARGEST_SUPPORT, response_curve
from hush.errors import InvalidValue, UnsupportedEvent
from hush.events import (
    ApproximateDP,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NotPrivate,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
    Repeated,
    ZeroConcentratedDP,
)

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "classic_accounting.json").read_text())
ROWS = REFERENCE["composition"]
CLASSIC = Repeated(PoissonSampled(Gaussian(4.0), 0.01), 10_000)
METHODS = {
    "basic": (composition.basic_guarantee, composition.basic_delta_guarantee),
    "advanced": (composition.advanced_guarantee, composition.advanced_delta_guarantee),
    "optimal": (composition.optimal_guarantee, composition.optimal_delta_guarantee),
}


def exact_delta(groups, epsilon):
    """The curve of composed randomized responses by brute force, for groups of (epsilon, count)."""
    with mpmath.workdps(50):
        outcomes = {mpmath.mpf(0): mpmath.mpf(1)}
        for value, count in groups:
            lie = 1 / (1 + mpmath.exp(value))
            following = {}
            for loss, mass in outcomes.items():
                for lies in range(count + 1):
                    chance = mpmath.binomial(count, lies) * lie**lies * (1 - lie) ** (count - lies)
                    key = loss + (count - 2 * lies) * mpmath.mpf(value)
                    following[key] = following.get(key, 0) + mass * chance
            outcomes = following
        return float(sum(mass * (1 - mpmath.exp(epsilon - loss)) for loss, mass in outcomes.items() if loss > epsilon))


@pytest.mark.parametrize("row", ROWS)
def test_formulas_match_the_reference(row):
    steps, deltas = [row["epsilon"]] * row["times"], [0.0] * row["times"]
    assert composition.basic(steps, deltas)[0] == pytest.approx(row["basic"], rel=1e-13)
    for form in ("original", "tanh"):
        epsilon, delta = composition.advanced(steps, deltas, row["slack"], form=form)
        assert epsilon == pytest.approx(row[form], rel=1e-11)
        assert delta == row["slack"]
    middle = kairouz_middle_term(numpy.array([row["epsilon"]]), numpy.array([row["times"]]), row["slack"])
    assert middle == pytest.approx(row["kairouz_middle_term"], rel=1e-11)
    best = min(row["basic"], row["tanh"], row["kairouz_middle_term"])
    assert composition.kairouz(steps, deltas, row["slack"])[0] == pytest.approx(best, rel=1e-11)


@pytest.mark.parametrize("row", [row for row in ROWS if row["optimal"]])
def test_optimal_matches_the_reference(row):
    found = composition.optimal(row["epsilon"], 0.0, row["times"], total_delta=row["slack"])
    assert found == pytest.approx(row["optimal"], rel=1e-11)


def test_unequal_steps_match_the_reference():
    row = REFERENCE["composition_unequal"]
    steps = [epsilon for epsilon, count in row["groups"] for _ in range(count)]
    assert composition.basic(steps, [0.0] * 70)[0] == pytest.approx(row["basic"], rel=1e-13)
    assert composition.advanced(steps, [0.0] * 70, row["slack"])[0] == pytest.approx(row["tanh"], rel=1e-11)
    middle = kairouz_middle_term(numpy.array(steps), numpy.ones(70), row["slack"])
    assert middle == pytest.approx(row["kairouz_middle_term"], rel=1e-11)


def test_deltas_add_or_multiply():
    assert composition.basic([0.1, 0.2], [0.25, 0.5])[1] == 0.75
    assert composition.basic([0.1] * 3, [0.5] * 3)[1] == 1.0
    assert composition.advanced([0.1, 0.2], [0.25, 0.25], 0.125)[1] == 0.625
    assert composition.kairouz([0.1, 0.2], [0.25, 0.5], 0.5)[1] == pytest.approx(1 - 0.75 * 0.5 * 0.5, rel=1e-12)


@pytest.mark.parametrize(
    ("groups", "epsilon"),
    [
        ([(0.3, 30)], 2.0),
        ([(0.3, 31)], 0.05),
        ([(1e-4, 60)], 1e-3),
        ([(0.1, 12), (0.25, 9)], 1.3),
        ([(2.0, 8), (0.7, 5), (0.01, 4)], 12.0),
        ([(40.0, 3)], 119.9),
    ],
)
def test_response_curve_is_exact_and_never_below_the_brute_force_sum(groups, epsilon):
    values, counts = zip(*groups, strict=True)
    curve, rounded = response_curve(numpy.array(values), list(counts))
    truth = exact_delta(groups, epsilon)
    assert not rounded
    assert truth <= curve.delta(epsilon) <= truth * (1 + 1e-9)
    found = curve.epsilon(truth)
    assert epsilon <= found <= epsilon * (1 + 1e-6)
    assert exact_delta(groups, found) <= truth


@pytest.mark.parametrize("times", [1_000, 1_000_000])
def test_optimal_of_many_steps_is_exact(times):
    step, epsilon = 5.0 / times**0.5, 8.0
    with mpmath.workdps(40):  # P(S) - e^epsilon Q(S) with regularised incomplete beta functions
        lie = 1 / (1 + mpmath.exp(mpmath.mpf(step)))
        most = math.ceil((times - epsilon / step) / 2) - 1
        centre = int(times * float(lie))
        lowest = max(0, centre - 15 * math.isqrt(times))
        mass = mpmath.binomial(times, lowest) * lie**lowest * (1 - lie) ** (times - lowest)
        truth = mpmath.mpf(0)
        for lies in range(lowest, most + 1):
            truth += mass * -mpmath.expm1(epsilon - (times - 2 * lies) * mpmath.mpf(step))
            mass *= mpmath.mpf(times - lies) / (lies + 1) * lie / (1 - lie)
    found = composition.optimal_delta(step, 0.0, times, total_epsilon=epsilon)
    assert truth <= found <= truth * (1 + 1e-9)


def true_optimal_delta(step, times, epsilon):
    """Return P(S) - e^epsilon Q(S) of the binomial losses, summed term by term in 40 digits."""
    with mpmath.workdps(40):
        step, epsilon = mpmath.mpf(step), mpmath.mpf(epsilon)
        log_lie = -mpmath.log1p(mpmath.exp(step))
        last = int(mpmath.floor((times - epsilon / step) / 2))
        log_mass = (
            mpmath.loggamma(times + 1) - mpmath.loggamma(last + 1) - mpmath.loggamma(times - last + 1)
            + last * log_lie + (times - last) * (step + log_lie)
        )  # fmt: skip
        mass, total, odds = mpmath.exp(log_mass), mpmath.mpf(0), mpmath.exp(step)
        excess, factor = mpmath.exp(epsilon - (times - 2 * last) * step), mpmath.exp(-2 * step)
        for lies in range(last, -1, -1):
            total += mass * (1 - excess)
            if mass < total * mpmath.mpf("1e-20"):
                break
            mass *= mpmath.mpf(lies) / (times - lies + 1) * odds
            excess *= factor
        return total


@pytest.mark.parametrize(
    ("step", "times", "epsilon", "tight"),
    [
        (2e-4, 30_000_000, 5.0, 1e-4),
        (2e-4, 10**8, 12.0, 1e-4),
        (1.9e-3, 10**8, 330.0, 0.05),
        (0.01, 10**8, 5400.0, 1.0),
    ],
)
def test_optimal_of_more_losses_than_are_listed_is_an_upper_bound(step, times, epsilon, tight):
    truth = true_optimal_delta(step, times, epsilon)
    assert 1e-30 < truth < 0.5
    delta = composition.optimal_delta(step, 0.0, times, total_epsilon=epsilon)
    assert truth <= delta <= truth * (1 + tight)
    found = composition.optimal(step, 0.0, times, total_delta=float(truth))
    assert epsilon * (1 - 1e-15) <= found <= epsilon * (1 + tight)


@pytest.mark.parametrize("log_times", [9, 12, 16, 24, 60, 299])
@pytest.mark.parametrize("mu", [0.1, 1.0, 6.0])
def test_optimal_of_countless_small_steps_has_the_gaussian_limit(log_times, mu):
    """Steps of mu / sqrt(times) tend to mu-GDP with an error of order 1 / times [Dong, Roth, Su 2022, Thm. 3.5]."""
    times = 10**log_times
    start = time.perf_counter()
    for delta in (1e-12, 1e-5, 0.01):
        found = composition.optimal(mu / math.sqrt(times), 0.0, times, total_delta=delta)
        limit = gdp.epsilon_of(delta, mu)
        assert limit * (1 - 10 / times - 1e-9) <= found <= limit * (1 + 3e-5) + 1e-9
    assert time.perf_counter() - start < 5


def test_optimal_is_quick_and_never_above_the_sum():
    start = time.perf_counter()
    for step in (1e-300, 1e-6, 0.1, 1.0, 30.0, 1e300):
        for times in (10**12, 10**24, 10**300):
            for delta in (0.0, 1e-300, 1e-5, 0.999999):
                found = composition.optimal(step, 0.0, times, total_delta=delta)
                assert 0 <= found <= composition.sum_up([step], [times])
    assert time.perf_counter() - start < 10
    with pytest.raises(InvalidValue, match="times must be at most 1e\\+300"):
        composition.optimal(0.1, 0.0, 10**301, total_delta=1e-5)


@pytest.mark.parametrize("delta", [0.5, 1 - 1e-15])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_so_many_steps_leave_no_delta(delta, relation):
    """These overflowed: the deltas of the steps add up to far more than there is, or rounding does."""
    assert composition.optimal(1e-9, 0.1, 10**12, total_delta=delta) == math.inf
    steps = Repeated(Repeated(PureDP(2e-6), 2_000_000), 10**12)
    for method in ("exact", "optimal"):
        found = guarantee(steps, delta=delta, relation=relation, method=method)
        assert 0 <= found.epsilon_lower <= found.epsilon <= 4e12 * (1 + 1e-12)
    sampled = Repeated(PoissonSampled(PureDP(0.002), 1e-5), 9 * 10**10)
    if relation == "add_remove":
        assert composition.optimal_guarantee(sampled, delta=delta, relation=relation).epsilon <= 2e3


def test_optimal_with_deltas_and_its_edges():
    assert composition.optimal(0.5, 1e-6, 100, total_delta=5e-5) == math.inf
    assert composition.optimal(0.0, 0.0, 100, total_delta=0.0) == 0
    assert composition.optimal(0.5, 0.0, 10, total_delta=0.0) == 5.0
    assert composition.optimal(0.01, 0.0, 10, total_delta=0.5) == 0.0
    epsilon = composition.optimal(0.1, 1e-7, 100, total_delta=2e-5)
    slack = 1 - (1 - 2e-5) / (1 - 1e-7) ** 100
    assert exact_delta([(0.1, 100)], epsilon) == pytest.approx(slack, rel=1e-8)
    assert composition.optimal_delta(0.1, 1e-7, 100, total_epsilon=epsilon) == pytest.approx(2e-5, rel=1e-8)


def test_many_unequal_epsilons_are_rounded_up_and_say_so():
    steps = [Repeated(PureDP(0.01 * k), 400) for k in range(1, 5)]
    assert math.prod(401 for _ in steps) > LARGEST_SUPPORT
    spent = composition.optimal_guarantee(Composed(*steps), delta=1e-6, relation="add_remove")
    assert any("rounded up" in note for note in spent.notes)
    lowest = composition.optimal_guarantee(Composed(*steps[2:]), delta=1e-6, relation="add_remove")
    assert lowest.notes == ()
    assert lowest.epsilon < spent.epsilon <= composition.optimal(0.04, 0.0, 1600, total_delta=1e-6)


def test_published_numbers_for_the_classic_setting():
    row = REFERENCE["strong_composition"]
    setting = (row["noise_multiplier"], row["sampling_prob"], row["steps"], row["delta"])
    assert composition.published_strong_composition(*setting) == pytest.approx(row["published"], abs=5e-7)
    assert composition.strong_composition(*setting, form="original") == pytest.approx(row["original"], abs=5e-3)
    assert composition.strong_composition(*setting, form="tanh") == pytest.approx(row["tanh"], abs=5e-3)


def test_classic_setting_by_each_method_is_ordered_and_above_the_truth():
    epsilons = [
        METHODS[name][0](CLASSIC, delta=1e-5, relation="add_remove") for name in ("basic", "advanced", "optimal")
    ]
    assert epsilons[0].epsilon > epsilons[1].epsilon > epsilons[2].epsilon > 0.94686680076438
    assert epsilons[1].notes == ("tanh form",)
    # tighter than with the textbook noise formula, because the exact curve of the Gaussian costs each step
    assert epsilons[1].epsilon < 21.17


def test_small_steps_take_the_closed_form_and_one_step_the_plain_sum():
    tiny = composition.advanced_guarantee(Repeated(PureDP(0.001), 500), delta=1e-6, relation="add_remove")
    assert tiny.epsilon == pytest.approx(0.100325875624, rel=1e-11)
    assert "Kairouz" in tiny.notes[0]
    # The parts' own deltas, 5e-7 together, leave the theorem half of 1e-6.
    parts = composition.advanced_guarantee(Repeated(ApproximateDP(0.001, 1e-9), 500), delta=1e-6, relation="add_remove")
    assert parts.epsilon == pytest.approx(0.103730758043, rel=1e-11)
    one = composition.advanced_guarantee(PureDP(1.0), delta=1e-6, relation="add_remove")
    assert (one.epsilon, one.notes) == (1.0, ("plain sum",))


@pytest.mark.parametrize("name", METHODS)
def test_one_gaussian_is_never_below_its_exact_curve_and_close_to_it(name):
    spent = METHODS[name][0](Gaussian(2.0), delta=1e-5, relation="add_remove")
    assert 1.99309140441512 <= spent.epsilon <= 1.99309140441512 * 1.001
    doubled = METHODS[name][0](Gaussian(2.0), delta=1e-5, relation="replace_one")
    assert 4.377178095681 <= doubled.epsilon <= 4.377178095681 * 1.001


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "event",
    [
        Repeated(Gaussian(8.0), 20),
        Repeated(PureDP(0.1), 50),
        Composed(Repeated(Laplace(10.0), 20), Gaussian(5.0)),
        Repeated(ApproximateDP(0.2, 1e-8), 10),
        PoissonSampled(Gaussian(1.0), 0.1),
    ],
)
def test_delta_form_inverts_the_epsilon_form(name, event):
    epsilon_form, delta_form = METHODS[name]
    spent = epsilon_form(event, delta=1e-5, relation="add_remove")
    back = delta_form(event, epsilon=spent.epsilon, relation="add_remove").delta
    loose = 1.05 if name == "optimal" else 1 + 1e-4  # the optimal curve has many small valleys; any split is proven
    assert back <= 1e-5 * loose
    assert epsilon_form(event, delta=max(back, 1e-300) * (1 + 1e-6), relation="add_remove").epsilon <= spent.epsilon * (
        1 + 1e-4
    )
    assert delta_form(event, epsilon=spent.epsilon * 0.9, relation="add_remove").delta > back


@pytest.mark.parametrize("name", METHODS)
def test_edges(name):
    epsilon_form, delta_form = METHODS[name]
    for delta in (0.0, 1e-5):
        assert epsilon_form(Composed(), delta=delta, relation="add_remove").epsilon == 0
        assert epsilon_form(NotPrivate(), delta=delta, relation="add_remove").epsilon == math.inf
    assert delta_form(Composed(), epsilon=0.0, relation="add_remove").delta == 0
    assert delta_form(NotPrivate(), epsilon=1.0, relation="add_remove").delta == 1
    assert epsilon_form(Gaussian(1.0), delta=0.0, relation="add_remove").epsilon == math.inf
    assert epsilon_form(Repeated(RandomizedResponse(0.5), 4), delta=0.0, relation="add_remove").epsilon == 2.0
    assert delta_form(Repeated(PureDP(0.5), 4), epsilon=2.0, relation="add_remove").delta == 0
    assert epsilon_form(ApproximateDP(1.0, 1e-3), delta=1e-5, relation="add_remove").epsilon == math.inf
    assert epsilon_form(Laplace(2.0), delta=0.0, relation="replace_one").epsilon == 1.0
    sampled = PoissonSampled(PureDP(1.0), 0.01)
    assert epsilon_form(sampled, delta=0.0, relation="add_remove").epsilon == pytest.approx(0.0170368632362, rel=1e-11)


@pytest.mark.parametrize("name", METHODS)
def test_sampling_uses_the_relation_of_the_lemma(name):
    epsilon_form, _ = METHODS[name]
    with pytest.raises(UnsupportedEvent, match=rf"{name} cannot bound PoissonSampled under replace_one"):
        epsilon_form(CLASSIC, delta=1e-5, relation="replace_one")
    whole = epsilon_form(PoissonSampled(Gaussian(2.0), 1.0), delta=1e-5, relation="replace_one")
    assert whole.epsilon == pytest.approx(4.377178, rel=1e-3)
    fixed = FixedSizeSampled(Gaussian(2.0), 10, 100)
    for relation in ("replace_one", "add_remove", "zero_out"):
        base = gdp.epsilon_of(1e-4, 1.0)  # the inner noise sees a replacement under every relation
        expected = math.log1p(0.1 * math.expm1(base))
        assert epsilon_form(fixed, delta=1e-5, relation=relation).epsilon == pytest.approx(expected, rel=1e-3)
    claim = FixedSizeSampled(PureDP(0.5), 10, 100)
    for relation, inner in (("replace_one", 0.5), ("add_remove", 1.0)):
        expected = math.log1p(0.1 * math.expm1(inner))
        assert epsilon_form(claim, delta=0.0, relation=relation).epsilon == pytest.approx(expected, rel=1e-12)


def test_events_inside_one_sample_are_composed_before_the_lemma():
    several = PoissonSampled(Repeated(Gaussian(4.0), 4), 0.1)
    once = PoissonSampled(Gaussian(2.0), 0.1)
    for form, _ in METHODS.values():
        assert form(several, delta=1e-5, relation="add_remove").epsilon == pytest.approx(
            form(once, delta=1e-5, relation="add_remove").epsilon, rel=1e-10
        )
    mixed = PoissonSampled(Composed(PureDP(0.5), ZeroConcentratedDP(0.01)), 0.1)
    assert composition.basic_guarantee(mixed, delta=1e-5, relation="add_remove").epsilon > math.log1p(
        0.1 * math.expm1(0.5)
    )


def test_bad_values_and_unknown_events_are_refused_by_name():
    class Mystery(Event):
        pass

    with pytest.raises(UnsupportedEvent, match=r"basic cannot bound Mystery.*exact"):
        composition.basic_guarantee(Mystery(), delta=1e-5, relation="add_remove")
    with pytest.raises(UnsupportedEvent, match="PoissonSampled of FixedSizeSampled"):
        composition.optimal_guarantee(
            PoissonSampled(FixedSizeSampled(PureDP(1.0), 1, 2), 0.5), delta=0.1, relation="add_remove"
        )
    with pytest.raises(InvalidValue, match="equally many"):
        composition.basic([1.0], [])
    with pytest.raises(InvalidValue, match="slack must be above 0"):
        composition.advanced([1.0], [0.0], 0.0)
    with pytest.raises(InvalidValue, match="form must be one of"):
        composition.advanced([1.0], [0.0], 0.1, form="best")
    with pytest.raises(InvalidValue, match="delta"):
        composition.published_strong_composition(4.0, 0.01, 10, 0.0)
