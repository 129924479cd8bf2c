"""A ledger on a real PostgreSQL server: it behaves as a file does, keeps rights, and fails in clear words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.ledger.postgres_server import PostgresServer
from ledger_step import STEP
from sqlalchemy import text

from hush import Budget, Ledger, events
from hush.errors import BudgetExceeded, InvalidValue, LedgerError, LedgerTampered, UnreadableFile
from hush.ledger import Account, schema, server

CAP = Budget(epsilon=3.0, delta=1e-5)


pytestmark = [pytest.mark.usefixtures("postgres_server"), pytest.mark.xdist_group("postgres")]


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
def owner(url: str) -> Ledger:
    return Ledger(url)


def tell(ledger: Ledger, *statements: str) -> None:
    """Speak to the server past the ledger."""
    with ledger._store.engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def as_role(url: str, role: str) -> str:
    return url.replace("hush_owner@", f"{role}@")


@pytest.fixture
def people(owner: Ledger) -> Iterator[None]:
    """Database roles for a reader, a spender and a keeper, gone afterwards."""
    names = ("reader", "spender", "keeper", "stranger")
    tell(owner, *(f'CREATE ROLE "{name}" LOGIN' for name in names))
    for name, right in zip(names, ("read", "spend", "keep"), strict=False):
        owner.grant(right, name)
    yield
    tell(owner, *(f'DROP OWNED BY "{name}"' for name in names), *(f'DROP ROLE "{name}"' for name in names))


def test_server_behaves_like_a_file(url: str, tmp_path: Path) -> None:
    answers = []
    for target in (url, tmp_path / "budget.db"):
        ledger = Ledger(target)
        account = ledger.account("hospital ☂", cap=CAP, relation="replace_one")
        account.charge(events.Laplace(scale=2.0), note="naïve")
        with account.reserve(STEP, times=30, block=20, give_back=True) as reservation:
            for _ in range(25):
                reservation.step()
        with pytest.raises(BudgetExceeded):
            account.charge(events.PureDP(epsilon=2.9))
        account.change_cap(Budget(epsilon=8.0, delta=1e-5))
        account.charge(events.PureDP(epsilon=2.9))
        kept = [(row.number, row.kind, row.content, row.count, row.block, row.note) for row in account.rows()]
        answers.append((kept, account.spent(), account.left(), ledger.verify().rows))
        again = Ledger.open(target, create=False).account("hospital ☂")
        assert (again.cap, again.relation, again.rows()) == (account.cap, "replace_one", account.rows())
    assert answers[0] == answers[1]


def test_server_export_and_import(url: str, owner: Ledger, tmp_path: Path) -> None:
    account = owner.account("hospital", cap=CAP)
    account.charge(events.PureDP(epsilon=0.5))
    account.change_cap(Budget(epsilon=4.0, delta=1e-5))
    kept = owner.export_jsonl(tmp_path / "out.jsonl")
    copy = Ledger.import_jsonl(tmp_path / "out.jsonl", tmp_path / "copy.db")
    assert copy.verify(kept.heads) == kept
    assert copy.account("hospital").cap == Budget(epsilon=4.0, delta=1e-5)
    tell(owner, "DELETE FROM hush_rows", "DELETE FROM hush_heads")
    assert Ledger.import_jsonl(tmp_path / "out.jsonl", url).verify() == kept
    with pytest.raises(LedgerError, match="already holds accounts"):
        Ledger.import_jsonl(tmp_path / "out.jsonl", url)


def test_shared_place_is_read_from_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSH_LEDGER", url)
    Ledger().account("hospital", cap=CAP)
    assert Ledger.open(create=False).account("hospital").cap == CAP
    monkeypatch.delenv("HUSH_LEDGER")
    with pytest.raises(InvalidValue, match="HUSH_LEDGER"):
        Ledger()


def test_an_edit_on_the_server_shows(owner: Ledger) -> None:
    account = owner.account("hospital", cap=CAP)
    for _ in range(3):
        account.charge(events.PureDP(epsilon=0.1))
    edits = {
        "UPDATE hush_rows SET note = 'x' WHERE number = 2": "row 2",
        "DELETE FROM hush_rows WHERE number = 3": "row 3",
        "UPDATE hush_heads SET last_row = 2": "row 3",
    }
    for edit, row in edits.items():
        with owner._store.engine.connect() as connection:
            connection.execute(text("CREATE TEMP TABLE r AS TABLE hush_rows; CREATE TEMP TABLE h AS TABLE hush_heads"))
            connection.commit()
            connection.execute(text(edit))
            connection.commit()
            with pytest.raises(LedgerTampered, match=row):
                Ledger(owner._store.engine.url.render_as_string(False)).verify()
            for name, table in (("r", "hush_rows"), ("h", "hush_heads")):
                connection.execute(text(f"DELETE FROM {table}; INSERT INTO {table} TABLE {name}; DROP TABLE {name}"))
            connection.commit()
    assert owner.verify().rows == 4
    number = account.rows()[-1].number
    tell(owner, f"INSERT INTO hush_rows SELECT account, {number + 1}, kind, content, count, block, note, time, hash"
         f" FROM hush_rows WHERE number = {number}")  # fmt: skip
    with pytest.raises(LedgerTampered, match=f"row {number + 1} of account 'hospital' was put in"):
        account.charge(events.PureDP(epsilon=0.1))


# A charge in one question -----------------------------------------------------------------------------------------

SMALL = events.PureDP(epsilon=0.1)  # at delta 0 epsilons add
TEN = Budget(epsilon=1.05, delta=0.0)


def two_processes(url: str, cap: Budget = TEN, name: str = "hospital") -> tuple[Account, Account]:
    """One account by two connections; the first has charged a few, so that it knows of room ahead."""
    one, other = Ledger(url).account(name, cap=cap), Ledger(url).account(name)
    for _ in range(3):
        one.charge(SMALL)
    return one, other


def test_a_repeated_charge_is_one_question(url: str, owner: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    account = owner.account('"quoted" \\ %(x)s ☂', cap=CAP)
    account.charge(SMALL)
    together, asked = server.together, []
    monkeypatch.setattr(server, "together", lambda *a, **more: asked.append(more["commits"]) or together(*a, **more))
    rows = [account.charge(SMALL, note=note) for note in ("", 'naïve "note" \\n', "it's %s ☂\u2028", "{}")]
    assert asked == [True] * 4
    assert account.rows()[-4:] == tuple(rows)
    assert owner.verify().rows == 6
    assert Ledger(url).account(account.name).rows() == account.rows()
    assert [row.time for row in account.rows()] == sorted(row.time for row in account.rows())


def test_others_that_charge_the_same_leave_less_room(url: str) -> None:
    one, other = two_processes(url)
    for _ in range(5):
        other.charge(SMALL)
    for _ in range(2):
        one.charge(SMALL)
    for full in (one, other):
        with pytest.raises(BudgetExceeded):
            full.charge(SMALL)
    assert len(other.rows()) == 11


def test_another_event_or_cap_meanwhile_is_looked_at(url: str, owner: Ledger) -> None:
    one, other = two_processes(url)
    other.charge(events.PureDP(epsilon=0.69))
    with pytest.raises(BudgetExceeded):  # 0.3 + 0.69 + 0.1
        one.charge(SMALL)
    one, other = two_processes(url, name="hotel")
    other.change_cap(Budget(epsilon=0.35, delta=0.0))
    with pytest.raises(BudgetExceeded):
        one.charge(SMALL)
    one, other = two_processes(url, name="school")
    with other.reserve(SMALL, times=7, block=7, give_back=True) as reservation:
        reservation.step()
    for _ in range(6):
        one.charge(SMALL)
    with pytest.raises(BudgetExceeded):
        one.charge(SMALL)
    assert owner.account("school").event == events.Composed(events.Repeated(SMALL, 10))
    owner.verify()


@pytest.mark.parametrize("row", [4, 5])
def test_an_edit_meanwhile_is_seen_by_the_next_charge(url: str, owner: Ledger, row: int) -> None:
    one, other = two_processes(url)
    for _ in range(2):
        other.charge(SMALL)
    tell(owner, f"UPDATE hush_rows SET note = 'x' WHERE number = {row}")
    with pytest.raises(LedgerTampered, match=f"row {row} "):
        one.charge(SMALL)


# Rights --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("people")
def test_roles_may_do_what_they_were_granted(url: str, owner: Ledger) -> None:
    owner.account("hospital", cap=CAP)
    reader, spender, keeper = (Ledger(as_role(url, name)) for name in ("reader", "spender", "keeper"))
    assert spender.account("hospital", cap=CAP).charge(events.PureDP(epsilon=1.0)).number == 1
    assert reader.verify().rows == 2
    refused = (
        lambda: reader.account("hospital").charge(events.PureDP(epsilon=0.1)),
        lambda: reader.account("hotel", cap=CAP),
        lambda: spender.account("hotel", cap=CAP),
        lambda: spender.account("hospital").change_cap(Budget(epsilon=9.0, delta=1e-5)),
        lambda: Ledger(as_role(url, "stranger")),
        lambda: keeper.grant("keep", "stranger"),
        lambda: keeper.revoke("spender"),
    )
    for attempt in refused:
        with pytest.raises(LedgerError, match=r"your role may not|only the owner"):
            attempt()
    assert owner.verify().rows == 2
    with pytest.raises(BudgetExceeded):
        spender.account("hospital").charge(events.PureDP(epsilon=2.5))
    assert keeper.account("hospital").change_cap(Budget(epsilon=9.0, delta=1e-5), note="board, 3 May").number == 2
    assert spender.account("hospital").charge(events.PureDP(epsilon=2.5)).number == 3
    keeper.account("hotel", cap=CAP)
    owner.revoke("spender")
    with pytest.raises(LedgerError, match="your role may not"):
        spender.account("hospital").charge(events.PureDP(epsilon=0.1))


@pytest.mark.usefixtures("people")
@pytest.mark.parametrize("role", ["spender", "keeper"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE hush_rows SET note = 'x'",
        "DELETE FROM hush_rows",
        "TRUNCATE hush_rows",
        "DELETE FROM hush_heads",
        "UPDATE hush_heads SET account = 'x'",
        "UPDATE hush_ledger SET version = 1",
        "ALTER TABLE hush_rows DISABLE ROW LEVEL SECURITY",
        "CREATE TRIGGER t AFTER INSERT ON hush_rows EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    ],
)
def test_nobody_but_the_owner_rewrites_history(url: str, owner: Ledger, role: str, statement: str) -> None:
    owner.account("hospital", cap=CAP)
    worker = Ledger(as_role(url, role))
    with pytest.raises(Exception, match=r"permission denied|must be owner"):
        tell(worker, statement)
    assert owner.verify().rows == 1


@pytest.mark.usefixtures("people")
def test_a_spender_cannot_raise_a_cap_past_the_library(url: str, owner: Ledger) -> None:
    account = owner.account("hospital", cap=CAP)
    forged = (
        "INSERT INTO hush_rows SELECT account, 1, '{}', content, count, block, note, time, hash FROM hush_rows"
        " WHERE number = 0"
    )
    spender, keeper = Ledger(as_role(url, "spender")), Ledger(as_role(url, "keeper"))
    for kind in ("cap", "open", "CAP"):
        with pytest.raises(Exception, match="row-level security"):
            tell(spender, forged.format(kind))
    tell(keeper, forged.format("cap"))  # the same words by a keeper pass, so it was the right that was missing
    with pytest.raises(LedgerTampered):
        account.charge(events.PureDP(epsilon=0.1))


def test_rights_are_refused_where_there_are_none(owner: Ledger, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="only a ledger on PostgreSQL"):
        Ledger(tmp_path / "budget.db").grant("spend", "alice")
    with pytest.raises(InvalidValue, match="no database role 'al\"ice:x'"):
        owner.grant("spend", 'al"ice:x')
    with pytest.raises(InvalidValue, match="read, spend, keep"):
        owner.grant("everything", "alice")


def test_rights_take_role_names_literally(owner: Ledger) -> None:
    tell(owner, 'CREATE ROLE "al""ice %s" LOGIN')
    owner.grant("spend", 'al"ice %s')
    owner.revoke('al"ice %s')
    tell(owner, 'DROP ROLE "al""ice %s"')


# Formats -------------------------------------------------------------------------------------------------------


def test_an_early_ledger_is_charged_as_it_is_and_migrates_in_order(early_postgres_url: str) -> None:
    ledger = Ledger(early_postgres_url)
    account = ledger.account("hospital", cap=CAP)
    account.charge(events.PureDP(epsilon=0.5))
    with pytest.raises(LedgerError, match="format 1 and this needs 2; run: hush ledger migrate"):
        account.change_cap(Budget(epsilon=4.0, delta=1e-5))
    assert account.cap == CAP
    assert ledger.migrate() == (1, schema.VERSION)
    assert ledger.migrate() == (schema.VERSION, schema.VERSION)
    account.change_cap(Budget(epsilon=4.0, delta=1e-5))
    assert Ledger(early_postgres_url).verify().rows == 3


def test_a_newer_ledger_is_refused(url: str, owner: Ledger) -> None:
    tell(owner, f"UPDATE hush_ledger SET version = {schema.VERSION + 1}")
    try:
        with pytest.raises(UnreadableFile, match="use a newer Hush"):
            Ledger(url)
        with pytest.raises(UnreadableFile, match="use a newer Hush"):
            owner.migrate()
    finally:
        tell(owner, f"UPDATE hush_ledger SET version = {schema.VERSION}")


# The server ----------------------------------------------------------------------------------------------------


def test_what_is_no_ledger_is_refused(url: str, owner: Ledger, empty_postgres_url: str) -> None:
    with pytest.raises(UnreadableFile, match="holds no ledger"):
        Ledger.open(empty_postgres_url, create=False)
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger(url.rsplit("/", 1)[0] + "/nowhere")
    with pytest.raises(LedgerError, match=r"refused|failed"):
        Ledger("postgresql://user:secret@127.0.0.1:1/nowhere")
    tell(owner, "CREATE RULE lose AS ON INSERT TO hush_rows DO INSTEAD NOTHING")
    try:
        with pytest.raises(UnreadableFile, match="'lose'"):
            Ledger(url)
    finally:
        tell(owner, "DROP RULE lose ON hush_rows")


def test_messages_do_not_hold_the_password() -> None:
    with pytest.raises(LedgerError) as caught:
        Ledger("postgresql://user:secret@127.0.0.1:1/nowhere")
    assert "secret" not in str(caught.value)


def test_commits_wait_for_the_disk(url: str, owner: Ledger) -> None:
    tell(owner, "ALTER ROLE hush_owner SET synchronous_commit = off")
    try:
        ledger = Ledger(url)
        with ledger._store.engine.connect() as connection:
            assert connection.execute(text("SHOW synchronous_commit")).scalar() == "on"
    finally:
        tell(owner, "ALTER ROLE hush_owner RESET synchronous_commit")


def test_a_forked_child_speaks_on_its_own_line(owner: Ledger) -> None:
    account = owner.account("hospital", cap=CAP)
    account.charge(events.PureDP(epsilon=0.1))
    child = os.fork()
    if child == 0:
        try:
            account.charge(events.PureDP(epsilon=0.1))
        except BaseException:
            os._exit(1)
        os._exit(0)
    for _ in range(20):
        account.charge(events.PureDP(epsilon=0.01))
    assert os.waitpid(child, 0)[1] == 0
    assert owner.verify().rows == 23


def test_a_restarted_server_goes_on_and_has_every_charge() -> None:
    with PostgresServer() as server:
        ledger = Ledger(server.url())
        account = ledger.account("hospital", cap=CAP)
        account.charge(events.PureDP(epsilon=0.1))
        server.stop("immediate")  # no farewell: what was acknowledged must be on disk
        with pytest.raises(LedgerError):
            account.charge(events.PureDP(epsilon=0.1))
        server.start()
        assert account.charge(events.PureDP(epsilon=0.1)).number == 2
        assert ledger.verify().rows == 3


def test_a_server_without_fsync_is_refused() -> None:
    with PostgresServer("fsync=off") as server, pytest.raises(LedgerError, match="fsync off"):
        Ledger(server.url())
