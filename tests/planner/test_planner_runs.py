"""Runs, reports, budgets and saved plans of a folder, and no way out of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from planner_server import PLAN, Served, served

from hush import Budget, Ledger, events
from hush.planner import runs, saved
from hush.privacy import round_up

CLAIM = {"epsilon": 2.9999, "delta": 1e-5, "relation": "add_remove"}


def add_run(folder: Path, report: str | None = None, **facts: object) -> None:
    folder.mkdir(parents=True)
    written = {"account": "digits", "steps": 80, "complete": True, "guarantee": CLAIM, **facts}
    (folder / "run.json").write_text(json.dumps(written))
    if report is not None:
        (folder / "report.html").write_text(report)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two runs, one with a report; a ledger; and beside the folder a secret."""
    folder = tmp_path / "runs"
    add_run(folder / "first", "<title>first report</title>")
    add_run(folder / "deep" / "second one", complete=False)
    account = Ledger(folder / "budget.db").account("hospital", cap=Budget(epsilon=3.0, delta=1e-6))
    account.charge(events.Laplace(2.0))
    (tmp_path / "report.html").write_text("secret")
    (tmp_path / "run.json").write_text("{}")
    return folder


@pytest.fixture
def planner(root: Path) -> Iterator[Served]:
    with served(root) as running:
        yield running


def test_runs_are_listed_with_what_they_claim(root: Path) -> None:
    found = {run["name"]: run for run in runs.describe(root, ())["runs"]}
    assert list(found) == ["deep/second one", "first"]
    assert found["first"]["epsilon_text"] == "2.9999"
    assert (found["first"]["data"], found["first"]["steps"], found["first"]["has_report"]) == ("digits", 80, True)
    assert (found["deep/second one"]["complete"], found["deep/second one"]["has_report"]) == (False, False)


@pytest.mark.parametrize("key", ["promise", "data_independent"])
def test_votes_are_listed_with_their_claim_and_data(root: Path, key: str) -> None:
    """As `hush pate` and `hush prompt pate` write them."""
    (root / "first" / "run.json").write_text(json.dumps({"run": "x", "asked": 16, key: CLAIM}))
    (root / "first" / "about.json").write_text(json.dumps({"data": "mnist"}))
    [run] = [run for run in runs.describe(root, ())["runs"] if run["name"] == "first"]
    assert (run["data"], run["epsilon_text"], run["delta_text"]) == ("mnist", "2.9999", "1e-05")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "{", '{"guarantee": 3}', '{"guarantee": {"epsilon": "infinity"}}', "[" * 9999]
)
def test_a_strange_run_is_listed_and_breaks_nothing(root: Path, text: str) -> None:
    (root / "first" / "run.json").write_text(text)
    assert len(runs.describe(root, ())["runs"]) == 2


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert runs.describe(tmp_path / "none", ()) == {"runs": [], "budgets": []}


def test_budgets_are_the_ledgers(root: Path) -> None:
    [row] = runs.describe(root, ())["budgets"]
    account = Ledger(root / "budget.db", create=False).account("hospital")
    assert (row["data"], row["cap_text"], row["ledger"]) == ("hospital", "3 at delta 1e-06", "budget.db")
    assert row["spent_text"] == round_up(account.spent().epsilon)
    assert float(row["left_text"]) <= account.left()
    assert row["share"] == pytest.approx(account.spent().epsilon / 3)


def test_the_one_account_of_a_runs_own_ledger_has_the_name_of_its_data(root: Path) -> None:
    (root / "first" / "about.json").write_text(json.dumps({"data": "mnist"}))
    own = Ledger(root / "first" / "ledger.db")
    own.account("training")
    assert [row["data"] for row in runs.describe(root, ())["budgets"]] == ["hospital", "mnist"]
    own.account("another")
    assert {row["data"] for row in runs.describe(root, ())["budgets"]} == {"hospital", "training", "another"}


