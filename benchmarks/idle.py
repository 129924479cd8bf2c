"""Waiting for a quiet moment, so that other work does not get into a measurement."""

from __future__ import annotations

import time
from pathlib import Path


def idle_share(seconds: float = 0.5) -> float:
    """How much of all cores nobody used, while this process slept."""
    before = ticks()
    time.sleep(seconds)
    idle, total = (after - first for after, first in zip(ticks(), before, strict=True))
    return idle / max(total, 1)


def ticks() -> tuple[int, int]:
    """Of all cores since the start of the machine: idle, and in all."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    ticks = [int(word) for word in words]
    return ticks[3] + ticks[4], sum(ticks)


def wait_until_idle(patience: float = 10.0) -> float:
    """Wait until 90 % are idle, so many seconds at most; the share that was found."""
    deadline = time.monotonic() + patience
    while (share := idle_share()) < 0.9 and time.monotonic() < deadline:
        pass
    return share
