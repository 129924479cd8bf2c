"""The page in a real browser: it opens without an error and without the network, and every plot draws."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hush import Budget, events, report
from hush.report.live import Live

DRAWN = "return document.querySelectorAll('.plot[data-drawn]').length"
ALL = "return document.querySelectorAll('.plot').length"


def wait(browser: Any, script: str, wanted: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while (found := browser.execute_script(script)) != wanted:
        assert time.monotonic() < end, f"{script} gave {found!r} and not {wanted!r}"
        time.sleep(0.05)


def asked_for(browser: Any) -> list[str]:
    """What the page asked for since the last look; the browser's own pages are left out."""
    entries = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    places = [entry["params"]["request"]["url"] for entry in entries if entry["method"] == "Network.requestWillBeSent"]
    return [place for place in places if not place.startswith(("chrome", "data:", "about:"))]


def theme(browser: Any, value: str, media: str = "screen") -> None:
    features = [{"name": "prefers-color-scheme", "value": value}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def brightness(browser: Any, selector: str, field: str) -> float:
    script = f"return getComputedStyle(document.querySelector('{selector}')).{field}"
    red, green, blue = (float(part) for part in browser.execute_script(script).strip("rgba()").split(",")[:3])
    return (red + green + blue) / 3


@pytest.fixture(scope="module")
def page(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    return report.write(trained, out=folder, formats=("html",), include_private=True)[0]


@pytest.fixture
def opened(browser: Any, page: Path) -> Any:
    browser.get("about:blank")
    browser.get_log("browser")
    asked_for(browser)
    browser.get(page.as_uri())
    wait(browser, DRAWN, browser.execute_script(ALL))
    return browser


def test_it_opens_without_errors_and_without_the_network(opened: Any, page: Path) -> None:
    assert opened.execute_script(ALL) >= 4
    assert opened.get_log("browser") == []
    assert asked_for(opened) == [page.as_uri()]


def test_every_plot_has_its_lines(opened: Any) -> None:
    counts = opened.execute_script(
        "return [...document.querySelectorAll('.plot')].map(place => [place.data.length, "
        "place.querySelectorAll('.scatterlayer .trace, .barlayer .trace').length, "
        "[...place.querySelectorAll('.js-line, .point path')].filter(path => path.getBBox().width > 0).length])"
    )
    for given, drawn, wide in counts:
        assert given == drawn > 0
        assert wide > 0


def test_an_error_would_be_seen(browser: Any, page: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    text = page.read_text(encoding="utf-8")
    broken.write_text(text.replace("<footer>", '<img src="http://localhost:9/x.png"><footer>'), encoding="utf-8")
    browser.get(broken.as_uri())
    wait(browser, DRAWN, browser.execute_script(ALL))
    assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))


def test_light_dark_and_paper(opened: Any) -> None:
    theme(opened, "light")
    assert brightness(opened, "body", "backgroundColor") > 200
    assert brightness(opened, ".plot text", "fill") < 100
    theme(opened, "dark")
    assert brightness(opened, "body", "backgroundColor") < 60
    assert brightness(opened, ".plot text", "fill") > 180
    theme(opened, "dark", "print")
    assert brightness(opened, "body", "backgroundColor") > 200
    assert brightness(opened, ".plot text", "fill") < 100
    paper = base64.b64decode(opened.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert paper.startswith(b"%PDF")
    assert 3 <= paper.count(b"/Type /Page\n") <= 15
    theme(opened, "light")


def test_a_phone_scrolls_one_way_only(opened: Any) -> None:
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wait(opened, "return document.querySelector('.plot .main-svg').getBoundingClientRect().width <= 360", True)
    assert opened.execute_script("return document.documentElement.scrollWidth") <= 360
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_live_page_follows_and_ends_at_the_report(browser: Any, content: dict[str, Any], tmp_path: Path) -> None:
    step = events.PoissonSampled(events.Gaussian(2.0), 0.1)
    budget = Budget(epsilon=3.0, delta=1e-5)
    live = Live(
        tmp_path, title="<b>visits</b>", event=events.Repeated(step, 50), steps=50, delta=1e-5, relation="add_remove",
        budget=budget,
    )  # fmt: skip
    browser.get("about:blank")
    browser.get_log("browser")
    asked_for(browser)
    browser.get(live.page.as_uri())
    wait(browser, DRAWN, 1)
    live(SimpleNamespace(step=10, epsilon=0.75))
    wait(browser, "return document.getElementById('epsilon').textContent", "0.7500")
    marker = "const data = document.querySelector('.plot').data; const last = data[data.length - 1]; "
    wait(browser, marker + "return [last.name, last.x[0], last.y[0]]", ["now", 10, 0.75])
    live(SimpleNamespace(step=50, epsilon=1.5))
    wait(browser, marker + "return [last.name, last.x[0], last.y[0]]", ["now", 50, 1.5])
    assert browser.get_log("browser") == []
    assert {place.split("?")[0] for place in asked_for(browser)} == {
        live.page.as_uri(),
        (tmp_path / "live.js").as_uri(),
    }
    written = tmp_path / "report.html"
    written.write_text(report.text_of(content, "html"), encoding="utf-8")
    live.finish(50, 1.5, written)
    wait(browser, "return document.title", content["title"])
