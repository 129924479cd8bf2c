"""The page in a real browser: each slider moves the numbers to what the library says; errors are told at the field."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from planner_server import Served, served

from hush import Budget, Ledger, accounting, events
from hush.cli.main import run
from hush.planner.question import FIELDS, Question
from hush.privacy import round_up

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.chrome.options import Options  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no chromium with chromedriver here")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1280,1600"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
PATIENCE = 30  # seconds


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    claim = {"epsilon": 2.5, "delta": 1e-5, "relation": "add_remove"}
    facts = {"account": "<b>digits</b>", "steps": 80, "complete": True, "guarantee": claim}
    (folder / "<i>first").mkdir()
    (folder / "<i>first" / "run.json").write_text(json.dumps(facts))
    # A report that came from somebody else, and tries to call the planner.
    (folder / "<i>first" / "report.html").write_text(
        "<!doctype html><title>report</title><p id=out>-</p><script>"
        "fetch(location.origin + '/x/api/runs', {method: 'POST'}).then(() => { out.textContent = 'called'; },"
        " () => { out.textContent = 'refused ' + self.origin; });</script>"
    )
    Ledger(folder / "budget.db").account("hospital", cap=Budget(epsilon=3.0, delta=1e-6)).charge(events.Laplace(2.0))
    return folder


@pytest.fixture(scope="module")
def planner(root: Path) -> Iterator[Served]:
    with served(root) as running:
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = Options()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    os.environ.setdefault("SE_OFFLINE", "true")
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: Any, planner: Served) -> Any:
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(planner.keys.address)
    wait_for(browser, lambda: shown(browser, "cost") not in ("", "…"))
    return browser


def wait_for(page: Any, condition: Any) -> None:
    WebDriverWait(page, PATIENCE, poll_frequency=0.02).until(lambda _: condition())


def by_id(page: Any, name: str) -> Any:
    return page.find_element("id", name)


def shown(page: Any, name: str) -> str:
    return str(by_id(page, name).get_attribute("textContent")).strip()


def state(page: Any) -> Question:
    """The settings that stand in the fields."""
    values: dict[str, Any] = {name: float(by_id(page, name).get_attribute("value")) for name in FIELDS}
    whole = {name: int(values[name]) for name in ("num_examples", "expected_batch_size")}
    return Question(**{**values, **whole}, relation=by_id(page, "relation").get_attribute("value"))


def truth(question: Question) -> str:
    step = events.PoissonSampled(events.Gaussian(question.noise_multiplier), question.sampling_prob)
    event = events.Repeated(step, question.steps)
    return round_up(accounting.guarantee(event, delta=question.delta, relation=question.relation).epsilon)


def type_in(page: Any, name: str, text: str) -> None:
    field = by_id(page, name)
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text)


def choose(page: Any, name: str) -> None:
    page.find_element("css selector", f"input[name=find][value={name}]").click()


def test_the_page_opens_without_error_or_call_elsewhere(page: Any, planner: Served) -> None:
    wait_for(page, lambda: shown(page, "method-optimal").count("…") == 0 and shown(page, "method-optimal"))
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []
    events_seen = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    sent = [item["params"] for item in events_seen if item["method"] == "Network.requestWillBeSent"]
    asked = [item["request"]["url"] for item in sent if not item["documentURL"].startswith("chrome")]  # its own tab
    assert len(asked) > 5
    assert [url for url in asked if not url.startswith((planner.keys.address, "data:"))] == []


@pytest.mark.parametrize("name", FIELDS)
def test_each_slider_moves_the_numbers_to_what_the_library_says(page: Any, name: str) -> None:
    before = by_id(page, name).get_attribute("value")
    slider = by_id(page, f"{name}-slider")
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.PAGE_DOWN, Keys.ARROW_LEFT):
        slider.send_keys(key)
    assert by_id(page, name).get_attribute("value") != before
    wanted = truth(state(page))
    wait_for(page, lambda: shown(page, "cost") == wanted)
    assert shown(page, "upper") == wanted
    assert float(shown(page, "lower")) <= float(wanted)
    assert shown(page, "steps").replace(",", "") == str(state(page).steps)
    inside = float(wanted) <= state(page).epsilon
    assert shown(page, "verdict") == ("inside the target" if inside else "over the target")


def test_every_method_comes_to_show_what_the_library_says(page: Any) -> None:
    by_id(page, "noise_multiplier-slider").send_keys(Keys.ARROW_RIGHT)
    question = state(page)
    for method in accounting.METHODS:
        wanted = round_up(accounting.guarantee(question.event, delta=question.delta, method=method).epsilon)
        wait_for(page, lambda method=method, wanted=wanted: wanted in shown(page, f"method-{method}"))


def test_the_relation_counts(page: Any) -> None:
    page.find_element("css selector", "#relation option[value=replace_one]").click()
    wanted = truth(state(page))
    wait_for(page, lambda: shown(page, "cost") == wanted)
    wait_for(page, lambda: "does not apply" in shown(page, "method-basic"))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("num_examples", "lots", "must be a number"),
        ("expected_batch_size", "999999", "at most num_examples"),
        ("epochs", "-1", "must be from"),
        ("noise_multiplier", "0", "from 0.05"),
        ("delta", "1", "below 1"),
        ("epsilon", "", "must be a number"),
    ],
)
def test_bad_input_shows_a_message_at_its_field(page: Any, name: str, text: str, words: str) -> None:
    type_in(page, name, text or Keys.BACKSPACE)
    wait_for(page, lambda: words in shown(page, f"message-{name}"))
    field = by_id(page, name)
    assert field.get_attribute("aria-invalid") == "true"
    assert f"message-{name}" in field.get_attribute("aria-describedby")
    assert shown(page, "cost") == "–"
    assert [other for other in FIELDS if other != name and shown(page, f"message-{other}")] == []
    by_id(page, f"{name}-slider").send_keys(Keys.HOME)
    by_id(page, f"{name}-slider").send_keys(Keys.ARROW_RIGHT)
    wait_for(page, lambda: not words or words not in shown(page, f"message-{name}"))


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "epsilon"])
def test_solving_for_a_number_stays_inside_the_target(page: Any, name: str) -> None:
    type_in(page, "epsilon", "2")
    choose(page, name)
    wait_for(page, lambda: "Found:" in shown(page, "found-line"))
    wait_for(page, lambda: shown(page, "verdict") == "inside the target")
    assert by_id(page, name).get_property("readOnly")
    assert not by_id(page, f"{name}-slider").is_enabled()
    wait_for(page, lambda: float(truth(state(page))) <= 2)
    assert float(truth(state(page))) > 1.9


def test_what_if_and_curves_follow(page: Any) -> None:
    by_id(page, "epochs-slider").send_keys(Keys.ARROW_RIGHT)
    question = state(page)
    half = truth(question.changed("expected_batch_size", round(question.expected_batch_size / 2)))
    wait_for(page, lambda: half in shown(page, "what-if"))
    for name in ("steps", "noise_multiplier"):
        curve = by_id(page, f"curve-{name}")
        wait_for(page, lambda curve=curve: f"ε {truth(question)}" in curve.get_attribute("textContent"))
        assert {path.get_attribute("class") for path in curve.find_elements("css selector", "path")} == {"exact", "rdp"}
        assert truth(question) in curve.get_attribute("aria-label")


def copied(page: Any, planner: Served, name: str) -> str:
    """What is in the clipboard after a click on the button of these lines."""
    page.execute_cdp_cmd(
        "Browser.grantPermissions",
        {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": planner.origin},
    )
    page.execute_async_script("navigator.clipboard.writeText('nothing yet').then(arguments[0])")
    page.find_element("css selector", f"[data-of={name}]").click()
    wait_for(page, lambda: shown(page, "copied"))
    assert shown(page, "copied") == "Copied."
    return str(page.execute_async_script("navigator.clipboard.readText().then(arguments[0])"))


def test_the_python_lines_are_copied_and_run(page: Any, planner: Served, capsys: pytest.CaptureFixture[str]) -> None:
    by_id(page, "noise_multiplier-slider").send_keys(Keys.ARROW_RIGHT)
    wanted = truth(state(page))
    wait_for(page, lambda: shown(page, "cost") == wanted)
    lines = copied(page, planner, "python")
    assert lines.strip() == shown(page, "python")
    assert lines != shown(page, "command")
    names: dict[str, Any] = {}
    exec(lines, names)
    assert round_up(names["plan"].guarantee().epsilon) == wanted
    assert wanted in capsys.readouterr().out


def test_command_and_python_lines_are_shown_and_copied(page: Any, planner: Served) -> None:
    assert shown(page, "command").startswith("hush train --data digits --epsilon ")
    assert copied(page, planner, "command") == shown(page, "command")
    type_in(page, "data", "mnist")
    wait_for(
        page, lambda: "--data mnist" in shown(page, "command") and "--num-examples 60000" in shown(page, "command")
    )
    type_in(page, "delta", "0.1")
    wait_for(page, lambda: "1/num_examples" in shown(page, "message-delta"))
    assert "hush train" not in shown(page, "command")


def test_plans_are_saved_compared_and_loaded(page: Any) -> None:
    by_id(page, "plan-name").send_keys("<b>mine</b>", Keys.ENTER)
    wait_for(page, lambda: "<b>mine</b>" in shown(page, "plans"))
    assert shown(page, "cost") in shown(page, "plans")
    assert "1e-5" in shown(page, "plans")
    by_id(page, "epochs-slider").send_keys(Keys.HOME)
    page.find_element("css selector", "[aria-label='Load <b>mine</b>']").click()
    wait_for(page, lambda: shown(page, "cost") in shown(page, "plans"))
    page.find_element("css selector", "[aria-label='Remove <b>mine</b>']").click()
    wait_for(page, lambda: "None yet" in shown(page, "plans"))


def test_runs_and_budgets_are_shown_as_text(page: Any) -> None:
    wait_for(page, lambda: "<i>first" in shown(page, "runs"))
    assert "<b>digits</b>" in shown(page, "runs")
    assert page.find_elements("css selector", "#runs i, #runs b, #plans b") == []
    assert "hospital" in shown(page, "budgets")


def test_a_report_runs_as_nobody(page: Any) -> None:
    wait_for(page, lambda: page.find_elements("css selector", "#runs a"))
    address = page.find_element("css selector", "#runs a").get_attribute("href")
    page.execute_script("window.open(arguments[0])", address)
    own, other = page.window_handles
    try:
        page.switch_to.window(other)
        wait_for(page, lambda: shown(page, "out") != "-")
        assert shown(page, "out") == "refused null"
    finally:
        page.close()
        page.switch_to.window(own)


def test_a_report_is_made_and_draws_in_its_sandbox(page: Any, root: Path) -> None:
    words = ["train", "--data", "digits", "--epsilon", "3", "--model", "linear", "--steps", "3", "--no-twin"]
    assert run([*words, "--out", str(root / "real")]) == 0
    by_id(page, "refresh").click()
    wait_for(page, lambda: page.find_elements("css selector", "[aria-label='Make a report of real']"))
    page.find_element("css selector", "[aria-label='Make a report of real']").click()
    wait_for(page, lambda: page.find_elements("css selector", "[aria-label='Report of real']"))
    page.get_log("browser")
    page.execute_script(
        "window.open(arguments[0])",
        page.find_element("css selector", "[aria-label='Report of real']").get_attribute("href"),
    )
    own, other = page.window_handles
    try:
        page.switch_to.window(other)
        wait_for(page, lambda: page.find_elements("css selector", "svg, canvas"))
        assert "epsilon" in page.page_source
        assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []
    finally:
        page.close()
        page.switch_to.window(own)


def test_another_page_can_neither_read_nor_call(page: Any, planner: Served, tmp_path: Path) -> None:
    """A page of another origin (a file) that even knows the address."""
    address = json.dumps(planner.keys.address)
    (tmp_path / "evil.html").write_text(
        f"<title>evil</title><script>const base = {address}; const found = [];"
        "const note = (name, call) => call.then(() => found.push(name), () => {});"
        "const json = {'content-type': 'application/json'};"
        "window.done = Promise.all([note('page', fetch(base)),"
        "note('json', fetch(base + 'api/runs', {method: 'POST', headers: json, body: '{}'})),"
        "note('plain', fetch(base + 'api/runs', {method: 'POST', body: '{}'})),"
        "fetch(base + 'api/plans', {method: 'POST', mode: 'no-cors', body: '{\"change\":\"save\"}'}).catch(() => {}),"
        "note('script', new Promise((good, bad) => { const tag = document.createElement('script');"
        " tag.src = base + 'curves.js'; tag.onload = good; tag.onerror = bad; document.head.append(tag); })),"
        "]).then(() => found.join() || 'nothing');</script>"
    )
    page.get((tmp_path / "evil.html").as_uri())
    assert page.execute_async_script("window.done.then(arguments[0])") == "nothing"


def test_the_token_is_required(browser: Any, planner: Served) -> None:
    browser.get(planner.origin)
    assert "needs the whole address" in browser.page_source
    assert "Hush planner" not in browser.page_source


def test_everything_is_labelled_and_reached_by_keyboard(page: Any) -> None:
    unnamed = page.execute_script(
        "return [...document.querySelectorAll('input, select, button')].filter(e => !e.labels?.length"
        " && !e.getAttribute('aria-label') && !e.textContent.trim()).map(e => e.outerHTML)"
    )
    assert unnamed == []
    assert page.execute_script("return [...document.querySelectorAll('[tabindex]')].every(e => e.tabIndex === 0)")
    by_id(page, "data").click()
    reached = set()
    for _ in range(40):
        page.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(page.switch_to.active_element.get_attribute("id"))
    assert {f"{name}-slider" for name in FIELDS} | set(FIELDS) | {"relation", "command", "plan-name"} <= reached


def test_ids_are_used_once(page: Any) -> None:
    ids = page.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_a_phone_needs_no_sideways_scrolling(page: Any) -> None:
    size = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        wait_for(page, lambda: page.execute_script("return innerWidth") == 360)
        assert page.execute_script("return document.documentElement.scrollWidth") <= 360
        by_id(page, "noise_multiplier-slider").send_keys(Keys.ARROW_RIGHT)
        assert page.execute_script("return document.getElementById('cost').getBoundingClientRect().top") >= 0
        wanted = truth(state(page))
        wait_for(page, lambda: shown(page, "cost") == wanted)
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
