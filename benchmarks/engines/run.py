"""Teachers on Ray with one and with two workers: `python -m benchmarks.engines.run`, a few minutes on two cores.

The teachers are forests, trained one by one. A round waits until the machine is idle, then trains them with one worker
and with two, and beside that as many forests in one and in two plain processes, which is what two cores can give. The
result has the median of the rounds' ratios. Starting Ray and its workers is not counted.
"""

from __future__ import annotations

import json
import multiprocessing
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

from benchmarks.idle import wait_until_idle
from hush import Rng
from hush.engines import Ray
from hush.pate import train_teachers

SETTINGS = {  # workers with the rights of plain processes, that stay while one of them works alone
    "RAY_worker_niceness": "0",
    "RAY_idle_worker_killing_time_threshold_ms": "600000",
}
os.environ.update(SETTINGS)
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


def fit_forests(data: Any, count: int) -> None:
    x, y, queries = data
    for _ in range(count):
        forest().fit(x[: ROWS // TEACHERS], y[: ROWS // TEACHERS]).predict(queries)


def plain_seconds(data: Any, processes: int) -> float:
    """As many forests of the same size, in forked processes, without Ray."""
    context = multiprocessing.get_context("fork")
    tasks = [context.Process(target=fit_forests, args=(data, TEACHERS // processes)) for _ in range(processes)]
    start = time.perf_counter()
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    return time.perf_counter() - start


def one_round(data: Any) -> dict[str, float]:
    idle = wait_until_idle()
    one, two = seconds(data, 1), seconds(data, 2)
    assert (one[1] == two[1]).all(), "teachers must not depend on the number of workers"
    plain = plain_seconds(data, 1) / plain_seconds(data, 2)
    found = {"idle_before": idle, "one_worker": one[0], "two_workers": two[0], "ratio": one[0] / two[0], "plain": plain}
    return {name: round(value, 2) for name, value in found.items()}


def main(rounds: int) -> None:
    stream = numpy.random.default_rng(0)
    x = stream.normal(size=(ROWS, COLUMNS))
    data = x, (x[:, 0] * x[:, 1] > 0).astype(int), stream.normal(size=(QUERIES, COLUMNS))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    for workers in (1, 2):  # the first passes start the workers, which load everything anew
        seconds(data, workers)
    found = [one_round(data) for _ in range(rounds)]
    facts = {
        "teachers": TEACHERS,
        "cores": os.cpu_count(),
        "ray": version("ray"),
        "rounds": found,
        "ratio": round(statistics.median(one["ratio"] for one in found), 2),
        "best_ratio": max(one["ratio"] for one in found),
        "plain_ratio": round(statistics.median(one["plain"] for one in found), 2),
    }
    (RESULTS / "engines.json").write_text(json.dumps(facts, indent=2) + "\n")
    (RESULTS / "engines.md").write_text(page(facts))
    print(page(facts))


def page(facts: dict[str, Any]) -> str:
    head = f"""# Teachers on Ray

`python -m benchmarks.engines.run`: {facts["teachers"]} forests, trained one by one on Ray {facts["ray"]} with one
worker and with two, on {facts["cores"]} cores; starting Ray and its workers is not counted. The last column is what
two plain processes gain over one on the same forests, without Ray. Median ratio {facts["ratio"]}, best
{facts["best_ratio"]}, plain {facts["plain_ratio"]}; the goal is 1.6.

| idle before | one worker, s | two workers, s | ratio | plain processes |
|---|---|---|---|---|
"""
    return head + "".join(f"| {' | '.join(str(value) for value in one.values())} |\n" for one in facts["rounds"])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
