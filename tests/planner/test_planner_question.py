"""What the page sends is read whole or refused at its field; what is found is inside the target, its neighbour not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_server import PLAN

from hush import Budget, accounting, events
from hush.accounting.exact import answer, report
from hush.errors import HushError, Unreachable
from hush.planner import answers
from hush.planner.axes import Distance, axis_of
from hush.planner.looks import FINE, Look, level_of
from hush.planner.question import Question, read
from hush.planner.solve import cost, exact_cost, forget, settle
from hush.privacy import Guarantee, round_up


def asked(**change: Any) -> Question:
    question, messages = read({**PLAN, **change})
    assert question is not None, messages
    return question


def library(question: Question, **change: Any) -> Guarantee:
    """The same training, put together here from events."""
    step = events.PoissonSampled(
        events.Gaussian(question.noise_multiplier), question.expected_batch_size / question.num_examples
    )
    exact = question.epochs * question.num_examples / question.expected_batch_size
    run = events.Repeated(step, max(1, -int(-exact * (1 - 1e-12) // 1)))
    return accounting.guarantee(run, delta=question.delta, relation=question.relation, **change)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("num_examples", "many", "must be a number"),
        ("num_examples", 0, "whole number from 1"),
        ("num_examples", 2.5, "whole number"),
        ("num_examples", "1e15", "whole number"),
        ("expected_batch_size", 60_001, "at most num_examples, 60000"),
        ("expected_batch_size", None, "must be a number"),
        ("epochs", 0, "from 1e-06"),
        ("epochs", "1,5", "must be a number"),
        ("epochs", 1e9, "steps"),
        ("epochs", 1e300, "to 1e+09"),
        ("noise_multiplier", "nan", "from 0.05"),
        ("noise_multiplier", 0.01, "from 0.05"),
        ("noise_multiplier", True, "must be a number"),
        ("delta", 0, "above 0 and below 1"),
        ("delta", 1, "above 0 and below 1"),
        ("delta", "inf", "above 0 and below 1"),
        ("epsilon", -1, "from 1e-06"),
        ("epsilon", [3], "must be a number"),
        ("relation", "cousins", "must be one of"),
        ("find", "happiness", "must be one of"),
        ("find", ["epsilon"], "must be one of"),
    ],
)
def test_bad_input_is_refused_at_its_field(field: str, value: object, words: str) -> None:
    question, messages = read({**PLAN, field: value})
    assert question is None
    assert set(messages) == {field}
    assert words in messages[field]


EXTREMES = {
    "num_examples": [1, 2, 10**12],
    "expected_batch_size": [1, 10**12],
    "epochs": [1e-6, 1e9],
    "noise_multiplier": [0.05, 1e6],
    "delta": [1e-300, 0.999],
    "epsilon": [1e-6, 1e6],
}


@pytest.mark.parametrize(
    "find", ["epsilon", *(pytest.param(name, marks=pytest.mark.slow) for name in EXTREMES if name != "epsilon")]
)
def test_extremes_are_answered_or_refused_in_words(find: str) -> None:
    for field, values in EXTREMES.items():
        for value in values:
            question, messages = read({**PLAN, field: value, "find": find})
            try:
                answer = messages if question is None else answers.numbers(question)
            except HushError as error:
                answer = {"": str(error)}
            json.dumps(answer, allow_nan=False)


def test_every_bad_field_has_its_own_message() -> None:
    assert set(read({**PLAN, "delta": "x", "epochs": "y"})[1]) == {"delta", "epochs"}


def test_the_field_to_be_found_may_hold_anything() -> None:
    assert read({**PLAN, "noise_multiplier": "?", "find": "noise_multiplier"})[0] is not None


@pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
def test_numbers_are_the_librarys(relation: str) -> None:
    question = asked(relation=relation)
    answer = answers.numbers(question)
    truth = library(question)
    assert answer["guarantee"]["epsilon"] == truth.epsilon
    assert answer["guarantee"]["epsilon_lower"] == truth.epsilon_lower
    assert answer["plan"]["steps"] == 3_000
    low, high = answer["interval_text"]
    assert float(low) <= truth.epsilon_lower <= truth.epsilon <= float(high)


def test_all_methods_are_the_librarys() -> None:
    question = asked()
    rows = [*answers.numbers(question)["methods"], *answers.methods(question)["methods"]]
    rows += answers.slow_methods(question)["methods"]
    assert {row["method"] for row in rows} == set(accounting.METHODS)
    for row in rows:
        truth = library(question, method=row["method"]).epsilon
        assert row["epsilon"] == truth
        assert truth <= float(row["text"]) <= truth * (1 + 2e-5)


def test_a_method_that_does_not_apply_says_so() -> None:
    row = answers.row(asked(relation="replace_one"), "basic")
    assert (row["epsilon"], row["kind"]) == (None, "does not apply")
    assert row["notes"]


NEXT = {"num_examples": -1, "expected_batch_size": +1}


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("field", sorted(NEXT))
@pytest.mark.parametrize("noise", [0.8, 1.1, 3.0])
def test_whole_numbers_are_found_at_the_edge(field: str, noise: float, relation: str) -> None:
    found, answer = settle(asked(find=field, noise_multiplier=noise, relation=relation))
    assert library(found).epsilon == answer.epsilon <= 3
    assert cost(found.changed(field, getattr(found, field) + NEXT[field])).epsilon > 3


def test_a_batch_of_everything_is_found_where_it_fits() -> None:
    assert settle(asked(find="expected_batch_size", noise_multiplier=1e3, epochs=1))[0].expected_batch_size == 60_000


LARGE = {
    "num_examples": 10**7,
    "expected_batch_size": 4096,
    "epochs": 5,
    "noise_multiplier": 0.7,
    "delta": 1e-9,
    "epsilon": 8,
}
SMALL = {"num_examples": 1438, "expected_batch_size": 256, "epochs": 40, "noise_multiplier": 2.0}


@pytest.mark.parametrize("change", [{}, SMALL, LARGE, {"relation": "replace_one"}, {"epsilon": 0.5}], ids=str)
def test_found_noise_and_epochs_are_the_librarys(change: dict[str, Any]) -> None:
    """The noise is the library's, rounded up to six digits: what is shown is what was checked."""
    question = asked(**change, find="noise_multiplier")
    budget = Budget(epsilon=question.epsilon, delta=question.delta)
    training = {"sampling_prob": question.sampling_prob, "relation": question.relation}
    noise = accounting.noise_for(budget, steps=question.steps, **training)
    assert settle(question)[0].noise_multiplier == float(round_up(noise))
    steps = accounting.steps_for(budget, noise_multiplier=question.noise_multiplier, **training)
    assert settle(replace(question, find="epochs"))[0].steps == steps


