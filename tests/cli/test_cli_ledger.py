"""`hush ledger show|verify`: whole, edited, over its cap, and not a ledger at all."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from command_line import call, launch

from hush import Budget, Ledger, events
from hush.ledger import store


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two accounts: "hospital" with a cap and three rows, "bank" without."""
    monkeypatch.setattr(store, "DURABLE", ("synchronous=OFF",))
    ledger = Ledger(tmp_path / "budget.db")
    account = ledger.account("hospital", cap=Budget(epsilon=3.0, delta=1e-5))
    account.charge(events.PureDP(epsilon=1.0), note="mean age")
    account.charge(events.PureDP(epsilon=0.5), note="[red]\x1b[31m note")
    ledger.account("bank", relation="replace_one").charge(events.Laplace(scale=2.0))
    return tmp_path / "budget.db"


def edit(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statement)


def test_show_table(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    answer = call(capsys, "ledger", "show", path)
    assert answer.code == 0
    row = next(line for line in answer.out.splitlines() if "hospital" in line).split()
    assert row[1:4] == ["add_remove", "3", "1e-05"]
    assert 1.49 < float(row[4]) <= 1.5001
    assert float(row[4]) + float(row[5]) == pytest.approx(3, abs=1e-4)
    assert row[6] == "3"
    assert "give --delta" in next(line for line in answer.out.splitlines() if "bank" in line)


def test_show_json(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    data = call(capsys, "ledger", "show", path, "--delta", "0", "--json").data
    bank, hospital = sorted(data["accounts"], key=lambda item: str(item["account"]))
    assert hospital["cap"] == {"epsilon": 3.0, "delta": 1e-5}
    assert hospital["spent"]["delta"] == 1e-5
    assert bank["cap"] is None
    assert bank["left"] is None
    assert bank["spent"]["epsilon"] == pytest.approx(1.0, rel=1e-4)  # replace_one doubles 1 / scale


def test_show_one_account_with_its_rows(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    out = call(capsys, "ledger", "show", path, "--account", "hospital").out
    assert "mean age" in out
    assert "bank" not in out
    assert "[red]?[31m note" in out  # taken literally: no markup, no escape sequence
    data = call(capsys, "ledger", "show", path, "--account", "hospital", "--json").data
    assert [row["number"] for row in data["accounts"][0]["history"]] == [0, 1, 2]


def test_verify_whole(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    assert "whole" in call(capsys, "ledger", "verify", path).out
    data = call(capsys, "ledger", "verify", path, "--json").data
    assert (data["whole"], data["accounts"], data["rows"], data["over_cap"]) == (True, 2, 5, [])
    kept = data["heads"]["hospital"]
    Ledger(path).account("hospital").charge(events.PureDP(epsilon=0.1))
    assert call(capsys, "ledger", "verify", path, "--head", kept).code == 0
    assert call(capsys, "ledger", "verify", path, "--head", f"hospital={kept}", "--head", kept).code == 0


@pytest.mark.parametrize("head", ["0" * 64, f"hospital={'0' * 64}", "hotel=abc"])
def test_verify_refuses_a_head_that_is_gone(capsys: pytest.CaptureFixture[str], path: Path, head: str) -> None:
    assert call(capsys, "ledger", "verify", path, "--head", head).is_refused()


@pytest.mark.parametrize(
    ("statement", "row"),
    [
        (
            "UPDATE hush_rows SET content = replace(content, '1.0', '0.1') WHERE account = 'hospital' AND number = 1",
            "row 1",
        ),
        ("UPDATE hush_rows SET note = '' WHERE account = 'hospital' AND number = 2", "row 2"),
        ("DELETE FROM hush_rows WHERE account = 'bank' AND number = 0", "row 0"),
    ],
)
@pytest.mark.parametrize("command", ["show", "verify"])
def test_an_edited_ledger_is_refused_with_the_row(
    capsys: pytest.CaptureFixture[str], path: Path, statement: str, row: str, command: str
) -> None:
    edit(path, statement)
    answer = call(capsys, "ledger", command, path, "--json")
    assert answer.is_refused()
    assert row in answer.err


def test_an_edited_ledger_in_a_fresh_process(path: Path) -> None:
    edit(path, "UPDATE hush_rows SET note = 'x' WHERE account = 'hospital' AND number = 1")
    answer = launch("ledger", "verify", path)
    assert answer.is_refused()
    assert "row 1 of account 'hospital'" in answer.err


def test_over_the_cap_is_exit_code_1(
    capsys: pytest.CaptureFixture[str], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Ledger(path).account("hospital")
    monkeypatch.setattr(type(account), "_require", lambda *_: None)  # a writer that does not keep to the cap
    account.charge(events.PureDP(epsilon=4.0))
    answer = call(capsys, "ledger", "verify", path, "--json")
    assert answer.code == 1
    assert answer.err.startswith("hush: account 'hospital' has spent 5.")
    assert answer.err.count("\n") == 1
    assert len(answer.data["over_cap"]) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nowhere.db", None, "there is no ledger"),
        ("empty.db", b"", "is empty"),
        ("text.db", b"this is a text, not a database\n" * 100, "not a ledger"),
        ("folder", "folder", "is a folder"),
    ],
)
@pytest.mark.parametrize("command", ["show", "verify"])
def test_what_is_no_ledger(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, name: str, content: object, message: str
) -> None:
    target = tmp_path / name
    if isinstance(content, bytes):
        target.write_bytes(content)
    elif content is not None:
        target.mkdir()
    answer = call(capsys, "ledger", command, target)
    assert answer.is_refused()
    assert message in answer.err
    assert target.exists() == (content is not None)  # looking makes no file


def test_missing_account_and_bad_url(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    answer = call(capsys, "ledger", "show", path, "--account", "hotel")
    assert answer.is_refused()
    assert "hotel" in answer.err
    assert call(capsys, "ledger", "show", "nosuch://user:secret@host/db").is_refused()
    assert call(capsys, "ledger").is_refused()


def test_runs_are_the_rows_of_a_note(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    account = Ledger(path).account("hospital")
    step = events.PoissonSampled(events.Gaussian(noise_multiplier=4.0), sampling_prob=0.01)
    with account.reserve(step, times=30, block=20, note="run 7", give_back=True) as reservation:
        for _ in range(25):
            reservation.step()
    data = call(capsys, "ledger", "runs", path, "--account", "hospital", "--json").data
    named = {run["note"]: run for run in data["runs"]}
    assert list(named) == ["mean age", "[red]\x1b[31m note", "run 7"]
    assert (named["run 7"]["rows"], named["run 7"]["releases"]) == (2, 25)
    assert named["mean age"]["alone"]["epsilon"] == pytest.approx(1.0, rel=1e-4)
    table = call(capsys, "ledger", "runs", path).out
    assert "give --delta" in next(line for line in table.splitlines() if "bank" in line)
    assert next(line for line in table.splitlines() if "run 7" in line).split()[-3] == "25"


def test_change_cap_is_a_row_of_the_history(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    words = ("ledger", "change-cap", path, "--account", "hospital", "--delta", "1e-5")
    assert call(capsys, *words, "--epsilon", "5", "--note", "board").code == 0
    account = Ledger(path).account("hospital")
    assert account.cap == Budget(epsilon=5.0, delta=1e-5)
    assert (account.rows()[-1].kind, account.rows()[-1].note) == ("cap", "board")
    answer = call(capsys, *words, "--epsilon", "1.2")  # 1.5 is spent already
    assert answer.code == 1
    assert "nothing was changed" in answer.err
    assert Ledger(path).account("hospital").cap == Budget(epsilon=5.0, delta=1e-5)
    assert call(capsys, *words, "--epsilon", "-1").is_refused()


def test_migrate_and_grant_on_a_file(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    edit(path, "UPDATE hush_ledger SET version = 1")
    words = ("ledger", "change-cap", path, "--account", "hospital", "--epsilon", "5", "--delta", "1e-5")
    assert call(capsys, "ledger", "verify", path).code == 0
    assert call(capsys, *words).is_refused()
    assert call(capsys, "ledger", "migrate", path).out == "format 1 -> 2\n"
    assert call(capsys, "ledger", "migrate", path).out == "format 2 already\n"
    assert call(capsys, *words).code == 0
    answer = call(capsys, "ledger", "grant", path, "--right", "spend", "--to", "alice")
    assert answer.is_refused()
    assert "only a ledger on PostgreSQL" in answer.err


def test_the_environment_names_the_ledger(
    capsys: pytest.CaptureFixture[str], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSH_LEDGER", str(path))
    assert "hospital" in call(capsys, "ledger", "show").out
    monkeypatch.delenv("HUSH_LEDGER")
    assert call(capsys, "ledger", "show").is_refused()