def test_named_ledgers_come_first_and_hide_their_password(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "team.db"
    Ledger(other).account("school")
    rows = runs.describe(root, [str(other), "postgresql://me:secret@host/db"])["budgets"]
    assert [row["data"] for row in rows] == ["school", "", "hospital"]
    assert rows[0]["left_text"] == "no limit"
    assert rows[1]["problem"]
    assert "secret" not in json.dumps(rows)


def test_a_broken_ledger_is_named(root: Path) -> None:
    (root / "broken.db").write_text("this is no data base")
    problems = {row["ledger"]: row["problem"] for row in runs.describe(root, ())["budgets"]}
    assert problems["broken.db"]
    assert not problems["budget.db"]


def test_looking_changes_nothing(root: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*") if path.suffix != ".db-shm")
    runs.describe(root, ())
    assert sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*") if path.suffix != ".db-shm") == before


def test_a_report_is_served_in_its_sandbox(planner: Served) -> None:
    [run] = [run for run in planner.ask("runs").data["runs"] if run["report"]]
    answer = planner.request("GET", run["report"], headers={"sec-fetch-site": "same-origin"})
    assert (answer.status, answer.body) == (200, "<title>first report</title>")
    assert answer.headers["content-security-policy"].count("sandbox allow-scripts") == 1
    assert planner.keys.token not in run["report"]


OUTSIDE = (
    *("..", "../runs/first", "first/..", "first/../..", "%2e%2e", "..%2f", "/etc", "first/report.html", "first/"),
    *("./first", "deep", "", "first\0", "FIRST", "."),
)


def test_no_name_leads_out_of_the_folder(planner: Served) -> None:
    ours = {"sec-fetch-site": "same-origin"}
    for name in OUTSIDE:
        for path in {quote(name), quote(name, safe="")}:
            answer = planner.request("GET", f"/{planner.keys.report_token}/{path}", headers=ours)
            assert answer.status in (400, 403, 404), path
            assert "secret" not in answer.body
        assert planner.ask("report", run=name).status == 422, name


def test_links_are_not_followed(root: Path, tmp_path: Path) -> None:
    os.symlink(tmp_path, root / "elsewhere")
    os.symlink(tmp_path / "report.html", root / "deep" / "second one" / "report.html")
    add_run(tmp_path / "outside")
    (root / "linked").mkdir()
    os.symlink(tmp_path / "run.json", root / "linked" / "run.json")
    assert list(runs.find(root)) == ["deep/second one", "first"]
    assert runs.report_of(root / "deep" / "second one") is None


def test_the_report_token_opens_nothing_else(planner: Served) -> None:
    headers = {"origin": planner.origin, "content-type": "application/json"}
    assert planner.request("POST", f"/{planner.keys.report_token}/api/runs", "{}", headers).status in (404, 405)
    assert planner.request("GET", f"/{planner.keys.report_token}/planner.js").status == 404
    assert planner.request("GET", f"/{planner.keys.token}/first").status == 404


def test_plans_are_saved_compared_and_removed(planner: Served, root: Path) -> None:
    assert planner.ask("plans").data == {"plans": []}
    planner.ask("plans", change="save", name="large", **PLAN)
    rows = planner.ask("plans", change="save", name="small", **{**PLAN, "expected_batch_size": 60}).data["plans"]
    assert [row["name"] for row in rows] == ["large", "small"]
    assert rows[1]["epsilon"] < rows[0]["epsilon"] == planner.ask("numbers", **PLAN).data["guarantee"]["epsilon"]
    assert list(saved.load(root)) == ["large", "small"]
    rows = planner.ask("plans", change="remove", name="large").data["plans"]
    assert [row["name"] for row in rows] == ["small"]


def test_a_plan_needs_a_name(planner: Served) -> None:
    for name in ("", " ", "x" * 61, "a\nb", None, 3):
        answer = planner.ask("plans", change="save", name=name, **PLAN)
        assert "name" in answer.data["errors"][""], name


def test_a_bad_plan_is_not_saved(planner: Served, root: Path) -> None:
    assert "delta" in planner.ask("plans", change="save", name="x", **{**PLAN, "delta": 2}).data["errors"]
    assert not (root / "plans.json").exists()


def test_a_strange_file_of_plans_is_refused_and_kept(planner: Served, root: Path) -> None:
    for text in ("{", "[]", '{"plans": {"x": {}}}', '{"plans": [1]}', '{"plans": {"x": 3}}'):
        (root / "plans.json").write_text(text)
        assert "plans.json" in planner.ask("plans").data["errors"][""]
        planner.ask("plans", change="save", name="x", **PLAN)
        assert (root / "plans.json").read_text() == text


def test_the_number_of_plans_is_limited(root: Path) -> None:
    saved._write(root, {f"plan {number}": _plan() for number in range(saved.MOST)})
    with pytest.raises(ValueError, match="remove one first"):
        saved.save(root, "one more", _plan())


def _plan() -> saved.Question:
    asked, _ = saved.read(PLAN)
    assert asked is not None
    return asked
