"""What a report must have is on its page, in its Markdown and in its JSON; and its own checks can be carried out."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_reading import Page
from small_runs import KINDS

from hush import report
from hush.cli.main import run
from hush.report.html import at
from hush.report.numbers import shown

pytestmark = pytest.mark.xdist_group("reports")
METHODS = {"basic", "advanced", "optimal", "moments", "rdp", "exact"}


@pytest.fixture(scope="module")
def digits(commanded: Path) -> dict[str, Any]:
    """The report on a training by the command, with a twin and public test rows."""
    return report.read(commanded)


def parts(content: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """What a reader of a training's report must find: the part, and its words."""
    claim, guarantee, person, ledger = (content[key] for key in ("claim", "guarantee", "person", "ledger"))
    facts = {fact["label"]: fact["value"] for fact in content["facts"]}
    yield "claim", [claim["sentence"]]
    yield "symbols", [claim["symbols"]]
    yield "unit and relation", [f"{claim['unit']}; neighbours: {claim['neighbours']} ({claim['relation']})"]
    told = ("data", "model", "noise multiplier", "clip norm", "sampling", "steps of the plan", "learning rate")
    yield "what was trained on what", [text for name in told for text in (name, shown(facts[name], "as is"))]
    yield "exact interval", ["exact interval", repr(guarantee["epsilon_lower"]), repr(guarantee["epsilon"])]
    yield "every method", [text for row in content["methods"] for text in (row["title"], shown(row["epsilon"]))]
    yield "epsilon over steps", [plot(content, "steps")["title"], plot(content, "steps")["caption"]]
    yield "delta curve", [plot(content, "delta")["title"], plot(content, "delta")["caption"]]
    yield "accuracy beside the twin", [shown(content["scores"][key], "percent") for key in ("private", "twin")]
    yield "ledger", [f"epsilon {shown(ledger['spent']['epsilon'])} at delta {shown(ledger['spent']['delta'])}"]
    yield "hash head", [ledger["account_head"], ledger["head"]]
    yield "assumptions", content["assumptions"]
    yield "not covered", content["not_covered"]
    yield "one person", ["What this means for one example", shown(person["best_guess"], "percent up")]
    yield "odds and outcomes", [shown(person["odds_factor"]), *_outcomes(person)]
    yield "versions", [text for pair in content["versions"]["run"].items() for text in pair]
    yield "how to check it", ["How to check it", *content["check"]]


def _outcomes(person: dict[str, Any]) -> list[str]:
    return [shown(row["with_at_most"], "percent up") for row in person["outcomes"]]


def plot(content: dict[str, Any], key: str) -> dict[str, Any]:
    found: dict[str, Any] = next(values for values in content["plots"] if values["key"] == key)
    return found


def visible(content: dict[str, Any], form: str) -> str:
    """What a reader sees, with single blanks."""
    text = report.text_of(content, form)
    return Page(text).text if form == "html" else " ".join(text.split())


@pytest.mark.parametrize("form", ["html", "md"])
def test_every_part_is_on_the_page_and_in_the_markdown(form: str, digits: dict[str, Any]) -> None:
    text = visible(digits, form)
    missing = [(part, words) for part, found in parts(digits) for words in found if words not in text]
    assert missing == []
    assert all(found and all(found) for _, found in parts(digits))


def test_the_json_holds_what_the_parts_are_made_of(digits: dict[str, Any], commanded: Path) -> None:
    facts = {fact["label"]: fact["value"] for fact in digits["facts"]}
    assert (facts["data"], facts["model"]) == ("digits", "linear")
    assert digits["claim"]["unit"] == "example"
    assert digits["claim"]["relation"] == "add_remove"
    assert 0 < digits["guarantee"]["epsilon_lower"] <= digits["guarantee"]["epsilon"] <= 3
    assert {row["method"] for row in digits["methods"] if row["epsilon"] is not None} >= METHODS
    assert 0 < digits["scores"]["private"] <= 1
    assert 0 < digits["scores"]["twin"] <= 1
    for word in ("tuning", "metrics", "early stopping"):
        assert any(word in text.lower() for text in digits["not_covered"])
    assert set(digits["versions"]["run"]) >= {"python", "hush", "torch", "numpy"}


def test_epsilon_over_steps_has_a_line_of_every_method(digits: dict[str, Any]) -> None:
    lines = {line["name"]: line for line in plot(digits, "steps")["lines"]}
    expected = {"basic composition", "advanced composition", "optimal composition", "moments accountant"}
    assert set(lines) >= {*expected, "Rényi accountant", "exact", "exact, lower end", "Gaussian limit (no bound)"}
    assert all(line["x"][-1] == 12 and line["y"][-1] is not None for line in lines.values())
    markdown = report.text_of(digits, "md").split("### Epsilon over the steps")[1].split("###")[0]
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert all(name in rows[0] for name in lines)
    assert rows[-1].startswith("| 12 |")
    assert shown(digits["guarantee"]["epsilon"]) in rows[-1]
    assert "–" not in rows[-1]


