"""One account of a ledger: everything that was done to one data set, and what may still be done.

The check of the cap and the new row are one transaction, so two processes can never both spend the last of a budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

import numpy
from sqlalchemy import Connection

from hush import _check, accounting
from hush.errors import BudgetExceeded, HushError, InvalidValue
from hush.events import Composed, Event, Gaussian, GaussianDP, flat, from_json, to_json
from hush.ledger import at_once, migrations, queries
from hush.ledger.at_once import Wish
from hush.ledger.chain import History, Row, composed, is_storable, next_row, opening
from hush.ledger.reservation import Reservation
from hush.ledger.store import GUARD, Store
from hush.privacy import Budget, Guarantee, Relation, round_up

LONGEST_NOTE = 1000
MOST_STEPS = 2**31 - 1  # in one block
MOST_AHEAD = 1024  # charges of one event that one look at the accountant may serve
FIXED_IN_ADVANCE = "holds if the events were chosen before their results were seen"


class Account:
    """What one data set was charged. Made by `Ledger.account`; safe to use from several threads and processes.

    The cap is checked with the exact accountant on the composition of all rows. That proof asks that the mechanisms
    and their parameters do not depend on earlier results (when to stop may). For Gaussian releases alone they may
    depend on them too [Smith, Thakurta 2022, Thm. 2]. For other mixtures chosen along the way a tight bound is not
    free: `spent` says so in its notes, and `hush.accounting.filters` has what is proven for them.
    """

    def __init__(self, store: Store, history: History) -> None:
        self._store = store
        self._history = history
        self._fitting: Mapping[Event, int] = {}  # the last composition that was shown to fit under this cap:
        self._fitting_cap: Budget | None = None
        self._ahead: tuple[Event | None, int] = (None, 1)  # how many of one event the next look asks for

    @property
    def name(self) -> str:
        """The data set's name."""
        return self._history.account

    @property
    def cap(self) -> Budget | None:
        """The most that may be spent, as of the last look at the ledger; None if there is no limit."""
        return self._history.cap

    @property
    def relation(self) -> Relation:
        """Which data sets count as neighbours, fixed when the account was opened."""
        return self._history.relation

    def charge(self, event: Event, note: str = "") -> Row:
        """Charge an event before its result is released; on disk when this returns.

        Raises:
            BudgetExceeded: it does not fit under the cap. Nothing was charged; do not release.
        """
        content, note = _content(event), _check_note(note)

        def decide() -> Row:
            self._require(event, 1)
            return next_row(self._history, kind="charge", content=content, note=note)

        with GUARD:
            if self._store.is_server and (self._room(event) or self._fits_ahead(event, 1)):
                row = self._at_once(Wish("charge", content, 1, note, self._room(event)))
                if row is not None:
                    return row
            return self._append(decide)

    def reserve(
        self, event: Event, times: int, *, block: int = 100, note: str = "", give_back: bool = False
    ) -> Reservation:
        """Permission for up to `times` releases of `event`, charged ahead in blocks of `block`.

        Call `step()` on the result before each release. Nothing is charged until the first step. Steps that were
        charged and never started stay charged, unless `give_back` and the `with` block ends without an error.
        """
        times = _check.whole("times", times)
        block = min(_check.whole("block", block), times, MOST_STEPS)
        _content(event)
        return Reservation(self, event, times=times, block=block, note=_check_note(note), give_back=give_back)

    def change_cap(self, cap: Budget, note: str = "") -> Row:
        """Raise or lower the cap, by a row of the history; on PostgreSQL this is for keepers.

        Raises:
            BudgetExceeded: what was spent already does not fit under the new cap. Nothing was changed.
        """
        if not isinstance(cap, Budget):
            raise InvalidValue(f"cap must be a Budget, such as Budget(epsilon=3.0, delta=1e-5); got {cap!r}.")
        content, note = opening(cap, self.relation), _check_note(note)

        def decide() -> Row:
            spent = self._cost(self._history.counts(), cap.delta)
            if not cap.allows(spent):
                raise BudgetExceeded(
                    f"account {self.name!r} has spent {round_up(spent.epsilon)} at delta {cap.delta:.3g}, more than "
                    f"the new cap of {cap.epsilon:g}; nothing was changed."
                )
            return next_row(self._history, kind="cap", content=content, note=note)

        return self._append(decide, version=2)

    def spent(self, delta: float | None = None) -> Guarantee:
        """What all charges together cost, at `delta` or at the cap's delta."""
        counts = self._current_counts()
        guarantee = self._cost(counts, self._delta(delta))
        if _adaptive_is_free(counts):
            return guarantee
        return replace(guarantee, notes=(*guarantee.notes, FIXED_IN_ADVANCE))

    def left(self) -> float:
        """How much epsilon is left at the cap's delta, rounded down; infinity without a cap.

        A `PureDP` event of this epsilon still fits. Events compose better than their sum, so others may fit too:
        ask `would_exceed`.
        """
        counts = self._current_counts()  # and the cap of the same moment
        if self.cap is None:
            return math.inf
        rest = self.cap.epsilon - self._cost(counts, self.cap.delta).epsilon
        return max(0.0, float(numpy.nextafter(rest, -math.inf)))

    def would_exceed(self, event: Event) -> bool:
        """Whether `charge(event)` would be refused as things stand now; another process may be faster."""
        _content(event)

        def look(connection: Connection) -> bool:
            queries.catch_up(connection, self._history)
            return not self._fits(event, 1)

        return self._store.run(look)

    @property
    def event(self) -> Composed:
        """Everything charged so far, as one event; equal events are merged."""
        return composed(self._current_counts())

    def rows(self) -> tuple[Row, ...]:
        """All rows, read anew and checked from row 0."""

        def look(connection: Connection) -> tuple[Row, ...]:
            rows: list[Row] = []
            queries.catch_up(connection, History(self.name), seen=rows.append)
            return tuple(rows)

        return self._store.run(look)

    def __repr__(self) -> str:
        return f"Account({self.name!r}, cap={self.cap}, relation={self.relation!r})"

    def _reserve_block(self, event: Event, most: int, note: str, *, planned: int = 0) -> Row:
        """Charge as many of `most` steps as fit, at least one.

        If all the `planned` steps fit, this one look at the accountant serves their later blocks too.
        """
        content = to_json(event)

        def decide() -> Row:
            count = most if planned and self._fits(event, planned) else self._largest_fit(event, most)
            if count == 0:
                self._require(event, 1)
            return next_row(self._history, kind="reserve", content=content, count=max(count, 1), note=note)

        with GUARD:
            row = None
            if self._store.is_server and self._room(event) >= most:
                row = self._at_once(Wish("reserve", content, most, note, self._room(event)))
            return row or self._append(decide)

    def _at_once(self, wish: Wish) -> Row | None:
        return self._store.run(lambda connection: at_once.charge(connection, self._history, wish), begin=False)

    def _release_block(self, row: Row, count: int) -> Row:
        """Give back `count` never-started steps of a reserve row."""

        def decide() -> Row:
            return next_row(self._history, kind="release", content=row.content, count=count, block=row.number)

        return self._append(decide)

    def _append(self, decide: Callable[[], Row], *, version: int = 1) -> Row:
        def work(connection: Connection) -> Row:
            queries.lock_and_catch_up(connection, self._history)
            if version > 1:
                migrations.require(connection, version, self._store.place)
            row = decide()
            queries.append(connection, row)
            return row

        with GUARD:
            row = self._store.run(work, write=True, begin=False)
            self._history.advance(row)
            return row

    def _current_counts(self) -> dict[Event, int]:
        def look(connection: Connection) -> dict[Event, int]:
            queries.catch_up(connection, self._history)
            return self._history.counts()

        return self._store.run(look)

    def _fits(self, event: Event, count: int) -> bool:
        if self.cap is None:
            return True
        counts = self._history.counts(event, count)
        if self._is_known_to_fit(counts):
            return True
        fits = self.cap.allows(self._cost(counts, self.cap.delta))
        if fits:
            self._fitting, self._fitting_cap = counts, self.cap
        return fits

    def _is_known_to_fit(self, counts: Mapping[Event, int]) -> bool:
        """Whether this is part of a composition that was already shown to fit under the cap of now."""
        return self._fitting_cap == self.cap and all(
            times <= self._fitting.get(part, 0) for part, times in counts.items()
        )

    def _room(self, event: Event) -> int:
        """How many more of this event are known to fit, if meanwhile nothing else is charged."""
        if self.cap is None:
            return MOST_STEPS
        counts = self._history.counts()
        if not self._is_known_to_fit(counts):
            return 0
        spare = [(self._fitting.get(part, 0) - counts.get(part, 0)) // times for part, times in flat(event)]
        return min(spare, default=MOST_STEPS)

    def _fits_ahead(self, event: Event, count: int) -> bool:
        """Whether `count` fit. Repeated charges ask for more and more at once, so that few of them need to ask."""
        if self._is_known_to_fit(self._history.counts(event, count)):
            return True
        last, ahead = self._ahead
        if last == event and self._fits(event, count * ahead):
            self._ahead = (event, min(4 * ahead, MOST_AHEAD))
            return True
        self._ahead = (event, max(4, ahead // 16) if last == event else 4)
        return self._fits(event, count)

    def _largest_fit(self, event: Event, most: int) -> int:
        if self._fits(event, most):
            return most
        low, high = 0, most  # `low` fits, `high` does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(event, middle) else (low, middle)
        return low

    def _require(self, event: Event, count: int) -> None:
        if self.cap is None or self._fits_ahead(event, count):
            return
        after = self._cost(self._history.counts(event, count), self.cap.delta)
        before = self._cost(self._history.counts(), self.cap.delta)
        raise BudgetExceeded(
            f"account {self.name!r}: this would bring epsilon from {round_up(before.epsilon)} to "
            f"{round_up(after.epsilon)} at delta {self.cap.delta:.3g}, over the cap of {self.cap.epsilon:g}; "
            "nothing was charged, so do not release it."
        )

    def _cost(self, counts: Mapping[Event, int], delta: float) -> Guarantee:
        return accounting.guarantee(composed(counts), delta=delta, relation=self.relation, method="exact")

    def _delta(self, delta: float | None) -> float:
        if delta is not None:
            return _check.delta(delta)
        if self.cap is None:
            raise InvalidValue(f"account {self.name!r} has no cap, so spent() needs a delta: spent(delta=1e-5).")
        return self.cap.delta


def _content(event: Event) -> str:
    """The event as a row keeps it; one that could not be read back is refused now rather than later."""
    if not isinstance(event, Event):
        raise InvalidValue(f"event must be an event, such as events.Gaussian(noise_multiplier=1.0); got {event!r}.")
    try:
        return _kept(event)
    except (HushError, ValueError, TypeError, RecursionError) as error:
        raise InvalidValue(f"this event cannot be kept in a ledger: {error}") from None


@lru_cache
def _kept(event: Event) -> str:
    content = to_json(event)
    if from_json(content) != event:
        raise ValueError(f"{type(event).__name__} reads back differently.")
    return content


def _check_note(note: str) -> str:
    if not isinstance(note, str) or len(note) > LONGEST_NOTE or not is_storable(note):
        raise InvalidValue(f"note must be a text of at most {LONGEST_NOTE} characters; got {str(note)[:60]!r}.")
    return note


def _adaptive_is_free(counts: Mapping[Event, int]) -> bool:
    return len(counts) <= 1 or all(isinstance(part, Gaussian | GaussianDP) for part in counts)
