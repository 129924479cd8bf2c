"""The processes of test_ledger_processes.py.

Every acknowledgement is one unbuffered write, made after the ledger's call returned.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from typing import Any

from sqlalchemy import Connection

from hush import events
from hush.errors import BudgetExceeded
from hush.ledger import Account, Ledger, Row, queries, server, store

CHARGE = events.PureDP(epsilon=0.01)


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def pause() -> None:
    """Some work between two charges, so that every process gets its turn."""
    time.sleep(random.uniform(0.0, 0.005))


def charge_until_refused(account: Account, name: str) -> None:
    try:
        while True:
            row = account.charge(CHARGE, note=name)
            say(f"charged {row.number}")
            pause()
    except BudgetExceeded:
        say("refused")


def step_until_refused(account: Account, name: str) -> None:
    try:
        with account.reserve(CHARGE, times=10**6, block=9, note=name) as reservation:
            while True:
                say(f"stepped {reservation.step()}")
                pause()
    except BudgetExceeded:
        say("refused")


def open_at_once(account: Account, name: str) -> None:
    say(f"opened {account.charge(CHARGE, note=name).number}")


def die_before_commit(account: Account, name: str) -> None:
    append, together = queries.append, server.together

    def append_and_die(connection: Connection, row: Row) -> None:
        append(connection, row)
        connection.exec_driver_sql("PRAGMA cache_spill = 1")
        os.kill(os.getpid(), signal.SIGKILL)

    def send_and_die(connection: Connection, asked: Any, values: Any, *, commits: bool) -> Any:
        if not commits:
            return together(connection, asked, values, commits=False)
        assert asked[-1] == "COMMIT"
        assert 1 in together(connection, asked[:-1], values, commits=False)  # the server has the row, and no commit
        return os.kill(os.getpid(), signal.SIGKILL)

    if account._store.is_server:
        server.together = send_and_die
    else:
        queries.append = append_and_die
    account.charge(CHARGE, note=name)


def die_after_commit(account: Account, name: str) -> None:
    run = store.Store.run

    def run_and_die(self: store.Store, work: object, **options: bool) -> None:
        run(self, work, **options)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGKILL)

    store.Store.run = run_and_die  # type: ignore[assignment,method-assign]
    account.charge(CHARGE, note=name)


def child(task: str, path: str, folder: str, name: str) -> None:
    """Work, with stdout in a file: what was written there stays when this process is killed."""
    os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT), 1)
    globals()[task](Ledger(path).account("hospital"), name)


def main(task: str, path: str, folder: str, number: int) -> None:
    """Fork the workers, tell their ids, start them all at a first line on stdin and wait for them at a second."""
    gate, opener = os.pipe()
    children = []
    for index in range(number):
        children.append(os.fork())
        if children[-1] == 0:
            os.close(opener)
            os.read(gate, 1)  # returns when the parent closes its end
            try:
                child(task, path, folder, f"worker-{index}")
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    say(" ".join(map(str, children)))
    sys.stdin.readline()
    os.close(opener)
    sys.stdin.readline()
    say(" ".join(str(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])) for process in children))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
