"""What every accounting method promises, run on every one of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from hush import accounting, events
from hush.errors import HushError, InvalidValue, UnsupportedEvent
from hush.privacy import RELATIONS, Relation

STEPS = events.Repeated(events.PoissonSampled(events.Gaussian(2.0), 0.02), 300)
CASES = {
    "sampled Gaussian": STEPS,
    "Gaussian": events.Repeated(events.Gaussian(5.0), 10),
    "pure": events.Repeated(events.PureDP(0.1), 20),
    "mixed": events.Composed(STEPS, events.PureDP(0.3), events.Gaussian(8.0)),
}
METHODS = accounting.METHODS


@dataclass(frozen=True)
class Unknown(events.Event):
    """An event that no accountant knows."""


def answer(event: events.Event, method: str, **question: object) -> object:
    """The guarantee, or None where the method says that it cannot serve this event."""
    ask = accounting.guarantee if "delta" in question else accounting.delta
    try:
        return ask(event, method=method, **question)  # type: ignore[arg-type]
    except UnsupportedEvent:
        return None


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("event", [Unknown(), events.Composed(STEPS, Unknown()), events.PoissonSampled(Unknown(), 0.1)])
def test_what_it_does_not_know_it_refuses_by_name(method: str, event: events.Event) -> None:
    with pytest.raises(UnsupportedEvent, match="Unknown"):
        accounting.guarantee(event, delta=1e-5, method=method)


@pytest.mark.parametrize("method", METHODS)
def test_no_privacy_is_infinite_and_nothing_is_free(method: str) -> None:
    for event in (events.NotPrivate(), events.Composed(STEPS, events.NotPrivate())):
        found = answer(event, method, delta=1e-5)
        assert found is None or found.epsilon == math.inf  # type: ignore[attr-defined]
    assert accounting.guarantee(events.Composed(), delta=1e-5, method=method).epsilon == 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", CASES)
def test_a_proven_number_is_never_below_the_exact_one(method: str, relation: Relation, name: str) -> None:
    found = answer(CASES[name], method, delta=1e-6, relation=relation)
    if found is None:
        return
    exact = accounting.guarantee(CASES[name], delta=1e-6, relation=relation)
    assert found.relation == relation  # type: ignore[attr-defined]
    assert found.proven == (method != "gdp_clt")  # type: ignore[attr-defined]
    if found.proven:  # type: ignore[attr-defined]
        assert found.epsilon >= exact.epsilon_lower  # type: ignore[attr-defined]
        assert found.epsilon_lower <= exact.epsilon  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", CASES)
def test_epsilon_falls_with_delta_and_delta_with_epsilon(method: str, name: str) -> None:
    epsilons = [answer(CASES[name], method, delta=delta) for delta in (1e-9, 1e-6, 1e-3)]
    if epsilons[0] is not None:
        values = [found.epsilon for found in epsilons]  # type: ignore[union-attr]
        assert values == sorted(values, reverse=True)
    deltas = [answer(CASES[name], method, epsilon=epsilon) for epsilon in (0.5, 1.0, 2.0)]
    if deltas[0] is not None:
        values = [found.delta for found in deltas]  # type: ignore[union-attr]
        assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("method", METHODS)
def test_its_two_questions_agree(method: str) -> None:
    found = accounting.guarantee(STEPS, delta=1e-6, method=method)
    back = accounting.delta(STEPS, epsilon=found.epsilon, method=method)
    assert back.delta <= 1e-6 * 1.05  # the inverse may lose a little, upwards
    assert accounting.delta(STEPS, epsilon=found.epsilon * 0.98, method=method).delta > 1e-6 * 0.99


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "question", [{"delta": -1e-9}, {"delta": 1.0}, {"delta": math.nan}, {"epsilon": -0.1}, {"epsilon": math.inf}]
)
def test_questions_outside_the_domain_are_refused(method: str, question: dict[str, float]) -> None:
    ask = accounting.guarantee if "delta" in question else accounting.delta
    with pytest.raises(InvalidValue, match=r"epsilon|delta") as caught:
        ask(STEPS, method=method, **question)  # type: ignore[arg-type]
    assert isinstance(caught.value, HushError)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)
