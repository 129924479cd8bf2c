"""What all private estimators share: budget, randomness, the charge before the release, what is known afterwards."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any, Protocol

import numpy
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from hush import _check, accounting, events
from hush.errors import InvalidValue
from hush.linear import repeats
from hush.privacy import Budget, Guarantee, Relation
from hush.rng import Rng

RELATIONS = ("add_remove", "replace_one")
CLASSES_FROM_DATA = "the set of classes was read from y; pass classes=... to keep the guarantee free of that"


class Account(Protocol):
    """What a fit is charged to: an account of `hush.ledger`, or anything else with this method."""

    def charge(self, event: events.Event, /) -> object:
        """Take the event down, or raise: then nothing is fitted."""


def known_classes(classes: Any) -> NDArray[Any]:
    """The classes that a user named, sorted."""
    if numpy.ndim(classes) != 1:
        raise InvalidValue(f"classes must be a list, such as [0, 1, 2]; got {type(classes).__name__} of another form.")
    return numpy.unique(numpy.asarray(classes))


class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators. Attributes that end in an underscore are set by `fit`; all of them may be shown.

    Attributes:
        event_: What was done to the data.
        charged_: The part of it that this fit did, and was charged for: all of it, unless something was spent before.
        guarantee_: What that costs.
        randomness_: Where the noise came from.
    """

    epsilon: float | None
    delta: float | None
    relation: str
    random_state: int | None
    event_: events.Event
    charged_: events.Event
    guarantee_: Guarantee
    randomness_: str

    def _budget(self) -> Budget:
        if self.epsilon is None:
            raise InvalidValue("epsilon is needed: it has no default, because it is what the promise says.")
        delta = getattr(self, "delta", None)
        return Budget(epsilon=self.epsilon, delta=0.0 if delta is None else delta)

    def _relation(self) -> Relation:
        return _check.one_of("relation", self.relation, RELATIONS)  # type: ignore[return-value]

    def _rng(self) -> Rng:
        if self.random_state is None:
            return Rng.from_entropy()
        if isinstance(self.random_state, bool) or not isinstance(self.random_state, Integral):
            raise InvalidValue(
                "random_state must be None (fresh entropy: the only source that may be released) or a whole number "
                f"for tests; got {type(self.random_state).__name__}."
            )
        return Rng.from_seed(int(self.random_state))

    def _announce(
        self,
        event: events.Event,
        budget: Budget,
        data: NDArray[numpy.float64],
        account: Account | None,
        notes: tuple[str, ...] = (),
        spent: events.Event | None = None,
    ) -> Rng:
        """Check the cost against the budget, charge it, and hand out the randomness: no noise is drawn before.

        What was `spent` on the same rows before is in the guarantee, and is not charged again.
        """
        relation = self._relation()
        whole = event if spent is None else events.Composed(spent, event)
        guarantee = accounting.guarantee(whole, delta=budget.delta, relation=relation)
        if not budget.allows(guarantee):
            raise InvalidValue(f"the plan costs {guarantee}, over the budget; nothing was fitted. Please report this.")
        rng = self._rng()
        if not rng.is_secret:
            notes = (*notes, f"the noise came from {rng.label}: whoever knows it can take the noise off")
        if account is not None:
            kept_for = getattr(account, "relation", relation)
            if kept_for != relation:
                raise InvalidValue(f"the account is kept for {kept_for} and relation is {relation}; make them equal.")
            account.charge(event)
        else:
            repeats.watch(data, event, guarantee)
        self.event_, self.charged_ = whole, event
        self.guarantee_ = replace(guarantee, notes=(*guarantee.notes, *notes))
        self.randomness_ = rng.label
        return rng

    def __sklearn_tags__(self) -> Any:
        """Scikit-learn's description; the same data give another model each time, unless `random_state` is set."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags
