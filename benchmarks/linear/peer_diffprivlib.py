"""diffprivlib's scores on the benchmark's splits; runs in an environment of its own, on arrays handed over in a file.

    python peer_diffprivlib.py task.npz

It prints one JSON object: epsilon -> scores. Its settings are its own defaults with the same public bounds; a warning
that it read something from the data would end the run.
"""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
from diffprivlib.models import LinearRegression, LogisticRegression
from diffprivlib.utils import PrivacyLeakWarning


def main() -> None:
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", PrivacyLeakWarning)
    task = np.load(sys.argv[1])
    x, y = task["x"], task["y"]
    found: dict[str, list[float]] = {}
    for epsilon in task["epsilons"].tolist():
        for seed, train, test in zip(task["seeds"].tolist(), task["train"], task["test"], strict=True):
            model = model_of(task, epsilon, seed).fit(x[train], y[train])
            found.setdefault(f"{epsilon:g}", []).append(model.score(x[test], y[test]))
    print(json.dumps(found))


def model_of(task: dict, epsilon: float, seed: int) -> LinearRegression | LogisticRegression:
    if "low" in task:
        bounds_x, bounds_y = (task["low"], task["high"]), tuple(task["target_bounds"].tolist())
        return LinearRegression(epsilon=epsilon, bounds_X=bounds_x, bounds_y=bounds_y, random_state=seed)
    return LogisticRegression(epsilon=epsilon, data_norm=1.0, max_iter=1000, random_state=seed)


if __name__ == "__main__":
    main()
