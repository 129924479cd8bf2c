"""What every mechanism owes: plain results, charges before releases, clear refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hush import Budget, Ledger, Rng, accounting, events, mechanisms
from hush.errors import BudgetExceeded, HushError, InvalidValue
from hush.mechanisms.real import grid_of

NAN, INF = float("nan"), float("inf")
COINS = [True, False, True]
NUMBERS = [1.0, 2.0, 3.0]
Release = Callable[..., Any]


class Book:
    """An account that only takes down."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def charge(self, event: events.Event) -> None:
        self.events.append(event)


class Full(Book):
    def charge(self, event: events.Event) -> None:
        raise BudgetExceeded("nothing left")


class Unused(Rng):
    """A source that must not be asked for anything."""

    def cipher_stream(self, name: str) -> Any:
        raise AssertionError("drawn before it was charged")


# name -> (call, the event at epsilon 0.5 under add_remove)
RELEASES: dict[str, tuple[Release, events.Event]] = {
    "laplace": (lambda **k: mechanisms.laplace(3.0, sensitivity=4.0, epsilon=0.5, **k), events.Laplace(2.0)),
    "gaussian": (
        lambda **k: mechanisms.gaussian(3.0, sensitivity=4.0, noise_multiplier=2.5, **k),
        events.Gaussian(2.5),
    ),
    "discrete_laplace": (
        lambda **k: mechanisms.discrete_laplace(3, sensitivity=4, epsilon=0.5, **k),
        events.PureDP(0.5),
    ),
    "discrete_gaussian": (
        lambda **k: mechanisms.discrete_gaussian(3, sensitivity=2, stddev=4.0, **k),
        events.ZeroConcentratedDP(0.125 * (1 + 1e-15)),
    ),
    "exponential": (
        lambda **k: mechanisms.exponential(NUMBERS, sensitivity=1.0, epsilon=0.5, **k),
        events.PureDP(0.5),
    ),
    "report_noisy_max": (
        lambda **k: mechanisms.report_noisy_max(NUMBERS, sensitivity=1.0, epsilon=0.5, **k),
        events.PureDP(0.5),
    ),
    "histogram": (lambda **k: mechanisms.histogram([1, 2], bins=[1, 2, 3], epsilon=0.5, **k), events.PureDP(0.5)),
    "edges": (lambda **k: mechanisms.histogram(NUMBERS, edges=[0, 2, 4], epsilon=0.5, **k), events.PureDP(0.5)),
    "unknown bins": (
        lambda **k: mechanisms.histogram(["a"] * 90, delta=1e-6, epsilon=0.5, **k),
        events.ApproximateDP(0.5, 1e-6),
    ),
    "count": (lambda **k: mechanisms.count(COINS, epsilon=0.5, **k), events.PureDP(0.5)),
    "sum": (lambda **k: mechanisms.sum(NUMBERS, bounds=(0.0, 2.0), epsilon=0.5, **k), events.Laplace(2.0)),
    "mean": (
        lambda **k: mechanisms.mean(NUMBERS, bounds=(0.0, 2.0), epsilon=0.5, **k),
        events.Composed(events.Laplace(4.0), events.PureDP(0.25)),
    ),
    "quantile": (
        lambda **k: mechanisms.quantile(NUMBERS, 0.5, bounds=(0.0, 9.0), epsilon=0.5, **k),
        events.PureDP(0.5),
    ),
    "randomized_response": (
        lambda **k: mechanisms.randomized_response(COINS, epsilon=0.5, categories=[False, True], **k),
        events.RandomizedResponse(0.5, 2),
    ),
}
EACH = pytest.mark.parametrize("name", RELEASES)
BY_RELATION = pytest.mark.parametrize("name", [name for name in RELEASES if name != "randomized_response"])


@EACH
def test_event_is_charged_once(name: str) -> None:
    release, event = RELEASES[name]
    book = Book()
    release(account=book)
    assert book.events == [event]


@EACH
def test_nothing_is_drawn_before_the_charge(name: str) -> None:
    with pytest.raises(BudgetExceeded):
        RELEASES[name][0](account=Full(), rng=Unused())
    with pytest.raises(AssertionError, match="before"):  # the source does tell
        RELEASES[name][0](rng=Unused())


@EACH
def test_ledger_takes_the_charge_and_stops_the_second(name: str, tmp_path: Path) -> None:
    """A cap of exactly what was asked for lets one release pass, and no two."""
    release, event = RELEASES[name]
    cap = Budget(epsilon=max(accounting.guarantee(event, delta=1e-5).epsilon, 0.5), delta=1e-5)
    account = Ledger(tmp_path / "budget.db").account("people", cap=cap)
    release(account=account)
    with pytest.raises(BudgetExceeded):
        release(account=account)


