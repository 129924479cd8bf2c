"""Digests by which two files of a folder name each other, so that one that was edited alone is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hush.errors import UnreadableFile

WEIGHTS = "weights_sha256"  # in run.json: of the file of weights
RUN = "run_sha256"  # in the metadata of the weights: of what run.json says


def of_bytes(content: bytes) -> str:
    """sha256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def of_file(path: Path) -> str:
    """sha256 of a file, read piece by piece."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_facts(facts: Mapping[str, Any], default: Callable[[Any], Any] | None = None) -> str:
    """sha256 of what run.json says, the same before it is written and after.

    But for the weights' own digest, and for where the ledger is: that may be moved, and is checked by its rows.
    """
    said = {key: value for key, value in facts.items() if key not in (WEIGHTS, "ledger")}
    return of_bytes(json.dumps(said, sort_keys=True, default=default).encode())


def check_pair(facts: Mapping[str, Any], weights: Path, metadata: Mapping[str, str]) -> None:
    """Refuse a run.json that says these facts, or a file of weights, if one of the two was edited alone."""
    if facts[WEIGHTS] != of_file(weights):
        raise UnreadableFile(f"{weights.name} is not the one that run.json was written for.")
    if metadata.get(RUN) != of_facts(facts):
        raise UnreadableFile(f"run.json is not the one that {weights.name} was written for: it was edited.")
