"""What a training's event costs, remembered: plan, loop, ledger and run ask the same question several times."""

from __future__ import annotations

from functools import lru_cache

from hush import accounting
from hush.events import Composed, Event, Repeated, flat
from hush.privacy import Guarantee, Relation


def cost(event: Event, *, delta: float, relation: Relation) -> Guarantee:
    """The exact accountant's answer; events that do the same things equally often share it."""
    return _cost(tuple(flat(event)), delta, relation)


@lru_cache(maxsize=256)
def _cost(counts: tuple[tuple[Event, int], ...], delta: float, relation: Relation) -> Guarantee:
    merged = Composed(*(Repeated(event, times) for event, times in counts))
    return accounting.guarantee(merged, delta=delta, relation=relation)
