"""Right guesses against a claimed event: exact validity, the verdict's words, the way to JSON and back."""

from __future__ import annotations

import json
import math
from bisect import bisect_left

import pytest
from scipy.stats import binom, norm

from hush import accounting, events
from hush.audit import AuditResult
from hush.audit.claim import UNEXPLAINED, evidence_from_rate, promised_rate, with_noise
from hush.audit.result import judge
from hush.errors import UnreadableFile

FULL = events.Repeated(events.Gaussian(4.0), 16)  # mu is 1
SAMPLED = events.PoissonSampled(events.Gaussian(1.0), 0.25)
FOUR = events.Repeated(SAMPLED, 4)


def found(num_correct: int, num_guesses: int = 400, event: events.Event = FULL, **more: object) -> AuditResult:
    return judge([num_correct], num_guesses, event, delta=1e-5, relation="add_remove", method="white_box", **more)  # type: ignore[arg-type]


def test_the_promise_of_gaussian_noise_is_phi_of_half_mu() -> None:
    assert promised_rate(FULL, "add_remove") == pytest.approx(norm.cdf(0.5), rel=1e-9)
    assert promised_rate(FULL, "replace_one") == pytest.approx(norm.cdf(1.0), rel=1e-9)
    assert promised_rate(events.PureDP(1.0), "add_remove") == pytest.approx(math.e / (1 + math.e), rel=1e-9)


def test_the_promise_of_one_sampled_step_is_its_total_variation() -> None:
    """Between N(0, s^2) and a mixture with N(1, s^2) of weight q it is q times the Gaussians' own."""
    event = events.PoissonSampled(events.Gaussian(1.0), 0.25)
    assert promised_rate(event, "add_remove") == pytest.approx(0.5 + 0.25 * (norm.cdf(0.5) - 0.5), rel=1e-6)


@pytest.mark.parametrize("event", [FULL, SAMPLED], ids=["full", "sampled"])
@pytest.mark.parametrize("guesses", [30, 400])
def test_evidence_is_above_the_guarantee_no_more_often_than_it_says(event: events.Event, guesses: int) -> None:
    """Exactly, for the best attacker that the claim allows; more right guesses never help the claim."""
    rate = promised_rate(event, "add_remove")
    guarantee = accounting.guarantee(event, delta=1e-5)
    numbers = range(guesses + 1)
    least = bisect_left(numbers, True, key=lambda n: found(n, guesses, event).evidence.contradicts(guarantee))
    assert 0.005 < binom.sf(least - 1, guesses, rate) <= 0.05
    accused = bisect_left(numbers, True, key=lambda n: found(n, guesses, event).contradicts)
    assert binom.sf(accused - 1, guesses, rate) <= 1e-6


def test_evidence_of_a_rate_is_the_event_that_just_allows_it() -> None:
    for event in (FULL, SAMPLED):
        for factor in (0.5, 0.8, 1.5):
            other = with_noise(event, factor)
            evidence = evidence_from_rate(
                promised_rate(other, "add_remove"),
                event,
                delta=1e-5,
                relation="add_remove",
                significance=0.05,
                method="m",
            )
            truth = accounting.guarantee(other, delta=1e-5).epsilon
            assert 0.99 * truth <= evidence.epsilon_at_least <= truth


def test_what_no_noise_explains_is_said() -> None:
    """In four steps of sampling 0.25 an example is absent with chance 0.32, whatever the noise."""
    assert UNEXPLAINED in found(400, 400, FOUR).evidence.notes
    assert found(400, 400, FOUR).contradicts
    assert found(400, 400, FULL).evidence.notes == ()


def test_verdicts() -> None:
    assert found(200).verdict == "no contradiction"
    assert found(200).evidence.epsilon_at_least == 0
    assert found(305).verdict.startswith("doubtful")
    assert found(360).verdict == "CONTRADICTION"
    assert str(found(360)).endswith("CONTRADICTION")


def test_a_guarantee_below_the_events_own_cost_is_refuted_by_its_number() -> None:
    """The event is as claimed and costs 4.4; a guarantee of 1 for it is wrong all the same."""
    small = accounting.guarantee(events.Gaussian(3.8), delta=1e-5)
    right = round(4_000 * promised_rate(FULL, "add_remove"))
    assert not found(right, 4_000).contradicts
    result = found(right, 4_000, guarantee=small)
    assert result.contradicts
    assert AuditResult.from_dict(json.loads(json.dumps(result.to_dict())), small) == result


def test_several_rules_share_the_significance() -> None:
    """The first rule has nine tenths, so a second that guesses the same adds nothing and costs little."""
    one, two = found(280), judge([280, 280], 400, FULL, delta=1e-5, relation="add_remove", method="white_box")
    assert 0.9 * one.evidence.epsilon_at_least < two.evidence.epsilon_at_least < one.evidence.epsilon_at_least
    best = judge([200, 360], 400, FULL, delta=1e-5, relation="add_remove", method="white_box")
    assert best.contradicts
    assert best.num_correct == 360


def test_to_json_and_back() -> None:
    result = found(360)
    again = AuditResult.from_dict(json.loads(json.dumps(result.to_dict())), result.guarantee)
    assert again == result
    other = accounting.guarantee(FULL, delta=1e-6)
    with pytest.raises(UnreadableFile, match="another guarantee"):
        AuditResult.from_dict(result.to_dict(), other)
