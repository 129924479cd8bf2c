"""Rényi divergences against 40-digit integrals, and guarantees against the truth and another library."""

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import mpmath
import numpy
import pytest

from hush.accounting import composition, gdp, rdp
from hush.accounting.renyi_curve import log_moments
from hush.errors import InvalidValue, UnsupportedEvent
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
    to_dp_accounting,
)

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "classic_accounting.json").read_text())
TRUTH = {row["id"]: row for row in REFERENCE["sampled_gaussian_truth"]}
OTHERS = {row["id"]: row["epsilon"] for row in REFERENCE["rdp_other_libraries"]}
RELATIONS = ("add_remove", "replace_one", "zero_out")


def sampled(row):
    return Repeated(PoissonSampled(Gaussian(row["noise_multiplier"]), row["sampling_prob"]), row["steps"])


def epsilon(event, delta, relation="add_remove"):
    return rdp.guarantee(event, delta=delta, relation=relation).epsilon


def mixture(sampling_prob, mu, x, sign=1):
    return 1 - sampling_prob + sampling_prob * mpmath.exp(sign * mu * x - mu * mu / 2)


def gaussian_integral(function, low, high, mu):
    """A trapezoid sum with a much smaller step than the library's and 40 digits."""
    step = mpmath.mpf(min(0.25, 0.04 / mu**0.5, 0.15 / mu))
    count = int((high - low) / step) + 1
    return step * mpmath.fsum(mpmath.npdf(low + k * step) * function(low + k * step) for k in range(count))


PAIRS = [
    (0.01, 0.25, 1.0001),
    (0.01, 2.0, 1.5479),
    (0.2, 1.0, 5.3),
    (1e-5, 1.7, 8.14),
    (0.6, 0.02, 40.5),
    (0.05, 4.0, 2.7),
    (6e-4, 17.0, 1.123),
    (3e-6, 14.5, 1.003),
]


# The divergence curve -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", REFERENCE["sampled_gaussian_rdp"])
def test_curve_matches_the_reference_at_whole_orders(row):
    step = PoissonSampled(Gaussian(row["noise_multiplier"]), row["sampling_prob"])
    assert rdp.curve(step, [row["order"]], "add_remove")[0] == pytest.approx(row["divergence"], rel=5e-12)


@pytest.mark.parametrize(("sampling_prob", "mu", "order"), PAIRS)
def test_sampled_gaussian_at_real_orders_is_the_integral(sampling_prob, mu, order):
    excess = numpy.array([order - 1])
    step = PoissonSampled(GaussianDP(mu), sampling_prob)
    with mpmath.workdps(40):
        q, m, a = mpmath.mpf(sampling_prob), mpmath.mpf(mu), 1 + mpmath.mpf(float(excess[0]))
        removed = gaussian_integral(lambda x: mixture(q, m, x) ** a, -16, float(a * m) + 16, mu)
        added = gaussian_integral(lambda x: mixture(q, m, x) ** (1 - a), -float(a * m) - 16, mu + 16, mu)
        exact = {"remove": float(mpmath.log(removed)), "add": float(mpmath.log(added))}
    for direction, value in exact.items():
        found = log_moments(step, excess, "add_remove", direction)[0]
        assert found == pytest.approx(value, rel=5e-12)
    assert exact["remove"] >= exact["add"]
    assert rdp.curve(step, [order], "add_remove")[0] == pytest.approx(exact["remove"] / (order - 1), rel=1e-10)


@pytest.mark.parametrize(("sampling_prob", "mu", "order"), PAIRS)
def test_replaced_gaussian_is_the_integral(sampling_prob, mu, order):
    excess = numpy.array([order - 1])
    found = log_moments(PoissonSampled(Gaussian(1 / mu), sampling_prob), excess, "replace_one", "remove")[0]
    with mpmath.workdps(40):
        q, m, a = mpmath.mpf(sampling_prob), 1 / mpmath.mpf(1 / mu), 1 + mpmath.mpf(float(excess[0]))
        exact = gaussian_integral(
            lambda x: mixture(q, m, x) ** a * mixture(q, m, x, -1) ** (1 - a), -16 - mu, float((2 * a - 1) * m) + 16, mu
        )
    assert found == pytest.approx(float(mpmath.log(exact)), rel=5e-12)


