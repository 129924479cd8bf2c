"""New files appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hush.errors import LedgerError


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """A scratch path beside `target`; what was written there becomes `target` when the block ends without an error.

    `target` is never replaced: `FileExistsError` if it is there by then.
    """
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        yield scratch
        _publish(scratch, target)
    finally:
        with suppress(OSError):
            scratch.unlink()


def _publish(scratch: Path, target: Path) -> None:
    try:
        os.link(scratch, target)  # unlike a rename, this fails if the target exists
    except FileExistsError:
        raise
    except OSError as error:
        raise LedgerError(f"{target} cannot be created: {error.strerror}; choose another folder.") from error
    with suppress(OSError):  # Windows cannot open folders, and needs no such step
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
