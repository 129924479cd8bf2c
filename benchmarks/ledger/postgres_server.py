"""A PostgreSQL server of one's own, in a temporary folder on a free loopback port, for benchmarks and tests.

The binaries come from the machine (Debian: `apt install postgresql`). The server does not run as root: then it runs as
the system's user `postgres`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

OWNER = "hush_owner"


def binaries() -> Path | None:
    """The folder with initdb and pg_ctl, the newest where there are several; None without a server to run."""
    if os.geteuid() == 0 and "postgres" not in {entry.pw_name for entry in pwd.getpwall()}:
        return None
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    on_path = shutil.which("pg_ctl")
    folders = ([Path(on_path).resolve().parent] if on_path else []) + folders
    found = [folder for folder in folders if (folder / "initdb").exists() and (folder / "pg_ctl").exists()]
    return found[-1] if found else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PostgresServer:
    """A server that starts with the `with` block and is gone, with its data, at its end."""

    def __init__(self, *settings: str) -> None:
        self._settings = settings
        self._folder = Path()
        self.port = 0

    def url(self, database: str = "postgres", user: str = OWNER) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def __enter__(self) -> PostgresServer:
        self._folder = Path(tempfile.mkdtemp(prefix="hush-postgres-"))
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres", "postgres")
        try:
            words = ("-A", "trust", "-U", OWNER, "-E", "UTF8", "--locale=C", "--no-sync")
            self._call("initdb", "-D", self._folder / "data", *words)
            self.start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start on a free port; somebody else may take it in between, so try again."""
        for attempt in range(5):
            self.port = self.port if self.port and attempt == 0 else free_port()
            asked = (*self._settings, f"port={self.port}", "listen_addresses=127.0.0.1", "unix_socket_directories=")
            options = " ".join(f"-c {setting}" for setting in asked)
            log = self._folder / "log"
            done = self._call(
                "pg_ctl", "-D", self._folder / "data", "-l", log, "-w", "-o", options, "start", check=False
            )
            if done == 0:
                return
        raise RuntimeError(f"PostgreSQL does not start: {(self._folder / 'log').read_text()[-500:]}")

    def stop(self, mode: str = "immediate") -> None:
        """Stop; "immediate" is what a power cut of the server's process looks like."""
        self._call("pg_ctl", "-D", self._folder / "data", "-m", mode, "-w", "stop", check=False)

    def _call(self, program: str, *words: object, check: bool = True) -> int:
        folder = binaries()
        assert folder is not None, "no PostgreSQL server on this machine"
        as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            as_user = {"user": "postgres", "group": "postgres", "extra_groups": []}
        command = [str(folder / program), *map(str, words)]
        null = subprocess.DEVNULL
        done = subprocess.run(command, stdin=null, stdout=null, stderr=null, cwd="/", check=False, **as_user)
        if check and done.returncode:
            raise RuntimeError(f"{program} ended with code {done.returncode}")
        return done.returncode