@pytest.mark.parametrize(("noise_multiplier", "order"), [(2.0, 1.7), (8.0, 9.0), (1.0, 3.5), (40.0, 120.0)])
@pytest.mark.parametrize("fraction", [0.01, 0.5])
def test_fixed_size_sample_is_the_integral_over_its_privacy_curve(noise_multiplier, order, fraction):
    """1 + a(a-1) * integral of (t^(a-2) + t^(-a-1)) C(log t), C from the sampling lemma and the exact Gaussian."""
    event = FixedSizeSampled(Gaussian(noise_multiplier), int(1000 * fraction), 1000)
    found = rdp.curve(event, [order], "replace_one")[0] * (order - 1)
    mu = 2 / noise_multiplier

    def integrand(base):  # base: the inner epsilon, t = 1 + g (e^base - 1), C = g * delta(base)
        t = 1 + fraction * math.expm1(base)
        curve = fraction * math.exp(gdp.log_delta_of(base, mu))
        return (t ** (order - 2) + t ** (-order - 1)) * curve * fraction * math.exp(base)

    nodes, weights = numpy.polynomial.legendre.leggauss(40)
    edges = numpy.linspace(0, mu * (order * mu + 14), 60)
    total = math.fsum(
        float(weight) * (high - low) / 2 * integrand(float(low + (high - low) * (node + 1) / 2))
        for low, high in itertools.pairwise(edges)
        for node, weight in zip(nodes, weights, strict=True)
    )
    assert found == pytest.approx(math.log1p(order * (order - 1) * total), rel=1e-8)
    assert rdp.curve(event, [order], "zero_out")[0] * (order - 1) == found


@pytest.mark.parametrize("rate", [1e-6, 0.01, 1.0, 30.0, 800.0])
@pytest.mark.parametrize("order", [1.0001, 2.0, 7.3, 1e4])
def test_laplace_is_the_closed_form(rate, order):
    with mpmath.workdps(60):
        a, e = 1 + mpmath.mpf(order - 1), 1 / mpmath.mpf(1 / rate)
        exact = mpmath.log(a / (2 * a - 1) * mpmath.exp((a - 1) * e) + (a - 1) / (2 * a - 1) * mpmath.exp(-a * e)) / (
            a - 1
        )
    assert rdp.curve(Laplace(1 / rate), [order], "add_remove")[0] == pytest.approx(float(exact), rel=1e-12)
    assert rdp.curve(Laplace(2 / rate), [order], "replace_one")[0] == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize("rate", [0.05, 1.0, 20.0])
@pytest.mark.parametrize(("sampling_prob", "order"), [(0.01, 1.3), (0.3, 6.0), (1e-4, 40.0)])
def test_sampled_laplace_is_the_integral(rate, sampling_prob, order):
    excess = numpy.array([order - 1])
    with mpmath.workdps(40):
        q, b, a = mpmath.mpf(sampling_prob), mpmath.mpf(1 / rate), 1 + mpmath.mpf(float(excess[0]))

        def ratio(x):
            return 1 - q + q * mpmath.exp((abs(x) - abs(x - 1)) / b)

        def moment(power):
            inside = mpmath.quad(lambda x: mpmath.exp(-x / b) / (2 * b) * ratio(x) ** power, mpmath.linspace(0, 1, 9))
            return float(mpmath.log(inside + ratio(-1) ** power / 2 + mpmath.exp(-1 / b) * ratio(2) ** power / 2))

        exact = {"remove": moment(a), "add": moment(1 - a)}
    for direction, value in exact.items():
        found = log_moments(PoissonSampled(Laplace(1 / rate), sampling_prob), excess, "add_remove", direction)[0]
        assert found == pytest.approx(value, rel=1e-11)


