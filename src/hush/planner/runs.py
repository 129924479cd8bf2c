"""The runs under a folder, their reports, and what is left for each data set, read for display and never changed.

A run is known by the place that the walk found it at, so that no name from outside ever becomes a path. Links are not
followed, and a report is a plain file inside its run's folder.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hush.errors import HushError, InvalidValue, MissingExtra
from hush.ledger import Account, Ledger
from hush.planner.answers import round_down
from hush.privacy import round_up

RUN_FILE, ABOUT_FILE, REPORT_FILE = "run.json", "about.json", "report.html"
CLAIMS = ("guarantee", "promise", "data_independent")  # of a training or a fit, of votes, of votes of prompts
DEEPEST, MOST_RUNS, LARGEST_FILE = 3, 500, 50_000_000


def find(root: Path) -> dict[str, Path]:
    """Each run's folder by its name, the place below the root; sorted."""
    found: dict[str, Path] = {}
    for folder in _walk(root, DEEPEST):
        if _is_plain(folder / RUN_FILE) and len(found) < MOST_RUNS:
            name = folder.relative_to(root).as_posix()
            found["this folder" if name == "." else name] = folder
    return dict(sorted(found.items()))


def _walk(folder: Path, deeper: int) -> Iterator[Path]:
    yield folder
    if deeper == 0:
        return
    try:
        inside = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in inside:
        if not name.startswith("."):
            yield from _walk(folder / name, deeper - 1)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST_FILE


def describe(root: Path, ledgers: Sequence[str]) -> dict[str, Any]:
    """Everything that the page shows of the folder."""
    runs = find(root)
    return {"runs": [_run(name, folder) for name, folder in runs.items()], "budgets": _budgets(root, runs, ledgers)}


def _run(name: str, folder: Path) -> dict[str, Any]:
    facts, about = _facts(folder / RUN_FILE), _facts(folder / ABOUT_FILE)
    claim: dict[str, Any] = next((facts[key] for key in CLAIMS if isinstance(facts.get(key), dict)), {})
    epsilon, delta = claim.get("epsilon"), claim.get("delta")
    return {
        "name": name,
        "data": str(about.get("data") or facts.get("account") or facts.get("data") or "")[:100],
        "epsilon_text": round_up(float(epsilon)) if isinstance(epsilon, int | float) else str(epsilon or "?")[:20],
        "delta_text": f"{delta:g}" if isinstance(delta, int | float) else "?",
        "relation": str(claim.get("relation", ""))[:20],
        "steps": facts["steps"] if isinstance(facts.get("steps"), int) else None,
        "complete": facts.get("complete") is not False,
        "has_report": report_of(folder) is not None,
    }


def _facts(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8")) if _is_plain(path) else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def report_of(folder: Path) -> Path | None:
    """The report in a run's folder, if there is one."""
    path = folder / REPORT_FILE
    return path if _is_plain(path) else None


def make_report(folder: Path) -> None:
    """Write the report of a run beside it, as `hush report` does."""
    if (folder / REPORT_FILE).is_symlink():
        raise InvalidValue(f"{REPORT_FILE} of this run is a link; remove it first.")
    try:
        from hush import report

        report.write(folder, formats=("html",))
    except ImportError as error:
        raise MissingExtra(f"reports need {error.name}; run: pip install 'hush[report]'") from None


def _budgets(root: Path, runs: dict[str, Path], ledgers: Sequence[str]) -> list[dict[str, Any]]:
    """What is left of each data set: the ledgers that were named, then those beside and inside the runs."""
    inside = [path for folder in (root, *runs.values()) for path in sorted(folder.glob("*.db")) if _is_plain(path)]
    named = [(target, _without_password(target), "") for target in ledgers]
    found = [(str(path), path.relative_to(root).as_posix(), _data(path.parent)) for path in dict.fromkeys(inside)]
    return [row for target, name, data in (*named, *found) for row in _accounts(target, name, data)]


def _data(folder: Path) -> str:
    """The data of the run in a folder, if it says so: the one account of its own ledger is for them."""
    return str(_facts(folder / ABOUT_FILE).get("data") or "")[:100]


def _without_password(target: str) -> str:
    scheme, mark, rest = target.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else target


def _accounts(target: str, name: str, data: str) -> list[dict[str, Any]]:
    try:
        accounts = Ledger.open(target, create=False).accounts()
        return [_account(each, name, data if data and len(accounts) == 1 else each.name) for each in accounts]
    except (HushError, OSError) as error:
        return [{"ledger": name, "data": "", "problem": str(error)[:200]}]


def _account(account: Account, name: str, data: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"ledger": name, "data": data, "relation": account.relation, "problem": ""}
    if account.cap is None:
        return {**facts, "cap_text": "none", "spent_text": "-", "left_text": "no limit", "share": None}
    spent, left = account.spent().epsilon, account.left()
    return {
        **facts,
        "cap_text": f"{account.cap.epsilon:g} at delta {account.cap.delta:g}",
        "spent_text": round_up(spent),
        "left_text": round_down(left),
        "share": min(1.0, spent / account.cap.epsilon) if math.isfinite(spent) else 1.0,
    }
