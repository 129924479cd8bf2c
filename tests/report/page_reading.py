"""A page as a reader without scripts sees it: its words, its numbers with their places, and where its plots go."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from hush import report
from hush.report.html import at
from hush.report.numbers import shown

NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


class Page(HTMLParser):
    """The visible text of a page, the same apart from its `<data>` elements, those elements, and the plots' places."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.numbers: list[tuple[dict[str, str], str]] = []
        self.words: list[str] = []
        self.shown: list[str] = []
        self.plots: list[str] = []
        self.commands: list[str] = []
        self.classes: list[str] = []
        self.scripts: list[str] = []
        self.tags: list[str] = []
        self._inside: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = {key: value or "" for key, value in attrs}
        self.classes += found.get("class", "").split()
        if "plot" in found.get("class", "").split():
            self.plots.append(found["data-place"])
        if tag not in ("meta", "link", "br"):
            self._inside.append((tag, found))

    def handle_endtag(self, tag: str) -> None:
        assert self._inside.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tag, attributes = self._inside[-1] if self._inside else ("", {})
        if tag not in ("script", "style"):
            self.shown.append(data)
        if tag == "pre":
            self.commands += data.split("\n")
        if tag == "data":
            self.numbers.append((attributes, data))
        elif tag == "script":
            self.scripts.append(data)
        elif tag != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        """All that is visible, with single blanks."""
        return " ".join("".join(self.shown).split())


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *texts(item))]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


def check_page(content: dict[str, Any]) -> Page:
    page = Page(report.text_of(content, "html"))
    assert len(page.numbers) > 20
    for attributes, text in page.numbers:
        value = at(content, attributes["data-place"])
        assert attributes["value"] == str(value)
        assert text.replace("\u00a0", " ") == shown(value, attributes["data-rule"])
    told = " ".join(texts(content))
    strange = [number for words in page.words for number in NUMBER.findall(words) if number not in told]
    assert strange == []
    return page