@pytest.mark.parametrize("find", ["num_examples", "expected_batch_size", "epochs", "noise_multiplier"])
def test_what_is_found_does_not_depend_on_what_was_asked_before(find: str) -> None:
    forget()
    first = settle(asked(find=find))
    for before in ({"epsilon": 3.1}, {"epsilon": 0.3, "noise_multiplier": 9}, LARGE):
        settle(asked(**before, find="noise_multiplier"))
        found, answer = settle(asked(find=find))
        if find in ("epochs", "noise_multiplier"):  # one edge; whole steps make several for the others
            assert (found, answer) == first
        assert answer.epsilon == library(found).epsilon <= 3


@pytest.mark.parametrize("plan", [{}, SMALL, LARGE], ids=["ordinary", "small", "large"])
@pytest.mark.parametrize("find", ["num_examples", "expected_batch_size", "epochs", "noise_multiplier"])
def test_a_search_asks_the_exact_accountant_once_or_twice(find: str, plan: dict[str, Any]) -> None:
    for factor in (1.0, 0.3, 1.7, 4.0):
        forget()
        settle(asked(**{**plan, "epsilon": 3 * factor, "find": find}))
        assert exact_cost.cache_info().misses <= 2


@pytest.mark.parametrize("plan", [{}, SMALL, LARGE], ids=["ordinary", "small", "large"])
@pytest.mark.parametrize("find", ["num_examples", "expected_batch_size", "epochs", "noise_multiplier"])
def test_while_dragging_a_search_asks_the_exact_accountant_about_once(find: str, plan: dict[str, Any]) -> None:
    forget()
    question = asked(**{**plan, "find": find})
    settle(question)
    exact_cost.cache_clear()
    for move in range(1, 21):
        settle(replace(question, delta=question.delta * 10 ** (move / 60)))
    assert exact_cost.cache_info().misses <= 26


