"""`hush report`: three files, one JSON object, one clear line; and `hush train --live`."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import pytest
from command_line import call, launch

from hush import report
from hush.cli.main import run

TRAIN = ("train", "--data", "digits", "--epsilon", "3", "--model", "linear", "--steps", "12")
PATE = ("pate", "--data", "digits", "--teachers", "20", "--student", "plain", "--student-steps", "5")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "digits"
    assert run([*TRAIN, "--live", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def voted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "pate"
    shared = folder.with_name("team.db")
    assert run([*PATE, "--epsilon", "3", "--queries", "15", "--ledger", str(shared), "--out", str(folder)]) == 0
    return folder


def test_three_files_of_a_training(capsys: pytest.CaptureFixture[str], trained: Path, tmp_path: Path) -> None:
    answer = call(capsys, "report", trained, "--out", tmp_path)
    assert answer.code == 0, answer.err
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "report.md", "report.json"}
    content = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert content["title"] == "digits: linear model, trained privately"
    assert 0 < content["scores"]["private"] <= 1  # the digits are public
    assert 0 < content["scores"]["twin"] <= 1
    assert content["guarantee"]["epsilon"] <= 3
    assert content["not_private"] is None


def test_json_is_the_report(capsys: pytest.CaptureFixture[str], trained: Path) -> None:
    assert call(capsys, "report", trained, "--json").data == report.read(trained)


def test_the_live_page_is_left_with_its_end(trained: Path) -> None:
    state = (trained / "live.js").read_text(encoding="utf-8")
    values = json.loads(state.removeprefix("hushLive(").removesuffix(");\n"))
    assert values["state"] == "finished"
    assert values["step"] == 12
    assert values["report"] == "report.html"
    assert (trained / "report.html").exists()
    page = (trained / "live.html").read_text(encoding="utf-8")
    losses = json.loads((trained / "not_private.json").read_text(encoding="utf-8"))["loss"]
    assert all(str(loss) not in page + state for loss in losses)


def test_votes_have_a_report_too(capsys: pytest.CaptureFixture[str], voted: Path) -> None:
    content = call(capsys, "report", voted, "--json").data
    assert content["kind"] == "pate"
    assert content["ledger"]["place"].endswith("team.db")
    saved = json.loads((voted / "run.json").read_text(encoding="utf-8"))
    assert content["guarantee"] == saved["promise"]
    steps = next(plot for plot in content["plots"] if plot["key"] == "steps")
    exact = next(line for line in steps["lines"] if line["name"] == "exact")
    assert exact["x"][-1] == 15
    assert exact["y"][-1] == pytest.approx(saved["promise"]["epsilon"], rel=1e-9)
    labels = next(plot for plot in content["plots"] if plot["key"] == "labels")
    assert sum(labels["lines"][0]["y"]) == sum(label >= 0 for label in saved["labels"])


def test_a_promise_below_the_charges_is_refused(capsys: pytest.CaptureFixture[str], voted: Path) -> None:
    saved = (voted / "run.json").read_text(encoding="utf-8")
    data = json.loads(saved)
    data["promise"] = {**data["promise"], "epsilon": 0.1, "epsilon_lower": 0.0}
    try:
        (voted / "run.json").write_text(json.dumps(data), encoding="utf-8")
        assert call(capsys, "report", voted).is_refused()
    finally:
        (voted / "run.json").write_text(saved, encoding="utf-8")


def test_votes_of_prompts_are_read_too(capsys: pytest.CaptureFixture[str], voted: Path, tmp_path: Path) -> None:
    data = json.loads((voted / "run.json").read_text(encoding="utf-8"))
    promise, cost = data.pop("promise"), data.pop("cost")  # `hush prompt pate` writes the cost alone
    (tmp_path / "run.json").write_text(json.dumps({**data, **cost}), encoding="utf-8")
    answer = call(capsys, "report", tmp_path, "--ledger", voted.with_name("team.db"), "--json")
    assert answer.code == 0, answer.err
    assert answer.data["guarantee"] == promise
    assert answer.data["title"].startswith("data without a name")


def test_the_page_is_opened_on_request(
    capsys: pytest.CaptureFixture[str], trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda place: opened.append(place) is None)
    assert call(capsys, "report", trained, "--out", tmp_path, "--format", "html", "--open").code == 0
    assert opened == [(tmp_path / "report.html").as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda place: False)
    answer = call(capsys, "report", trained, "--out", tmp_path, "--format", "html", "--open")
    assert "open it yourself" in answer.out.replace(str(tmp_path / "report.html"), "it")


@pytest.mark.parametrize(
    "words",
    [("nowhere",), (".",), (".", "--format", "pdf"), (".", "--open", "--format", "md"), (".", "--json", "--open")],
    ids=" ".join,
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...]) -> None:
    place = tmp_path / words[0]
    assert call(capsys, "report", place, *words[1:]).is_refused()


def test_a_fresh_process_needs_no_torch(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch was loaded')\n", encoding="utf-8")
    answer = launch("report", trained, "--out", tmp_path / "out", PYTHONPATH=str(tmp_path))
    assert answer.code == 0, answer.err


def test_live_is_for_steps_only(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "train", "--data", "digits", "--model", "logistic", "--epsilon", 1, "--live")
    assert answer.is_refused()