@pytest.mark.parametrize("event", [RandomizedResponse(0.7, 2), RandomizedResponse(3.0, 10), PureDP(0.7), PureDP(1e-7)])
@pytest.mark.parametrize("order", [1.01, 4.0, 100.0])
@pytest.mark.parametrize("sampling_prob", [1.0, 0.1])
def test_responses_are_the_sum_over_answers(event, order, sampling_prob):
    with mpmath.workdps(50):
        categories, e, a = getattr(event, "categories", 2), mpmath.mpf(event.epsilon), 1 + mpmath.mpf(order - 1)
        true = mpmath.exp(e) / (mpmath.exp(e) + categories - 1)
        false = true * mpmath.exp(-e)
        q = [false, true] + [false] * (categories - 2)
        p = [true, false] + [false] * (categories - 2)
        p = [sampling_prob * one + (1 - mpmath.mpf(sampling_prob)) * other for one, other in zip(p, q, strict=True)]
        both = [
            mpmath.log(mpmath.fsum(x**a * y ** (1 - a) for x, y in zip(left, right, strict=True))) / (a - 1)
            for left, right in ((p, q), (q, p))
        ]
    assert rdp.curve(PoissonSampled(event, sampling_prob), [order], "add_remove")[0] == pytest.approx(
        float(max(both)), rel=1e-11
    )


def test_gaussian_families_and_relations():
    orders = [1.5, 10.0]
    assert rdp.curve(Gaussian(2.0), orders, "add_remove") == pytest.approx([0.1875, 1.25], rel=1e-14)
    assert rdp.curve(Gaussian(2.0), orders, "replace_one") == pytest.approx([0.75, 5.0], rel=1e-14)
    assert rdp.curve(GaussianDP(0.5), orders, "replace_one") == pytest.approx([0.1875, 1.25], rel=1e-14)
    assert rdp.curve(ZeroConcentratedDP(0.125), orders, "add_remove") == pytest.approx([0.1875, 1.25], rel=1e-14)
    together = PoissonSampled(Repeated(Gaussian(4.0), 4), 0.1)
    assert rdp.curve(together, orders, "add_remove") == pytest.approx(
        rdp.curve(PoissonSampled(Gaussian(2.0), 0.1), orders, "add_remove"), rel=1e-13
    )
    nested = PoissonSampled(PoissonSampled(Gaussian(2.0), 0.5), 0.2)
    assert rdp.curve(nested, orders, "zero_out") == pytest.approx(
        rdp.curve(PoissonSampled(Gaussian(2.0), 0.1), orders, "add_remove"), rel=1e-13
    )


@pytest.mark.parametrize(("rho", "fraction"), [(0.01, 0.1), (0.5, 0.01), (2.0, 0.3)])
def test_generic_sampling_bounds_are_not_below_the_exact_gaussian(rho, fraction):
    orders = [1.2, 2.0, 3.0, 5.5, 20.0, 64.0]
    claim, exact = ZeroConcentratedDP(rho), GaussianDP(math.sqrt(2 * rho))
    bound = rdp.curve(PoissonSampled(claim, fraction), orders, "add_remove")
    assert numpy.all(bound >= rdp.curve(PoissonSampled(exact, fraction), orders, "add_remove"))
    size = int(1000 * fraction)
    for relation in RELATIONS:
        bound = rdp.curve(FixedSizeSampled(claim, size, 1000), orders, relation)
        assert numpy.all(bound >= rdp.curve(FixedSizeSampled(exact, size, 1000), orders, relation))
    assert numpy.all(numpy.isfinite(bound))
    assert rdp.curve(PoissonSampled(claim, fraction), [5000.0], "add_remove")[0] == math.inf


def test_generic_poisson_bound_is_the_published_sum():
    """[Zhu, Wang 2019, Thm. 5] at order 4, written out."""
    q, rho = 0.1, 0.05
    terms = (1 - q) ** 3 * (4 * q - q + 1) + 6 * q**2 * (1 - q) ** 2 * math.exp(2 * rho)
    terms += 3 * (4 * q**3 * (1 - q) * math.exp(6 * rho) + q**4 * math.exp(12 * rho))
    found = rdp.curve(PoissonSampled(ZeroConcentratedDP(rho), q), [4.0], "add_remove")[0]
    assert found == pytest.approx(math.log(terms) / 3, rel=1e-9)


