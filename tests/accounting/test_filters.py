"""Privacy filters: they admit what fits, refuse the rest, charge nothing when they refuse, and claim the budget."""

import math

import numpy
import pytest

from hush.accounting import gdp, rdp
from hush.accounting.filters import GDPFilter, RenyiFilter
from hush.errors import BudgetExceeded, InvalidValue, UnsupportedEvent
from hush.events import (
    ApproximateDP,
    Composed,
    FixedSizeSampled,
    Gaussian,
    GaussianDP,
    Laplace,
    NotPrivate,
    PoissonSampled,
    PureDP,
    Repeated,
)
from hush.privacy import Budget

BUDGET = Budget(epsilon=2.0, delta=1e-5)
STEP = PoissonSampled(Gaussian(2.0), 0.01)
MAKERS = [
    lambda: RenyiFilter(BUDGET, relation="add_remove"),
    lambda: RenyiFilter(BUDGET, relation="add_remove", orders=[12.0]),
    lambda: GDPFilter(BUDGET, relation="add_remove"),
]


def charged(privacy_filter, event, most=100_000):
    for count in range(most):
        if privacy_filter.would_exceed(event):
            return count
        privacy_filter.charge(event)
    raise AssertionError("the filter never stopped")


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_admitted_is_inside_the_budget_by_the_exact_gaussian(make):
    privacy_filter = make()
    noises = numpy.random.default_rng(3).uniform(5.0, 40.0, 4000)
    mu_squares = 0.0
    for noise in noises:
        if not privacy_filter.would_exceed(Gaussian(float(noise))):
            privacy_filter.charge(Gaussian(float(noise)))
            mu_squares += noise**-2
    spent = gdp.epsilon_of(BUDGET.delta, math.sqrt(mu_squares))
    assert spent <= BUDGET.epsilon
    assert spent > 0.75 * BUDGET.epsilon
    assert BUDGET.allows(privacy_filter.spent())


def test_two_events_that_need_more_than_the_budget_are_not_both_charged():
    privacy_filter = GDPFilter(BUDGET, relation="add_remove")
    event = GaussianDP(0.8 * privacy_filter.mu)  # 1.28 of the budget together
    privacy_filter.charge(event)
    with pytest.raises(BudgetExceeded):
        privacy_filter.charge(event)


@pytest.mark.parametrize("make", MAKERS)
def test_a_refused_event_raises_and_charges_nothing(make):
    privacy_filter = make()
    privacy_filter.charge(Gaussian(5.0))
    used = privacy_filter.used
    assert 0 < used < 1
    with pytest.raises(BudgetExceeded, match=r"Gaussian does not fit.*epsilon 2 at delta 1e-05; nothing was charged"):
        privacy_filter.charge(Gaussian(0.1))
    assert privacy_filter.used == used
    assert privacy_filter.would_exceed(NotPrivate())
    with pytest.raises(BudgetExceeded):
        privacy_filter.charge(NotPrivate())
    privacy_filter.charge(Gaussian(20.0))
    assert privacy_filter.used > used


@pytest.mark.parametrize("make", MAKERS)
def test_spent_is_nothing_or_the_whole_budget(make):
    privacy_filter = make()
    assert (privacy_filter.spent().epsilon, privacy_filter.spent().delta) == (0.0, 0.0)
    privacy_filter.charge(Composed())
    assert privacy_filter.spent().epsilon == 0.0
    privacy_filter.charge(Gaussian(50.0))
    assert (privacy_filter.spent().epsilon, privacy_filter.spent().delta) == (2.0, 1e-5)
    assert "whole budget" in privacy_filter.spent().notes[0]


def test_gdp_filter_admits_exactly_the_budgets_mu():
    largest = 1 / gdp.analytic_noise(2.0, 1e-5)
    assert not GDPFilter(BUDGET, relation="add_remove").would_exceed(GaussianDP(largest * (1 - 1e-12)))
    assert GDPFilter(BUDGET, relation="add_remove").would_exceed(GaussianDP(largest * (1 + 1e-12)))
    assert charged(GDPFilter(BUDGET, relation="add_remove"), GaussianDP(largest / 10 * (1 - 1e-12))) == 100


def test_replace_one_admits_a_quarter_of_the_gaussians():
    many = charged(GDPFilter(BUDGET, relation="add_remove"), Gaussian(40.0))
    few = charged(GDPFilter(BUDGET, relation="replace_one"), Gaussian(40.0))
    assert few == many // 4


def test_one_order_is_the_renyi_accountant_at_that_order():
    order = 10.0
    admitted = charged(RenyiFilter(BUDGET, relation="add_remove", orders=[order]), Repeated(STEP, 100)) * 100

    def epsilon(steps):
        divergence = steps * rdp.curve(STEP, [order], "add_remove")[0]
        return divergence + math.log1p(-1 / order) - (math.log(BUDGET.delta) + math.log(order)) / (order - 1)

    assert epsilon(admitted) <= BUDGET.epsilon < epsilon(admitted + 100)


def test_several_orders_pay_for_their_union():
    """Each of n orders gets delta/n: the filter must stop where the best order reaches that, not later."""
    orders = [5.0, 10.0, 20.0, 40.0]
    admitted = charged(RenyiFilter(BUDGET, relation="add_remove", orders=orders), Repeated(STEP, 100)) * 100

    def best(steps, delta):
        values = steps * rdp.curve(STEP, orders, "add_remove")
        return min(
            value + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
            for value, order in zip(values, orders, strict=True)
        )

    assert best(admitted, BUDGET.delta / 4) <= BUDGET.epsilon < best(admitted + 100, BUDGET.delta / 4)
    assert best(admitted + 100, BUDGET.delta) < BUDGET.epsilon  # what claiming all of delta for each would admit


def test_renyi_filter_handles_sampled_and_pure_events():
    privacy_filter = RenyiFilter(BUDGET, relation="add_remove")
    for event in (STEP, PureDP(0.01), Laplace(50.0), FixedSizeSampled(Gaussian(5.0), 1, 100)):
        used = privacy_filter.used
        privacy_filter.charge(event)
        assert privacy_filter.used > used


def test_unsupported_events_and_bad_arguments_are_refused_by_name():
    with pytest.raises(UnsupportedEvent, match="GDPFilter takes Gaussian events without sampling, not PoissonSampled"):
        GDPFilter(BUDGET, relation="add_remove").charge(STEP)
    for event in (ApproximateDP(0.1, 1e-9), PoissonSampled(ApproximateDP(0.1, 1e-9), 0.1)):
        with pytest.raises(UnsupportedEvent, match="ApproximateDP"):
            RenyiFilter(BUDGET, relation="add_remove").would_exceed(event)
    for kind in (GDPFilter, RenyiFilter):
        with pytest.raises(InvalidValue, match="delta above 0"):
            kind(Budget(1.0, 0.0), relation="add_remove")
        with pytest.raises(InvalidValue, match="must be a Budget"):
            kind(1.0, relation="add_remove")
    with pytest.raises(InvalidValue, match="orders must be one or more numbers above 1"):
        RenyiFilter(BUDGET, relation="add_remove", orders=[1.0])
