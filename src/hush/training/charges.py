"""What the steps of a plan charge, to a ledger account or in memory, always before the release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hush.errors import BudgetExceeded, InvalidValue
from hush.events import Composed, Event, Repeated
from hush.training.books import room
from hush.training.team import Team

if TYPE_CHECKING:
    from hush.ledger import Account
    from hush.ledger.reservation import Reservation
    from hush.training.plan import TrainingPlan


class Charges:
    """The charges of one pass through a plan, from step `first` to its end.

    Steps that are alike are charged in blocks. Correlated noise is one event for all its steps, charged at the first.
    In a team the first process charges, for all.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        account: Account | None,
        *,
        note: str,
        block: int,
        first: int,
        most: int | None = None,
        team: Team | None = None,
    ) -> None:
        self._plan = plan
        self._first = first
        left = plan.steps - first
        self._most = _room(plan, first) if most is None else min(most, left)
        self._joint = plan.sampling == "ordered" and plan.private
        self.steps = self._charged = 0
        self._team = team or Team()
        self._reservation = self._team.alone_first(lambda: self._reserved(account, block, note))

    def _reserved(self, account: Account | None, block: int, note: str) -> Reservation | None:
        plan = self._plan
        if account is None or self._most <= 0:
            return None
        if account.relation != plan.relation:
            raise InvalidValue(
                f"account {account.name!r} counts neighbours by {account.relation!r} and the plan by "
                f"{plan.relation!r}; open another account, or change the plan."
            )
        event = plan.event_of(self._most) if self._joint else plan.step_event
        times = 1 if self._joint else self._most
        return account.reserve(event, times, block=block, note=note, give_back=True)

    def require_room(self) -> None:
        """Refuse a step that the plan does not have."""
        if self.steps >= self._most:
            if self._first + self.steps >= self._plan.steps:
                reason = f"all {self._plan.steps} steps of the plan are taken"
            else:
                reason = f"the budget of the plan holds {self.steps} more steps beside what was spent before"
            raise BudgetExceeded(f"{reason}; the next one does not run.")

    def charge(self) -> int:
        """Charge one step, on disk when this returns; how many are charged. Other processes than the first give 0."""
        self.require_room()
        if not self._team.is_first:
            return 0
        if self._reservation is None:
            return self.steps + 1
        if not (self._joint and self.steps):
            self._reservation.step()
        return self._reservation.reserved

    def start(self, charged: int) -> int:
        """Begin the step that was charged, and return its number in the plan, from 1."""
        self.steps += 1
        self._charged = charged
        return self._first + self.steps

    @property
    def event(self) -> Event:
        """What was charged here, steps of a block that did not start yet included."""
        if self._joint:
            return self._plan.event_of(self._most) if self.steps else Composed()
        charged = self._charged if self._reservation is None else self._reservation.reserved
        return Repeated(self._plan.step_event, charged) if charged else Composed()

    def close(self) -> None:
        """Give back the charged steps that never started."""
        if self._reservation is not None:
            self._reservation.close(give_back=True)
        self._charged = self.steps


def _room(plan: TrainingPlan, first: int) -> int:
    """How many steps from `first` on the plan's own budget holds, if each step before was charged once."""
    spent = plan.event_of(first) if first else Composed()
    return room(plan, spent, plan.steps - first)
