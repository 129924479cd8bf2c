"""Only the page itself is answered: not other machines, other sites, rebound names, or anybody without the token."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from planner_server import PLAN, Served, served

from hush.planner import answers
from hush.planner.doors import PAGE_POLICY, REPORT_POLICY

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("runs")) as running:
        yield running


def test_the_page_is_served_to_whoever_has_the_address(planner: Served) -> None:
    answer = planner.request("GET", f"/{planner.keys.token}/")
    assert answer.status == 200
    assert "Hush planner" in answer.body
    assert answer.headers["content-security-policy"] == PAGE_POLICY
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("name", ["planner.js", "tables.js", "curves.js", "planner.css"])
def test_its_files_are_served(planner: Served, name: str) -> None:
    answer = planner.request("GET", f"/{planner.keys.token}/{name}", headers={"sec-fetch-site": "same-origin"})
    assert (answer.status, bool(answer.body)) == (200, True)


@pytest.mark.parametrize(
    "path", ["/", "", "/x/", "/x/api/numbers", "/planner.js", "/docs", "/openapi.json", "//", "/%2e%2e/", "*", "x"]
)
def test_nothing_is_served_without_the_token(planner: Served, path: str) -> None:
    answer = planner.request("GET", path or "/")
    assert answer.status in (400, 403)
    assert planner.keys.token not in answer.body


def test_half_a_token_is_no_token(planner: Served) -> None:
    assert planner.request("GET", f"/{planner.keys.token[:-1]}/").status == 403
    assert planner.request("GET", f"/{planner.keys.token}x/").status == 403


def test_tokens_differ_and_are_long(planner: Served) -> None:
    assert planner.keys.token != planner.keys.report_token
    assert len(planner.keys.token) >= 32
    assert planner.keys.token not in repr(planner.keys)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1", "127.0.0.1.nip.io:{port}", "evil.example:{port}", "[::1]:{port}", "0.0.0.0:{port}"],
)
def test_a_rebound_name_is_refused(planner: Served, host: str) -> None:
    headers = {"host": host.format(port=planner.keys.port)}
    assert planner.request("GET", f"/{planner.keys.token}/", headers=headers).status == 403


def test_localhost_is_another_name_of_ours(planner: Served) -> None:
    assert (
        planner.request("GET", f"/{planner.keys.token}/", headers={"host": f"localhost:{planner.keys.port}"}).status
        == 200
    )


def test_two_hosts_are_refused(planner: Served) -> None:
    lines = [
        f"GET /{planner.keys.token}/ HTTP/1.1",
        f"Host: 127.0.0.1:{planner.keys.port}",
        "Host: evil.example",
        "",
        "",
    ]
    with socket.create_connection(("127.0.0.1", planner.keys.port), timeout=10) as wire:
        wire.sendall("\r\n".join(lines).encode())
        assert wire.recv(100).split()[1] in (b"400", b"403")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "https://127.0.0.1:{port}", ""]
)
def test_another_origin_is_refused_even_with_the_token(planner: Served, origin: str) -> None:
    headers = {**JSON, "origin": origin.format(port=planner.keys.port)}
    assert planner.request("POST", f"/{planner.keys.token}/api/numbers", json.dumps(PLAN), headers).status == 403
    assert planner.request("GET", f"/{planner.keys.token}/", headers=headers).status == 403


def test_a_question_without_an_origin_is_refused(planner: Served) -> None:
    assert planner.request("POST", f"/{planner.keys.token}/api/numbers", json.dumps(PLAN), JSON).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_fetches_is_refused(planner: Served, site: str) -> None:
    path, fetched = f"/{planner.keys.token}/", {"sec-fetch-site": site}
    for mode, dest in (("no-cors", "script"), ("cors", "empty"), ("navigate", "iframe"), ("no-cors", "image")):
        headers = {**fetched, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
        assert planner.request("GET", path, headers=headers).status == 403
        assert planner.request("GET", f"{path}planner.js", headers=headers).status == 403
    clicked = {**fetched, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert planner.request("GET", path, headers=clicked).status == 200  # a click on the address, in a new document
    assert planner.request("GET", f"{path}planner.js", headers=clicked).status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"])
def test_other_methods_are_refused(planner: Served, method: str) -> None:
    headers = {"origin": planner.origin, "access-control-request-method": "POST"}
    assert planner.request(method, f"/{planner.keys.token}/api/numbers", headers=headers).status == 403


def test_a_question_must_be_json(planner: Served) -> None:
    path, ours = f"/{planner.keys.token}/api/numbers", {"origin": planner.origin}
    plain = planner.request("POST", path, json.dumps(PLAN), {**ours, "content-type": "text/plain"})
    assert plain.status == 422
    for body in ("[]", "{", "nothing", "[" * 10_000):
        assert planner.request("POST", path, body, {**ours, **JSON}).status == 422
    long = planner.request("POST", path, json.dumps({"find": "x" * 30_000}), {**ours, **JSON})
    assert "bytes" in long.data["errors"][""]


def test_questions_are_answered(planner: Served) -> None:
    answer = planner.ask("numbers", **PLAN)
    assert answer.status == 200
    assert answer.data["plan"]["steps"] == 3_000
    assert planner.ask("numbers", **{**PLAN, "delta": "x"}).data["errors"].keys() == {"delta"}
    assert planner.ask("nothing").status == 404
    assert planner.ask("later", kind="os.system", **PLAN).status == 422


def test_slow_answers_come_from_the_helper(planner: Served) -> None:
    answer = planner.ask("later", kind="methods", **PLAN)
    assert [row["method"] for row in answer.data["methods"]] == list(answers.LATER)


def test_only_loopback_listens(planner: Served) -> None:
    own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}
    for address in {str(name) for name in own if not str(name).startswith("127.")}:
        with pytest.raises(OSError), socket.create_connection((address, planner.keys.port), timeout=1):
            pass


def test_a_report_has_no_origin_of_ours() -> None:
    words = REPORT_POLICY.split("; ")
    sandbox = next(word for word in words if word.startswith("sandbox"))
    assert "allow-same-origin" not in sandbox
    assert "default-src 'none'" in words
    assert not any(word.startswith("connect-src") for word in words)


def test_the_policy_lets_nothing_in_from_elsewhere() -> None:
    page = (Path(__file__).resolve().parents[2] / "src" / "hush" / "planner" / "page").glob("*")
    for path in page:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, path.name
        assert "https://" not in text, path.name


def test_a_question_cut_off_by_the_end_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    begun = threading.Event()

    def slowly(*_: object) -> dict[str, list[object]]:
        begun.set()
        time.sleep(2.5)  # longer than the server waits at its end
        return {"runs": [], "budgets": []}

    monkeypatch.setattr("hush.planner.runs.describe", slowly)
    with served(tmp_path) as running:
        asking = threading.Thread(target=_asked_in_vain, args=(running,))
        asking.start()
        assert begun.wait(60)
    asking.join(60)
    assert capfd.readouterr().err == ""
    assert not caplog.records


def _asked_in_vain(running: Served) -> None:
    with suppress(OSError, http.client.HTTPException):
        running.ask("runs")


def test_other_errors_of_the_server_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ArithmeticError("this is told")

    monkeypatch.setattr("hush.planner.runs.describe", broken)
    with served(tmp_path) as running:
        assert running.ask("runs").status == 500
    assert "this is told" in caplog.text


def test_handlers_of_other_parts_of_the_program_stay_open(tmp_path: Path) -> None:
    """uvicorn's own configuration closes all of them; absl's then closes what was the standard error."""
    closed = []
    handler = logging.NullHandler()
    handler.close = lambda: closed.append(True)  # type: ignore[method-assign]
    with served(tmp_path):
        pass
    assert not closed
    assert handler in [known() for known in logging._handlerList]  # type: ignore[attr-defined]
