"""How far down a list of queries the budget reaches, and the charge before anything leaves.

Query by query, a test costs `test` whether it passes or not and an answer costs `answer`; both are known before the
first query, which of them happen is not. A query is asked only if its test and its answer still fit, so that nothing is
spent on a test whose answer could not be paid. What is charged is what happened.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy
from numpy.typing import NDArray

from hush import accounting
from hush.accounting import GDPFilter
from hush.errors import InvalidValue
from hush.events import ApproximateDP, Composed, Event, GaussianDP, Repeated, ZeroConcentratedDP, flat
from hush.mechanisms.charging import Account
from hush.privacy import Budget, Guarantee, Relation

Booleans = NDArray[numpy.bool_]


@runtime_checkable
class Cap(Protocol):
    """What a budget must be able to say: a filter of `hush.accounting`, or an account of `hush.ledger`."""

    def would_exceed(self, event: Event, /) -> bool:
        """Whether the event does not fit into what is left."""

    def charge(self, event: Event, /) -> object:
        """Count the event, or raise and count nothing."""


@dataclass(frozen=True)
class Prices:
    """What one query costs: its test (if there is one) whenever it is asked, its answer when it is answered."""

    test: Event | None
    answer: Event

    def of(self, asked: int, answered: int) -> Composed:
        """The event of so many tests and answers."""
        pairs = ((self.test, asked), (self.answer, answered))
        return Composed(*(Repeated(event, times) for event, times in pairs if event is not None and times))


def gaussian_price(squared_sensitivity: int, stddev: float, noise: str) -> Event:
    """The event of Gaussian noise on counts that move by the root of this in the L2 norm; rounded up."""
    if noise == "discrete":
        return ZeroConcentratedDP(squared_sensitivity / (2 * stddev * stddev) * (1 + 1e-15))
    return GaussianDP(math.sqrt(squared_sensitivity) / stddev * (1 + 4e-16))


class FixedCap:
    """A budget for events that may be added along the way without loss, by the accountant that composes them exactly.

    That is so where only the number of releases is open and each costs the same; for `ZeroConcentratedDP` events, whose
    rho may be chosen along the way as long as the sum stays below a bound fixed before [Feldman, Zrnic 2021, Thm. 4.3,
    at each order]; and for `GaussianDP` events [Smith, Thakurta 2022, Thm. 2]. Other mixtures are refused.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._spent: tuple[Event, ...] = ()

    def would_exceed(self, event: Event, /) -> bool:
        """Whether everything so far and the event cost more than the budget."""
        total = Composed(*self._spent, event)
        kinds = {type(part) for part, _ in flat(total)}
        if len(set(dict(flat(total)))) > 1 and kinds not in ({GaussianDP}, {ZeroConcentratedDP}):
            raise InvalidValue("a budget for different kinds of noise needs hush.accounting.RenyiFilter.")
        return not self.budget.allows(accounting.guarantee(total, delta=self.budget.delta, method="exact"))

    def charge(self, event: Event, /) -> None:
        """Count the event."""
        self._spent = (*self._spent, event)


def cap_for(budget: Budget | Cap | None, prices: Prices) -> Cap | None:
    """The cap that a budget means for these prices; a filter is taken as it is, with what it has already counted."""
    if not isinstance(budget, Budget):
        if budget is not None and not isinstance(budget, Cap):
            raise InvalidValue(f"budget must be a Budget or a filter of hush.accounting; got {type(budget).__name__}.")
        return budget
    if all(isinstance(event, GaussianDP) for event, _ in flat(prices.of(1, 1))) and budget.delta > 0:
        return GDPFilter(budget, relation="replace_one")  # GaussianDP costs the same under every relation
    return FixedCap(budget)


def bound_of(cap: object, prices: Prices, queries: int) -> tuple[Event, Budget | None]:
    """What is proven of a list with tests: the cap that was fixed before it, or that every query was answered.

    `cap` is what held the list: a filter with its `budget`, an account with its `cap`, or nothing. How many queries
    were asked may depend on the votes, so without a cap the whole list counts.
    """
    budget = getattr(cap, "budget", None) or getattr(cap, "cap", None)
    if not isinstance(budget, Budget):
        return prices.of(queries, queries), None
    return GaussianDP(cap.mu) if isinstance(cap, GDPFilter) else ApproximateDP(budget.epsilon, budget.delta), budget


def filtered(budget: Budget, delta: float, relation: Relation) -> Guarantee:
    """The guarantee of everything that a filter let through."""
    notes = ("a filter promises the whole budget, whatever share of it was used",)
    return Guarantee(epsilon=budget.epsilon, delta=delta, relation=relation, method="filter", notes=notes)


def pay(passed: Booleans, prices: Prices, *, cap: Cap | None, account: Account | None) -> int:
    """Charge for as many queries from the front of the list as fit, and return their number."""
    caps = [each for each in (cap, account) if isinstance(each, Cap)]
    asked = _largest_prefix(passed, prices, caps)
    event = prices.of(asked, int(numpy.count_nonzero(passed[:asked])))
    if event.events and account is not None:
        account.charge(event)
    if event.events and cap is not None:
        cap.charge(event)
    return asked


def _largest_prefix(passed: Booleans, prices: Prices, caps: list[Cap]) -> int:
    """The largest number of queries of which each, when it came up, still had room for a test and an answer.

    The room only shrinks along the list, so the number is found by bisection. The decision about a query uses the
    results of the queries before it, never its own.
    """
    before = numpy.concatenate(([0], numpy.cumsum(passed)))

    def fits(asked: int) -> bool:
        worst = prices.of(asked, int(before[asked - 1]) + 1)
        return not any(cap.would_exceed(worst) for cap in caps)

    low, high = 0, len(passed) + 1  # `low` fits, `high` is not in the list or does not fit
    if len(passed) and caps and fits(len(passed)):
        return len(passed)
    while high - low > 1 and caps:
        middle = (low + high) // 2
        low, high = (middle, high) if middle <= len(passed) and fits(middle) else (low, middle)
    return low if caps else len(passed)
