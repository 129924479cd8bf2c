"""Charges a second: `python -m benchmarks.ledger.run [--rounds 5] [--more]`, half a minute on two cores.

A charge is `account.charge(event)`: one step, one row. Each of some processes charges in a loop, every charge on disk
before the next, all on one account or each on its own. PostgreSQL (a server of its own, fsync and synchronous_commit
on) and SQLite (one file) take turns over some rounds; a round waits until the machine is idle. The table has each
setting's median and best round. `--more` adds rounds to those of the last results.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.idle import wait_until_idle
from benchmarks.ledger.postgres_server import PostgresServer
from hush import Budget, Ledger, events

RESULTS = Path(__file__).resolve().parent.parent / "results"
CHARGE = events.Gaussian(noise_multiplier=100.0)
CAP = Budget(epsilon=1e6, delta=1e-6)
SETTINGS = (  # database, processes, accounts, charges in all
    ("PostgreSQL", 1, 1, 400),
    ("PostgreSQL", 4, 1, 800),
    ("PostgreSQL", 16, 1, 1600),
    ("PostgreSQL", 4, 4, 800),
    ("PostgreSQL", 16, 16, 1600),
    ("SQLite", 1, 1, 100),
    ("SQLite", 4, 4, 100),
)


def charge(target: str, account: str, count: int, gate: Any, ends: Any) -> None:
    """Open the account, wait for the others, and charge."""
    mine = Ledger(target, create=False).account(account)
    mine.spent()
    gate.wait()
    before = time.process_time()
    start = time.perf_counter()
    for _ in range(count):
        mine.charge(CHARGE)
    ends.put((start, time.perf_counter(), time.process_time() - before))


def measure(target: str, processes: int, accounts: int, charges: int) -> tuple[float, float]:
    """Charges a second of all processes together, and the milliseconds of processor time for one, server aside."""
    names = [f"data {time.time_ns()} {index}" for index in range(accounts)]
    ledger = Ledger(target)
    for name in names:
        ledger.account(name, cap=CAP)
    context = multiprocessing.get_context("fork")
    gate, ends = context.Barrier(processes), context.Queue()
    each = charges // processes
    workers = [
        context.Process(target=charge, args=(target, names[index % accounts], each, gate, ends))
        for index in range(processes)
    ]
    for worker in workers:
        worker.start()
    times = [ends.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join()
    rows = sum(len(ledger.account(name).rows()) for name in names)
    assert rows == accounts + each * processes, "a charge is missing"
    seconds = max(end for _, end, _ in times) - min(start for start, _, _ in times)
    return each * processes / seconds, sum(used for *_, used in times) / (each * processes) * 1e3


def syncs_per_second(folder: str, count: int = 100) -> float:
    """How often a second a block of 8 kB can be written and be on disk; no charge can be quicker."""
    with open(f"{folder}/block", "wb", buffering=0) as file:
        for repeat in range(2):  # the first makes the file
            file.seek(0)
            start = time.perf_counter()
            for _ in range(count):
                file.write(bytes([repeat]) * 8192)
                os.fdatasync(file.fileno())
    return count / (time.perf_counter() - start)


def one_round(targets: dict[str, str], folder: str) -> dict[str, Any]:
    share = wait_until_idle()
    found = {}
    for name, processes, accounts, charges in SETTINGS:
        key = f"{name} | {processes} | {accounts}"
        found[key] = measure(targets[name], processes, accounts, charges)
    return {"idle_before": round(share, 2), "syncs_per_second": round(syncs_per_second(folder)), "settings": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--more", action="store_true")
    chosen = parser.parse_args()
    place = RESULTS / "ledger.json"
    rounds = json.loads(place.read_text())["rounds"] if chosen.more else []
    with PostgresServer() as server, tempfile.TemporaryDirectory() as folder:
        targets = {"PostgreSQL": server.url(), "SQLite": f"{folder}/budget.db"}
        rounds += [one_round(targets, folder) for _ in range(chosen.rounds)]
    facts = {"cores": os.cpu_count(), "psycopg": f"{version('psycopg')} ({psycopg.pq.__impl__})", "rounds": rounds}
    place.write_text(json.dumps(facts, indent=1) + "\n")
    (RESULTS / "ledger.md").write_text(page(facts))
    print((RESULTS / "ledger.md").read_text())


def page(facts: dict[str, Any]) -> str:
    rounds = facts["rounds"]
    idle = [one["idle_before"] for one in rounds]
    syncs = [one["syncs_per_second"] for one in rounds]
    head = f"""# Charges to a ledger

Charges a second, all processes together, median and best of {len(rounds)} rounds in turns. A charge is
`account.charge(event)`: one step, one row, on disk before the next (`synchronous_commit` and `fsync` on).
{facts["cores"]} cores, shared with the server; psycopg {facts["psycopg"]}. Before the rounds {min(idle):.0%} to
{max(idle):.0%} of the cores were idle. The disk alone took {min(syncs)} to {max(syncs)} blocks a second, one after
another. The last column is the processor time of one charge in the process that charges, in the median round.

| database | processes | accounts | charges a second | best round | milliseconds a charge |
|---|---|---|---|---|---|
"""
    lines = []
    for key in rounds[0]["settings"]:
        rates, used = zip(*(one["settings"][key] for one in rounds), strict=True)
        lines.append(f"| {key} | {statistics.median(rates):.0f} | {max(rates):.0f} | {statistics.median(used):.2f} |\n")
    return head + "".join(lines)


if __name__ == "__main__":
    main()
