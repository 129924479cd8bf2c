"""Page and Markdown say what the JSON says, and nothing in a run can write into the page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from hush import report
from hush.report.html import at
from hush.report.numbers import shown

NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


class Page(HTMLParser):
    """The visible text of a page apart from its `<data>` elements, and those elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.numbers: list[tuple[dict[str, str], str]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.tags: list[str] = []
        self._inside: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "link", "br"):
            self._inside.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._inside.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tag, attributes = self._inside[-1] if self._inside else ("", {})
        if tag == "data":
            self.numbers.append((attributes, data))
        elif tag == "script":
            self.scripts.append(data)
        elif tag != "style":
            self.words.append(data)


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


def test_every_number_of_the_page_is_the_jsons(trained: Path, fitted: Path, content: dict[str, Any]) -> None:
    check_page(content)
    for folder in (trained, fitted):
        check_page(report.read(folder, include_private=True))


def test_a_number_of_its_own_would_be_seen(content: dict[str, Any]) -> None:
    page = report.text_of(content, "html")
    planted = Page(page.replace("<h2>Evidence</h2>", "<h2>Evidence</h2><p>epsilon 0.123</p>"))
    told = " ".join(texts(content))
    assert "0.123" in [number for words in planted.words for number in NUMBER.findall(words) if number not in told]


def test_the_page_holds_the_json_that_its_plots_are_drawn_from(content: dict[str, Any]) -> None:
    page = Page(report.text_of(content, "html"))
    assert json.loads(page.scripts[0]) == content


def test_the_files_are_small_and_say_the_same(trained: Path, tmp_path: Path) -> None:
    page, text, data = report.write(trained, out=tmp_path)
    assert page.stat().st_size < 5_000_000
    content = json.loads(data.read_text(encoding="utf-8"))
    assert content == report.read(trained)
    markdown = text.read_text(encoding="utf-8")
    assert f"| epsilon | {shown(content['guarantee']['epsilon'])} |" in markdown
    assert content["ledger"]["account_head"] in markdown
    told = json.dumps(content, ensure_ascii=False)
    loose = {number.replace(",", "") for number in NUMBER.findall(markdown)}
    known = {str(value) for value in numbers(content)} | rounded(content) | set(NUMBER.findall(told))
    assert loose - {value.replace(",", "") for value in known} == set()


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [found for item in value.values() for found in numbers(item)]
    if isinstance(value, list):
        return [len(value), *(found for item in value for found in numbers(item))]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def rounded(content: dict[str, Any]) -> set[str]:
    rules = ("up", "down", "near", "percent", "percent up", "percent down")
    return {shown(value, rule).removesuffix(" %") for value in numbers(content) for rule in rules}  # type: ignore[arg-type]


def test_nothing_in_a_run_can_write_into_the_page(copy: Path) -> None:
    attack = "</script><script>document.title='x'</script><img src=x onerror=alert(1)>"
    report.describe(copy, data=attack, model=attack, notes=(attack,), facts={attack: attack})
    content = report.read(copy)
    text = report.text_of(content, "html")
    page = Page(text)
    assert page.tags.count("script") == 3  # the JSON, Plotly, and the drawing
    assert "img" not in page.tags
    assert json.loads(page.scripts[0]) == content
    assert "<img" not in report.text_of(content, "md")


def test_the_page_forbids_itself_the_network(content: dict[str, Any]) -> None:
    text = report.text_of(content, "html")
    assert "default-src 'none'" in text
    own = text.replace(Page(text).scripts[1], "")
    assert re.findall(r"""(?:src|href)=["']?(?!data:)[^"'\s>]+""", own) == []


@pytest.mark.parametrize("name", ["report.html", "report.css", "report.js", "live.html", "follow.js"])
def test_the_pages_own_files_name_no_other_place(name: str) -> None:
    from hush.report.html import page_file

    assert "//" not in re.sub(r"^\s*//.*$|(?<=; )// .*$", "", page_file(name), flags=re.MULTILINE)
