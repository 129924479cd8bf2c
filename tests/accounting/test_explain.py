"""The chain of methods against closed forms, published numbers and 32-digit values."""

from __future__ import annotations

import json
import math

import pytest
from scipy import optimize, special

from hush import events
from hush.accounting import explain
from hush.accounting.calibrate import sampled_gaussian
from hush.accounting.explain import CHAIN, Explanation, published_for, setting
from hush.errors import InvalidValue, UnsupportedEvent

CLASSIC = sampled_gaussian(4.0, 0.01, 10_000)
CLASSIC_TRUTH = 0.94686680076438  # 32-digit contour integral
DELTA = 1e-5


@pytest.fixture(scope="module")
def story() -> Explanation:
    return explain(CLASSIC, DELTA)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The textbook curve of the Gaussian mechanism, solved by Brent's method."""

    def excess(epsilon: float) -> float:
        t = epsilon / mu - mu / 2
        return float(special.ndtr(-t) - math.exp(epsilon) * special.ndtr(-t - mu)) - delta

    return float(optimize.brentq(excess, 0.0, 60.0, xtol=1e-13))


def test_chain_has_the_methods_in_order_with_theorems(story: Explanation) -> None:
    assert tuple(link.method for link in story.chain) == CHAIN
    for link in (*story.chain, story.approximation):
        assert any(character.isdigit() for character in link.theorem)
        assert link.idea.endswith(".")


def test_classic_values(story: Explanation) -> None:
    assert story["moments"].epsilon == pytest.approx(1.258575, abs=1e-6)  # the published 1.26
    assert story["rdp"].epsilon == pytest.approx(1.0354, abs=1e-4)
    assert story.published_strong_composition == pytest.approx(9.337634, abs=1e-6)  # the published 9.34
    exact = story["exact"].guarantee
    assert exact is not None
    assert exact.epsilon_lower <= CLASSIC_TRUTH <= exact.epsilon


def test_every_proven_link_is_above_the_truth_and_the_limit_is_flagged(story: Explanation) -> None:
    for link in story.chain:
        assert link.guarantee is not None
        assert link.guarantee.proven
        assert link.guarantee.epsilon >= CLASSIC_TRUTH
    assert story.approximation.guarantee is not None
    assert not story.approximation.guarantee.proven
    assert story.approximation.guarantee.epsilon < CLASSIC_TRUTH  # which is why it is no bound


def test_costs_multiply_to_the_looseness(story: Explanation) -> None:
    costs = [link.cost for link in story.chain[:-1]]
    assert all(cost is not None for cost in costs)
    looseness = story.chain[0].looseness
    assert math.prod(cost for cost in costs if cost is not None) == pytest.approx(looseness, rel=1e-9)
    assert story["exact"].cost is None
    assert story["exact"].looseness == 1.0


@pytest.mark.parametrize("method", ["moments", "rdp", "advanced"])
def test_steps_ratio_is_what_the_closed_form_allows(method: str) -> None:
    noise, steps = 20.0, 100
    link = explain(events.Repeated(events.Gaussian(noise), steps), DELTA)[method]
    assert link.epsilon is not None
    assert link.steps_ratio is not None
    allowed = link.steps_ratio * steps
    assert gaussian_epsilon(math.sqrt(allowed) / noise, DELTA) <= link.epsilon
    assert gaussian_epsilon(math.sqrt(1.03 * allowed + 1) / noise, DELTA) > link.epsilon


def test_steps_ratio_rises_with_the_looseness(story: Explanation) -> None:
    ratios = [link.steps_ratio for link in story.chain[:-1]]
    assert None not in ratios
    assert ratios == sorted(ratios, key=lambda ratio: -float(ratio or 0))
    assert float(ratios[-1] or 0) > 1


def test_sensitivities_of_a_full_batch_follow_the_closed_form() -> None:
    noise, steps = 20.0, 100
    found = {item.parameter: item for item in explain(sampled_gaussian(noise, 1.0, steps), DELTA).sensitivities}
    before = gaussian_epsilon(math.sqrt(steps) / noise, DELTA)
    more_noise = gaussian_epsilon(math.sqrt(steps) / (1.01 * noise), DELTA)
    more_steps = gaussian_epsilon(math.sqrt(1.01 * steps) / noise, DELTA)
    assert found["noise_multiplier"].percent == pytest.approx(100 * (more_noise / before - 1), abs=1e-4)
    assert found["steps"].percent == pytest.approx(100 * (more_steps / before - 1), abs=1e-4)
    assert found["sampling_prob"].changed_to < 1  # there is no probability above 1
    assert found["sampling_prob"].percent > 0


