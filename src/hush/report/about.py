"""about.json: what a run was about, written beside it, since a plan knows neither the data's nor the model's name.

Scores on rows that are not public go to `not_private.json`, with everything else that was read without noise.
"""

from __future__ import annotations

import json
import math
import os
import platform
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from hush.errors import InvalidValue, UnreadableFile
from hush.privacy import Guarantee
from hush.report.subject import Scores

ABOUT_FILE, NOT_PRIVATE_FILE = "about.json", "not_private.json"
FORMAT = 1
_LIBRARIES = ("hush", "torch", "numpy", "scipy", "scikit-learn", "transformers")
_WARNING = "read from the data without noise: not covered by the guarantee"


def describe(
    folder: str | os.PathLike[str],
    *,
    data: str,
    model: str,
    public_data: bool = False,
    scores: Scores | None = None,
    facts: Mapping[str, str | int | float | None] | None = None,
    notes: tuple[str, ...] = (),
    labels: tuple[str, ...] = (),
    unit: str | None = None,
    ledger: str | None = None,
    account: str | None = None,
) -> None:
    """Say beside a run what it was: the report shows it.

    Args:
        folder: The run's folder.
        data: The data's public name.
        model: What was trained.
        public_data: Whether all rows, the test rows too, are public anyway: then the scores may be shown to everybody.
        scores: Test results; those of private rows are kept in `not_private.json`.
        facts: Further public facts by label, such as {"learning rate": 0.1}.
        notes: What a reader should know.
        labels: The names of the classes, in the order of their numbers.
        unit: "example" or "person", where run.json does not say it.
        ledger: Where the charges are, where run.json does not say it and they are not in the folder.
        account: Its account, likewise.
    """
    place = Path(folder)
    if not place.is_dir():
        raise InvalidValue(f"there is no folder {place}.")
    optional = {"labels": list(labels), "unit": unit, "ledger": ledger, "account": account}
    about = {
        "format": FORMAT,
        "data": data,
        "model": model,
        "public_data": bool(public_data),
        "facts": {key: value for key, value in (facts or {}).items() if value is not None},
        "notes": list(notes),
        **{key: value for key, value in optional.items() if value},
        "versions": versions(),
    }
    if scores is not None and public_data:
        about["scores"] = asdict(scores)
    elif scores is not None:
        kept = read_json(place / NOT_PRIVATE_FILE) or {"warning": _WARNING}
        replace_text(place / NOT_PRIVATE_FILE, json.dumps({**kept, "scores": asdict(scores)}))
    replace_text(place / ABOUT_FILE, json.dumps(about, indent=2, allow_nan=False) + "\n")


def versions() -> dict[str, str]:
    """The libraries here, without loading them."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty if there is no file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{path.name} cannot be read: {str(error)[:120]}.") from None
    if not isinstance(data, dict):
        raise UnreadableFile(f"{path.name} is not a JSON object.")
    return data


def scores_in(values: Mapping[str, Any]) -> Scores | None:
    """The scores of about.json or not_private.json."""
    found = values.get("scores")
    if found is None:
        return None
    try:
        twin = None if found["twin"] is None else float(found["twin"])
        return Scores(name=str(found["name"]), private=float(found["private"]), twin=twin)
    except (KeyError, TypeError, ValueError):
        raise UnreadableFile("the scores beside this run cannot be read.") from None


def guarantee_in(values: Mapping[str, Any]) -> Guarantee:
    """What `Guarantee.to_dict` wrote."""
    plain: dict[str, Any] = {key: math.inf if value == "infinity" else value for key, value in values.items()}
    return Guarantee(**{**plain, "notes": tuple(plain["notes"])})


def replace_text(target: Path, text: str) -> None:
    """Replace a file, whole or not at all."""
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        scratch.write_text(text, encoding="utf-8")
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)
