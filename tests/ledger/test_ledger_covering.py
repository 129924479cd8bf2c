"""Rows of a ledger pay for an event once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hush import Budget, Ledger, events
from hush.ledger.covering import Covering, covers

STEP = events.PoissonSampled(events.Gaussian(2.0), 0.1)


def rows_of(path: Path, *charges: events.Event) -> tuple[object, ...]:
    account = Ledger(path / "ledger.db").account("a", Budget(100.0, 1e-5))
    for event in charges:
        account.charge(event)
    return account.rows()


@pytest.mark.parametrize(
    ("charges", "covered"),
    [
        ([events.Repeated(STEP, 3)], True),
        ([STEP, events.Repeated(STEP, 2)], True),
        ([events.Repeated(STEP, 2)], False),
        ([events.Repeated(STEP, 4)], False),  # pays for something else as well
        ([events.Gaussian(2.0)], False),
        ([], False),
    ],
)
def test_rows_cover_an_event_that_they_pay_for(tmp_path: Path, charges: list[events.Event], covered: bool) -> None:
    assert covers(rows_of(tmp_path, *charges), events.Repeated(STEP, 3)) is covered  # type: ignore[arg-type]


def test_one_row_does_not_pay_twice(tmp_path: Path) -> None:
    _, first, second = rows_of(tmp_path, STEP, STEP)
    covering = Covering(STEP)
    assert covering.takes(first)  # type: ignore[arg-type]
    assert covering.complete
    assert not covering.takes(second)  # type: ignore[arg-type]