def test_the_delta_curve_goes_through_the_claim(digits: dict[str, Any]) -> None:
    lines = {line["name"]: line for line in plot(digits, "delta")["lines"]}
    assert lines["this claim"]["x"] == [digits["guarantee"]["epsilon"]]
    assert lines["this claim"]["y"] == [digits["guarantee"]["delta"]]
    assert len(lines["delta"]["x"]) > 20


@pytest.mark.parametrize("kind", KINDS)
def test_every_plot_of_the_json_has_its_place_on_the_page(kind: str, everything: Any) -> None:
    content = everything(kind)
    places = Page(report.text_of(content, "html")).plots
    kept = [] if content["not_private"] is None else content["not_private"]["plots"]
    assert sorted(at(content, place)["key"] for place in places) == sorted(
        values["key"] for values in (*content["plots"], *kept)
    )
    assert len(set(places)) == len(places) >= 1


OWN_PLOTS = {
    **{"adaptive": "clip", "fitted": "coefficients", "voted": "labels", "prompts_voted": "labels"},
    **{"generated": "labels", "trained": "attacks", "audited": "attacks"},
}


@pytest.mark.parametrize("kind", OWN_PLOTS)
def test_each_kind_has_its_own_plot(kind: str, everything: Any) -> None:
    assert plot(everything(kind), OWN_PLOTS[kind])["lines"]


@pytest.mark.parametrize("form", ["html", "md"])
def test_evidence_comes_with_its_curve(form: str, content: dict[str, Any]) -> None:
    item, text = content["evidence"][0], visible(content, form)
    for words in (item["verdict"], item["source"], shown(item["evidence"]["epsilon_at_least"], "down")):
        assert words in text
    assert [line["name"] for line in plot(content, "attacks")["lines"]][-1] == "measured by audit"


@pytest.mark.parametrize("form", ["html", "md"])
def test_norms_are_shown_in_red_when_asked_for_and_not_at_all_else(
    form: str, content: dict[str, Any], everything: Any
) -> None:
    asked, unasked = visible(everything("trained"), form), visible(content, form)
    for words in ("Not for publication", "NOT PRIVATE", "Gradient norms", "Clipped fraction"):
        assert words in asked
        assert words not in unasked
    assert "gradient norms" in unasked  # it says what was left out
    kept = everything("trained")["not_private"]["plots"]
    assert [values["key"] for values in kept] == ["loss", "norms", "clipped"]
    assert all(values["caption"].startswith("NOT PRIVATE") for values in kept)
    assert content["not_private"] is None


def test_the_warning_and_the_frame_are_on_the_page_only_when_asked_for(
    content: dict[str, Any], everything: Any
) -> None:
    asked, unasked = (Page(report.text_of(found, "html")) for found in (everything("trained"), content))
    assert {"warning", "private"} <= set(asked.classes)
    assert not {"warning", "private"} & set(unasked.classes)
    assert asked.text.count("NOT PRIVATE") == 3  # at each of its plots
    assert not any(place.startswith("not_private") for place in unasked.plots)


def commands(content: dict[str, Any]) -> list[list[str]]:
    """The lines that the page prints for whoever wants to check it."""
    lines = [line for line in Page(report.text_of(content, "html")).commands if line]
    assert lines == content["check"]
    assert all(line in report.text_of(content, "md") for line in lines)
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "audited"])
def test_the_printed_commands_check_the_ledger(
    kind: str, everything: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(request.getfixturevalue(kind))
    verify, show = commands(everything(kind))
    assert verify[:3] == ["hush", "ledger", "verify"]
    assert run(verify[1:]) == 0
    assert run(show[1:]) == 0
    head = verify[-1]
    verify[-1] = head[:-1] + ("0" if head[-1] != "0" else "1")
    assert run(verify[1:]) != 0


def test_a_shared_ledger_is_checked_where_its_name_leads(commanded: Path, voted: Path) -> None:
    said = re.compile(r"(In the folder of the run|Where the ledger is found by this name), with the head")
    own, shared = (said.search(visible(report.read(folder), "html")) for folder in (commanded, voted))
    assert own is not None
    assert own[1] == "In the folder of the run"
    assert shared is not None
    assert shared[1] == "Where the ledger is found by this name"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_small(kind: str, everything: Any) -> None:
    assert len(os.fsencode(report.text_of(everything(kind), "html"))) < 5_000_000
