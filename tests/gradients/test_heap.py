"""A gradient that is taken again and again takes no new memory from the system."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import textwrap

import pytest

PROGRAM = textwrap.dedent(
    """
    import resource, torch
    from torch import nn
    from hush import clipped_sum

    torch.set_num_threads(1)
    layers = [part for _ in range(6) for part in (nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 256))]
    model, x = nn.Sequential(*layers), torch.randn(4, 128, 256)

    def pages():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        clipped_sum(model, lambda model, x: model(x).square().mean((1, 2)), (x,), 1.0)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    for _ in range(9):  # until the heap has its size
        pages()
    print(sorted(pages() for _ in range(9))[4])
    """
)


def pages(**environment: str) -> int:
    """Pages that the median gradient of a process takes from the system."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc's heap")
def test_memory_is_used_again_unless_the_environment_says_otherwise() -> None:
    assert pages() < 500
    assert pages(MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072") > 5_000
