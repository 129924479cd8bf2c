"""Where the attack benchmarks keep their numbers and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "attacks.json"
PICTURES = ROOT / "docs" / "guides" / "pictures"


def kept(name: str, otherwise: Any) -> Any:
    """What an earlier run kept under this name."""
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return found.get(name, otherwise)


def keep(name: str, value: Any) -> None:
    """Put one benchmark's numbers into the file of all; the others' stay."""
    PICTURES.mkdir(exist_ok=True)
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    found[name] = value
    RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
