"""A language model behind a real HTTP server on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy
import pytest
from letters import Keyword

from hush import Rng
from hush.errors import DataMissing, InvalidValue
from hush.prompts.http_model import HttpModel
from hush.prompts.known_models import load_language_model
from hush.prompts.pate import PromptPATE
from hush.prompts.templates import Template

TEMPLATE = Template(example="Noise: {text}\nAnimal:{label}")
WORDS = (" cat", " dog")
TEXTS = [f"{('meow', 'woof')[place % 2]} secret{place}" for place in range(60)]
HOW: dict[str, Any] = {"num_teachers": 12, "demonstrations": 4, "progress": False}


class Server(ThreadingHTTPServer):
    """Answers as the keyword model does; first with the statuses in `bad`, one for each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.model, self.bad, self.asked = Keyword(), [], []  # type: ignore[var-annotated]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/log_probs"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.asked.append((self.headers.get("Authorization"), sorted(question)))
        status = server.bad.pop(0) if server.bad else 200
        found = server.model.log_probs(question["prefix"], question["inputs"], question["continuations"])
        content = json.dumps({"log_probs": found}).encode() if status == 200 else b"busy"
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def votes(model: object, folder: Path | None = None) -> numpy.ndarray:
    labels = numpy.arange(60) % 2
    pate = PromptPATE(model, TEMPLATE, WORDS)
    return pate.votes(TEXTS, labels, ["meow a", "woof b"], folder=folder, rng=Rng.from_seed(1), **HOW).counts


def test_votes_by_http_are_those_of_the_model_itself(server: Server) -> None:
    model = HttpModel(server.url, headers={"Authorization": "Bearer key"}, wait=0.0)
    server.bad = [503, 429]
    assert (votes(model) == votes(Keyword())).all()
    assert len(server.asked) == 1 + 12 + 2  # a public call, the teachers, two busy answers
    assert server.asked[0] == ("Bearer key", ["continuations", "inputs", "prefix"])
    assert isinstance(load_language_model(server.url), HttpModel)


def test_a_server_that_refuses_ends_the_run_which_then_goes_on(server: Server, tmp_path: Path) -> None:
    model = HttpModel(server.url, attempts=2, wait=0.0)
    server.bad = [200] * 11 + [401]
    with pytest.raises(ConnectionError, match="401") as caught:
        votes(model, tmp_path / "votes")
    assert "secret" not in str(caught.value)
    before = len(server.asked)
    assert (votes(model, tmp_path / "votes").sum(axis=1) == 12).all()
    assert len(server.asked) == before + 1 + 2  # ten teachers were kept


def test_what_is_no_answer_is_refused(server: Server) -> None:
    server.model.log_probs = lambda *_: [[[1.0]]]  # type: ignore[method-assign]
    with pytest.raises(InvalidValue, match="log_probs must give"):
        votes(HttpModel(server.url))
    server.bad = [204]
    with pytest.raises(ConnectionError, match="JSON"):
        HttpModel(server.url).log_probs("a", ["b"], ["c"])
    with pytest.raises(ConnectionError, match="cannot be asked"):
        HttpModel("http://127.0.0.1:9/", attempts=1).log_probs("a", ["b"], ["c"])
    with pytest.raises(InvalidValue, match="http"):
        HttpModel("ftp://somewhere")
    with pytest.raises(DataMissing, match="smollm2"):
        load_language_model("no/such/folder")
