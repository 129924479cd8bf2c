"""For every test and example: the fits of one are no history of the next."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def no_earlier_fits() -> None:
    """`hush.linear` warns of repeated fits in one process, and all tests share one."""
    repeats = sys.modules.get("hush.linear.repeats")
    if repeats is not None:
        repeats.forget()