@BY_RELATION
def test_an_account_of_another_relation_is_refused(name: str, tmp_path: Path) -> None:
    account = Ledger(tmp_path / "budget.db").account("people", relation="replace_one")
    with pytest.raises(InvalidValue, match="kept for replace_one"):
        RELEASES[name][0](account=account)
    RELEASES[name][0](account=account, relation="replace_one")


@pytest.mark.parametrize("name", ["laplace", "discrete_laplace", "sum", "mean", "count", "histogram", "quantile"])
def test_replacement_costs_epsilon_under_replacement(name: str) -> None:
    """A pure epsilon, read under `replace_one`: `Laplace` events would be counted twice there."""
    book = Book()
    RELEASES[name][0](account=book, relation="replace_one")
    assert accounting.guarantee(book.events[0], delta=0.0, relation="replace_one", method="basic").epsilon <= 0.5


def test_gaussian_under_replacement_is_not_counted_twice() -> None:
    book = Book()
    mechanisms.gaussian(0.0, sensitivity=1.0, epsilon=1.0, delta=1e-5, account=book, relation="replace_one")
    spent = accounting.guarantee(book.events[0], delta=1e-5, relation="replace_one").epsilon
    assert 1 - 1e-9 < spent <= 1 + 1e-9


@EACH
def test_fresh_entropy_and_seeds(name: str) -> None:
    """The source is what decides; a seed repeats, and one source gives two releases different noise."""
    release = RELEASES[name][0]
    assert str(release(rng=Rng.from_seed(5))) == str(release(rng=Rng.from_seed(5)))
    if name in {"laplace", "gaussian", "sum"}:  # a mean of few values often lands on its bound
        np.random.seed(0)  # noqa: NPY002
        first = release()
        np.random.seed(0)  # noqa: NPY002
        assert release() != first
        rng = Rng.from_seed(5)
        assert release(rng=rng) != release(rng=rng)


# Kinds of values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [3, 3.5, np.float64(2.0), np.float32(2.0), np.int64(7)])
def test_numbers_give_plain_floats(value: float) -> None:
    assert type(mechanisms.laplace(value, sensitivity=1.0, epsilon=1.0)) is float
    assert type(mechanisms.gaussian(value, sensitivity=1.0, epsilon=1.0, delta=1e-5)) is float


@pytest.mark.parametrize("shape", [(3,), (2, 5), (1, 1, 4)])
def test_arrays_keep_their_shape(shape: tuple[int, ...]) -> None:
    zeros = np.zeros(shape)
    for found in (
        mechanisms.laplace(zeros, sensitivity=1.0, epsilon=1.0),
        mechanisms.gaussian(zeros, sensitivity=1.0, noise_multiplier=1.0),
        mechanisms.discrete_laplace(zeros.astype(int), sensitivity=1, epsilon=1.0),
        mechanisms.discrete_gaussian(zeros.astype(int), stddev=4.0),
    ):
        assert isinstance(found, np.ndarray)
        assert found.shape == shape
        assert (zeros == 0).all()  # the argument is left alone


def test_whole_numbers_give_plain_whole_numbers() -> None:
    assert type(mechanisms.discrete_laplace(5.0, sensitivity=1.0, epsilon=1.0)) is int
    assert np.asarray(mechanisms.discrete_gaussian(np.zeros(3), stddev=1.0)).dtype == np.int64
    assert type(mechanisms.discrete_laplace(np.int32(5), sensitivity=1, epsilon=1.0)) is int
    assert type(mechanisms.discrete_gaussian(5, sensitivity=1, epsilon=1.0, delta=1e-5)) is int
    assert type(mechanisms.exponential(NUMBERS, sensitivity=1.0, epsilon=1.0)) is int
    assert type(mechanisms.report_noisy_max(NUMBERS, sensitivity=1.0, epsilon=1.0)) is int
    assert type(mechanisms.count(COINS, epsilon=1.0)) is int


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-9, 2.0**-60, 12345.678])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_released_numbers_are_on_the_public_grid(value: float, kind: str) -> None:
    if kind == "laplace":
        found = mechanisms.laplace(np.full(500, value), sensitivity=1.0, epsilon=0.5)
    else:
        found = mechanisms.gaussian(np.full(500, value), sensitivity=1.0, noise_multiplier=2.5)
    steps = np.asarray(found) / grid_of(2.1)
    assert (steps == np.rint(steps)).all()
    assert (steps % 2 == 1).any()  # and on no coarser one
    assert grid_of(2.1) == 2.0**-23


