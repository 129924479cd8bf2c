"""What is in the packages that docs/comparison.md speaks of: looked for in their sources, and kept in a file.

python tests/docs/comparison_facts.py     (in the environment of make bench; packages not installed stay as they were)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path

KEPT = Path(__file__).with_name("comparison_facts.json")
# column -> distribution, package
PACKAGES = {
    "Hush": ("hush", "hush"),
    "Opacus": ("opacus", "opacus"),
    "JAX-Privacy": ("jax_privacy", "jax_privacy"),
    "dp-accounting": ("dp-accounting", "dp_accounting"),
    "diffprivlib": ("diffprivlib", "diffprivlib"),
    "OpenDP": ("opendp", "opendp"),
}
Look = Callable[[str], str | None]


@cache
def sources(package: str) -> dict[str, str]:
    """The package's modules by their places, tests left out."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    place = Path(spec.origin).parent
    files = sorted(path for path in place.rglob("*.py") if "test" not in path.relative_to(place).as_posix())
    return {path.relative_to(place).as_posix(): path.read_text(encoding="utf-8", errors="replace") for path in files}


def has_file(words: str) -> Look:
    """The first module of the package with such a name."""
    return lambda package: next((name for name in sources(package) if re.search(words, name)), None)


def has_text(words: str) -> Look:
    """The first module of the package that says so."""
    return lambda package: next(
        (name for name, text in sources(package).items() if re.search(words, text, flags=re.MULTILINE)), None
    )


def has_command(package: str) -> str | None:
    """The first console script of the package."""
    name = next(name for name, module in PACKAGES.values() if module == package)
    return next((point.name for point in distribution(name).entry_points if point.group == "console_scripts"), None)


# Row of the table -> where it is found in a package whose cell says yes; nowhere, where the cell says no.
CHECKS: dict[str, Look] = {
    "private gradients in PyTorch": has_text(r"max_grad_norm|TorchFunctionMode"),
    "private gradients in JAX": has_text(r"^import jax\b[\s\S]*clip"),
    "an accountant tighter than Rényi": has_text(r"\b(PLDAccountant|PRVAccountant|class Contour\w*|contour integral)"),
    "an epsilon that states its own lower end": has_text(r"^    epsilon_lower: float"),
    "estimators for scikit-learn": has_text(r"sklearn\.(base|decomposition|linear_model)|from sklearn import base"),
    "teachers and votes (PATE)": has_file(r"(^|/)pate(/|\.py)"),
    "audits of a training": has_file(r"(^|/)audit(ing)?(/|\.py)"),
    "membership attacks": has_file(r"(^|/)(lira|membership)"),
    "a ledger on disk": has_file(r"(^|/)ledger(/|\.py)"),
    "a report of a run": has_file(r"(^|/)report/"),
    "a command line": has_command,
}


def installed(column: str) -> str | None:
    """The version of a column's package that is installed here."""
    try:
        return version(PACKAGES[column][0])
    except PackageNotFoundError:
        return None


def found(column: str) -> dict[str, str | None]:
    """Where each row is found in the installed package."""
    return {row: look(PACKAGES[column][1]) for row, look in CHECKS.items()}


def kept() -> dict[str, dict[str, str | None]]:
    """What was found, by column, with the version that it was found in."""
    facts: dict[str, dict[str, str | None]] = json.loads(KEPT.read_text(encoding="utf-8"))
    return facts


def main() -> None:
    """Look again, and keep what is found."""
    facts = kept() if KEPT.exists() else {}
    for column in list(PACKAGES)[1:]:  # Hush itself is always there to be looked at
        if number := installed(column):
            facts[column] = {"version": number, **found(column)}
    KEPT.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
