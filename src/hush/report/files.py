"""The three files of a report: a page, Markdown, and JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hush.errors import InvalidValue
from hush.report.about import replace_text
from hush.report.html import page
from hush.report.markdown import markdown
from hush.report.reading import read

FORMATS = ("html", "md", "json")
NAME = "report"


def write(
    folder: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    formats: tuple[str, ...] = FORMATS,
    include_private: bool = False,
    ledger: str | None = None,
) -> tuple[Path, ...]:
    """Write the report on the run in a folder; report.html, report.md and report.json go there, or to `out`.

    With `include_private` the files are called report-not-private: what is in them must not be published.
    """
    for wanted in formats:
        if wanted not in FORMATS:
            raise InvalidValue(f"a report is {', '.join(FORMATS)}; got {wanted!r}.")
    content = read(folder, include_private=include_private, ledger=ledger)
    place = Path(folder if out is None else out)
    place.mkdir(parents=True, exist_ok=True)
    name = f"{NAME}-not-private" if include_private else NAME
    return tuple(_write(place / f"{name}.{wanted}", wanted, content) for wanted in formats)


def text_of(content: dict[str, Any], wanted: str) -> str:
    """The report in one of its forms."""
    if wanted == "html":
        return page(content)
    if wanted == "md":
        return markdown(content)
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _write(target: Path, wanted: str, content: dict[str, Any]) -> Path:
    replace_text(target, text_of(content, wanted))
    return target
