"""The report as Markdown, for a repository, a ticket or a model card: the same values, with plots as short tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hush.report.markdown_tables import one_line, plot_tables, table
from hush.report.numbers import shown


def markdown(content: dict[str, Any]) -> str:
    """The report as Markdown."""
    sections = (_claim, _person, _done, _cost, _evidence, _ledger, _rests, _private, _check)
    return "\n".join(line for section in sections for line in section(content)).rstrip() + "\n"


def _claim(content: dict[str, Any]) -> Iterator[str]:
    yield f"# {one_line(content['title'])}"
    yield ""
    for warning in content["warnings"]:
        yield from (f"> **{one_line(warning)}**", "")
    if content["not_private"]:
        yield from ("> **Not for publication: this report shows what was read from the data without noise.**", "")
    yield from (one_line(content["claim"]["sentence"]), "")
    if content["claim"]["symbols"]:
        yield from (f"`{content['claim']['symbols']}`", "")
    guarantee, claim = content["guarantee"], content["claim"]
    if guarantee is None:
        return
    rows = [
        ("epsilon", shown(guarantee["epsilon"])),
        ("delta", shown(guarantee["delta"])),
        ("protected", f"{claim['unit']}; neighbours: {claim['neighbours']} ({claim['relation']})"),
        ("by", guarantee["method"]),
    ]
    if guarantee["epsilon_lower"]:
        rows.append(("exact interval", f"[{guarantee['epsilon_lower']}, {guarantee['epsilon']}]"))
    if content["budget"]:
        rows.append(
            ("allowed", f"epsilon {shown(content['budget']['epsilon'])} at delta {shown(content['budget']['delta'])}")
        )
    yield from table(("", ""), rows)


def _person(content: dict[str, Any]) -> Iterator[str]:
    person = content["person"]
    if person is None:
        return
    means = "means" if content["claim"]["proven"] else "would mean"
    yield from (f"## What this {means} for one {content['claim']['unit']}", "")
    failure = f", but for a chance of {shown(person['odds_failure'])}" if person["odds_failure"] else ""
    yield (
        f"- Somebody who knows all other data guesses a fair coin about one {content['claim']['unit']} rightly in "
        f"{shown(person['best_guess'], 'percent up')} of all cases at most."
    )
    yield f"- The release multiplies anybody's odds by {shown(person['odds_factor'])} at most{failure}."
    yield ""
    rows = [(shown(row["without"], "percent"), shown(row["with_at_most"], "percent up")) for row in person["outcomes"]]
    yield from table(("chance without their data", "with them, at most"), rows)
    yield from plot_tables(content, "attacks")
    yield from _list(person["theorems"])


def _done(content: dict[str, Any]) -> Iterator[str]:
    yield from ("## What was done", "")
    yield from table(("", ""), [(fact["label"], shown(fact["value"], "as is")) for fact in content["facts"]])
    if content["scores"]:
        yield from _scores(content["scores"])
        yield from ("On public test rows, without noise: not part of the claim.", "")
    if content["made"]:
        yield from ("### What was made, and may be published", "")
        yield from table(("label", "text"), [(row["label"], row["text"]) for row in content["made"]])
    yield from plot_tables(content, "coefficients", "labels", "clip")


def _scores(scores: dict[str, Any]) -> Iterator[str]:
    rule: Any = "percent" if scores["name"] == "test_accuracy" else "near"
    twin = "not measured" if scores["twin"] is None else shown(scores["twin"], rule)
    rows = [(scores["label"], shown(scores["private"], rule), twin)]
    yield from table(("", "private", "without privacy"), rows)


def _cost(content: dict[str, Any]) -> Iterator[str]:
    if not content["methods"]:
        return
    yield from ("## What it cost", "")
    rows = [
        (
            row["title"] + _no_bound(row),
            "–" if row["epsilon"] is None else shown(row["epsilon"]),
            row["reason"] or row["theorem"],
        )
        for row in content["methods"]
    ]
    yield from table(("theorem", "epsilon", "source"), rows)
    yield from plot_tables(content, "steps", "delta")


def _no_bound(row: dict[str, Any]) -> str:
    return "" if row["proven"] or row["epsilon"] is None else " (no bound)"


def _evidence(content: dict[str, Any]) -> Iterator[str]:
    if not content["evidence"]:
        return
    yield from ("## Evidence", "")
    for item in content["evidence"]:
        found = item["evidence"]
        yield (
            f"- **{one_line(item['verdict'])}**: epsilon at least {shown(found['epsilon_at_least'], 'down')} at delta "
            f"{shown(found['delta'])}, confidence {shown(found['confidence'], 'percent down')} "
            f"({one_line(item['source'])}; {found['method']})"
        )
    yield ""


def _ledger(content: dict[str, Any]) -> Iterator[str]:
    ledger = content["ledger"]
    if ledger is None:
        return
    yield from ("## Ledger", "")
    rows = [
        ("account", f"{ledger['account']} in {ledger['place']}"),
        ("rows of this run", shown(len(ledger["rows"]))),
        ("rows of others", shown(ledger["other_rows"])),
        ("spent", f"epsilon {shown(ledger['spent']['epsilon'])} at delta {shown(ledger['spent']['delta'])}"),
        ("left", shown(ledger["left"], "down")),
        ("head of the account", ledger["account_head"]),
        ("head of the ledger", ledger["head"]),
    ]
    yield from table(("", ""), rows)


def _rests(content: dict[str, Any]) -> Iterator[str]:
    for title, key in (
        ("What the claim rests on", "assumptions"),
        ("What it does not cover", "not_covered"),
        ("Notes", "notes"),
    ):
        if content[key]:
            yield from (f"## {title}", "")
            yield from _list(content[key])


def _private(content: dict[str, Any]) -> Iterator[str]:
    found = content["not_private"]
    if found is None:
        if content["left_out"]:
            left_out = ", ".join(content["left_out"])
            yield from (f"Left out, because it was read from the data without noise: {one_line(left_out)}.", "")
        return
    yield from ("## Not private", "", "Read from the data without noise. **NOT PRIVATE. Do not publish.**", "")
    if found["scores"]:
        yield from _scores(found["scores"])
    rows = [
        (plot["title"], shown(values[0], "near"), shown(values[-1], "near"))
        for plot in found["plots"]
        if (values := [value for value in plot["lines"][0]["y"] if value is not None])
    ]
    yield from table(("", "first", "last"), rows)


def _check(content: dict[str, Any]) -> Iterator[str]:
    yield from ("## How to check it", "")
    if content["check"]:
        yield from ("```text", *content["check"], "```", "")
    run, now = content["versions"]["run"], content["versions"]["report"]
    rows = [(name, run.get(name, "not recorded"), version) for name, version in now.items()]
    yield from table(("library", "when it ran", "when this was written"), rows)


def _list(lines: list[str]) -> Iterator[str]:
    yield from (f"- {one_line(line)}" for line in lines)
    yield ""
