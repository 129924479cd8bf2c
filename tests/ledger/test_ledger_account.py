from __future__ import annotations

import math
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_step import STEP
from scipy.special import ndtr

from hush import Budget, Guarantee, accounting, events
from hush.errors import BudgetExceeded, InvalidValue, UnsupportedEvent
from hush.ledger import Ledger

CAP = Budget(epsilon=1.05, delta=0.0)


def test_account_charges_add_up_and_stop_at_the_cap(ledger: Ledger) -> None:
    account = ledger.account("hospital", cap=CAP)
    for _ in range(10):  # at delta 0 pure epsilons add: ten times 0.1 fit under 1.05, eleven do not
        account.charge(events.PureDP(epsilon=0.1))
    assert account.would_exceed(events.PureDP(epsilon=0.1))
    with pytest.raises(BudgetExceeded, match=r"'hospital'.*over the cap of 1\.05.*nothing was charged"):
        account.charge(events.PureDP(epsilon=0.1))
    assert len(account.rows()) == 11
    assert account.spent().epsilon == pytest.approx(1.0, rel=1e-6)
    assert account.spent().epsilon >= 1.0
    assert not account.would_exceed(events.PureDP(epsilon=0.04))
    assert list(events.flat(account.event)) == [(events.PureDP(epsilon=0.1), 10)]


def gaussian_delta(mu: float, epsilon: float) -> float:
    # Balle, Wang 2018, Theorem 8, with mu = sensitivity / standard deviation.
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def test_account_accepts_exactly_the_gaussians_that_the_closed_form_allows(ledger: Ledger) -> None:
    cap, noise = Budget(epsilon=2.0, delta=1e-5), 10.0
    allowed = next(n for n in range(1, 1000) if gaussian_delta(math.sqrt(n + 1) / noise, cap.epsilon) > cap.delta)
    account = ledger.account("hospital", cap=cap)
    with account.reserve(events.Gaussian(noise_multiplier=noise), times=1000, block=7) as reservation:
        for _ in range(allowed):
            reservation.step()
        with pytest.raises(BudgetExceeded):
            reservation.step()


def test_account_spent_uses_the_relation_it_was_opened_with(ledger: Ledger) -> None:
    one = ledger.account("one", relation="add_remove")
    two = ledger.account("two", relation="replace_one")
    for account in (one, two):
        account.charge(events.Gaussian(noise_multiplier=2.0))
    assert two.spent(delta=1e-5).relation == "replace_one"
    assert two.spent(delta=1e-5).epsilon == pytest.approx(4.377178, rel=1e-5)  # mu 1
    assert one.spent(delta=1e-5).epsilon == pytest.approx(1.993091, rel=1e-5)  # mu 1/2


def test_account_left_is_a_lower_bound_that_a_pure_event_can_use(ledger: Ledger) -> None:
    account = ledger.account("hospital", cap=Budget(epsilon=1.0, delta=0.0))
    account.charge(events.PureDP(epsilon=0.25))
    left = account.left()
    assert 0.7499 < left <= 0.75
    account.charge(events.PureDP(epsilon=left * (1 - 1e-9)))
    assert 0 <= account.left() < 1e-6


def test_account_left_never_goes_below_zero_and_is_infinite_without_cap(ledger: Ledger) -> None:
    account = ledger.account("free")
    account.charge(events.NotPrivate())
    assert account.left() == math.inf
    assert not account.would_exceed(events.NotPrivate())
    assert account.spent(delta=1e-5).epsilon == math.inf
    with pytest.raises(InvalidValue, match="needs a delta"):
        account.spent()


def test_account_empty_has_spent_nothing(ledger: Ledger) -> None:
    account = ledger.account("hospital", cap=CAP)
    assert account.spent().epsilon == 0
    assert CAP.epsilon * (1 - 1e-12) <= account.left() <= CAP.epsilon
    assert account.event == events.Composed()


def test_account_refuses_not_private_under_a_cap(ledger: Ledger) -> None:
    account = ledger.account("hospital", cap=Budget(epsilon=1e300, delta=0.5))
    with pytest.raises((BudgetExceeded, UnsupportedEvent)):
        account.charge(events.NotPrivate())
    assert len(account.rows()) == 1