def test_sensitivities_scale_few_steps_to_one_per_cent() -> None:
    found = {item.parameter: item for item in explain(sampled_gaussian(2.0, 1.0, 3), DELTA).sensitivities}
    power = math.log(gaussian_epsilon(math.sqrt(4) / 2, DELTA) / gaussian_epsilon(math.sqrt(3) / 2, DELTA)) / math.log(
        4 / 3
    )
    assert found["steps"].changed_to == 4
    assert found["steps"].percent == pytest.approx(100 * (1.01**power - 1), abs=1e-4)


def test_a_method_that_does_not_apply_says_why() -> None:
    story = explain(CLASSIC, DELTA, "replace_one")
    link = story["basic"]
    assert link.epsilon is None
    assert "basic" in link.reason
    assert "PoissonSampled" in link.reason
    assert "does not apply" in str(link)
    assert story["exact"].epsilon == pytest.approx(1.993120057, rel=1e-6)
    assert story["moments"].cost is not None
    assert story.published_strong_composition is None


def test_published_strong_composition_can_be_below_the_truth() -> None:
    event = sampled_gaussian(0.6, 1e-5, 100_000)
    published = published_for(event, 1e-8, "add_remove")
    assert published is not None
    assert published < 0.263  # the truth is 0.2630746: no theorem could say less


def test_an_event_that_nothing_bounds_is_refused() -> None:
    event = events.PoissonSampled(events.FixedSizeSampled(events.Laplace(1.0), 5, 10), 0.5)
    with pytest.raises(UnsupportedEvent, match="FixedSizeSampled"):
        explain(event, DELTA)


@pytest.mark.parametrize(
    ("event", "delta", "epsilon"),
    [
        (events.NotPrivate(), 1e-5, "infinity"),
        (events.Gaussian(3.0), 0.0, "infinity"),
        (events.Composed(), 1e-5, 0.0),
    ],
)
def test_edges_are_json(event: events.Event, delta: float, epsilon: object) -> None:
    data = explain(event, delta).to_dict()
    json.dumps(data, allow_nan=False)
    assert data["methods"][0]["epsilon"] == epsilon
    assert data["methods"][0]["cost"] is None
    assert data["sensitivities"] == []


def test_json_holds_the_event_and_every_method(story: Explanation) -> None:
    data = json.loads(json.dumps(story.to_dict(), allow_nan=False))
    assert events.from_dict(data["event"]) == CLASSIC
    assert [item["method"] for item in data["methods"]] == [*CHAIN, "gdp_clt"]
    assert data["methods"][-1]["proven"] is False


def test_text_names_each_value(story: Explanation) -> None:
    text = str(story)
    for part in ("0.946867", "1.25858", "9.33764", "not a theorem", "no bound", "Abadi et al. 2016, Theorem 2"):
        assert part in text


@pytest.mark.parametrize(
    ("event", "delta", "relation"),
    [
        (CLASSIC, 1.0, "add_remove"),
        (CLASSIC, math.nan, "add_remove"),
        (CLASSIC, DELTA, "neighbours"),
        ("gauss", DELTA, "add_remove"),
    ],
)
def test_bad_input_is_refused(event: object, delta: float, relation: object) -> None:
    with pytest.raises(InvalidValue):
        explain(event, delta, relation)  # type: ignore[arg-type]


def test_unknown_link_is_refused(story: Explanation) -> None:
    with pytest.raises(InvalidValue, match="method"):
        story["best"]


def test_setting_reads_sampled_gaussians_only() -> None:
    step = events.PoissonSampled(events.Gaussian(2.0), 0.5)
    assert setting(events.Composed(step, events.Repeated(step, 2))) == (2.0, 0.5, 3)
    assert setting(events.Composed(step, events.Laplace(1.0))) is None
    assert setting(events.Gaussian(2.0)) is None
