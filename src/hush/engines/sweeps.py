"""The same function with many settings (seeds, budgets), on any engine; each answer goes to disk as it comes.

    >>> from hush.engines import sweep
    >>> def train(setting):
    ...     return {"accuracy": 0.9 - 0.1 / setting["epsilon"]}
    >>> sweep(train, [{"epsilon": 1.0}, {"epsilon": 2.0}])
    [{'accuracy': 0.8}, {'accuracy': 0.85}]

Choosing among the results of private trainings is one more look at the data: each run is charged, also those that are
not used. Give the ledger's address in the setting, and let each task open it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hush.engines.engine import Engine, engine_of
from hush.errors import InvalidValue, UnreadableFile

Setting = Mapping[str, Any]


def sweep(
    task: Callable[[Any], Mapping[str, Any]],
    settings: Sequence[Setting],
    *,
    shared: tuple[Any, ...] = (),
    engine: str | Engine = "local",
    folder: str | Path | None = None,
) -> list[dict[str, Any]]:
    """Call `task(setting, *shared)` for each setting; the answers in the order of the settings.

    Args:
        task: Gives a dict of plain values, such as an accuracy and an epsilon. It must depend on its arguments alone.
        settings: Dicts of plain values, all different.
        shared: What all of them need, such as the data; a cluster gets it once.
        engine: "local", "ray" or `hush.engines.Ray(address=...)`.
        folder: A file for each answer, written as it comes. A sweep that was interrupted goes on with what is missing.
    """
    names = [_name(setting) for setting in settings]
    if len(set(names)) != len(names):
        raise InvalidValue("two settings of the sweep are equal; give each its own seed.")
    place = None if folder is None else Path(folder)
    found: dict[str, dict[str, Any]] = {}
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
        found = {name: answer for name in names if (answer := _read(place / name)) is not None}
    missing = [number for number, name in enumerate(names) if name not in found]

    def done(number: int, answer: Any) -> None:
        name, setting = names[missing[number]], settings[missing[number]]
        found[name] = _plain(answer, "an answer")
        if place is not None:
            _write(place / name, {"setting": _plain(setting, "a setting"), "answer": found[name]})

    engine_of(engine).run(task, (dict(settings[number]) for number in missing), shared=shared, done=done)
    return [found[name] for name in names]


def _plain(value: Any, what: str) -> dict[str, Any]:
    try:
        result = json.loads(json.dumps(dict(value)))
    except (TypeError, ValueError):
        raise InvalidValue(
            f"{what} of a sweep must be a dict of numbers, texts and lists; got {value!r:.80}."
        ) from None
    return dict(result)


def _name(setting: Setting) -> str:
    text = json.dumps(_plain(setting, "a setting"), sort_keys=True)
    return f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["answer"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UnreadableFile(f"{path} cannot be read; delete it, and its setting runs again.") from None


def _write(target: Path, content: dict[str, Any]) -> None:
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        scratch.write_text(json.dumps(content, indent=1), encoding="utf-8")
        os.replace(scratch, target)
    finally:
        with suppress(OSError):
            scratch.unlink()
