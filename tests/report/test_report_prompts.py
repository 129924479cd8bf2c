"""Reports on `hush prompt pate|generate|soft`, from runs of the commands themselves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from page_reading import Page
from prompt_runs import SECRET, WORDS, prompt_run

from hush import Ledger, accounting, report
from hush.cli.main import run
from hush.cli.prompt_about import public_name
from hush.errors import UnreadableFile

pytestmark = pytest.mark.xdist_group("reports")
LIBRARIES = {"python", "hush", "torch", "transformers"}


def facts(content: dict[str, Any]) -> dict[str, Any]:
    return {fact["label"]: fact["value"] for fact in content["facts"]}


def bars(content: dict[str, Any]) -> dict[str, float]:
    [line] = next(plot for plot in content["plots"] if plot["key"] == "labels")["lines"]
    return dict(zip(line["x"], line["y"], strict=True))


def exact(content: dict[str, Any]) -> dict[str, Any]:
    lines = next(plot for plot in content["plots"] if plot["key"] == "steps")["lines"]
    return next(line for line in lines if line["name"] == "exact")


def test_the_command_writes_the_report_of_made_up_texts(
    generated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(generated), "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "report.md", "report.json"}
    kept = json.loads((generated / "demonstrations.json").read_text(encoding="utf-8"))["demonstrations"]
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert len(kept) > 6
    assert all(text in page.text and label.strip() in page.text for text, label in kept)
    assert "What was made, and may be published" in page.text


def test_made_up_texts_by_item(generated: Path, everything: Any) -> None:
    content, saved = everything("generated"), json.loads((generated / "run.json").read_text(encoding="utf-8"))
    assert content["kind"] == "generation"
    assert content["title"] == "trec: made-up examples, written privately"
    assert "releasing the made-up examples" in content["claim"]["sentence"]
    assert content["guarantee"] == saved["promise"]
    assert content["guarantee"]["epsilon"] <= 4
    told = facts(content)
    assert (told["written from"], told["language model"]) == ("trec", "tiny")
    assert told["noise multiplier"] == saved["generation"]["noise_multiplier"]
    assert told["tokens charged, each label"] == 2 * 5  # two texts of five tokens at most
    assert set(content["versions"]["run"]) >= LIBRARIES
    assert list(bars(content)) == list(WORDS)
    assert sum(bars(content).values()) == told["made-up texts"] == len(content["made"])


def test_the_curve_over_tokens_is_the_accountants(generated: Path, everything: Any) -> None:
    content = everything("generated")
    from hush.prompts import GenerationPlan

    plan = GenerationPlan(**json.loads((generated / "run.json").read_text(encoding="utf-8"))["generation"])
    line = exact(content)
    assert line["x"][-1] == 10
    assert line["y"][-1] == pytest.approx(content["guarantee"]["epsilon"], rel=1e-9)
    one_text = accounting.guarantee(plan.event, delta=1e-5).epsilon  # five tokens
    assert line["y"][line["x"].index(5)] == pytest.approx(one_text, rel=1e-9)


def test_the_ledgers_rows_are_those_of_this_run(
    generated: Path, model_folder: Path, tmp_path: Path, everything: Any
) -> None:
    assert len(everything("generated")["ledger"]["rows"]) == 2  # one for each round of texts
    shared = ("--ledger", tmp_path / "team.db")
    account = Ledger(tmp_path / "team.db").account("trec")  # no cap: room for both
    for name in ("first", "second"):
        prompt_run("generation", tmp_path / name, model_folder, *shared)
    content = report.read(tmp_path / "second")
    assert (len(content["ledger"]["rows"]), content["ledger"]["other_rows"]) == (2, 2)
    assert content["guarantee"]["epsilon"] <= 4 < account.spent(1e-5).epsilon


def test_votes_of_prompts_say_what_they_were(prompts_voted: Path, everything: Any) -> None:
    content = everything("prompts_voted")
    told, saved = facts(content), json.loads((prompts_voted / "run.json").read_text(encoding="utf-8"))
    assert content["title"] == "trec: labels by teachers' noisy votes"
    assert (told["data"], told["student"], told["teachers"]) == ("trec", "prompt of tiny", 20)
    assert 0 <= content["scores"]["private"] <= 1  # TREC is public
    assert 0 <= told["test accuracy without any example"] <= 1
    assert told["test texts"] == 12
    assert set(content["versions"]["run"]) >= LIBRARIES
    assert list(bars(content)) == list(WORDS)
    answered = [label for label in saved["labels"] if label >= 0]
    assert [bars(content)[word] for word in WORDS] == [answered.count(place) for place in range(len(WORDS))]


def test_a_soft_prompt_says_what_it_was(soft_prompt: Path, everything: Any) -> None:
    content = everything("soft_prompt")
    told = facts(content)
    assert content["title"] == "trec: soft prompt, trained privately"
    assert (told["data"], told["language model"], told["vectors"]) == ("trec", "tiny", "3 in front of the text")
    assert (told["learning rate"], told["test texts"], told["weights in the model"]) == (0.01, 24, 3 * 16)
    assert 0 <= content["scores"]["private"] <= 1
    assert 0 <= told["test accuracy with the first, random vectors"] <= 1
    assert set(content["versions"]["run"]) >= LIBRARIES


@pytest.mark.parametrize("kind", ["prompts_voted", "generated", "soft_prompt"])
def test_nothing_is_unnamed_and_no_private_text_is_shown(
    kind: str, everything: Any, request: pytest.FixtureRequest
) -> None:
    content = everything(kind)
    for form in ("html", "md", "json"):
        text = report.text_of(content, form)
        assert SECRET not in text
        assert "data without a name" not in text
        assert "not recorded" not in (Page(text).text if form == "html" else text)
    assert SECRET not in (request.getfixturevalue(kind) / "about.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["demonstrations.json", "run.json"])
def test_edited_files_of_made_up_texts_are_refused(name: str, generated: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(generated, tmp_path / "copy"))
    data = json.loads((copy / name).read_text(encoding="utf-8"))
    change = {"demonstrations": [["better text", " Person"]]} if name == "demonstrations.json" else {
        "promise": {**data["promise"], "epsilon": 0.5, "epsilon_lower": 0.0}
    }  # fmt: skip
    (copy / name).write_text(json.dumps({**data, **change}), encoding="utf-8")
    with pytest.raises(UnreadableFile, match="edited"):
        report.read(copy)
    (copy / name).unlink()
    with pytest.raises(UnreadableFile):
        report.read(copy)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("smollm2", "smollm2"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("https://me:word@host/v1/score?key=secret#x", "https://host"),
    ],
)
def test_a_models_name_shows_no_secret(given: str, shown: str) -> None:
    assert public_name(given) == shown
