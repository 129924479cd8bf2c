"""Events: checked when built, frozen, JSON both ways, exchange with dp-accounting, and a fuzzed reader."""

from __future__ import annotations

import json
import math
import random
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hush import events
from hush.errors import HushError, InvalidValue, UnreadableFile, UnsupportedEvent

POSITIVE = st.floats(1e-6, 1e6)
PROBABILITY = st.floats(1e-9, 1.0)
LEAVES = st.one_of(
    st.builds(events.Gaussian, POSITIVE),
    st.builds(events.Laplace, POSITIVE),
    st.builds(events.RandomizedResponse, st.floats(1e-3, 20), st.integers(2, 50)),
    st.builds(events.PureDP, st.floats(0, 50)),
    st.builds(events.ApproximateDP, st.floats(0, 50), st.floats(0, 0.99)),
    st.builds(events.ZeroConcentratedDP, st.floats(0, 50)),
    st.builds(events.GaussianDP, st.floats(0, 50)),
    st.just(events.NotPrivate()),
)


def nested(inner: st.SearchStrategy[events.Event]) -> st.SearchStrategy[events.Event]:
    return st.one_of(
        st.builds(events.PoissonSampled, inner, PROBABILITY),
        st.integers(1, 100).flatmap(
            lambda size: st.builds(events.FixedSizeSampled, inner, st.just(size), st.integers(size, 10_000))
        ),
        st.builds(events.Repeated, inner, st.integers(1, 10**9)),
        st.lists(inner, max_size=4).map(lambda parts: events.Composed(*parts)),
    )


ANY = st.recursive(LEAVES, nested, max_leaves=6)


@given(ANY)
def test_json_round_trip(event: events.Event) -> None:
    text = events.to_json(event)
    assert events.from_json(text) == event
    assert events.to_json(events.from_json(text)) == text


@pytest.mark.parametrize(
    ("build", "part"),
    [
        (lambda: events.Gaussian(0.0), "noise_multiplier"),
        (lambda: events.Gaussian(math.nan), "noise_multiplier"),
        (lambda: events.Gaussian(math.inf), "noise_multiplier"),
        (lambda: events.Gaussian("1"), "noise_multiplier"),  # type: ignore[arg-type]
        (lambda: events.Gaussian(True), "noise_multiplier"),
        (lambda: events.Laplace(-1.0), "scale"),
        (lambda: events.RandomizedResponse(1.0, 1), "categories"),
        (lambda: events.PureDP(-0.1), "epsilon"),
        (lambda: events.ApproximateDP(1.0, 1.0), "delta"),
        (lambda: events.PoissonSampled(events.Gaussian(1.0), 1.5), "sampling_prob"),
        (lambda: events.PoissonSampled(events.Gaussian(1.0), 0.0), "sampling_prob"),
        (lambda: events.PoissonSampled(1.0, 0.5), "event"),  # type: ignore[arg-type]
        (lambda: events.FixedSizeSampled(events.Gaussian(1.0), 11, 10), "sample_size"),
        (lambda: events.Repeated(events.Gaussian(1.0), 0), "times"),
        (lambda: events.Repeated(events.Gaussian(1.0), 2.0), "times"),  # type: ignore[arg-type]
        (lambda: events.Repeated(events.Gaussian(1.0), 10**30), "times"),
        (lambda: events.Composed(events.Gaussian(1.0), "x"), r"events\[1\]"),  # type: ignore[arg-type]
    ],
)
def test_bad_events_are_refused_when_built(build: object, part: str) -> None:
    with pytest.raises(InvalidValue, match=part) as caught:
        build()  # type: ignore[operator]
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_events_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        events.Gaussian(1.0).noise_multiplier = 2.0  # type: ignore[misc]


def test_flat_multiplies_and_merges() -> None:
    step = events.PoissonSampled(events.Gaussian(1.0), 0.1)
    whole = events.Composed(
        events.Repeated(events.Composed(step, events.Repeated(step, 2)), 5), events.Laplace(1.0), step
    )
    assert dict(events.flat(whole)) == {step: 16, events.Laplace(1.0): 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"event": 3}',
        '{"event": "os.system"}',
        '{"event": "Gaussian"}',
        '{"event": "Gaussian", "noise_multiplier": NaN}',
        '{"event": "Gaussian", "noise_multiplier": -1}',
        '{"event": "Gaussian", "noise_multiplier": 1, "extra": 2}',
        '{"event": "Repeated", "of": 3, "times": 2}',
        '{"event": "Composed", "of": {}}',
        '{"event": "Composed", "of": [{"event": "Gaussian"}]}',
        '{"event": "Repeated", "of": ' * 70 + '{"event": "NotPrivate"}' + ', "times": 1}' * 70,
        "[" * 100_000,
    ],
)
def test_unreadable_events_get_one_clear_line(text: str) -> None:
    with pytest.raises(UnreadableFile) as caught:
        events.from_json(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_fuzzed_event_text_gives_an_event_or_a_hush_error() -> None:
    rng = random.Random(20261115)
    event = events.Composed(
        events.Repeated(events.PoissonSampled(events.Gaussian(4.0), 0.01), 100), events.RandomizedResponse(1.0, 3)
    )
    text = events.to_json(event)
    changed = 0
    for _ in range(2_000):
        letters = list(text)
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(letters))
            letters[place : place + rng.randint(0, 3)] = chr(rng.randrange(32, 127)) * rng.randint(0, 2)
        try:
            read = events.from_json("".join(letters))
        except HushError:
            continue
        changed += read != event
        json.loads(events.to_json(read))
    assert changed < 600  # most damage is noticed; the rest is another valid number


@settings(max_examples=60)
@given(ANY)
def test_dp_accounting_round_trip(event: events.Event) -> None:
    if "PureDP" in repr(event) or "ApproximateDP" in repr(event):
        with pytest.raises(UnsupportedEvent, match=r"PureDP|ApproximateDP"):
            events.to_dp_accounting(event)
        return
    theirs = events.to_dp_accounting(event)
    again = events.to_dp_accounting(events.from_dp_accounting(theirs))
    assert repr(_rounded(again)) == repr(_rounded(theirs))


def _rounded(event: object) -> object:
    """Randomized response goes through exp and log; compare it to twelve digits."""
    import re

    return re.sub(r"\d+\.\d+(e-?\d+)?", lambda match: f"{float(match.group()):.9g}", repr(event))


def test_foreign_events_without_a_meaning_here_are_refused() -> None:
    from dp_accounting import dp_event

    with pytest.raises(UnsupportedEvent, match="DiscreteLaplace"):
        events.from_dp_accounting(dp_event.DiscreteLaplaceDpEvent(1.0, 1))
