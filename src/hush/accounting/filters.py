"""Privacy filters: a budget that holds even when each event's parameters are chosen after seeing earlier results.

An ordinary accountant composes events fixed in advance. A filter decides before each event whether it may run, from
what was charged so far, and the promise is the whole budget. It is not an odometer: what `spent` claims is the budget,
because a running total of adaptively chosen parameters is not itself a proven epsilon [Rogers et al. 2016].

    >>> from hush.events import Gaussian
    >>> from hush.privacy import Budget
    >>> filter = GDPFilter(Budget(epsilon=2.0, delta=1e-5), relation="add_remove")
    >>> filter.charge(Gaussian(noise_multiplier=4.0))
    >>> filter.would_exceed(Gaussian(noise_multiplier=1.0))
    True
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy

from hush import _check
from hush.accounting import gdp
from hush.accounting.rdp import curve
from hush.accounting.rdp_orders import log_deltas
from hush.errors import BudgetExceeded, InvalidValue, UnsupportedEvent
from hush.events import ApproximateDP, Event, FixedSizeSampled, NotPrivate, PoissonSampled, flat
from hush.privacy import Budget, Guarantee, Relation, check_relation

_MARGIN = 1 + 1e-11


def _check_budget(budget: Budget) -> Budget:
    if not isinstance(budget, Budget):
        raise InvalidValue(f"budget must be a Budget(epsilon, delta); got {budget!r}.")
    if budget.delta == 0:
        raise InvalidValue("a filter's budget needs delta above 0; got 0. Add up epsilons for pure privacy.")
    return budget


class RenyiFilter:
    """A filter over one or more fixed Rényi orders.

    At one order a, events may be chosen adaptively as long as their divergences sum to at most B [Feldman, Zrnic
    2021, Thm. 4.3]: exp((a-1)(loss - sum of divergences)) is a supermartingale. Here B is the divergence that the
    conversion to (epsilon, delta) allows. With several orders, an event may run while at least one order still has
    room; which order survives depends on the results, so each order gets an equal part of delta and the union of
    their failures stays within it (the supermartingale bound, summed over the orders).

    The orders are fixed before the first event. The default is three around the best order of a Gaussian that would
    just fit the budget.
    """

    def __init__(self, budget: Budget, *, relation: Relation, orders: Sequence[float] | None = None) -> None:
        self.budget, self.relation = _check_budget(budget), check_relation(relation)
        chosen = _default_orders(budget) if orders is None else [_check.positive("orders", order) for order in orders]
        if not chosen or min(chosen) <= 1:
            raise InvalidValue(f"orders must be one or more numbers above 1; got {orders!r}.")
        self.orders = tuple(sorted(set(chosen)))
        self._excess = numpy.array(self.orders) - 1
        # The largest r with delta(r) <= delta / number of orders, from log delta = (a-1) r + log delta at r = 0.
        log_share = math.log(budget.delta / len(self.orders))
        at_zero = log_deltas(numpy.zeros(len(self.orders)), self._excess, budget.epsilon)
        self._room = (log_share - at_zero) / self._excess * (1 - 1e-12)
        self._spent = numpy.zeros(len(self.orders))

    def _after(self, event: Event) -> numpy.ndarray:
        for part, _ in flat(event):
            inner = part.event if isinstance(part, PoissonSampled | FixedSizeSampled) else part
            if any(isinstance(leaf, ApproximateDP) and leaf.delta > 0 for leaf, _ in flat(inner)):
                raise UnsupportedEvent(
                    "a RenyiFilter cannot bound ApproximateDP: its divergence is infinite; use a ledger account."
                )
        total: numpy.ndarray = self._spent + curve(event, self.orders, self.relation) * _MARGIN
        return total

    def would_exceed(self, event: Event) -> bool:
        """Whether no order has room left for this event."""
        return not bool(numpy.any(self._after(event) <= self._room))

    def charge(self, event: Event) -> None:
        """Count the event, before it runs; where it does not fit, raise and count nothing."""
        after = self._after(event)
        if not numpy.any(after <= self._room):
            raise BudgetExceeded(_does_not_fit(event, self.budget))
        self._spent = after

    @property
    def used(self) -> float:
        """The used share of the order that has most room left, from 0 to 1."""
        with_room = self._room > 0
        return float(numpy.min(self._spent[with_room] / self._room[with_room])) if numpy.any(with_room) else 1.0

    def spent(self) -> Guarantee:
        """What is proven: nothing spent, or the whole budget; the share used is in the notes."""
        return _spent(self.budget, self.relation, "renyi filter", self.used, charged=bool(numpy.any(self._spent > 0)))


def _default_orders(budget: Budget) -> list[float]:
    # epsilon = rho + 2 sqrt(rho L), L = log(1/delta), is met by sqrt(rho) = sqrt(L + epsilon) - sqrt(L) and has its
    # best order at 1 + sqrt(L / rho) [Bun, Steinke 2016, Prop. 1.3].
    log_delta = -math.log(budget.delta)
    root = budget.epsilon / (math.sqrt(log_delta + budget.epsilon) + math.sqrt(log_delta))
    best = math.sqrt(log_delta) / root
    return [1 + best / 2, 1 + best, 1 + 2 * best]


class GDPFilter:
    """A filter for Gaussian events without sampling: the squares of mu may sum to the budget's own mu squared.

    Adaptively chosen mu-GDP mechanisms whose squares sum to at most mu_B^2 on every path are mu_B-GDP together
    [Smith, Thakurta 2022, Thm. 2; Koskela, Tobaben, Honkela 2023]. The budget's mu is the largest one that is
    (epsilon, delta)-DP.
    """

    def __init__(self, budget: Budget, *, relation: Relation) -> None:
        self.budget, self.relation = _check_budget(budget), check_relation(relation)
        self.mu = 1 / gdp.analytic_noise(budget.epsilon, budget.delta) * (1 - 1e-14)
        self._squares = 0.0

    def _after(self, event: Event) -> float:
        total = self._squares
        for part, count in flat(event):
            mu = gdp.mu_of(part, self.relation)
            if isinstance(part, NotPrivate):
                return math.inf
            if mu is None:
                name = type(part).__name__
                raise UnsupportedEvent(
                    f"a GDPFilter takes Gaussian events without sampling, not {name}; use RenyiFilter."
                )
            total = math.nextafter(total + count * mu * mu * (1 + 1e-15), math.inf)
        return total

    def would_exceed(self, event: Event) -> bool:
        """Whether the event does not fit."""
        return self._after(event) > self.mu * self.mu

    def charge(self, event: Event) -> None:
        """Count the event, before it runs; where it does not fit, raise and count nothing."""
        after = self._after(event)
        if after > self.mu * self.mu:
            raise BudgetExceeded(_does_not_fit(event, self.budget))
        self._squares = after

    @property
    def used(self) -> float:
        """The used share of the budget's squared mu, from 0 to 1."""
        return self._squares / (self.mu * self.mu)

    def spent(self) -> Guarantee:
        """What is proven: nothing spent, or the whole budget; the share used is in the notes."""
        return _spent(self.budget, self.relation, "gdp filter", self.used, charged=self._squares > 0)


def _does_not_fit(event: Event, budget: Budget) -> str:
    return (
        f"{type(event).__name__} does not fit in what is left of epsilon {budget.epsilon:g} at delta "
        f"{budget.delta:g}; nothing was charged; use more noise or fewer steps."
    )


def _spent(budget: Budget, relation: Relation, method: str, used: float, *, charged: bool) -> Guarantee:
    if not charged:
        return Guarantee(epsilon=0.0, delta=0.0, relation=relation, method=method)
    notes = (f"{used:.1%} of the budget used; a filter promises the whole budget, not the share",)
    return Guarantee(epsilon=budget.epsilon, delta=budget.delta, relation=relation, method=method, notes=notes)
