"""Teachers on Ray with one and with two workers: `python -m benchmarks.engines.run`, a few minutes on two cores.

The teachers are forests, trained one by one. A round trains them with one worker and with two, in turns; the table has
the median of the rounds' ratios. Starting Ray and its workers is not counted.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import ray
from sklearn.ensemble import RandomForestClassifier

from hush import Rng
from hush.engines import Ray
from hush.pate import train_teachers

RESULTS = Path(__file__).resolve().parent.parent / "results"
TEACHERS, ROWS, COLUMNS, QUERIES = 32, 6_400, 40, 500


def forest() -> RandomForestClassifier:
    return RandomForestClassifier(n_estimators=60, random_state=0)


def seconds(data: Any, workers: int) -> tuple[float, Any]:
    """A task reserves all cores that are not to be used, so that `workers` of them run at once."""
    x, y, queries = data
    engine = Ray(cpus_per_task=2 // workers)
    start = time.perf_counter()
    teachers = train_teachers(
        forest, x, y, TEACHERS, engine=engine, num_classes=2, queries=queries, progress=False, rng=Rng.from_seed(1)
    )
    return time.perf_counter() - start, teachers.predict()


def main(rounds: int) -> None:
    stream = numpy.random.default_rng(0)
    x = stream.normal(size=(ROWS, COLUMNS))
    data = x, (x[:, 0] * x[:, 1] > 0).astype(int), stream.normal(size=(QUERIES, COLUMNS))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    for workers in (1, 2):  # the first passes start the workers, which load everything anew
        seconds(data, workers)
    found, loads = [], []
    for _ in range(rounds):
        loads.append(round(os.getloadavg()[0], 1))
        one, two = seconds(data, 1), seconds(data, 2)
        assert (one[1] == two[1]).all(), "teachers must not depend on the number of workers"
        found.append((one[0], two[0]))
    ratio = statistics.median(one / two for one, two in found)
    facts = {
        "teachers": TEACHERS,
        "rounds": [{"one_worker": round(one, 2), "two_workers": round(two, 2)} for one, two in found],
        "load_before_rounds": loads,
        "ratio": round(ratio, 2),
        "ray": version("ray"),
    }
    (RESULTS / "engines.json").write_text(json.dumps(facts, indent=2) + "\n")
    print(json.dumps(facts, indent=2))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
