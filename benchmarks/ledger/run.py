"""Charges a second: `python -m benchmarks.ledger.run`, half a minute on two cores.

Each of some processes charges in a loop, every charge on disk before the next. PostgreSQL (a server of its own, fsync
on) and SQLite (one file) take turns over some rounds; the table has each setting's median and best round.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg

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


def main(rounds: int) -> None:
    answers: dict[Any, list[tuple[float, float]]] = {setting: [] for setting in SETTINGS}
    loads = []
    with PostgresServer() as server, tempfile.TemporaryDirectory() as folder:
        targets = {"PostgreSQL": server.url(), "SQLite": f"{folder}/budget.db"}
        for _ in range(rounds):
            loads.append(os.getloadavg()[0])
            for setting in SETTINGS:
                answers[setting].append(measure(targets[setting[0]], *setting[1:]))
    rows = [
        {
            "database": name,
            "processes": processes,
            "accounts": accounts,
            "charges_per_second": round(statistics.median(rate for rate, _ in found)),
            "best_charges_per_second": round(max(rate for rate, _ in found)),
            "client_milliseconds": round(min(used for _, used in found), 2),
        }
        for (name, processes, accounts, _), found in answers.items()
    ]
    facts = {
        "rounds": rounds,
        "cores": os.cpu_count(),
        "load_before_rounds": loads,
        "psycopg": f"{version('psycopg')} ({psycopg.pq.__impl__})",
    }
    (RESULTS / "ledger.json").write_text(json.dumps({**facts, "rows": rows}, indent=2) + "\n")
    (RESULTS / "ledger.md").write_text(page(facts, rows))
    print((RESULTS / "ledger.md").read_text())


def page(facts: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    loads = ", ".join(f"{load:.1f}" for load in facts["load_before_rounds"])
    head = f"""# Charges to a ledger

Charges a second, all processes together, median and best of {facts["rounds"]} rounds in turns; each charge is on disk
before the next. {facts["cores"]} cores, shared with the server and with other work (load before each round: {loads}).
psycopg {facts["psycopg"]}. The last column is the least processor time of one charge in the process that
charges.

| database | processes | accounts | charges a second | best round | milliseconds a charge |
|---|---|---|---|---|---|
"""
    return head + "".join(f"| {' | '.join(str(value) for value in row.values())} |\n" for row in rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
