"""What the steps of a plan charge, to a ledger account or in memory, always before the release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hush.errors import BudgetExceeded, InvalidValue
from hush.events import Composed, Event, Repeated
from hush.training.books import room

if TYPE_CHECKING:
    from hush.ledger import Account
    from hush.training.plan import TrainingPlan


class Charges:
    """The charges of one pass through a plan, from step `first` to its end.

    Steps that are alike are charged in blocks. Correlated noise is one event for all its steps, charged at the first.
    """

    def __init__(
        self, plan: TrainingPlan, account: Account | None, *, note: str, block: int, first: int, most: int | None = None
    ) -> None:
        self._plan = plan
        self._first = first
        left = plan.steps - first
        self._most = _room(plan, first) if most is None else min(most, left)
        self._joint = plan.sampling == "ordered" and plan.private
        self.steps = 0
        self._reservation = None
        if account is not None and self._most > 0:
            if account.relation != plan.relation:
                raise InvalidValue(
                    f"account {account.name!r} counts neighbours by {account.relation!r} and the plan by "
                    f"{plan.relation!r}; open another account, or change the plan."
                )
            event = plan.event_of(self._most) if self._joint else plan.step_event
            times = 1 if self._joint else self._most
            self._reservation = account.reserve(event, times, block=block, note=note, give_back=True)

    def require_room(self) -> None:
        """Refuse a step that the plan does not have."""
        if self.steps >= self._most:
            if self._first + self.steps >= self._plan.steps:
                reason = f"all {self._plan.steps} steps of the plan are taken"
            else:
                reason = f"the budget of the plan holds {self.steps} more steps beside what was spent before"
            raise BudgetExceeded(f"{reason}; the next one does not run.")

    def step(self) -> int:
        """Charge one step and return its number in the plan, from 1; the charge is on disk when this returns."""
        self.require_room()
        if self._reservation is not None and not (self._joint and self.steps):
            self._reservation.step()
        self.steps += 1
        return self._first + self.steps

    @property
    def event(self) -> Event:
        """What was charged here, steps of a block that did not start yet included."""
        if self._joint:
            return self._plan.event_of(self._most) if self.steps else Composed()
        charged = self.steps if self._reservation is None else self._reservation.reserved
        return Repeated(self._plan.step_event, charged) if charged else Composed()

    def close(self) -> None:
        """Give back the charged steps that never started."""
        if self._reservation is not None:
            self._reservation.close(give_back=True)


def _room(plan: TrainingPlan, first: int) -> int:
    """How many steps from `first` on the plan's own budget holds, if each step before was charged once."""
    spent = plan.event_of(first) if first else Composed()
    return room(plan, spent, plan.steps - first)
