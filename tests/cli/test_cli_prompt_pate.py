"""`hush prompt pate` against a real HTTP server, and `hush prompt generate` with a tiny model from a folder."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from command_line import Answer, call

from hush import Ledger
from hush.cli import prompt_job

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
WORDS = ("cat", "dog")
SOUNDS = {"cat": "meow", "dog": "woof"}


class Handler(BaseHTTPRequestHandler):
    """Answers with the label whose examples in the prefix share a word with the question."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.prefixes.append(asked["prefix"])  # type: ignore[attr-defined]
        rows = []
        for question in asked["inputs"]:
            words, row = set(question.split()), []
            for label in asked["continuations"]:
                blocks = [block for block in asked["prefix"].split("\n\n") if block.endswith(label)]
                row.append([math.log(0.9 if any(words & set(block.split()[1:2]) for block in blocks) else 0.1)])
            rows.append(row)
        content = json.dumps({"log_probs": rows}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Any]:
    running: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads, running.prefixes = True, []
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    lines = [f"{SOUNDS[label]} secret{number}\t{label}" for number in range(60) for label in WORDS]
    (tmp_path / "private.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    asked = [f"{SOUNDS[label]} public{number}" for number in range(15) for label in WORDS]
    (tmp_path / "public.txt").write_text("\n".join(asked) + "\n", encoding="utf-8")
    return tmp_path


def pate(capsys: pytest.CaptureFixture[str], server: Any, desk: Path, *more: object) -> Answer:
    words = ("prompt", "pate", "--private", desk / "private.tsv", "--public", desk / "public.txt", "--label-words",
             "cat,dog", "--model", f"http://127.0.0.1:{server.server_address[1]}/", "--teachers", 24,
             "--demonstrations", 4, "--queries", 20, "--candidates", 2)  # fmt: skip
    return call(capsys, *words, *more)


def test_labels_student_and_ledger(capsys: pytest.CaptureFixture[str], server: Any, desk: Path) -> None:
    out = desk / "run"
    answer = pate(capsys, server, desk, "--epsilon", 8, "--out", out, "--json")
    assert answer.code == 0, answer.err
    found = answer.data
    assert found["epsilon"] <= 8
    assert found["relation"] == "add_remove"
    assert 3 < found["answered"] <= found["asked"] <= found["queries"] == 20
    assert found["preview"]["calls"] == 25
    assert len(server.prefixes) > 25
    account = Ledger(out / "ledger.db").account("private")
    assert account.spent().epsilon <= 8
    assert {path.name for path in out.iterdir()} == {"run.json", "about.json", "student.json", "ledger.db"}
    content = b"".join(path.read_bytes() for path in out.iterdir())
    assert b"secret" not in content
    shown = json.loads((out / "student.json").read_text())["demonstrations"]
    assert all("public" in text and label in (" cat", " dog") for text, label in shown)


def test_the_report_names_labels_and_address_and_no_secret(
    capsys: pytest.CaptureFixture[str], server: Any, desk: Path
) -> None:
    out = desk / "run"
    place = f"127.0.0.1:{server.server_address[1]}"
    assert pate(capsys, server, desk, "--epsilon", 8, "--model", f"http://{place}/?key=word", "--out", out).code == 0
    answer = call(capsys, "report", out, "--json")
    assert answer.code == 0, answer.err
    facts = {fact["label"]: fact["value"] for fact in answer.data["facts"]}
    assert (facts["data"], facts["student"]) == ("private", f"prompt of http://{place}")
    assert answer.data["scores"] is None  # own texts have no test
    labels = next(plot for plot in answer.data["plots"] if plot["key"] == "labels")
    assert labels["lines"][0]["x"] == ["cat", "dog"]
    assert any(f"http://{place}: whoever runs it" in note for note in answer.data["notes"])
    assert not any(word in answer.out for word in ("secret", "key=word"))


def test_the_student_is_calibrated_by_public_texts(capsys: pytest.CaptureFixture[str], server: Any, desk: Path) -> None:
    answer = pate(capsys, server, desk, "--epsilon", 8, "--out", desk / "run", "--json")
    kept = json.loads((desk / "run" / "student.json").read_text())
    others, zero_shot = kept["beside"]
    assert zero_shot == []
    assert not {text for text, _ in others} & {text for text, _ in kept["demonstrations"]}
    assert len(others) + len(kept["demonstrations"]) == answer.data["answered"]
    assert [len(row) for row in kept["offsets"]] == [2, 2, 2]
    assert answer.data["beside"] == kept["beside"]
    assert answer.data["zero_shot_by_texts_accuracy"] is None  # own texts have no test


def test_the_preview_calls_nobody(capsys: pytest.CaptureFixture[str], server: Any, desk: Path) -> None:
    answer = pate(capsys, server, desk, "--epsilon", 1, "--preview", "--json")
    assert answer.code == 0, answer.err
    assert set(answer.data) >= {"calls", "tokens", "epsilon", "delta"}
    assert answer.data["epsilon"] == 1
    shown = pate(capsys, server, desk, "--epsilon", 1, "--preview")
    assert "25 calls" in shown.out
    assert server.prefixes == []


def test_the_preview_comes_before_the_first_call(
    capsys: pytest.CaptureFixture[str], server: Any, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prompt_job.PromptPATE, "label", stopped)
    answer = pate(capsys, server, desk, "--epsilon", 8, "--out", desk / "run")
    assert "25 calls" in answer.out
    assert answer.code == 130
    assert server.prefixes == []


def test_an_interrupted_run_goes_on_without_paying_twice(
    capsys: pytest.CaptureFixture[str], server: Any, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, votes = desk / "run", desk / "votes"
    how = ("--epsilon", 8, "--out", out, "--votes-folder", votes, "--json")
    with monkeypatch.context() as patch:
        patch.setattr(prompt_job.PromptPATE, "student", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        assert pate(capsys, server, desk, *how).code == 130
    rows = Ledger(out / "ledger.db").account("private").rows()
    labels = json.loads((out / "labels.json").read_text())["labels"]
    calls = len(server.prefixes)
    refused = pate(capsys, server, desk, *how, "--resume", "--teachers", 23)
    assert refused.is_refused()
    answer = pate(capsys, server, desk, *how, "--resume")
    assert answer.code == 0, answer.err
    assert Ledger(out / "ledger.db").account("private").rows() == rows
    assert json.loads((out / "run.json").read_text())["labels"] == labels
    assert not any("secret" in prefix for prefix in server.prefixes[calls:])  # only the student is made


def test_a_budget_too_small_is_said_and_bad_input_refused(
    capsys: pytest.CaptureFixture[str], server: Any, desk: Path
) -> None:
    small = pate(capsys, server, desk, "--epsilon", 0.01, "--out", desk / "run")
    assert small.code == 1
    assert server.prefixes == []
    assert pate(capsys, server, desk).is_refused()  # no epsilon
    assert pate(capsys, server, desk, "--epsilon", 1, "--data", "trec").is_refused()
    assert call(capsys, "prompt", "pate", "--epsilon", 1).is_refused()
    (desk / "private.tsv").write_text("secret text\tcow\n", encoding="utf-8")
    wrong = pate(capsys, server, desk, "--epsilon", 1)
    assert wrong.is_refused()
    assert "line 1" in wrong.err
    assert "secret" not in wrong.err


@pytest.mark.skipif("HUSH_DATA" not in os.environ, reason="HUSH_DATA is not set")
def test_a_known_task_is_split_by_its_texts(capsys: pytest.CaptureFixture[str], server: Any, tmp_path: Path) -> None:
    from hush.cli import prompt_texts

    texts = prompt_texts.known("trec", None, 50)
    assert len(texts.test) == len(texts.test_labels) == 50
    assert not set(texts.public) & set(texts.private)
    assert len(texts.public) / (len(texts.public) + len(texts.private)) == pytest.approx(0.1, abs=0.02)
    answer = call(capsys, "prompt", "pate", "--data", "trec", "--model", f"http://127.0.0.1:{server.server_address[1]}/",
                  "--epsilon", 8, "--teachers", 20, "--demonstrations", 6, "--queries", 10, "--test", 12,
                  "--candidates", 1, "--threshold", -100, "--out", tmp_path / "run", "--json")  # fmt: skip
    assert answer.code == 0, answer.err
    assert 0 <= answer.data["test_accuracy"] <= 1
    assert 0 <= answer.data["zero_shot_accuracy"] <= 1
    assert 0 <= answer.data["zero_shot_by_texts_accuracy"] <= 1


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with random weights and a tokenizer of bytes, as transformers keeps them."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.models.BPE(vocab={letter: place for place, letter in enumerate(letters)}, merges=[])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    folder = tmp_path_factory.mktemp("tiny")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    config = transformers.LlamaConfig(vocab_size=256, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                                      num_key_value_heads=1, intermediate_size=16)  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_generate_writes_and_charges(capsys: pytest.CaptureFixture[str], desk: Path, tiny_folder: Path) -> None:
    out = desk / "made"
    words = ("prompt", "generate", "--private", desk / "private.tsv", "--label-words", "cat,dog", "--model",
             tiny_folder, "--sampling-prob", 0.1, "--prompts", 3, "--max-tokens", 5, "--per-label", 2)  # fmt: skip
    answer = call(capsys, *words, "--epsilon", 4, "--out", out, "--json")
    assert answer.code == 0, answer.err
    found = answer.data
    assert 3.9 < found["epsilon"] <= 4
    assert not found["stopped"]
    assert all(label in (" cat", " dog") for _, label in found["demonstrations"])
    account = Ledger(out / "ledger.db").account("private")
    assert account.spent().epsilon == pytest.approx(found["epsilon"])
    assert {path.name for path in out.iterdir()} == {"run.json", "about.json", "demonstrations.json", "ledger.db"}
    shown = call(capsys, *words, "--epsilon", 4, "--seed", 1, "--out", desk / "again")
    assert "proven" in shown.out
    assert "never release" in shown.out
    assert call(capsys, *words, "--epsilon", 4, "--model", "nowhere", "--json").is_refused()
    assert call(capsys, *words, "--json").is_refused()  # no epsilon


def test_what_is_kept_of_the_ledgers_address_has_no_password(
    capsys: pytest.CaptureFixture[str], server: Any, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[dict[str, Any]] = []

    class Listening(prompt_job.Progress):
        def __init__(self, folder: Path, request: dict[str, Any], **how: Any) -> None:
            kept.append(request)
            super().__init__(folder, request, **how)

    monkeypatch.setattr(prompt_job, "Progress", Listening)
    monkeypatch.setattr(prompt_job, "shown_place", lambda place: "as it is shown")
    pate(capsys, server, desk, "--epsilon", 8, "--out", desk / "kept", "--ledger", desk / "team.db", "--json")
    assert [request["ledger"] for request in kept] == ["as it is shown"]