@pytest.mark.parametrize("value", [1e300, -1e300, 1e30, 2.0**53 + 2])
def test_huge_values_stay_what_they_are(value: float) -> None:
    found = mechanisms.laplace(value, sensitivity=1e-3, epsilon=1.0)
    bound = 2.0**600 * grid_of(1e-3)
    held = min(max(value, -bound), bound)
    assert found == pytest.approx(held, rel=1e-12, abs=1.0)


def test_gaussian_budget_is_the_analytic_noise() -> None:
    book = Book()
    mechanisms.gaussian(0.0, sensitivity=9.0, epsilon=1.0, delta=1e-5, account=book)
    assert book.events == [events.Gaussian(mechanisms.gaussian_noise_for(1.0, 1e-5, 1.0))]
    assert accounting.guarantee(book.events[0], delta=1e-5).epsilon <= 1.0 + 1e-9


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_discrete_gaussian_budget_holds(epsilon: float, delta: float) -> None:
    book = Book()
    mechanisms.discrete_gaussian(0, sensitivity=3, epsilon=epsilon, delta=delta, account=book)
    spent = accounting.guarantee(book.events[0], delta=delta, method="rdp").epsilon
    assert 0.98 * epsilon < spent <= epsilon * (1 + 1e-6)


# Refusals ------------------------------------------------------------------------------------------------------

BAD_EPSILONS = [0, -1.0, NAN, INF, "1", None, True]
BY_EPSILON: dict[str, Release] = {
    "laplace": lambda e: mechanisms.laplace(0.0, sensitivity=1.0, epsilon=e),
    "gaussian": lambda e: mechanisms.gaussian(0.0, sensitivity=1.0, epsilon=e, delta=1e-5),
    "discrete_laplace": lambda e: mechanisms.discrete_laplace(0, sensitivity=1, epsilon=e),
    "discrete_gaussian": lambda e: mechanisms.discrete_gaussian(0, sensitivity=1, epsilon=e, delta=1e-5),
    "exponential": lambda e: mechanisms.exponential(NUMBERS, sensitivity=1.0, epsilon=e),
    "report_noisy_max": lambda e: mechanisms.report_noisy_max(NUMBERS, sensitivity=1.0, epsilon=e),
    "histogram": lambda e: mechanisms.histogram([1], bins=[1], epsilon=e),
    "unknown bins": lambda e: mechanisms.histogram([1], delta=1e-5, epsilon=e),
    "threshold": lambda e: mechanisms.stability_threshold(e, 1e-5),
    "count": lambda e: mechanisms.count(COINS, epsilon=e),
    "sum": lambda e: mechanisms.sum(NUMBERS, bounds=(0, 1), epsilon=e),
    "mean": lambda e: mechanisms.mean(NUMBERS, bounds=(0, 1), epsilon=e),
    "quantile": lambda e: mechanisms.quantile(NUMBERS, 0.5, bounds=(0, 1), epsilon=e),
    "randomized_response": lambda e: mechanisms.randomized_response([0], categories=2, epsilon=e),
    "estimate": lambda e: mechanisms.randomized_response.estimate([0], categories=2, epsilon=e),
}


@pytest.mark.parametrize("epsilon", BAD_EPSILONS, ids=str)
@pytest.mark.parametrize("name", BY_EPSILON)
def test_bad_epsilon_is_refused(name: str, epsilon: Any) -> None:
    with pytest.raises(InvalidValue):
        BY_EPSILON[name](epsilon)


@pytest.mark.parametrize("sensitivity", [0, -1.0, NAN, INF, "1", None])
@pytest.mark.parametrize("name", ["laplace", "gaussian", "exponential", "report_noisy_max", "discrete_laplace"])
def test_bad_sensitivity_is_refused(name: str, sensitivity: Any) -> None:
    first = {"exponential": NUMBERS, "report_noisy_max": NUMBERS, "discrete_laplace": 1}.get(name, 1.0)
    more = {"delta": 1e-5} if name == "gaussian" else {}
    with pytest.raises(InvalidValue, match="sensitivity"):
        getattr(mechanisms, name)(first, sensitivity=sensitivity, epsilon=1.0, **more)


@pytest.mark.parametrize("value", [NAN, INF, -INF, [1.0, NAN], [], "3", None, [[1.0], [2.0, 3.0]], 1j, True, ["a"]])
@pytest.mark.parametrize("name", ["laplace", "exponential", "report_noisy_max"])
def test_bad_values_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidValue):
        getattr(mechanisms, name)(value, sensitivity=1.0, epsilon=1.0)


