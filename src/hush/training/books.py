"""Which ledger a run is charged to, what it was charged, and how many steps its budget still holds."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hush.errors import InvalidValue, LedgerTampered, ResumeRefused
from hush.events import Composed, Event
from hush.ledger import Account, Ledger
from hush.ledger.noted import charged_event
from hush.training.costs import cost
from hush.training.team import Team

if TYPE_CHECKING:
    from hush.training.plan import TrainingPlan

LEDGER_FILE = "ledger.db"
ACCOUNT = "training"


class Scratch:
    """A temporary folder that lives as long as this object, in the process that made it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="hush-"))
        weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class Books:
    """A ledger and the account that a run is charged to.

    `own` is the file where the ledger is this run's alone; `scratch` holds a temporary folder open.
    """

    ledger: Ledger
    account: Account
    own: Path | None = None
    scratch: Scratch | None = None

    def charged(self, note: str) -> Event:
        """Everything that rows with this note charged, less what was given back."""
        return charged_event(self.account, note)

    def head(self) -> str:
        """The hash at the end of the account's chain."""
        return self.account.rows()[-1].hash

    def check_continues(self, head: str) -> None:
        """Refuse a ledger that was edited or does not hold the row with this hash."""
        try:
            self.ledger.verify({self.account.name: head})
        except LedgerTampered as error:
            raise ResumeRefused(f"the ledger is not the one of the checkpoint, or was edited: {error}") from error


def open_books(
    plan: TrainingPlan,
    ledger: Ledger | None,
    account: Account | str | None,
    folder: Path | None,
    *,
    must_exist: bool = False,
) -> Books:
    """The given ledger and account, or a ledger of the run's own in its folder (or in a temporary one)."""
    if isinstance(account, Account):
        if ledger is None:
            raise InvalidValue("give the ledger beside the account: fit(..., ledger=ledger, account=account).")
        return Books(ledger, account)
    name = ACCOUNT if account is None else account
    if ledger is not None:
        return Books(ledger, ledger.account(name, relation=plan.relation))
    scratch = Scratch() if folder is None else None
    path = (folder if scratch is None else scratch.path) / LEDGER_FILE  # type: ignore[operator]
    if must_exist and not path.exists():
        raise ResumeRefused(f"the ledger {path.name} is missing: what the first part spent cannot be known.")
    own = Ledger(path)
    try:
        return Books(own, own.account(name, cap=plan.budget, relation=plan.relation), own=path, scratch=scratch)
    except LedgerTampered as error:
        raise ResumeRefused(f"the ledger of the run was edited: {error}") from error


def books_for_all(
    books: Books | None, plan: TrainingPlan, ledger: Ledger | None, account: Account | str | None, team: Team
) -> Books:
    """The first process's books; for the others a verified copy of a ledger that is the run's own."""
    text = team.by_first(lambda: None if books is None or books.own is None else _exported(books.ledger))
    if books is not None:
        return books
    if text is None:
        return open_books(plan, ledger, account, None)
    scratch = Scratch()
    export = scratch.path / "ledger.jsonl"
    export.write_text(text, encoding="utf-8")
    copy = Ledger.import_jsonl(export, scratch.path / LEDGER_FILE)
    name = ACCOUNT if account is None else str(account)
    return Books(copy, copy.account(name), own=scratch.path / LEDGER_FILE, scratch=scratch)


def _exported(ledger: Ledger) -> str:
    with tempfile.TemporaryDirectory(prefix="hush-") as folder:
        path = Path(folder) / "ledger.jsonl"
        ledger.export_jsonl(path)
        return path.read_text(encoding="utf-8")


def room(plan: TrainingPlan, spent: Event, wanted: int) -> int:
    """How many of `wanted` further steps fit into the plan's budget beside what the run was charged before."""
    if plan.budget is None or not wanted:
        return wanted
    budget = plan.budget

    def fits(steps: int) -> bool:
        event = Composed(spent, plan.event_of(steps))
        return budget.allows(cost(event, delta=plan.delta, relation=plan.relation))

    if fits(wanted):
        return wanted
    low, high = 0, wanted  # `low` fits, `high` does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
