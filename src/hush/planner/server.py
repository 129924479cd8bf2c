"""The page's server: FastAPI behind `doors`, on loopback.

Quick answers come from the loop, slow ones from a helper process, so that the numbers never wait for a curve.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib.resources import files
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse

from hush.errors import HushError, InvalidValue
from hush.planner import answers, runs, saved
from hush.planner.doors import Doors, Keys
from hush.planner.question import Question, read

LARGEST_BODY = 20_000  # bytes
LONGEST_DATA = 200
LOOPBACK = "127.0.0.1"
PAGES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "planner.js": ("planner.js", "text/javascript; charset=utf-8"),
    "tables.js": ("tables.js", "text/javascript; charset=utf-8"),
    "curves.js": ("curves.js", "text/javascript; charset=utf-8"),
    "planner.css": ("planner.css", "text/css; charset=utf-8"),
}
SLOW: dict[str, Callable[[Question], dict[str, Any]]] = {
    "methods": answers.methods,
    "slow_methods": answers.slow_methods,
    "what_if": answers.what_if,
    "curves": answers.curves,
}
Body = dict[str, Any]


class Planner:
    """The answers of one server: a folder of runs, its ledgers, and the helper process."""

    def __init__(self, root: Path, ledgers: Sequence[str], keys: Keys) -> None:
        self.root, self.ledgers, self.keys = root, tuple(ledgers), keys
        self._helper: Pool | None = None

    async def numbers(self, body: Body) -> Body:
        """The plan, its unknown and its cost, while a slider moves."""
        data = str(body.get("data") or "digits")[:LONGEST_DATA]
        return answers.numbers(_asked(body), data)

    async def later(self, body: Body) -> Body:
        """One of the slower answers, about the same plan, from the helper process."""
        kind = body.get("kind")
        if kind not in SLOW:
            raise InvalidValue(f"kind must be one of {', '.join(SLOW)}.")
        return await self._in_helper(SLOW[kind], _asked(body))

    async def runs(self, body: Body) -> Body:
        """The runs of the folder, and what is left of each data set."""
        found = await asyncio.to_thread(runs.describe, self.root, self.ledgers)
        for run in found["runs"]:
            run["report"] = f"/{self.keys.report_token}/{quote(run['name'], safe='')}" if run["has_report"] else ""
        return found

    async def report(self, body: Body) -> Body:
        """Write the report of a run, by its name in the list."""
        name = body.get("run")
        folder = (await asyncio.to_thread(runs.find, self.root)).get(str(name))
        if folder is None:
            raise InvalidValue("there is no such run in the folder.")
        await asyncio.to_thread(runs.make_report, folder)
        return {"report": f"/{self.keys.report_token}/{quote(str(name), safe='')}"}

    async def plans(self, body: Body) -> Body:
        """The saved plans, after the change that was asked for."""
        if body.get("change") == "save":
            saved.save(self.root, body.get("name"), _asked(body))
        elif body.get("change") == "remove":
            saved.remove(self.root, body.get("name"))
        return {"plans": await asyncio.to_thread(saved.compared, self.root)}

    async def _in_helper(self, job: Callable[[Question], Body], found: Question) -> Body:
        if self._helper is None:
            self._helper = get_context("spawn").Pool(1, initializer=_step_back)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Body] = loop.create_future()

        def tell(act: Callable[[Any], None], value: Any) -> None:
            with suppress(RuntimeError):  # the server has stopped meanwhile
                loop.call_soon_threadsafe(lambda: None if done.done() else act(value))

        self._helper.apply_async(
            job,
            (found,),
            callback=lambda value: tell(done.set_result, value),
            error_callback=lambda error: tell(done.set_exception, error),
        )
        return await done

    def close(self) -> None:
        """End the helper process."""
        if self._helper is not None:
            self._helper.terminate()


def _step_back() -> None:
    """The helper ends with its server, not by itself, and leaves the processor to the numbers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(5)


class _BadFields(Exception):  # carries messages to the fields of the page; never leaves this file
    def __init__(self, messages: dict[str, str]) -> None:
        super().__init__("bad fields")
        self.messages = messages


def _asked(body: Body) -> Question:
    asked, messages = read(body)
    if asked is None:
        raise _BadFields(messages)
    return asked


def application(planner: Planner) -> Doors:
    """The ASGI application: the page, its questions, the reports."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    token, report_token = planner.keys.token, planner.keys.report_token

    @app.get(f"/{token}/{{name}}")
    async def page(name: str) -> Response:
        if name not in PAGES:
            return Response("no such page\n", 404)
        file, kind = PAGES[name]
        return Response((files("hush.planner") / "page" / file).read_bytes(), media_type=kind)

    @app.get(f"/{token}/")
    async def front() -> Response:
        return await page("")

    @app.get(f"/{report_token}/{{name:path}}")
    async def report(name: str) -> Response:
        folder = (await asyncio.to_thread(runs.find, planner.root)).get(name)
        path = None if folder is None else runs.report_of(folder)
        return Response("no such report\n", 404) if path is None else FileResponse(path, media_type="text/html")

    questions: dict[str, Callable[[Body], Awaitable[Body]]] = {
        "numbers": planner.numbers,
        "later": planner.later,
        "runs": planner.runs,
        "report": planner.report,
        "plans": planner.plans,
    }

    @app.post(f"/{token}/api/{{question}}")
    async def answer(question: str, request: Request) -> Response:
        if question not in questions:
            return Response("no such question\n", 404)
        return await _answer(questions[question], request)

    return Doors(app, planner.keys)


async def _answer(question: Callable[[Body], Awaitable[Body]], request: Request) -> Response:
    try:
        result = await question(await _body(request))
        return _json(result)
    except _BadFields as error:
        return _json({"errors": error.messages}, 422)
    except HushError as error:
        return _json({"errors": {"": str(error)}}, 422)


async def _body(request: Request) -> Body:
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise InvalidValue("a question must be JSON.")
    text = b""
    async for part in request.stream():
        text += part
        if len(text) > LARGEST_BODY:
            raise InvalidValue(f"a question has at most {LARGEST_BODY} bytes.")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidValue("a question must be JSON.") from None
    if not isinstance(data, dict):
        raise InvalidValue("a question must be a JSON object.")
    return data


def _json(data: Body, status: int = 200) -> Response:
    return Response(json.dumps(data, allow_nan=False), status, media_type="application/json")


def listen(port: int) -> socket.socket:
    """A socket on loopback; port 0 takes a free one."""
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        door.bind((LOOPBACK, port))
        door.listen()  # who opens the address at once waits a moment and is not turned away
    except OSError as error:
        door.close()
        raise InvalidValue(f"port {port} of {LOOPBACK} cannot be used: {error.strerror}; try another, or 0.") from None
    return door


def _is_told(record: logging.LogRecord) -> bool:
    """Whether the server's log shows this. Questions that are cut off because the page ends are nobody's error."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, asyncio.CancelledError) or record.getMessage().startswith("Cancel "))


def prepared(planner: Planner) -> uvicorn.Server:
    """The server, not started yet."""
    config = uvicorn.Config(
        application(planner),
        access_log=False,
        log_config=None,  # its own would close the handlers of everything else in this process
        log_level="error",
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=1,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_told)
    return uvicorn.Server(config)


def run(planner: Planner, door: socket.socket) -> None:
    """Serve until interrupted."""
    try:
        prepared(planner).run(sockets=[door])
    finally:
        planner.close()
