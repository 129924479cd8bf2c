"""Events: checked when built, frozen, JSON both ways, exchange with dp-accounting, and a fuzzed reader."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from hush import accounting, events
from hush.errors import HushError, InvalidValue, UnreadableFile, UnsupportedEvent
from hush.privacy import RELATIONS, Relation

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


# Correlated noise ----------------------------------------------------------------------------------------------

MATRIX = events.MatrixGaussian(2.0, steps=100, bands=5, min_separation=20, participations=5)


@given(POSITIVE, st.integers(1, 10**6), st.integers(1, 10**4))
def test_matrix_gaussian_round_trip(noise_multiplier: float, steps: int, bands: int) -> None:
    event = events.MatrixGaussian(noise_multiplier, steps, min(bands, steps), min_separation=steps, participations=1)
    for whole in (event, events.Repeated(event, 2), events.Composed(events.Gaussian(1.0), event)):
        assert events.from_json(events.to_json(whole)) == whole


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"steps": 0}, "steps"),
        ({"steps": 10.0}, "steps"),
        ({"bands": 0}, "bands"),
        ({"bands": 101}, "bands must not exceed steps"),
        ({"min_separation": 25}, "do not fit"),
        ({"participations": 6}, "do not fit"),
    ],
)
def test_bad_matrix_gaussians_are_refused(changes: dict[str, object], part: str) -> None:
    with pytest.raises(InvalidValue, match=part):
        replace(MATRIX, **changes)  # type: ignore[arg-type]
    data = {**events.to_dict(MATRIX), **changes}
    with pytest.raises(UnreadableFile, match="MatrixGaussian"):
        events.from_dict(data)


@pytest.mark.parametrize("wrap", [lambda event: event, lambda event: events.Repeated(events.Composed(event), 2)])
def test_a_matrix_gaussian_has_no_meaning_on_a_sample(wrap: Callable[[events.Event], events.Event]) -> None:
    with pytest.raises(InvalidValue, match="order"):
        events.PoissonSampled(wrap(MATRIX), 0.1)
    with pytest.raises(InvalidValue, match="order"):
        events.FixedSizeSampled(wrap(MATRIX), 1, 10)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_matrix_gaussian_costs_one_gaussian_by_the_closed_form(relation: Relation) -> None:
    mu = (2 if relation == "replace_one" else 1) / 2.0
    found = accounting.guarantee(MATRIX, delta=1e-5, relation=relation)
    # [Balle, Wang 2018, Thm. 8], at both ends of the interval
    for epsilon, sign in ((found.epsilon, -1), (found.epsilon_lower, 1)):
        curve = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert sign * (curve - 1e-5) >= -1e-14
    assert found.gap <= 1e-9


@pytest.mark.parametrize("method", accounting.METHODS)
@pytest.mark.parametrize("relation", RELATIONS)
def test_every_method_takes_a_matrix_gaussian_for_a_gaussian(method: str, relation: Relation) -> None:
    wholes = [events.Composed(event, events.Repeated(event, 2)) for event in (MATRIX, events.Gaussian(2.0))]
    found, truth = (accounting.guarantee(whole, delta=1e-5, relation=relation, method=method) for whole in wholes)
    assert found == truth


def test_a_matrix_gaussian_goes_to_dp_accounting_as_a_gaussian() -> None:
    assert events.to_dp_accounting(MATRIX) == events.to_dp_accounting(events.Gaussian(2.0))
