"""Charging an account for a release, before the release."""

from __future__ import annotations

from typing import Protocol

from hush.errors import InvalidValue
from hush.events import Event
from hush.privacy import Relation, check_relation


class Account(Protocol):
    """What a release is charged to: an account of `hush.ledger`, or anything else with this method."""

    def charge(self, event: Event, /) -> object:
        """Take the event down, or raise: then nothing is released."""


def charge(account: Account | None, event: Event, relation: Relation) -> None:
    """Charge the event, which holds under `relation`; an account that is kept for another relation is refused."""
    check_relation(relation)
    if account is None:
        return
    kept_for = getattr(account, "relation", relation)
    if kept_for != relation:
        raise InvalidValue(
            f"the account is kept for {kept_for} and this release is stated for {relation}; "
            f"pass relation={kept_for!r} with the sensitivity that belongs to it."
        )
    account.charge(event)