def test_generic_fixed_size_bound_is_the_published_sum():
    """[Wang, Balle, Kasiviswanathan 2019, Thm. 9] at order 3, written out; no bound on the loss."""
    g, rho = 0.1, 0.05
    second = min(4 * math.expm1(2 * rho), 2 * math.exp(2 * rho))
    expected = math.log1p(3 * g**2 * second + g**3 * math.exp(6 * rho) * 2) / 2
    found = rdp.curve(FixedSizeSampled(ZeroConcentratedDP(rho), 1, 10), [3.0], "replace_one")[0]
    assert found == pytest.approx(expected, rel=1e-9)


# The guarantee --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRUTH)
def test_guarantee_lies_between_the_truth_and_another_librarys_bound(name):
    row = TRUTH[name]
    found = rdp.guarantee(sampled(row), delta=row["delta"], relation="add_remove")
    assert row["epsilon"] <= found.epsilon <= OTHERS.get(name, math.inf) * (1 + 1e-5)
    assert found.notes[0].startswith("order ")
    if row["sampling_prob"] < 1:
        assert found.notes[1] == "direction remove"


def test_guarantee_at_the_known_optimum():
    assert epsilon(sampled(TRUTH["c01"]), 1e-5) < REFERENCE["strong_composition"]["improved_at_whole_orders"]
    assert epsilon(sampled(TRUTH["c08"]), 1e-5) == pytest.approx(47.18, abs=5e-3)
    row = REFERENCE["zcdp"][0]
    found = rdp.guarantee(Gaussian(2.0), delta=1e-5, relation="add_remove")
    assert found.epsilon == pytest.approx(row["tight"], rel=1e-10)
    assert float(found.notes[0].split()[1]) == pytest.approx(row["order"], rel=1e-4)


def test_three_phases_lie_above_the_truth():
    row = REFERENCE["three_phases_truth"]
    phases = [Repeated(PoissonSampled(Gaussian(s), q), steps) for q, s, steps in row["phases"]]
    found = epsilon(Composed(*phases), row["delta"])
    assert row["epsilon"] <= found <= 2.44290 * (1 + 1e-5)
    assert epsilon(Composed(*reversed(phases)), row["delta"]) == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("row", REFERENCE["replace_one_truth"], ids=lambda row: row["id"])
def test_replace_one_lies_above_the_truth(row):
    found = epsilon(sampled(row), row["delta"], "replace_one")
    assert row["epsilon"] <= found <= row["epsilon"] * 1.15


def test_guarantee_is_the_minimum_over_a_dense_set_of_orders():
    event = sampled(TRUTH["c11"])
    orders = 1 + numpy.geomspace(0.01, 100, 4000)
    divergences = rdp.curve(event, orders, "add_remove")
    values = divergences + numpy.log1p(-1 / orders) - (math.log(1e-5) + numpy.log(orders)) / (orders - 1)
    assert epsilon(event, 1e-5) <= values.min() * (1 + 1e-10)
    assert epsilon(event, 1e-5) >= values.min() * (1 - 1e-5)


def random_settings(count):
    random = numpy.random.default_rng(20)
    for _ in range(count):
        noise = float(10 ** random.uniform(-0.3, 1.2))
        sampling_prob = float(10 ** random.uniform(-4, 0))
        steps = int(10 ** random.uniform(0, 4.5))
        yield noise, sampling_prob, steps, float(10 ** random.uniform(-12, -2))


def test_never_looser_than_dp_accounting_on_random_settings():
    accountants = pytest.importorskip("dp_accounting").rdp
    for noise, sampling_prob, steps, delta in random_settings(110):
        event = Repeated(PoissonSampled(Gaussian(noise), sampling_prob), steps)
        theirs = accountants.RdpAccountant()
        theirs.compose(to_dp_accounting(event))
        assert epsilon(event, delta) <= theirs.get_epsilon(delta) * (1 + 1e-9) + 1e-12, (
            noise,
            sampling_prob,
            steps,
            delta,
        )


