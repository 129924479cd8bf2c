"""Start the page and hand over its address: `serve` is what `hush plan` calls."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path

from hush.errors import InvalidValue, MissingExtra


def serve(
    folder: str | os.PathLike[str] = "runs",
    *,
    ledgers: Sequence[str] = (),
    port: int = 0,
    open_browser: bool = True,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serve the planner's page on loopback until interrupted.

    Args:
        folder: Where runs lie, and where saved plans go.
        ledgers: Further ledgers whose accounts are shown, by path or URL.
        port: 0 takes a free one.
        open_browser: Whether to open the page.
        announce: Called with the address once it answers.
    """
    try:
        from hush.planner import server
        from hush.planner.doors import Keys
    except ImportError as error:
        raise MissingExtra(f"the planner needs {error.name}; run: pip install 'hush[planner]'") from None
    root = Path(folder).resolve()
    if root.exists() and not root.is_dir():
        raise InvalidValue(f"{folder} is not a folder.")
    door = server.listen(port)
    keys = Keys(port=door.getsockname()[1])
    with door, _opened(keys.address, wanted=open_browser), suppress(KeyboardInterrupt), _terminated_quietly():
        if announce is not None:
            announce(keys.address)
        server.run(server.Planner(root, ledgers, keys), door)


@contextmanager
def _terminated_quietly() -> Iterator[None]:
    """Let a request to end work as Ctrl-C does, so that the helper process ends too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _opened(address: str, *, wanted: bool) -> Iterator[None]:
    """Open the page by way of a file that only this user can read: a process list must not show the token."""
    if not wanted:
        yield
        return
    handle, name = tempfile.mkstemp(prefix="hush-plan-", suffix=".html")  # mode 0600
    target = escape(address, quote=True)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={target}"><a href="{target}">planner</a>')
    try:
        webbrowser.open(Path(name).as_uri())
        yield
    finally:
        with suppress(OSError):
            os.unlink(name)
