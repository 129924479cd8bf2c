"""Broken bytes: a reader gives the same content or one HushError, never another ledger and never another exception."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hush import Ledger, events
from hush.errors import HushError, UnreadableFile

CASES = 250


def broken(data: bytes, rng: random.Random) -> bytes:
    """One to three random injuries."""
    result = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        place = rng.randrange(max(1, len(result)))
        match rng.randrange(8):
            case 0:
                del result[place:]
            case 1:
                del result[place : place + rng.randrange(1, 50)]
            case 2:
                result[place:place] = rng.randbytes(rng.randrange(1, 50))
            case 3:
                result[place : place + 64] = bytes(len(result[place : place + 64]))
            case 4:
                page, other = (rng.randrange(max(1, len(result) // 4096)) * 4096 for _ in range(2))
                result[page : page + 4096], result[other : other + 4096] = (
                    result[other : other + 4096],
                    result[page : page + 4096],
                )
            case _ if result:
                place %= len(result)
                result[place] ^= 1 << rng.randrange(8)
    return bytes(result)


def contents(ledger: Ledger) -> list[object]:
    return [(account.name, account.cap, account.relation, account.rows()) for account in ledger.accounts()]


def used_bytes(data: bytes, rng: random.Random) -> bytes:
    """A flip where the file is not zero, so that free space does not swallow most cases."""
    place = rng.choice([index for index, byte in enumerate(data) if byte])
    return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]


@pytest.mark.parametrize("injure", [broken, used_bytes])
def test_fuzz_sqlite_file_is_never_silently_different(
    filled: Ledger, path: Path, tmp_path: Path, injure: object
) -> None:
    data, truth, verified = path.read_bytes(), contents(filled), filled.verify()
    rng = random.Random(20)
    refused = 0
    for case in range(CASES):
        copy = tmp_path / f"{case}.db"
        copy.write_bytes(injure(data, rng))  # type: ignore[operator]
        try:
            ledger = Ledger.open(copy, create=False)
            found = (ledger.verify(), contents(ledger))
        except HushError:
            refused += 1
        else:
            assert found == (verified, truth), f"case {case} was accepted with other content"
        finally:
            copy.unlink()
    assert refused > CASES // 4


def test_fuzz_sqlite_file_that_opens_an_account_has_its_whole_history(
    filled: Ledger, path: Path, tmp_path: Path
) -> None:
    """Without `verify`: the way that training takes, opening one account and charging it."""
    data, truth = path.read_bytes(), filled.account("hospital").rows()
    rng = random.Random(21)
    for case in range(CASES):
        copy = tmp_path / f"{case}.db"
        copy.write_bytes(used_bytes(data, rng))
        try:
            account = Ledger(copy).account("hospital", cap=filled.account("hospital").cap)
            account.charge(events.PureDP(epsilon=0.01))
            assert account.rows()[:-1] == truth, f"case {case} lost history"
        except HushError:
            pass
        finally:
            copy.unlink()


def test_fuzz_jsonl_is_never_silently_different(filled: Ledger, tmp_path: Path) -> None:
    filled.export_jsonl(tmp_path / "out.jsonl")
    data = (tmp_path / "out.jsonl").read_bytes()
    rng = random.Random(22)
    for case in range(2 * CASES):
        changed = broken(data, rng)
        (tmp_path / "changed.jsonl").write_bytes(changed)
        if changed == data:
            continue
        with pytest.raises(HushError, match=r"line \d+: "):
            Ledger.import_jsonl(tmp_path / "changed.jsonl", tmp_path / f"{case}.db")
    assert not list(tmp_path.glob("[0-9]*.db"))


def test_fuzz_event_reader_gives_an_event_or_one_error() -> None:
    texts = [
        events.to_json(event).encode()
        for event in (
            events.Repeated(events.PoissonSampled(events.Gaussian(4.0), 0.01), times=10_000),
            events.Composed(events.Laplace(2.0), events.RandomizedResponse(1.0, 5), events.NotPrivate()),
            events.FixedSizeSampled(events.ApproximateDP(1.0, 1e-5), sample_size=3, num_examples=10),
        )
    ]
    rng = random.Random(23)
    refused = 0
    for _ in range(3000):
        changed = broken(rng.choice(texts), rng)
        try:
            event = events.from_json(changed)
        except UnreadableFile:
            refused += 1
        else:
            assert events.from_json(events.to_json(event)) == event
    assert refused > 1000