def test_never_looser_than_dp_accounting_on_other_events():
    library = pytest.importorskip("dp_accounting")
    replaced = library.NeighboringRelation.REPLACE_ONE
    cases = [
        (Repeated(Laplace(5.0), 30), None, "add_remove"),
        (Repeated(RandomizedResponse(0.3, 4), 30), replaced, "replace_one"),
        (Composed(Laplace(3.0), Gaussian(2.0), ZeroConcentratedDP(0.1)), None, "add_remove"),
    ]
    for event, relation, ours in cases:
        theirs = library.rdp.RdpAccountant(neighboring_relation=relation) if relation else library.rdp.RdpAccountant()
        theirs.compose(to_dp_accounting(event))
        assert epsilon(event, 1e-5, ours) <= theirs.get_epsilon(1e-5) * (1 + 1e-9)


@pytest.mark.parametrize(("noise", "size", "steps"), [(4.0, 10, 10_000), (2.0, 10, 2000), (1.0, 50, 100)])
def test_fixed_size_is_never_looser_than_dp_accounting_at_the_same_inner_noise(noise, size, steps):
    library = pytest.importorskip("dp_accounting")
    # Their Gaussian does not double its sensitivity under replace-one; half the noise says the same thing.
    theirs = library.rdp.RdpAccountant(neighboring_relation=library.NeighboringRelation.REPLACE_ONE)
    theirs.compose(to_dp_accounting(FixedSizeSampled(Gaussian(noise / 2), size, 1000)), steps)
    event = Repeated(FixedSizeSampled(Gaussian(noise), size, 1000), steps)
    ours = epsilon(event, 1e-5, "replace_one")
    assert ours <= theirs.get_epsilon(1e-5) * (1 + 1e-9)
    # a sample that is certain to hold the example is no more private; a Poisson pair of one direction no less
    assert epsilon(event, 1e-5, "add_remove") <= ours * (1 + 1e-9)


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-20])
@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.5, 3.0, 60.0])
def test_never_below_the_exact_gaussian(mu, delta):
    assert gdp.epsilon_of(delta, mu) <= epsilon(GaussianDP(mu), delta)


@pytest.mark.parametrize(("step", "times"), [(0.001, 500), (0.1, 100), (1.0, 10)])
def test_never_below_optimal_composition(step, times):
    found = epsilon(Repeated(PureDP(step), times), 1e-6)
    assert composition.optimal(step, 0.0, times, total_delta=1e-6) <= found <= step * times * (1 + 1e-13)
    mixed = epsilon(Repeated(ApproximateDP(step, 1e-9), times), 1e-6)
    assert composition.optimal(step, 1e-9, times, total_delta=1e-6) <= mixed
    assert found <= mixed <= step * times * (1 + 1e-13)


def test_delta_form_inverts_the_epsilon_form_and_stays_above_the_truth():
    for row in TRUTH.values():
        found = epsilon(sampled(row), row["delta"])
        back = rdp.delta_guarantee(sampled(row), epsilon=found, relation="add_remove").delta
        assert back == pytest.approx(row["delta"], rel=1e-6)
        at_truth = rdp.delta_guarantee(sampled(row), epsilon=row["epsilon"], relation="add_remove").delta
        assert at_truth >= row["delta"]


@pytest.mark.parametrize("level", [0.0, 0.01, 1.0, 6.0])
@pytest.mark.parametrize("mu", [1e-3, 0.3, 2.0])
def test_delta_is_never_below_the_exact_gaussian(mu, level):
    found = rdp.delta_guarantee(GaussianDP(mu), epsilon=level, relation="add_remove").delta
    assert gdp.delta_of(level, mu) <= found <= 1


@pytest.mark.parametrize("relation", RELATIONS)
def test_more_steps_more_sampling_and_less_noise_cost_more(relation):
    def cost(noise=2.0, sampling_prob=0.05, steps=100):
        return epsilon(Repeated(PoissonSampled(Gaussian(noise), sampling_prob), steps), 1e-6, relation)

    assert (
        cost() < cost(steps=150) < cost(steps=150, sampling_prob=0.07) < cost(noise=1.5, steps=150, sampling_prob=0.07)
    )
    assert cost(sampling_prob=1 - 1e-9) <= cost(sampling_prob=1.0) * (1 + 1e-9)


