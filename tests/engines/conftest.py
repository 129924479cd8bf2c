from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """One real Ray on this machine for all tests; its workers find the tests' own modules."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'hush[scale]'")
    folder = os.path.dirname(__file__)
    environment = {"env_vars": {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    yield ray
    ray.shutdown()
