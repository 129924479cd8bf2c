"""Plain DP-SGD for logistic regression: Poisson batches, clipped gradients, constant rate, the last iterate.

Its noise is calibrated by Hush's exact accountant, so that the comparison is of methods and not of accountants.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import expit

from hush import Budget, accounting

RATES = (0.1, 0.5, 2.0, 8.0)
RATE = 2.0  # the best of them on the mean of tables that are not in the benchmark: pairs of wines and digits, synthetic
# ones of 500 to 10,000 rows, and parts of Adult's training rows
EPOCHS, BATCH, CLIP_NORM = 20, 256, 1.0


@cache
def noise_for(epsilon: float, delta: float, num_rows: int) -> tuple[float, float, int]:
    sampling_prob = min(1.0, BATCH / num_rows)
    steps = round(EPOCHS / sampling_prob)
    budget = Budget(epsilon=epsilon, delta=delta)
    return accounting.noise_for(budget, sampling_prob=sampling_prob, steps=steps), sampling_prob, steps


def fit(x: np.ndarray, y: np.ndarray, *, epsilon: float, delta: float, rate: float, seed: int) -> np.ndarray:
    noise, sampling_prob, steps = noise_for(epsilon, delta, len(x))
    rng = np.random.default_rng(seed)
    rows, signs = np.hstack([x, np.ones((len(x), 1))]), 2.0 * y - 1
    lengths = np.linalg.norm(rows, axis=1)
    weights = np.zeros(rows.shape[1])
    for _ in range(steps):
        part = np.flatnonzero(rng.uniform(size=len(rows)) < sampling_prob)
        slopes = -signs[part] * expit(-signs[part] * (rows[part] @ weights))
        slopes /= np.maximum(1.0, np.abs(slopes) * lengths[part] / CLIP_NORM)
        total = slopes @ rows[part] + noise * CLIP_NORM * rng.standard_normal(len(weights))
        weights -= rate * total / (sampling_prob * len(rows))
    return weights


def score(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    return float((((x @ weights[:-1] + weights[-1]) > 0) == (y == 1)).mean())
