from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ledger_account import compound

from hush import Budget, Ledger
from hush.errors import LedgerError, LedgerTampered, UnreadableFile


def contents(ledger: Ledger) -> list[object]:
    return [(account.name, account.cap, account.relation, account.rows()) for account in ledger.accounts()]


@pytest.fixture
def export(filled: Ledger, tmp_path: Path) -> Path:
    filled.export_jsonl(tmp_path / "out.jsonl")
    return tmp_path / "out.jsonl"


def test_export_and_import_keep_everything(filled: Ledger, export: Path, tmp_path: Path) -> None:
    copy = Ledger.import_jsonl(export, tmp_path / "copy.db")
    assert contents(copy) == contents(filled)
    assert copy.verify() == filled.verify()
    copy.export_jsonl(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == export.read_bytes()
    assert copy.account("hospital").charge(filled.account("bank").event).number == 9  # the copy goes on


def test_export_is_plain_json_with_one_row_a_line(filled: Ledger, export: Path) -> None:
    first, *rows = [json.loads(line) for line in export.read_text().splitlines()]
    assert first == {"hush_ledger": 1, "accounts": 2, "rows": 11, "head": filled.verify().head}
    assert [(row["account"], row["number"]) for row in rows[:3]] == [("bank", 0), ("bank", 1), ("hospital", 0)]
    assert rows[-1]["hash"] == filled.verify().heads["hospital"]


def test_export_of_an_empty_ledger_can_be_read(ledger: Ledger, tmp_path: Path) -> None:
    ledger.export_jsonl(tmp_path / "out.jsonl")
    assert Ledger.import_jsonl(tmp_path / "out.jsonl", tmp_path / "copy.db").verify().rows == 0


def test_export_never_overwrites(filled: Ledger, path: Path, export: Path, tmp_path: Path) -> None:
    for target in (path, export):
        before = target.read_bytes()
        with pytest.raises(LedgerError, match="exists already"):
            filled.export_jsonl(target)
        assert target.read_bytes() == before
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.import_jsonl(export, path)
    with pytest.raises(LedgerError, match="cannot be written"):
        filled.export_jsonl(tmp_path / "missing" / "out.jsonl")
    with pytest.raises(UnreadableFile, match="cannot be read"):
        Ledger.import_jsonl(tmp_path / "missing.jsonl", tmp_path / "copy.db")


def drop(lines: list[bytes], index: int) -> list[bytes]:
    return lines[:index] + lines[index + 1 :]


CHANGES = {  # name: (change of the lines, the line that is named); lines 2-3 are bank's, 4-12 hospital's
    "edited event": (lambda x: [*x[:6], x[6].replace(b"0.03", b"0.01"), *x[7:]], 7),
    "edited note": (lambda x: [*x[:5], x[5].replace(b"query 1", b"query 9"), *x[6:]], 6),
    "edited cap": (lambda x: [*x[:3], x[3].replace(b"3.0", b"9.0"), *x[4:]], 4),
    "middle line missing": (lambda x: drop(x, 7), 8),
    "last line missing": (lambda x: x[:-1], 11),
    "first row missing": (lambda x: drop(x, 3), 4),
    "first line missing": (lambda x: x[1:], 1),
    "an account missing": (lambda x: [x[0], *x[3:]], 10),
    "re-ordered lines": (lambda x: [*x[:6], x[7], x[6], *x[8:]], 7),
    "re-ordered accounts": (lambda x: [x[0], *x[3:], *x[1:3]], 11),
    "duplicated line": (lambda x: [*x[:7], x[6], *x[7:]], 8),
    "duplicated last line": (lambda x: [*x, x[-1]], 13),
    "cut in a line": (lambda x: [*x[:-1], x[-1][:-20]], 12),
    "cut before the newline": (lambda x: [*x[:-1], x[-1][:-1]], 12),
    "empty line": (lambda x: [*x[:4], b"\n", *x[4:]], 5),
    "spaces": (lambda x: [*x[:4], x[4].replace(b":", b": "), *x[5:]], 5),
    "edited count in line 1": (lambda x: [x[0].replace(b'"rows":11', b'"rows":12'), *x[1:]], 12),
    "newer version": (lambda x: [x[0].replace(b'"hush_ledger":1', b'"hush_ledger":2'), *x[1:]], 1),
    "extra field": (lambda x: [*x[:4], x[4].replace(b'{"account"', b'{"x":1,"account"'), *x[5:]], 5),
    "not JSON": (lambda x: [*x[:4], b"hello\n", *x[5:]], 5),
    "deep JSON": (lambda x: [*x[:4], b"[" * 100_000 + b"\n", *x[5:]], 5),
    "number as text": (lambda x: [*x[:4], x[4].replace(b'"number":1', b'"number":"1"'), *x[5:]], 5),
    "account as list": (lambda x: [*x[:4], x[4].replace(b'"hospital"', b"[]"), *x[5:]], 5),
    "huge number": (lambda x: [*x[:4], x[4].replace(b'"count":1', b'"count":1e999'), *x[5:]], 5),
    "nothing": (lambda x: [], 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_import_refuses_a_changed_export_with_the_line(export: Path, tmp_path: Path, name: str) -> None:
    change, line = CHANGES[name]
    before = export.read_bytes()
    changed = b"".join(change(before.splitlines(keepends=True)))
    assert changed != before
    export.write_bytes(changed)
    with pytest.raises((UnreadableFile, LedgerTampered), match=rf"out\.jsonl, line {line}: "):
        Ledger.import_jsonl(export, tmp_path / "copy.db")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["budget.db", "out.jsonl"]


@settings(max_examples=15, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(
            lambda x: x.isprintable() and x == x.strip()
        ),
        st.lists(
            st.tuples(compound, st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)), max_size=3
        ),
        max_size=3,
    )
)
def test_export_round_trip_keeps_any_ledger(
    tmp_path_factory: pytest.TempPathFactory, charges: dict[str, list[tuple[object, str]]]
) -> None:
    folder = tmp_path_factory.mktemp("trip")
    ledger = Ledger(folder / "one.db")
    for index, (name, pairs) in enumerate(charges.items()):
        account = ledger.account(name, relation="replace_one" if index else None)
        for event, note in pairs:
            account.charge(event, note=note)  # type: ignore[arg-type]
    ledger.account("capped", cap=Budget(epsilon=0.1 + 0.2, delta=1e-300))
    ledger.export_jsonl(folder / "out.jsonl")
    copy = Ledger.import_jsonl(folder / "out.jsonl", folder / "two.db")
    assert contents(copy) == contents(ledger)
    noted = {account.name: [(row.event, row.note) for row in account.rows()[1:]] for account in copy.accounts()}
    assert noted == {"capped": [], **charges} if "capped" not in charges else noted