def test_a_look_foresees_the_cost_beside_it() -> None:
    """With the slopes of a rule, up to the square of the way; with steps and sampling both changed."""
    for plan in ({}, SMALL, LARGE):
        here = asked(**plan)
        found = report.rough(here.event, delta=here.delta, relation=here.relation, near=cost(here).epsilon)
        assert found is not None
        look = Look.by(here, found, FINE, None)
        for change in ({"epochs": here.epochs * 1.02}, {"noise_multiplier": here.noise_multiplier * 0.99}):
            there = replace(here, **change)
            rise = level_of(cost(there).epsilon, there.delta) - level_of(cost(here).epsilon, here.delta)
            assert look.rise_to(Distance.of(there)) == pytest.approx(rise, rel=0.05)
        there = replace(here, expected_batch_size=round(here.expected_batch_size * 1.01))
        rise = level_of(cost(there).epsilon, there.delta) - level_of(cost(here).epsilon, here.delta)
        assert look.rise_to(Distance.of(there)) == pytest.approx(rise, rel=0.05)


@given(
    st.sampled_from(["num_examples", "expected_batch_size", "epochs", "noise_multiplier"]),
    st.floats(-2, 1.3),
    st.floats(-0.4, 1),
    st.floats(-10, -4),
    st.floats(-0.5, 2),
    st.integers(3, 7),
)
@settings(max_examples=40, deadline=None)
def test_any_number_found_is_inside_and_the_next_hardly(
    find: str, epsilon: float, noise: float, delta: float, epochs: float, examples: int
) -> None:
    powers = {"epsilon": epsilon, "noise_multiplier": noise, "delta": delta, "epochs": epochs}
    values = {name: 10**power for name, power in powers.items()}
    question = asked(**values, num_examples=10**examples, expected_batch_size=10 ** (examples // 2), find=find)
    try:
        found, answer = settle(question)
    except Unreachable:
        return
    assert library(found).epsilon == answer.epsilon <= question.epsilon
    axis = axis_of(found)
    place = axis.start
    assert axis.at(place) == found
    # That the next is outside may be read off the slope, which can miss a place; never the wrong way, never by much.
    assert place == axis.last or cost(axis.at(place + 1)).epsilon > 0.995 * question.epsilon


def test_found_delta_is_the_librarys() -> None:
    question = asked(find="delta")
    found, answer = settle(question)
    assert found.delta == answer.delta == accounting.delta(question.event, epsilon=3.0).delta
    assert library(found).epsilon == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("noise", [1.0, 1.57, 50.0])
def test_a_delta_that_nobody_tells_apart_is_1e_30(noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "_grid", lambda: pytest.fail("the loss grid was asked"))
    question = asked(**{**LARGE, "noise_multiplier": noise, "find": "delta"})
    found, guarantee = settle(question)
    assert (found.delta, guarantee.delta_lower, guarantee.epsilon) == (1e-30, 0.0, 8.0)
    assert library(found).epsilon <= 8.0
    shown = answers.numbers(question)
    assert (shown["found_text"], shown["inside"]) == ("1e-30", True)
    assert "1e-30" in shown["methods"][0]["notes"][0]


def test_a_delta_of_1_is_no_promise() -> None:
    with pytest.raises(Unreachable, match="no promise"):
        settle(asked(find="delta", noise_multiplier=0.05, epsilon=1e-6, epochs=1e4))


@pytest.mark.parametrize(
    "change",
    [
        {"find": "expected_batch_size", "noise_multiplier": 0.1, "epsilon": 0.01},
        {"find": "num_examples", "noise_multiplier": 0.1, "epsilon": 0.001},
        {"find": "epochs", "noise_multiplier": 0.1, "epsilon": 0.01},
        {"find": "expected_batch_size", "epochs": 1e9, "num_examples": 10**12},
        {"find": "num_examples", "epochs": 1e9, "noise_multiplier": 0.1},
    ],
    ids=str,
)
def test_what_cannot_be_found_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Unreachable, match=r"not even|more than 1e\+09 steps"):
        settle(asked(**change))


@pytest.mark.parametrize("find", ["num_examples", "expected_batch_size", "epochs", "noise_multiplier", "delta"])
def test_the_text_of_what_was_found_is_on_the_safe_side(find: str) -> None:
    """Somebody who types the shown number stays inside the target, also after its digits were cut."""
    shown = answers.numbers(asked(find=find))["found_text"]
    typed = asked(**{find: shown})
    assert cost(typed).epsilon <= 3


def test_what_if_rows_are_the_librarys() -> None:
    question = asked()
    rows = {row["name"]: row for row in answers.what_if(question)["rows"]}
    assert rows["half the batch"]["result"] == library(replace(question, expected_batch_size=300)).epsilon
    assert rows["twice the epochs"]["result"] == library(replace(question, epochs=60)).epsilon
    assert rows["twice the data"]["result"] == library(replace(question, num_examples=120_000)).epsilon
    assert rows["a tenth of delta"]["result"] == library(replace(question, delta=1e-5 * 0.1)).epsilon
    before, after = library(question).epsilon, rows["a quarter more noise"]["result"]
    assert rows["a quarter more noise"]["change"] == f"{100 * (after / before - 1):+.0f} %"


def test_what_if_solves_anew_for_the_unknown() -> None:
    rows = {row["name"]: row for row in answers.what_if(asked(find="noise_multiplier"))["rows"]}
    assert "a quarter more noise" not in rows
    budget = Budget(epsilon=3.0, delta=1e-5)
    noise = accounting.noise_for(budget, sampling_prob=0.005, steps=6_000)
    assert rows["half the batch"]["result"] == float(round_up(noise))


def test_what_if_refuses_a_batch_over_the_data() -> None:
    rows = {row["name"]: row for row in answers.what_if(asked(expected_batch_size=60_000))["rows"]}
    assert rows["twice the batch"]["result"] is None
    assert "at most" in rows["twice the batch"]["reason"]


def test_curves_are_the_librarys() -> None:
    question = asked()
    drawn = answers.curves(question)
    for name, field in (("steps", "steps"), ("noise_multiplier", "noise_multiplier")):
        exact, renyi = drawn[name]["lines"]
        assert exact["x"][0] <= getattr(question, field) <= exact["x"][-1]
        for line in (exact, renyi):
            place = len(line["x"]) // 2
            noise, steps = (
                (question.noise_multiplier, line["x"][place]) if name == "steps" else (line["x"][place], 3_000)
            )
            run = events.Repeated(events.PoissonSampled(events.Gaussian(noise), 0.01), steps)
            truth = accounting.guarantee(run, delta=1e-5, method=line["method"]).epsilon
            assert line["epsilon"][place] == truth


def test_a_delta_above_one_over_the_data_is_warned_of() -> None:
    answer = answers.numbers(asked(delta=1e-4))
    assert "1/num_examples" in answer["warnings"]["delta"]
    assert answer["command"] == ""


def test_a_far_target_takes_few_exact_looks():
    asked, _ = read(
        {"num_examples": 27_700_000, "expected_batch_size": 21, "epochs": 1.05, "noise_multiplier": 5.2,
         "delta": 0.00295, "epsilon": 0.0148, "find": "noise_multiplier"}
    )  # fmt: skip
    assert asked is not None
    forget()
    found, answer = settle(asked)
    assert exact_cost.cache_info().misses <= 35
    outside = cost(found.changed("noise_multiplier", found.noise_multiplier - 1e-5))
    assert answer.epsilon <= 0.0148 < outside.epsilon
