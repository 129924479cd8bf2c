"""Finding a data set's files, fetching what has a public home, and trusting none whose sha256 differs.

The folders that are searched, in this order: the one that was handed in, alone; else `$HUSH_DATA/<name>`, else the
cache, `$XDG_CACHE_HOME/hush/<name>` or `~/.cache/hush/<name>`.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import secrets
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hush.data.registry import File, Source
from hush.errors import DataMissing, UnreadableFile

VARIABLE = "HUSH_DATA"
_PATIENCE = 60  # seconds without an answer before a download is given up


def cache_folder() -> Path:
    """Where downloads are kept."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "hush"


def folders_of(name: str, folder: str | os.PathLike[str] | None) -> list[Path]:
    """The folders that may hold a data set's files."""
    if folder is not None:
        return [Path(folder)]
    shared = os.environ.get(VARIABLE)
    return [*([Path(shared) / name] if shared else []), cache_folder() / name]


def has_all(files: Sequence[File], folders: Sequence[Path]) -> bool:
    """Whether all these files are there; nothing is read."""
    return all(_find(file, folders) is not None for file in files)


def read(file: File, source: Source, folders: Sequence[Path]) -> bytes:
    """The file's bytes (unpacked, if its name ends in .xz), with the sha256 that they must have.

    Raises:
        DataMissing: it is in none of the folders and cannot be fetched; the message says how to get it.
        UnreadableFile: what lies there is something else.
    """
    path = _find(file, folders)
    if path is None:
        return _fetch(file, source, folders)
    content = _unpacked(path, file) if path.suffix == ".xz" else path.read_bytes()
    _check(content, file, str(path))
    return content


def _find(file: File, folders: Sequence[Path]) -> Path | None:
    names = [file.name, file.name.removesuffix(".xz")]
    return next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)


def _unpacked(path: Path, file: File) -> bytes:
    try:
        with lzma.open(path) as packed:
            return packed.read(file.size + 1)  # no more than it should hold, whatever the file says
    except (lzma.LZMAError, EOFError):
        raise UnreadableFile(f"{path} is not a whole xz file; delete it and get it again.") from None


def _check(content: bytes, file: File, place: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise UnreadableFile(
            f"{place} is not the published file: its sha256 must be {file.sha256}, and is {found} "
            f"({len(content):,} bytes); delete it and get it again."
        )


def _fetch(file: File, source: Source, folders: Sequence[Path]) -> bytes:
    plain = file.name.removesuffix(".xz")
    wanted = f"the data set {source.name!r} needs {plain}, which is not in {' or '.join(map(str, folders))}"
    if not file.address:
        raise DataMissing(f"{wanted}; {source.how_to_get}: put it into {folders[0]}, or set {VARIABLE}.")
    try:
        with urllib.request.urlopen(file.address, timeout=_PATIENCE) as answer:
            content: bytes = answer.read(file.size + 1)
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise DataMissing(
            f"{wanted}, and {file.address} cannot be reached ({reason}); {source.how_to_get}: put it into "
            f"{folders[0]}, or set {VARIABLE}."
        ) from None
    _check(content, file, file.address)
    _keep(folders[-1] / plain, content)
    return content


def _keep(path: Path, content: bytes) -> None:
    """Write a checked download; it appears whole or not at all. A cache that cannot be written is no error."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            scratch.write_bytes(content)
            os.replace(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)
