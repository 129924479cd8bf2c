"""Page and Markdown say what the JSON says, and nothing in a run can write into the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from page_reading import NUMBER, Page, check_page, texts
from small_runs import KINDS

from hush import report
from hush.report.numbers import shown


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_of_the_page_is_the_jsons(kind: str, everything: Any) -> None:
    """Of every kind of run, and with what is not private."""
    check_page(everything(kind))


def test_every_number_of_a_public_report_is_the_jsons(content: dict[str, Any]) -> None:
    check_page(content)


@pytest.mark.parametrize("kind", KINDS)
def test_the_markdown_of_every_kind_says_what_the_json_says(kind: str, everything: Any) -> None:
    assert strange_numbers(everything(kind)) == set()


def strange_numbers(content: dict[str, Any]) -> set[str]:
    """Numbers of the Markdown that are not the JSON's."""
    markdown = report.text_of(content, "md")
    loose = {number.replace(",", "") for number in NUMBER.findall(markdown)}
    told = NUMBER.findall(json.dumps(content, ensure_ascii=False))
    known = {str(value) for value in numbers(content)} | rounded(content) | set(told)
    return loose - {value.replace(",", "") for value in known}


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
    assert strange_numbers(content) == set()


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [found for item in value.values() for found in numbers(item)]
    if isinstance(value, list):
        return [len(value), *(found for item in value for found in numbers(item))]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def rounded(content: dict[str, Any]) -> set[str]:
    rules = ("up", "down", "near", "percent", "percent up", "percent down")
    return {shown(value, rule).removesuffix(" %").lstrip("-") for value in numbers(content) for rule in rules}  # type: ignore[arg-type]


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
