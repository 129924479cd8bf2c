"""The page: one file that needs nothing else. It reads the report's values only, and is told to ask no network.

Every number is a `<data>` element with the place of its value in the JSON, so that a test can hold the two together.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from hush.report.numbers import Rule, shown

PLOTLY = "plotly-basic.min.js"
_UNBROKEN = re.compile(r"^--\w|\de-\d")
MOST_ROWS = 12  # of the ledger, at each end of the list


def page(content: dict[str, Any]) -> str:
    """The report as one HTML file."""
    return (
        environment()
        .from_string(page_file("report.html"))
        .render(
            report=content,
            number=_Numbers(content),
            json=Markup(json_for_script(content)),
            style=Markup(page_file("report.css")),
            script=Markup(page_file("report.js")),
            plotly=Markup(page_file(PLOTLY)),
            rows=_shown_rows(content),
        )
    )


def json_for_script(content: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


@cache
def environment() -> Environment:
    """Where templates are read; texts are escaped, and a name that is not there is an error."""
    found = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    found.filters["whole"] = whole
    return found


def whole(text: str) -> Markup:
    """The text, with numbers and options that no line may end in the middle of.

    >>> whole("1e-05 by --secure")
    Markup('<span class="whole">1e-05</span> by <span class="whole">--secure</span>')
    """
    kept = Markup('<span class="whole">{}</span>')
    return Markup(" ").join(kept.format(word) if _UNBROKEN.search(word) else word for word in text.split(" "))


@cache
def page_file(name: str) -> str:
    """A file that comes with the package."""
    return (files("hush.report") / "page" / name).read_text(encoding="utf-8")


class _Numbers:
    """Writes the number at a place of the JSON, by a rule of rounding."""

    def __init__(self, content: dict[str, Any]) -> None:
        self._content = content

    def __call__(self, place: str, rule: Rule = "up") -> Markup:
        value = at(self._content, place)
        template = '<data data-place="{}" data-rule="{}" value="{}">{}</data>'
        return Markup(template).format(place, rule, value, shown(value, rule).replace(" %", "\u00a0%"))


def at(content: Any, place: str) -> Any:
    """The value at a place such as "methods.0.epsilon".

    >>> at({"methods": [{"epsilon": 3.0}]}, "methods.0.epsilon")
    3.0
    """
    for key in place.split("."):
        content = content[int(key)] if isinstance(content, list) else content[key]
    return content


def _shown_rows(content: dict[str, Any]) -> list[int | None]:
    """The places of the ledger's rows that are printed; None stands for those left out."""
    count = 0 if content["ledger"] is None else len(content["ledger"]["rows"])
    if count <= 2 * MOST_ROWS:
        return list(range(count))
    return [*range(MOST_ROWS), None, *range(count - MOST_ROWS, count)]
