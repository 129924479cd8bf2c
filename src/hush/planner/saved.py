"""Plans that were saved to be compared, in one file of the runs' folder. What they cost is computed anew each time."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hush.errors import HushError, InvalidValue, UnreadableFile
from hush.planner.question import Question, read
from hush.planner.solve import settle
from hush.privacy import round_up

FILE = "plans.json"
MOST, LONGEST_NAME, LARGEST_FILE = 50, 60, 1_000_000


def load(root: Path) -> dict[str, Question]:
    """The plans by name; a file that is not there is empty, one that is not ours is refused."""
    path = root / FILE
    if not path.exists():
        return {}
    try:
        if path.is_symlink() or path.stat().st_size > LARGEST_FILE:
            raise ValueError("it is a link or too large")
        data = json.loads(path.read_text(encoding="utf-8"))
        return {_name(name): _question(values) for name, values in data["plans"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableFile(f"{FILE} is not a list of plans: {str(error)[:120]}; move it away.") from None


def save(root: Path, name: object, asked: Question) -> None:
    """Keep a plan under a name; an older one of that name is replaced."""
    plans = {**load(root), _name(name): asked}
    if len(plans) > MOST:
        raise InvalidValue(f"{MOST} plans are saved already; remove one first.")
    _write(root, plans)


def remove(root: Path, name: object) -> None:
    """Forget a plan."""
    _write(root, {kept: asked for kept, asked in load(root).items() if kept != name})


def compared(root: Path) -> list[dict[str, Any]]:
    """Each plan with what it costs now."""
    return [_row(name, asked) for name, asked in load(root).items()]


def _row(name: str, asked: Question) -> dict[str, Any]:
    try:
        found, answer = settle(asked)
    except HushError as error:
        return {"name": name, "plan": asked.to_dict(), "epsilon": None, "epsilon_text": "-", "problem": str(error)}
    shown = {"epsilon": answer.to_dict()["epsilon"], "epsilon_text": round_up(answer.epsilon), "problem": ""}
    return {"name": name, "plan": found.to_dict(), "noise_text": round_up(found.noise_multiplier), **shown}


def _name(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name.strip()) <= LONGEST_NAME or not name.isprintable():
        raise InvalidValue(f"a plan needs a name of 1 to {LONGEST_NAME} printable characters.")
    return name.strip()


def _question(values: dict[str, Any]) -> Question:
    asked, messages = read(values)
    if asked is None:
        raise InvalidValue("; ".join(messages.values()))
    return asked


def _write(root: Path, plans: dict[str, Question]) -> None:
    text = json.dumps({"plans": {name: asdict(asked) for name, asked in plans.items()}}, indent=2)
    root.mkdir(parents=True, exist_ok=True)
    scratch = root / f".{FILE}.{secrets.token_hex(6)}.tmp"
    try:
        scratch.write_text(text + "\n", encoding="utf-8")
        os.replace(scratch, root / FILE)
    finally:
        with suppress(OSError):
            scratch.unlink()
