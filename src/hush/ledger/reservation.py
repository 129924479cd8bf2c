"""Steps charged ahead in blocks, so that a durable charge costs next to nothing per step."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from hush.errors import BudgetExceeded, LedgerError
from hush.events import Event

if TYPE_CHECKING:
    from hush.ledger.account import Account
    from hush.ledger.chain import Row


class Reservation:
    """Permission for a number of equal releases. Made by `Account.reserve`; belongs to the process that made it.

    A crash leaves the rest of the last block charged: budget is wasted, never hidden.
    """

    def __init__(self, account: Account, event: Event, *, times: int, block: int, note: str, give_back: bool) -> None:
        self.account = account
        self.event = event
        self.times = times
        self._block = block
        self._note = note
        self._give_back = give_back
        self._started = 0
        self._unused = 0
        self._row: Row | None = None
        self._closed = False
        self._process = os.getpid()
        self._lock = threading.Lock()

    @property
    def started(self) -> int:
        """How many steps were allowed to run."""
        return self._started

    @property
    def reserved(self) -> int:
        """How many steps this reservation has charged."""
        return self._started + self._unused

    def step(self) -> int:
        """Allow one release, and return its number, from 1. Call it before the release.

        Raises:
            BudgetExceeded: not one more step fits under the cap. Do not run it.
        """
        if os.getpid() != self._process:  # a forked copy would spend the same steps twice
            raise LedgerError("a reservation belongs to the process that made it; reserve again in this one.")
        with self._lock:
            if self._unused == 0 or self._closed:
                self._charge_block()
            self._unused -= 1
            self._started += 1
            return self._started

    def close(self, *, give_back: bool | None = None) -> None:
        """End this reservation; `give_back` returns the charged steps that were never started."""
        if os.getpid() != self._process:
            return
        with self._lock:
            wanted = self._give_back if give_back is None else give_back
            if wanted and self._unused and self._row is not None and not self._closed:
                self.account._release_block(self._row, self._unused)
                self._unused = 0
            self._closed = True

    def _charge_block(self) -> None:
        if self._closed:
            raise LedgerError("this reservation is closed; reserve again.")
        if self._started >= self.times:
            raise LedgerError(f"all {self.times} steps of this reservation are used; reserve more.")
        try:
            rest = self.times - self._started
            planned = rest if self._row is None else 0  # only the first block asks whether all will fit
            self._row = self.account._reserve_block(self.event, min(self._block, rest), self._note, planned=planned)
        except BudgetExceeded as error:
            raise BudgetExceeded(f"step {self._started + 1} of {self.times} does not fit. {error}") from None
        self._unused = self._row.count

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(give_back=self._give_back and kind is None)

    def __reduce__(self) -> NoReturn:
        raise LedgerError("a reservation cannot be copied: its steps would be spent twice; reserve again.")
