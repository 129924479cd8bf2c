"""Memory that the next step takes again stays with the process.

Where the C library is glibc, blocks that a step frees go back to the system as soon as they lie at the end of the heap,
and the next step gets them anew, page by page, each cleared: thousands of pages a gradient. Whether an ordinary pass
suffers too depends on what happens to lie behind them. So glibc is told once, at the first gradient on a CPU, to keep
up to a gigabyte. Settings of the environment are left as they are, and so is every other C library.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_KEPT = 1 << 30  # bytes at the end of the heap that stay
_BLOCK = 1 << 27  # bytes from which a block is the system's own


@cache
def keep_heap() -> bool:
    """Tell glibc to keep what is freed; whether it was told."""
    if platform.libc_ver()[0] != "glibc" or is_tuned(os.environ):
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(_MMAP_THRESHOLD, _BLOCK)) and bool(library.mallopt(_TRIM_THRESHOLD, _KEPT))


def is_tuned(environment: Mapping[str, str]) -> bool:
    """Whether somebody chose how memory is kept.

    >>> is_tuned({"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=0"}), is_tuned({"HOME": "there"})
    (True, False)
    """
    own = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")
    return any(name in environment for name in own) or "glibc.malloc" in environment.get("GLIBC_TUNABLES", "")
