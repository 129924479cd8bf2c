"""Tables in Markdown, and plots as short tables: some of their points, each the JSON's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hush.report.numbers import Rule, shown

_MOST_ROWS = 9


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """A table's lines, and an empty one."""
    for row in (head, ("---",) * len(head), *rows):
        yield "| " + " | ".join(one_line(cell).replace("|", "\\|") for cell in row) + " |"
    yield ""


def one_line(value: object) -> str:
    """On one line, and no markup of its own."""
    return " ".join(str(value).split()).replace("<", "&lt;").replace("`", "'")


def plot_tables(content: dict[str, Any], *keys: str) -> Iterator[str]:
    """The plots with these keys, each as a table under its title."""
    for plot in content["plots"]:
        if plot["key"] in keys:
            yield from (f"### {one_line(plot['title'])}", "", one_line(plot["caption"]), "")
            lines = [line for line in plot["lines"] if len(line["x"]) > 1] or plot["lines"]
            places = _places(min((line["x"] for line in lines if line["style"] != "stairs"), key=len), lines)
            rows = [(shown(place, "near"), *(_cell(line, place) for line in lines)) for place in places]
            names = [plot["y_title"] or lines[0]["name"]] if len(lines) == 1 else [line["name"] for line in lines]
            yield from table((plot["x_title"], *names), rows)


def _places(values: list[Any], lines: list[dict[str, Any]]) -> list[Any]:
    """All bars; of a curve some points, the first and the last among them."""
    if lines[0]["style"] == "bars" or len(values) <= _MOST_ROWS:
        return values
    last = len(values) - 1
    return [values[round(last * row / (_MOST_ROWS - 1))] for row in range(_MOST_ROWS)]


def _cell(line: dict[str, Any], place: Any) -> str:
    rule: Rule = "down" if "lower end" in line["name"] else "up" if line["style"] in ("solid", "dot") else "near"
    if place in line["x"]:
        value = line["y"][line["x"].index(place)]
    elif line["style"] == "stairs":  # between two points it stays where it was
        value = next((y for x, y in zip(line["x"][::-1], line["y"][::-1], strict=True) if x <= place), None)
    else:
        value = None
    return "–" if value is None else shown(value, rule)
