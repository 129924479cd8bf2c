"""Edits with plain SQL, each found and named. The ledger "hospital" has rows 0 to 8; see conftest."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from ledger_step import STEP

from hush import Budget, Ledger, events
from hush.errors import LedgerTampered, UnreadableFile
from hush.ledger.chain import History, Row, next_row, opening

ROW = "account = 'hospital' AND number"
EDITS = {
    "event": (f"UPDATE hush_rows SET content = replace(content, '0.03', '0.003') WHERE {ROW} = 3", "row 3 of"),
    "note": (f"UPDATE hush_rows SET note = 'other' WHERE {ROW} = 2", "row 2 of"),
    "count": (f"UPDATE hush_rows SET count = 1 WHERE {ROW} = 6", "row 6 of"),
    "time": (f"UPDATE hush_rows SET time = '2020-01-01T00:00:00.000000+00:00' WHERE {ROW} = 4", "row 4 of"),
    "kind": (f"UPDATE hush_rows SET kind = 'charge' WHERE {ROW} = 8", "row 8 of"),
    "cap": (f"UPDATE hush_rows SET content = replace(content, '3.0', '30.0') WHERE {ROW} = 0", "row 0 of"),
    "relation": ("UPDATE hush_rows SET content = replace(content, 'replace_one', 'add_remove')", "row 0 of .*bank"),
    "hash": (f"UPDATE hush_rows SET hash = '{'f' * 64}' WHERE {ROW} = 5", "row 5 of"),
    "type": (f"UPDATE hush_rows SET note = x'00ff' WHERE {ROW} = 5", "row 5 of"),
    "not text": (f"UPDATE hush_rows SET note = CAST(x'ff' AS TEXT) WHERE {ROW} = 5", "row 5 of"),
    "first row": (f"DELETE FROM hush_rows WHERE {ROW} = 0", "row 0 of .*missing"),
    "middle row": (f"DELETE FROM hush_rows WHERE {ROW} = 4", "row 4 of .*missing"),
    "last row": (f"DELETE FROM hush_rows WHERE {ROW} = 8", "row 8 of .*missing"),
    "last rows": (f"DELETE FROM hush_rows WHERE {ROW} > 5", "row 6 of .*missing"),
    "swap": (
        f"UPDATE hush_rows SET number = -1 WHERE {ROW} = 2; UPDATE hush_rows SET number = 2 WHERE {ROW} = 3; "
        f"UPDATE hush_rows SET number = 3 WHERE {ROW} = -1",
        "row 2 of",
    ),
    "insert at the end": (
        "INSERT INTO hush_rows SELECT account, 9, kind, content, count, block, note, time, hash FROM hush_rows "
        f"WHERE {ROW} = 1",
        "row 9 of",
    ),
    "insert before": (
        "INSERT INTO hush_rows SELECT account, -3, kind, content, count, block, note, time, hash FROM hush_rows "
        f"WHERE {ROW} = 1",
        "row -3 of",
    ),
    "move to another account": (
        f"UPDATE hush_rows SET account = 'bank', number = 2 WHERE {ROW} = 8",
        "row 2 of .*bank",
    ),
    "head back": ("UPDATE hush_heads SET last_row = 7 WHERE account = 'hospital'", "row 8 of"),
    "head hash": (f"UPDATE hush_heads SET hash = '{'0' * 64}' WHERE account = 'hospital'", "row 8 of"),
    "head type": ("UPDATE hush_heads SET last_row = 'x' WHERE account = 'hospital'", "head of account 'hospital'"),
    "head gone": ("DELETE FROM hush_heads WHERE account = 'hospital'", "'hospital' has rows but no head"),
    "account renamed": ("UPDATE hush_rows SET account = 'hospice' WHERE account = 'hospital'", "hospice"),
}


def edit(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


@pytest.mark.parametrize("name", EDITS)
def test_tampering_is_found_and_named(filled: Ledger, path: Path, tmp_path: Path, name: str) -> None:
    script, message = EDITS[name]
    assert filled.verify().rows == 11
    edit(path, script)
    for look in (filled.verify, Ledger(path).accounts, lambda: filled.export_jsonl(tmp_path / "out.jsonl")):
        with pytest.raises((LedgerTampered, UnreadableFile), match=message):
            look()
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("name", [name for name in EDITS if name not in {"relation", "head gone", "account renamed"}])
def test_tampering_stops_the_next_charge(filled: Ledger, path: Path, name: str) -> None:
    edit(path, EDITS[name][0])
    with pytest.raises((LedgerTampered, UnreadableFile)):
        Ledger(path).account("hospital" if name != "move to another account" else "bank")


def test_tampering_with_a_removed_account_does_not_reopen_it_with_a_fresh_budget(filled: Ledger, path: Path) -> None:
    edit(path, EDITS["head gone"][0])
    with pytest.raises(LedgerTampered, match="has rows but no head"):
        Ledger(path).account("hospital", cap=Budget(epsilon=100.0, delta=1e-5))


def test_tampering_by_putting_back_an_old_copy_is_seen_by_a_running_account(ledger: Ledger, path: Path) -> None:
    account = ledger.account("hospital")
    account.charge(events.Gaussian(1.0))
    old = path.read_bytes()
    account.charge(events.Gaussian(1.0))
    path.write_bytes(old)
    with pytest.raises(LedgerTampered, match="ended at row 2 and now ends at row 1"):
        account.charge(events.Gaussian(1.0))


def test_tampering_with_kept_heads(filled: Ledger, path: Path) -> None:
    before = filled.verify()
    old = path.read_bytes()
    filled.account("hospital").charge(events.PureDP(epsilon=0.01))
    after = filled.verify()
    assert (after.accounts, after.rows, set(after.heads)) == (2, 12, {"hospital", "bank"})
    assert before.head != after.head
    for kept in (before.heads, before.heads["hospital"], after.heads, after.head):  # growth is no tampering
        assert filled.verify(expected_head=kept) == after
    path.write_bytes(old)  # a perfect chain, yet a row is gone: only a kept head shows it
    assert filled.verify() == before
    for kept in (
        after.heads,
        after.heads["hospital"],
        after.head,
        {"hospital": after.heads["hospital"]},
        "",
        {"x": "y"},
    ):
        with pytest.raises(LedgerTampered, match="expected head"):
            filled.verify(expected_head=kept)


def rewrite(path: Path, kind: str, **values: object) -> None:
    """Append a row with right hashes, as somebody with the whole file could."""
    history = History("hospital")
    for row in Ledger(path).account("hospital").rows():
        history.advance(row)
    row = next_row(history, kind=kind, **values)  # type: ignore[arg-type]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"INSERT INTO hush_rows VALUES ({','.join('?' * 9)})", tuple(row.to_dict().values()))
        connection.execute(
            "UPDATE hush_heads SET last_row = ?, hash = ? WHERE account = 'hospital'", (row.number, row.hash)
        )


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "release", "content": events.to_json(STEP), "count": 16, "block": 6},  # 20 were reserved, 0 given back
        {"kind": "release", "content": events.to_json(STEP), "count": 6, "block": 7},  # 10 reserved, 5 given back
        {"kind": "release", "content": events.to_json(events.PureDP(epsilon=0.01)), "count": 1, "block": 1},
        {"kind": "release", "content": events.to_json(events.Gaussian(1.0)), "count": 1, "block": 6},
        {"kind": "charge", "content": "{}"},
        {"kind": "charge", "content": "not JSON"},
        {"kind": "charge", "content": events.to_json(STEP), "count": 0},
        {"kind": "charge", "content": events.to_json(STEP), "count": -4},
        {"kind": "open", "content": opening(None, "add_remove")},
        {"kind": "gift", "content": events.to_json(STEP)},
    ],
)
def test_tampering_rows_with_right_hashes_must_still_make_sense(
    filled: Ledger, path: Path, values: dict[str, object]
) -> None:
    possible = values["count"] == 16 if "count" in values else False
    rewrite(path, **values)  # type: ignore[arg-type]
    if possible:
        assert filled.verify().rows == 12  # up to 20 steps of row 6 may be given back
        rewrite(path, **{**values, "count": 5})  # type: ignore[arg-type]
    with pytest.raises(UnreadableFile, match=r"row \d+ of account 'hospital'"):
        filled.verify()


def hash_of(previous: str, row: Row) -> str:
    """The chain's rule, written down a second time."""
    *values, _ = row.to_dict().values()
    assert list(row.to_dict()) == ["account", "number", "kind", "content", "count", "block", "note", "time", "hash"]
    return hashlib.sha256(json.dumps([previous, *values], separators=(",", ":")).encode()).hexdigest()


def test_tampering_hash_rule_is_the_documented_one(filled: Ledger) -> None:
    for account in filled.accounts():
        previous = "0" * 64
        for row in account.rows():
            assert row.hash == hash_of(previous, row)
            previous = row.hash


def test_tampering_with_a_row_and_its_own_hash_breaks_the_next_row(filled: Ledger, path: Path) -> None:
    rows = filled.account("hospital").rows()
    forged = replace(rows[3], note="forged")
    edit(
        path,
        f"UPDATE hush_rows SET note = 'forged', hash = '{hash_of(rows[2].hash, forged)}' WHERE {ROW} = 3",
    )
    with pytest.raises(LedgerTampered, match="row 4 of account 'hospital'"):
        filled.verify()
