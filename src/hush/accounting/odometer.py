"""epsilon so far, after every step of a run."""

from __future__ import annotations

from hush import _check
from hush.accounting.guarantee import guarantee
from hush.events import Composed, Event, Repeated
from hush.privacy import Guarantee, Relation, check_relation


class Odometer:
    """Adds up what a run has done and says what it costs so far."""

    def __init__(self, *, delta: float, relation: Relation = "add_remove") -> None:
        self.delta, self.relation = _check.delta(delta), check_relation(relation)
        self._counts: dict[Event, int] = {}

    def add(self, event: Event, times: int = 1) -> None:
        """Count an event."""
        self._counts[event] = self._counts.get(event, 0) + _check.whole("times", times)

    @property
    def event(self) -> Event:
        """Everything counted so far."""
        return Composed(*(Repeated(event, times) for event, times in self._counts.items()))

    def guarantee(self) -> Guarantee:
        """What it costs so far."""
        return guarantee(self.event, delta=self.delta, relation=self.relation)
