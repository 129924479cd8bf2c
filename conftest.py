"""For every test and example: the same draws each time, and the fits of one are no history of the next.

A test of noisy answers fails now and then, however wide its bounds are. So entropy is drawn from the test's name, and a
test that passed passes again. The operating system's is left to tests marked `fresh_entropy`, and to all with
`HUSH_TEST_ENTROPY=fresh`, as `make slow` does.
"""

from __future__ import annotations

import os
import random
import secrets
import sys
from collections.abc import Generator
from typing import Any

import numpy
import pytest


class NamedEntropy:
    """What Hush's draws ask `secrets` for, from a name."""

    def __init__(self, name: str) -> None:
        self._source = random.Random(name)

    def token_bytes(self, count: int) -> bytes:
        """The next bytes of this name."""
        return self._source.randbytes(count)


def draw_from(name: str, *, fresh: bool = False) -> None:
    """Fix every source of randomness in this process by `name`; `fresh` leaves Hush's to the operating system."""
    if os.environ.get("HUSH_TEST_ENTROPY") == "fresh":
        return
    random.seed(name)
    numpy.random.seed(random.getrandbits(32))  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(random.getrandbits(32))
    for module in {"hush.rng", "hush.pate.shards"} & sys.modules.keys():
        vars(sys.modules[module])["secrets"] = secrets if fresh else NamedEntropy(name)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> Generator[None, Any, Any]:
    """A fixture's draws do not depend on the test that needs it first."""
    draw_from(f"{fixturedef.argname} {getattr(request, 'param_index', 0)}")
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test's draws do not depend on the tests before it."""
    draw_from(item.nodeid, fresh=item.get_closest_marker("fresh_entropy") is not None)
    return (yield)


@pytest.fixture(autouse=True)
def no_earlier_fits() -> None:
    """`hush.linear` warns of repeated fits in one process, and all tests share one."""
    repeats = sys.modules.get("hush.linear.repeats")
    if repeats is not None:
        repeats.forget()