@pytest.mark.parametrize("value", [2**53 + 1, -(2**60), np.array([1, 2**63], np.uint64), np.longdouble(1)])
def test_numbers_that_a_float_would_round_are_refused(value: Any) -> None:
    """2^53 + 1 and 2^53 + 2 are 1 apart; as floats they are 2 apart."""
    for name in ("laplace", "exponential"):
        with pytest.raises(InvalidValue, match="without rounding"):
            getattr(mechanisms, name)(value, sensitivity=1.0, epsilon=1.0)


def test_error_messages_show_no_data() -> None:
    calls: list[Callable[[], Any]] = [
        lambda: mechanisms.laplace(["secret"], sensitivity=1.0, epsilon=1.0),
        lambda: mechanisms.discrete_laplace("secret", sensitivity=1, epsilon=1.0),
        lambda: mechanisms.sum(["secret"], bounds=(0, 1), epsilon=1.0),
        lambda: mechanisms.mean("secret", bounds=(0, 1), epsilon=1.0),
        lambda: mechanisms.histogram("secret", bins=[1], epsilon=1.0),
        lambda: mechanisms.histogram([["secret"]], bins=[1], epsilon=1.0),
        lambda: mechanisms.randomized_response(["secret"], categories=2, epsilon=1.0),
        lambda: mechanisms.count("secret", epsilon=1.0),
    ]
    for call in calls:
        with pytest.raises(InvalidValue) as caught:
            call()
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("value", [1.5, NAN, INF, [], [1.0, 1.5], 2.0**53, "3", True, 2**63, 2**62 + 1, None])
def test_discrete_noise_wants_whole_numbers(value: Any) -> None:
    for name in ("discrete_laplace", "discrete_gaussian"):
        with pytest.raises(HushError):
            getattr(mechanisms, name)(value, sensitivity=1, stddev=1.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: mechanisms.gaussian(0.0, sensitivity=1.0),
        lambda: mechanisms.gaussian(0.0, sensitivity=1.0, epsilon=1.0),
        lambda: mechanisms.gaussian(0.0, sensitivity=1.0, epsilon=1.0, delta=1e-5, noise_multiplier=1.0),
        lambda: mechanisms.gaussian(0.0, sensitivity=1.0, noise_multiplier=0.0),
        lambda: mechanisms.gaussian(0.0, sensitivity=1.0, noise_multiplier=INF),
        lambda: mechanisms.gaussian(0.0, sensitivity=1.0, epsilon=1.0, delta=0.0),
        lambda: mechanisms.discrete_laplace(0, sensitivity=1),
        lambda: mechanisms.discrete_laplace(0, sensitivity=1, epsilon=1.0, stddev=1.0),
        lambda: mechanisms.discrete_laplace(0, epsilon=1.0),
        lambda: mechanisms.discrete_laplace(0, stddev=1.0, account=Book()),
        lambda: mechanisms.discrete_laplace(0, stddev=1e20),
        lambda: mechanisms.discrete_gaussian(0, sensitivity=1, epsilon=1.0, stddev=1.0),
        lambda: mechanisms.discrete_gaussian(0, sensitivity=1, epsilon=1.0),
        lambda: mechanisms.discrete_gaussian(0, sensitivity=1, delta=1e-5, stddev=1.0),
        lambda: mechanisms.discrete_gaussian(0, stddev=NAN),
        lambda: mechanisms.discrete_gaussian(0, stddev=1e20),
        lambda: mechanisms.laplace(0.0, sensitivity=1e-200, epsilon=1.0),
        lambda: mechanisms.laplace(0.0, sensitivity=1e300, epsilon=1e-300),
        lambda: mechanisms.laplace(0.0, sensitivity=1.0, epsilon=1.0, relation="swap"),
        lambda: mechanisms.exponential([[1.0, 2.0]], sensitivity=1.0, epsilon=1.0),
    ],
)
def test_other_mistakes_are_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidValue):
        call()


def test_scale_of_a_discrete_laplace_by_stddev() -> None:
    """The event that is charged is the law that has this standard deviation."""
    for stddev in (0.01, 0.5, 1.0, 3.0, 1e5):
        book = Book()
        mechanisms.discrete_laplace(0, sensitivity=1, stddev=stddev, account=book)
        (event,) = book.events
        assert isinstance(event, events.PureDP)
        a = math.exp(-event.epsilon)
        assert math.sqrt(2 * a) / -math.expm1(-event.epsilon) == pytest.approx(stddev, rel=1e-9)
