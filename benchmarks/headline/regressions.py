"""Row 7: the loss of private logistic and linear regression against epsilon, and against the number of rows.

    python -m benchmarks.headline.regressions

Adult (log loss on its test rows) and California housing (squared error on a fifth of the rows, over the variance of the
target). Five seeds; the models have their defaults. Writes benchmarks/results/headline/figures/7-regressions.json.
"""

from __future__ import annotations

import json
import statistics
import warnings
from pathlib import Path
from typing import Any

import numpy

from benchmarks.headline.result import DELTA, RESULTS, SEEDS
from benchmarks.linear import datasets
from hush.linear import PrivateLinearRegression, PrivateLogisticRegression, RepeatedFitWarning

OUT = RESULTS / "figures" / "7-regressions.json"
EPSILONS = (0.1, 0.3, 1.0, 3.0, 8.0)
SAMPLES = (500, 1_000, 2_000, 4_000, 8_000, 16_000)
AT_EPSILON = 1.0
TASKS = {
    "logistic": (("objective", None), ("gradient", DELTA), ("output", DELTA)),
    "linear": (("adassp", DELTA), ("output", None)),
}


def loss(
    task: str, table: datasets.Table, method: str, delta: float | None, epsilon: float | None, **how: int
) -> float:
    """On test rows, of one fit to the first rows of a split; without an epsilon, without privacy."""
    x, y, test_x, test_y = table.split(how["seed"])
    order = numpy.random.default_rng(how["seed"]).permutation(len(x))[: how["samples"]]
    x, y = x[order], y[order]
    if task == "logistic":
        return _log_loss(_logistic(method, delta, epsilon, how["seed"]).fit(x, y).predict_proba(test_x), test_y)
    model = _linear(table, method, delta, epsilon, how["seed"]).fit(x, y)
    return float(numpy.square(model.predict(test_x) - test_y).mean() / test_y.var())


def _logistic(method: str, delta: float | None, epsilon: float | None, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    if epsilon is None:
        return LogisticRegression(C=100.0, max_iter=2_000)
    return PrivateLogisticRegression(epsilon, delta, method, data_norm=1.0, classes=[0, 1], random_state=seed)


def _linear(table: datasets.Table, method: str, delta: float | None, epsilon: float | None, seed: int) -> Any:
    from sklearn.linear_model import LinearRegression

    if epsilon is None:
        return LinearRegression()
    return PrivateLinearRegression(epsilon, delta, method, table.bounds, random_state=seed)


def _log_loss(chances: Any, truth: Any) -> float:
    of_truth = numpy.asarray(chances)[numpy.arange(len(truth)), truth]
    return float(-numpy.log(numpy.clip(of_truth, 1e-6, 1)).mean())


def points(task: str, table: datasets.Table, seeds: tuple[int, ...], most: int) -> list[dict[str, Any]]:
    """Every epsilon with all rows, and every number of rows at one epsilon."""
    grid = [(epsilon, most) for epsilon in EPSILONS] + [(AT_EPSILON, few) for few in SAMPLES if few < most]
    found = []
    for method, delta in (("without privacy", None), *TASKS[task]):
        twin = method == "without privacy"
        for epsilon, samples in grid:
            if twin and samples == most and epsilon != AT_EPSILON:
                continue
            paid = None if twin else epsilon
            losses = [loss(task, table, method, delta, paid, seed=seed, samples=samples) for seed in seeds]
            found.append(
                {
                    "task": task,
                    "data": table.name,
                    "method": method,
                    "delta": delta or 0.0,
                    "epsilon": paid,
                    "samples": samples,
                    "seeds": seeds,
                    "losses": losses,
                    "mean": statistics.fmean(losses),
                }
            )
            print(f"{task} {method} epsilon {paid} rows {samples}: {found[-1]['mean']:.4f}", flush=True)
    return found


def main(out: Path = OUT, seeds: tuple[int, ...] = SEEDS, share: float = 1.0) -> None:
    warnings.simplefilter("ignore", RepeatedFitWarning)
    found = []
    for task, table in (("logistic", datasets.adult()), ("linear", datasets.housing())):
        rows = len(table.split(0)[0])
        found += points(task, table, seeds, int(share * rows))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
