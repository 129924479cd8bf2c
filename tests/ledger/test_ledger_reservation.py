from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path

import pytest
from ledger_step import STEP

from hush import Budget, accounting, events
from hush.errors import BudgetExceeded, InvalidValue, LedgerError
from hush.ledger import Account, Ledger

PURE = events.PureDP(epsilon=0.1)


def charged_steps(account: Account) -> int:
    signs = {"reserve": 1, "release": -1}
    return sum(signs.get(row.kind, 0) * row.count for row in account.rows())


def test_reservation_commits_each_block_before_its_first_step(path: Path) -> None:
    account = Ledger(path).account("hospital")
    outsider = Ledger(path).account("hospital")
    with account.reserve(STEP, times=10, block=4) as reservation:
        assert charged_steps(outsider) == 0
        for step in range(1, 11):
            assert reservation.step() == step
            assert charged_steps(outsider) == min(10, 4 * -(-step // 4))
    assert [row.count for row in account.rows()[1:]] == [4, 4, 2]
    assert reservation.reserved == reservation.started == 10


def test_reservation_allows_no_step_beyond_its_number(ledger: Ledger) -> None:
    with ledger.account("hospital").reserve(STEP, times=2) as reservation:
        reservation.step()
        reservation.step()
        with pytest.raises(LedgerError, match="all 2 steps"):
            reservation.step()


def test_reservation_shrinks_the_last_block_and_refuses_the_step_that_does_not_fit(ledger: Ledger) -> None:
    account = ledger.account("hospital", cap=Budget(epsilon=1.05, delta=0.0))  # ten steps fit
    with account.reserve(PURE, times=100, block=7) as reservation:
        for _ in range(10):
            reservation.step()
        with pytest.raises(BudgetExceeded, match="step 11 of 100 does not fit"):
            reservation.step()
        assert reservation.started == 10
    assert [row.count for row in account.rows()[1:]] == [7, 3]


def test_reservation_keeps_unused_steps_charged_unless_asked(ledger: Ledger) -> None:
    account = ledger.account("hospital")
    with account.reserve(STEP, times=100, block=10) as reservation:
        reservation.step()
    assert charged_steps(account) == 10


def test_reservation_gives_back_exactly_the_steps_that_never_started(ledger: Ledger) -> None:
    account = ledger.account("hospital")
    with account.reserve(STEP, times=100, block=10, give_back=True) as reservation:
        for _ in range(13):
            reservation.step()
    assert [(row.kind, row.count, row.block) for row in account.rows()[1:]] == [
        ("reserve", 10, 0),
        ("reserve", 10, 0),
        ("release", 7, 2),
    ]
    assert list(events.flat(account.event)) == [(STEP, 13)]
    reservation.close(give_back=True)  # closing again gives nothing more
    assert charged_steps(account) == 13
    assert ledger.verify().rows == 4


def test_reservation_gives_nothing_back_after_an_error(ledger: Ledger) -> None:
    account = ledger.account("hospital")

    def train() -> None:
        with account.reserve(STEP, times=50, block=10, give_back=True) as reservation:
            reservation.step()
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        train()
    assert charged_steps(account) == 10


def test_reservation_given_back_budget_can_be_spent_again(ledger: Ledger) -> None:
    account = ledger.account("hospital", cap=Budget(epsilon=1.05, delta=0.0))
    with account.reserve(PURE, times=10, block=10, give_back=True) as reservation:
        reservation.step()
        assert account.would_exceed(PURE)
    assert not account.would_exceed(events.PureDP(epsilon=0.9))
    assert account.would_exceed(events.PureDP(epsilon=1.0))


def test_reservation_closed_allows_no_step(ledger: Ledger) -> None:
    reservation = ledger.account("hospital").reserve(STEP, times=10)
    reservation.step()
    reservation.close()
    with pytest.raises(LedgerError, match="closed"):
        reservation.step()


def test_reservation_cannot_be_copied(ledger: Ledger) -> None:
    reservation = ledger.account("hospital").reserve(STEP, times=10)
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(LedgerError, match="spent twice"):
            duplicate(reservation)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_reservation_of_a_parent_is_refused_in_a_forked_child_which_can_charge_itself(ledger: Ledger) -> None:
    account = ledger.account("hospital")
    reservation = account.reserve(STEP, times=10, block=10)
    reservation.step()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            reservation.step()
        except LedgerError:
            reservation.close(give_back=True)  # not the child's to give
            account.charge(PURE)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    reservation.step()
    account.charge(PURE)
    assert [row.kind for row in account.rows()] == ["open", "reserve", "charge", "charge"]


@pytest.mark.parametrize(("times", "block"), [(0, 1), (1, 0), (1.0, 1), (True, 1), (-5, 1)])
def test_reservation_refuses_bad_numbers(ledger: Ledger, times: int, block: int) -> None:
    with pytest.raises(InvalidValue, match=r"whole number|at least"):
        ledger.account("hospital").reserve(STEP, times=times, block=block)


def test_reservation_that_fits_as_a_whole_asks_the_accountant_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = ledger.account("hospital", cap=Budget(epsilon=100.5, delta=0.0))
    asked: list[object] = []
    guarantee = accounting.guarantee
    monkeypatch.setattr(
        accounting, "guarantee", lambda *event, **rest: asked.append(event) or guarantee(*event, **rest)
    )
    with account.reserve(PURE, times=1000, block=50) as reservation:
        for _ in range(1000):
            reservation.step()
    assert len(account.rows()) == 21
    assert len(asked) == 1
    with pytest.raises(BudgetExceeded):
        account.charge(events.PureDP(epsilon=1.0))


def test_reservation_sees_what_others_spent_since_it_was_found_to_fit(path: Path) -> None:
    account = Ledger(path).account("hospital", cap=Budget(epsilon=1.05, delta=0.0))
    with account.reserve(PURE, times=10, block=2) as reservation:
        reservation.step()  # all ten would fit
        Ledger(path).account("hospital").charge(events.PureDP(epsilon=0.5))
        for _ in range(4):
            reservation.step()
        with pytest.raises(BudgetExceeded, match="step 6 of 10"):
            reservation.step()