def test_edges():
    for relation, delta in itertools.product(RELATIONS, (0.0, 1e-5)):
        assert epsilon(Composed(), delta, relation) == 0
        assert epsilon(PoissonSampled(Repeated(Composed(), 3), 0.1), delta, relation) == 0
        assert epsilon(NotPrivate(), delta, relation) == math.inf
        assert epsilon(PureDP(0.0), delta, relation) == 0
        assert epsilon(GaussianDP(0.0), delta, relation) == 0
    assert epsilon(Gaussian(1.0), 0.0) == math.inf
    assert epsilon(Composed(Laplace(2.0), PureDP(0.25)), 0.0) == pytest.approx(0.75, rel=1e-13)
    assert epsilon(PoissonSampled(PureDP(1.0), 0.01), 0.0) == pytest.approx(0.0170368632362, rel=1e-11)
    assert epsilon(ApproximateDP(1.0, 1e-3), 1e-5) == math.inf
    assert epsilon(ApproximateDP(1.0, 1e-5), 1.1e-5) <= 1.0 + 1e-12
    assert epsilon(GaussianDP(1e-7), 1e-5) == 0  # the total variation is already below delta
    assert epsilon(PureDP(40.0), 1e-300) <= 40.0 * (1 + 1e-13)
    assert rdp.delta_guarantee(Composed(), epsilon=0.0, relation="add_remove").delta == 0
    assert rdp.delta_guarantee(NotPrivate(), epsilon=9.0, relation="add_remove").delta == 1
    assert rdp.delta_guarantee(PureDP(1.0), epsilon=1.1, relation="add_remove").delta == 0
    assert rdp.delta_guarantee(ApproximateDP(1.0, 1e-4), epsilon=1.1, relation="add_remove").delta == pytest.approx(
        1e-4
    )


def test_claims_inside_a_fixed_size_sample_are_read_for_a_replacement():
    """Under add/remove a claim for one example added becomes a group of two when the sample swaps examples."""
    for relation, inner in (("replace_one", 0.3), ("add_remove", 0.6), ("zero_out", 0.6)):
        expected = math.log1p(0.1 * math.expm1(inner))
        assert epsilon(FixedSizeSampled(PureDP(0.3), 1, 10), 0.0, relation) == pytest.approx(expected, rel=1e-12)
    whole = FixedSizeSampled(Gaussian(2.0), 10, 10)
    assert epsilon(whole, 1e-5, "replace_one") == pytest.approx(epsilon(Gaussian(2.0), 1e-5, "replace_one"), rel=1e-12)


def test_what_cannot_be_bounded_is_refused_by_name():
    class Mystery(Event):
        pass

    for event in (Mystery(), Composed(Gaussian(1.0), Mystery())):
        for delta in (0.0, 1e-5):
            with pytest.raises(UnsupportedEvent, match="rdp cannot bound Mystery"):
                epsilon(event, delta)
    for inner in (PureDP(1.0), Laplace(1.0), GaussianDP(1.0), ApproximateDP(1.0, 1e-9)):
        with pytest.raises(UnsupportedEvent, match=r"PoissonSampled of anything but Gaussian noise under replace_one"):
            epsilon(PoissonSampled(inner, 0.5), 1e-5, "replace_one")
    with pytest.raises(UnsupportedEvent, match="FixedSizeSampled of PoissonSampled"):
        epsilon(FixedSizeSampled(PoissonSampled(PureDP(1.0), 0.5), 1, 2), 1e-5)
    with pytest.raises(InvalidValue, match="orders must be finite numbers above 1"):
        rdp.curve(Gaussian(1.0), [1.0], "add_remove")
    with pytest.raises(InvalidValue, match="relation"):
        epsilon(Gaussian(1.0), 1e-5, "neighbours")


def test_the_classic_accountants_never_load_torch():
    modules = "amplification composition filters gdp group moments rdp zcdp"
    code = (
        f"import sys, importlib\nfor name in '{modules}'.split(): importlib.import_module('hush.accounting.' + name)\n"
    )
    code += "sys.exit('torch' in sys.modules or 'scipy.optimize' in sys.modules or 'scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