def test_account_writes_nothing_when_the_accountant_cannot_bound_the_event(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*event: object, **rest: object) -> None:
        raise UnsupportedEvent("no bound for this event.")

    capped, free = ledger.account("capped", cap=CAP), ledger.account("free")
    monkeypatch.setattr(accounting, "guarantee", refuse)
    with pytest.raises(UnsupportedEvent):
        capped.charge(events.PureDP(epsilon=0.1))
    assert len(capped.rows()) == 1
    assert free.charge(events.PureDP(epsilon=0.1)).number == 1  # without a cap it is only written down


def test_account_takes_no_unproven_guarantee_for_its_cap(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    account = ledger.account("hospital", cap=CAP)
    guess = Guarantee(epsilon=0.1, delta=0.0, relation="add_remove", method="gdp_clt", proven=False)
    monkeypatch.setattr(accounting, "guarantee", lambda *event, **rest: guess)
    with pytest.raises(BudgetExceeded):
        account.charge(events.PureDP(epsilon=0.1))


@pytest.mark.parametrize("bad", [None, "Gaussian", 1.0, events.Gaussian])
def test_account_refuses_what_is_no_event(ledger: Ledger, bad: object) -> None:
    with pytest.raises(InvalidValue, match="must be an event"):
        ledger.account("hospital").charge(bad)  # type: ignore[arg-type]


def test_account_refuses_events_that_could_not_be_read_back(ledger: Ledger) -> None:
    deep: events.Event = events.Gaussian(1.0)
    for _ in range(80):
        deep = events.Repeated(deep, times=2)
    account = ledger.account("hospital")
    with pytest.raises(InvalidValue, match="cannot be kept"):
        account.charge(deep)
    with pytest.raises(InvalidValue, match="cannot be kept"):
        account.charge(type("Mine", (events.Event,), {})())
    assert len(account.rows()) == 1


@pytest.mark.parametrize("note", ["a" * 1001, "nul\0", "\ud800", 7])
def test_account_refuses_bad_notes(ledger: Ledger, note: str) -> None:
    with pytest.raises(InvalidValue, match="note must be"):
        ledger.account("hospital").charge(events.Gaussian(1.0), note=note)


def test_account_sees_what_another_handle_charged(path: Path) -> None:
    one = Ledger(path).account("hospital", cap=CAP)
    two = Ledger(path).account("hospital")
    one.charge(events.PureDP(epsilon=0.6))
    assert two.would_exceed(events.PureDP(epsilon=0.6))
    with pytest.raises(BudgetExceeded):
        two.charge(events.PureDP(epsilon=0.6))
    assert two.spent().epsilon == one.spent().epsilon


def test_account_mixtures_carry_the_note_on_adaptive_choice(ledger: Ledger) -> None:
    account = ledger.account("hospital")
    account.charge(events.Gaussian(1.0))
    account.charge(events.Gaussian(2.0))
    assert not any("before their results" in note for note in account.spent(delta=1e-5).notes)
    account.charge(events.PureDP(epsilon=0.5))
    assert any("before their results" in note for note in account.spent(delta=1e-5).notes)


def test_account_threads_lose_nothing(ledger: Ledger) -> None:
    account = ledger.account("hospital", cap=Budget(epsilon=3.05, delta=0.0))
    refused: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                account.charge(events.PureDP(epsilon=0.1))
        except BudgetExceeded as error:
            refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(account.rows()) == 31  # 40 asked, 30 fit
    assert refused
    assert ledger.verify().rows == 31


elementary = st.one_of(
    st.builds(events.Gaussian, st.floats(0.1, 100)),
    st.builds(events.PureDP, st.floats(0, 10)),
    st.builds(events.Laplace, st.floats(0.1, 100)),
    st.builds(events.PoissonSampled, st.builds(events.Gaussian, st.floats(0.1, 100)), st.floats(1e-9, 1)),
    st.just(events.NotPrivate()),
)
compound = st.recursive(
    elementary,
    lambda inner: st.one_of(
        st.builds(events.Repeated, inner, st.integers(1, 10**6)),
        st.lists(inner, max_size=3).map(lambda parts: events.Composed(*parts)),
    ),
    max_leaves=6,
)


@settings(max_examples=15, deadline=None)
@given(st.lists(compound, max_size=5), st.integers(1, 12))
def test_account_event_is_the_sum_of_all_rows(
    tmp_path_factory: pytest.TempPathFactory, charged: list[events.Event], steps: int
) -> None:
    path = tmp_path_factory.mktemp("sum") / "budget.db"
    account = Ledger(path).account("hospital")
    truth: Counter[events.Event] = Counter()
    for event in charged:
        account.charge(event)
        truth.update(dict(events.flat(event)))
    with account.reserve(STEP, times=steps, block=5, give_back=True) as reservation:
        for _ in range(steps - 1):
            reservation.step()
    truth[STEP] += steps - 1
    reread = Ledger.open(path, create=False).account("hospital")
    assert Counter(dict(events.flat(reread.event))) == +truth
    assert [row.event for row in reread.rows()[1 : len(charged) + 1]] == charged


def test_account_change_of_cap_holds_for_every_copy(ledger: Ledger) -> None:
    one = ledger.account("hospital", cap=Budget(epsilon=1.0, delta=0.0))
    other = ledger.account("hospital")
    other.charge(events.PureDP(epsilon=0.25))
    one.change_cap(Budget(epsilon=2.0, delta=0.0))
    other.charge(events.PureDP(epsilon=1.5))
    assert other.cap == Budget(epsilon=2.0, delta=0.0)
    with pytest.raises(BudgetExceeded, match=r"more than the new cap of 1\.5"):
        one.change_cap(Budget(epsilon=1.5, delta=0.0))
    one.change_cap(Budget(epsilon=1.8, delta=0.0))
    with pytest.raises(BudgetExceeded):  # it fitted under the cap of before
        other.charge(events.PureDP(epsilon=0.2))
    assert [row.kind for row in one.rows()] == ["open", "charge", "cap", "charge", "cap"]
    assert [row.event for row in one.rows()][2] is None
    with pytest.raises(InvalidValue, match="cap must be a Budget"):
        one.change_cap(None)  # type: ignore[arg-type]


def test_account_that_looked_ahead_keeps_a_lowered_cap(ledger: Ledger) -> None:
    account = ledger.account("hospital", cap=Budget(epsilon=100.0, delta=0.0))
    for _ in range(40):
        account.charge(events.PureDP(epsilon=0.1))
    ledger.account("hospital").change_cap(Budget(epsilon=4.25, delta=0.0))
    account.charge(events.PureDP(epsilon=0.1))
    account.charge(events.PureDP(epsilon=0.1))
    with pytest.raises(BudgetExceeded):
        account.charge(events.PureDP(epsilon=0.1))
    assert len(account.rows()) == 1 + 40 + 1 + 2


@pytest.mark.parametrize("fit", [1, 2, 3, 7, 50])
def test_account_that_looks_ahead_spends_all_that_fits_and_no_more(ledger: Ledger, fit: int) -> None:
    account = ledger.account("hospital", cap=Budget(epsilon=0.1 * fit + 0.05, delta=0.0))
    for _ in range(fit):
        account.charge(events.PureDP(epsilon=0.1))
    with pytest.raises(BudgetExceeded):
        account.charge(events.PureDP(epsilon=0.1))
    account.charge(events.PureDP(epsilon=0.04))


def test_an_event_of_another_kind_is_counted_beside_what_fits(tmp_path: Path) -> None:
    account = Ledger(tmp_path / "kinds.db").account("kinds", Budget(epsilon=1.0, delta=0.0))
    account.charge(events.PureDP(0.5))
    for event in (events.PureDP(0.7), events.Laplace(1.5), events.Composed(events.PureDP(0.1), events.PureDP(0.6))):
        assert account.would_exceed(event)
        with pytest.raises(BudgetExceeded):
            account.charge(event)
    assert account.spent().epsilon == 0.5
