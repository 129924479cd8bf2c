"""Private linear models: accuracy beside diffprivlib and plain DP-SGD, and the time of a fit beside scikit-learn.

    HUSH_DATA=... python -m benchmarks.linear.run [--peer-python PYTHON] [--only adult timing]

PYTHON is the interpreter of an environment with diffprivlib. Seeds are 0, 1, ...: of the splits, where there is no
published test part, and of the noise. Hush runs with its defaults; how the constants in them were chosen is told in
report.py.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression

from benchmarks.linear import datasets, plain_dpsgd, report
from hush.linear import PrivateLinearRegression, PrivateLogisticRegression, RepeatedFitWarning

EPSILONS = (1.0, 3.0, 0.1, 0.3, 8.0)  # the goals first
DELTA = 1e-5
METHODS = (
    ("objective", None),
    ("objective", DELTA),
    ("gradient", DELTA),
    ("output", None),
    ("output", DELTA),
)
PEER = Path(__file__).with_name("peer_diffprivlib.py")
ORDER = ("california housing", "breast cancer", "adult", "synthetic")
RESULTS = Path(__file__).resolve().parent.parent / "results" / "linear.json"


def ours(table: datasets.Table, method: str, delta: float | None, epsilon: float, seed: int) -> float:
    x, y, test_x, test_y = table.split(seed)
    model = PrivateLogisticRegression(epsilon, delta, method, data_norm=1.0, classes=[0, 1], random_state=seed)
    return float(model.fit(x, y).score(test_x, test_y))


def our_regression(table: datasets.Table, method: str, delta: float | None, epsilon: float, seed: int) -> float:
    x, y, test_x, test_y = table.split(seed)
    model = PrivateLinearRegression(epsilon, delta, method, table.bounds, random_state=seed)
    return float(model.fit(x, y).score(test_x, test_y))


def peers(python: str | None, table: datasets.Table, epsilons: tuple[float, ...], seeds: range) -> list[dict]:
    if python is None:
        return []
    x, y = table.whole
    train, test = zip(*(table.places(seed) for seed in seeds), strict=True)
    task = {"x": x, "y": y, "train": train, "test": test, "epsilons": np.array(epsilons), "seeds": np.array(seeds)}
    if table.bounds is not None:
        (low, high), target = table.bounds
        task |= {"low": low, "high": high, "target_bounds": np.array(target)}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "task.npz", **task)
        words = [python, str(PEER), str(Path(folder) / "task.npz")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    return [row(table, "diffprivlib", float(epsilon), scores, delta=0.0) for epsilon, scores in found.items()]


def dpsgd(table: datasets.Table, epsilon: float, rate: float, seed: int) -> float:
    x, y, test_x, test_y = table.split(seed)
    weights = plain_dpsgd.fit(x, y, epsilon=epsilon, delta=DELTA, rate=rate, seed=seed)
    return plain_dpsgd.score(weights, test_x, test_y)


def plain(table: datasets.Table, epsilon: float, seeds: range) -> list[dict]:
    """Plain DP-SGD with the rate that was chosen on other tables, and with the best for these test rows."""
    tried = {rate: [dpsgd(table, epsilon, rate, seed) for seed in seeds[:4]] for rate in plain_dpsgd.RATES}
    best = max(tried, key=lambda rate: np.mean(tried[rate]))
    for rate in {best, plain_dpsgd.RATE}:
        tried[rate] += [dpsgd(table, epsilon, rate, seed) for seed in seeds[4:]]
    return [
        row(table, who, epsilon, tried[rate], delta=DELTA, rate=rate)
        for who, rate in (("plain DP-SGD", plain_dpsgd.RATE), ("plain DP-SGD, best rate", best))
    ]


def without_privacy(table: datasets.Table, seed: int) -> float:
    x, y, test_x, test_y = table.split(seed)
    model = LogisticRegression(max_iter=2000) if table.bounds is None else LinearRegression()
    return float(model.fit(x, y).score(test_x, test_y))


def row(table: datasets.Table, who: str, epsilon: float | None, scores: list[float], **more: object) -> dict:
    print(f"{table.name:20} {who:28} {epsilon}  {np.mean(scores):.4f} +- {np.std(scores):.4f}", flush=True)
    facts = {"mean": float(np.mean(scores)), "std": float(np.std(scores)), "median": float(np.median(scores))}
    return {"data": table.name, "who": who, "epsilon": epsilon, **facts, "n": len(scores), **more}


def classification(table: datasets.Table, seeds: range, python: str | None) -> list[dict]:
    own = seeds if table.test_x is None else seeds[:1]  # without noise and with one split all seeds are the same
    rows = [row(table, "without privacy", None, [without_privacy(table, seed) for seed in own])]
    for epsilon in EPSILONS:
        some = seeds if table.test_x is None or epsilon in (1.0, 3.0) else seeds[:5]  # Adult takes its time
        for method, delta in METHODS:
            scores = [ours(table, method, delta, epsilon, seed) for seed in some]
            rows.append(row(table, f"hush {method}", epsilon, scores, delta=delta or 0.0))
        if epsilon in (1.0, 3.0):
            rows += plain(table, epsilon, seeds)
        keep(rows, {"seeds": len(seeds)})
    return rows + peers(python, table, (0.3, 1.0, 3.0), seeds)


def regression(table: datasets.Table, seeds: range, python: str | None) -> list[dict]:
    rows = [row(table, "without privacy", None, [without_privacy(table, seed) for seed in seeds])]
    for epsilon in (0.1, 0.3, 1.0, 3.0, 8.0):
        for method, delta in (("adassp", DELTA), ("output", DELTA), ("output", None)):
            scores = [our_regression(table, method, delta, epsilon, seed) for seed in seeds]
            rows.append(row(table, f"hush {method}", epsilon, scores, delta=delta or 0.0))
    return rows + peers(python, table, (0.1, 1.0, 8.0), seeds)


def timing(table: datasets.Table, rounds: int = 3) -> dict[str, float]:
    """Ratios to scikit-learn's fit on all 48,842 rows, rounds interleaved, medians of processor time."""
    x, y = table.whole
    models = {"sklearn": LogisticRegression(max_iter=1000)}
    for method, delta in METHODS:
        name = f"{method}, delta {delta or 0:g}"
        models[name] = PrivateLogisticRegression(1.0, delta, method, data_norm=1.0, classes=[0, 1])
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            start = time.process_time()
            model.fit(x, y)
            seconds[name].append(time.process_time() - start)
    base = median(seconds["sklearn"])
    return {name: round(median(times) / base, 2) for name, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer-python")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", nargs="*", help="housing, breast_cancer, adult, synthetic, timing; the rest is kept")
    options = parser.parse_args()
    warnings.simplefilter("ignore", RepeatedFitWarning)
    for name in options.only or ("housing", "breast_cancer", "adult", "synthetic", "timing"):
        if name == "timing":
            keep([], {"fit_time_ratio": timing(datasets.adult())})
            continue
        table = getattr(datasets, name)()
        measure = classification if table.bounds is None else regression
        keep(measure(table, range(options.seeds), options.peer_python), {"seeds": options.seeds})


def keep(rows: list[dict], facts: dict[str, object]) -> None:
    """Put new rows in the place of old ones of the same data."""
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"rows": [], "fit_time_ratio": {}}
    names = {row["data"] for row in rows}
    found["rows"] = [row for row in found["rows"] if row["data"] not in names] + rows
    found["rows"].sort(key=lambda row: (ORDER.index(row["data"]), row["epsilon"] or 0.0))
    found.pop("complete", None)
    RESULTS.write_text(json.dumps({**found, **facts}, indent=1) + "\n", encoding="utf-8")
    if len({row["data"] for row in found["rows"]}) == len(ORDER):
        report.write(json.loads(RESULTS.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
