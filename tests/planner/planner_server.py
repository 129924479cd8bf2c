"""A planner that really listens, for tests, and requests to it that say exactly what they are told to say."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hush.planner import server
from hush.planner.doors import Keys

PLAN = {
    "num_examples": 60_000,
    "expected_batch_size": 600,
    "epochs": 30,
    "noise_multiplier": 1.1,
    "delta": 1e-5,
    "epsilon": 3,
}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: str

    @property
    def data(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Served:
    """A running planner."""

    keys: Keys

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.keys.port}"

    def request(self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None) -> Answer:
        """One request; `headers` are all that is sent beside Host and Content-Length."""
        connection = http.client.HTTPConnection("127.0.0.1", self.keys.port, timeout=300)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, names, answer.read().decode())
        finally:
            connection.close()

    def ask(self, question: str, **body: Any) -> Answer:
        """A question as the page asks it."""
        headers = {"origin": self.origin, "content-type": "application/json", "sec-fetch-site": "same-origin"}
        return self.request("POST", f"/{self.keys.token}/api/{question}", json.dumps(body), headers)


@contextmanager
def served(root: Path, ledgers: Sequence[str] = ()) -> Iterator[Served]:
    """A planner on a free port, in a thread."""
    door = server.listen(0)
    keys = Keys(port=door.getsockname()[1])
    planner = server.Planner(root, ledgers, keys)
    running = server.prepared(planner)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [door]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    try:
        yield Served(keys)
    finally:
        running.should_exit = True
        thread.join(timeout=10)
        planner.close()
        door.close()
