"""`hush ledger` on a real PostgreSQL server: accounts, runs, what is left, and which role may run which command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import text

from hush import Budget, Ledger, events
from hush.cli.main import run
from hush.ledger import schema
from hush.ledger.server import server_engine

CAP = Budget(epsilon=3.0, delta=1e-5)
STEP = events.PoissonSampled(events.Gaussian(noise_multiplier=4.0), sampling_prob=0.01)
Command = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.xdist_group("postgres")


@pytest.fixture
def url(postgres_url: str) -> str:
    """Two accounts: "hospital" with a cap and three runs, "bank" without a cap."""
    ledger = Ledger(postgres_url)
    account = ledger.account("hospital", cap=CAP)
    account.charge(events.PureDP(epsilon=1.0), note="mean age")
    account.charge(events.PureDP(epsilon=0.5), note="median age")
    with account.reserve(STEP, times=30, block=20, note="run 7", give_back=True) as reservation:
        for _ in range(25):
            reservation.step()
    ledger.account("bank", relation="replace_one").charge(events.Laplace(scale=2.0), note="balance")
    return postgres_url


@pytest.fixture
def hush(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process: exit code, stdout, stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([str(word) for word in words])
        return (code, *capsys.readouterr())

    return call


@pytest.fixture
def roles(url: str) -> Iterator[Callable[[str], str]]:
    """Database roles without any right yet; the address of the ledger for each of them."""
    names = ("looker", "worker", "board")
    speak(url, *(f"CREATE ROLE {name} LOGIN" for name in names))
    yield lambda name: url.replace("hush_owner@", f"{name}@")
    speak(url, *(f"DROP OWNED BY {name}" for name in names), *(f"DROP ROLE {name}" for name in names))


def speak(url: str, *statements: str) -> None:
    engine = server_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def line_of(table: str, *words: str) -> list[str]:
    """The cells of the one line of a table that has all these words."""
    (found,) = (line for line in table.splitlines() if all(word in line for word in words))
    return re.split(r"\s{2,}", found.strip())


def test_show_lists_the_accounts_and_what_is_left(url: str, hush: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSH_LEDGER", url)
    code, out, _ = hush("ledger", "show", "--json")
    bank, hospital = sorted(json.loads(out)["accounts"], key=lambda item: str(item["account"]))
    assert code == 0
    assert (bank["account"], bank["cap"], bank["left"]) == ("bank", None, None)
    assert hospital["cap"] == {"epsilon": 3.0, "delta": 1e-5}
    assert 1.5 < hospital["spent"]["epsilon"] < 3.0
    assert hospital["left"] == pytest.approx(3.0 - hospital["spent"]["epsilon"], abs=1e-9)
    cells = line_of(hush("ledger", "show")[1], "hospital")
    assert cells[:4] == ["hospital", "add_remove", "3", "1e-05"]
    assert float(cells[4]) + float(cells[5]) == pytest.approx(3.0, abs=2e-5)
    assert cells[6] == str(hospital["rows"])
    Ledger(url).account("hospital").charge(events.PureDP(epsilon=0.25))
    now = float(line_of(hush("ledger", "show")[1], "hospital")[5])
    assert now < float(cells[5]) - 0.2


def test_runs_are_listed_with_their_own_costs(url: str, hush: Command) -> None:
    code, out, _ = hush("ledger", "runs", url, "--json")
    found: dict[str, Any] = {item["note"]: item for item in json.loads(out)["runs"]}
    assert code == 0
    assert set(found) == {"mean age", "median age", "run 7", "balance"}
    assert found["mean age"]["alone"]["epsilon"] == pytest.approx(1.0, rel=1e-4)
    assert (found["run 7"]["account"], found["run 7"]["rows"], found["run 7"]["releases"]) == ("hospital", 2, 25)
    table = hush("ledger", "runs", url)[1]
    assert table.startswith("4 runs\n")
    assert line_of(table, "run 7")[5] == "25"
    assert "balance" not in hush("ledger", "runs", url, "--account", "hospital")[1]


def test_verify_on_a_server(url: str, hush: Command) -> None:
    code, out, _ = hush("ledger", "verify", url, "--json")
    assert code == 0
    verified = Ledger(url).verify()
    assert json.loads(out)["head"] == verified.head
    speak(url, "UPDATE hush_rows SET note = 'x' WHERE number = 2 AND account = 'hospital'")
    code, out, err = hush("ledger", "verify", url)
    assert (code, out) != (0, out)
    assert "row 2" in err


def test_rights_by_the_command_line(url: str, roles: Callable[[str], str], hush: Command) -> None:
    raised = ("--account", "hospital", "--epsilon", "5", "--delta", "1e-5", "--note", "board")
    for role in ("looker", "worker", "board"):  # nothing was granted yet
        code, out, err = hush("ledger", "show", roles(role))
        assert (code, out) == (2, "")
        assert "your role may not" in err
    for role, right in (("looker", "read"), ("worker", "spend"), ("board", "keep")):
        assert hush("ledger", "grant", url, "--right", right, "--to", role) == (0, f"{role}: {right}\n", "")
        assert "hospital" in hush("ledger", "show", roles(role))[1]
    for role in ("looker", "worker"):  # only a keeper raises a cap
        code, out, err = hush("ledger", "change-cap", roles(role), *raised)
        assert (code, out) == (2, "")
        assert "your role may not" in err
    assert Ledger(url).account("hospital").cap == CAP
    assert Ledger(roles("worker")).account("hospital").charge(events.PureDP(epsilon=0.1)).note == ""
    for role in ("looker", "worker", "board"):  # and none of them hands out rights
        code, _, err = hush("ledger", "grant", roles(role), "--right", "keep", "--to", "worker")
        assert code == 2
        assert "owner" in err
    assert hush("ledger", "change-cap", roles("board"), *raised)[0] == 0
    assert Ledger(roles("worker")).account("hospital").cap == Budget(epsilon=5.0, delta=1e-5)
    assert hush("ledger", "grant", url, "--right", "none", "--to", "board")[0] == 0
    assert hush("ledger", "change-cap", roles("board"), *raised)[0] == 2


def test_migrate_on_a_server_is_for_the_owner(
    early_postgres_url: str, roles: Callable[[str], str], hush: Command
) -> None:
    Ledger(early_postgres_url).account("hospital", cap=CAP).charge(events.PureDP(epsilon=0.5))
    raised = ("--account", "hospital", "--epsilon", "5", "--delta", "1e-5")
    code, _, err = hush("ledger", "change-cap", early_postgres_url, *raised)
    assert code == 2
    assert "hush ledger migrate" in err
    other = early_postgres_url.replace("hush_owner@", "board@")
    speak(early_postgres_url, "GRANT SELECT, INSERT, UPDATE ON hush_ledger, hush_heads, hush_rows TO board")
    code, _, err = hush("ledger", "migrate", other)
    assert code == 2
    assert "your role may not" in err
    assert hush("ledger", "migrate", early_postgres_url) == (0, f"format 1 -> {schema.VERSION}\n", "")
    assert hush("ledger", "migrate", early_postgres_url) == (0, f"format {schema.VERSION} already\n", "")
    assert hush("ledger", "change-cap", early_postgres_url, *raised)[0] == 0
    assert hush("ledger", "verify", early_postgres_url)[0] == 0
    speak(early_postgres_url, "DROP OWNED BY board")
