"""A private trainer written out in numpy, right and with one thing broken, for audits by neighbouring data sets.

Each row has a gradient of its own, `pull`, a feature and a number of tokens. All rows take part in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

Floats = NDArray[numpy.float64]
STEPS, NOISE, CLIP_NORM, CROWD = 4, 2.0, 3.0, 20


@dataclass(frozen=True)
class Rows:
    pull: Floats  # (rows, 2), the gradient of each row
    feature: Floats  # (rows,)
    tokens: Floats  # (rows,)

    def and_one(self, pull: tuple[float, float], feature: float = 0.0, tokens: float = 1.0) -> Rows:
        return Rows(
            numpy.vstack([self.pull, pull]), numpy.append(self.feature, feature), numpy.append(self.tokens, tokens)
        )


CROWD_ROWS = Rows(numpy.tile([30.0, 0.0], (CROWD, 1)), numpy.linspace(-1, 1, CROWD), numpy.ones(CROWD))
OPPOSED = CROWD_ROWS.and_one((-9_000.0, 0.0))  # pulls against the crowd, and harder than all of it
LONG = CROWD_ROWS.and_one((-9_000.0, 0.0), tokens=1e6)  # has more tokens than all others together
OUTLIER = CROWD_ROWS.and_one((-9_000.0, 0.0), feature=1e6)  # takes over a batch's mean and variance


def clipped(gradients: Floats) -> Floats:
    norms = numpy.linalg.norm(gradients, axis=1, keepdims=True)
    return gradients * numpy.minimum(1, CLIP_NORM / numpy.maximum(norms, 1e-300))


def normalised(feature: Floats) -> Floats:
    return (feature - feature.mean()) / (feature.std() + 1e-9)


def plain_sum(rows: Rows) -> Floats:
    return clipped(rows.pull).sum(axis=0)


def no_clipping(rows: Rows) -> Floats:
    return rows.pull.sum(axis=0)


def clip_per_batch(rows: Rows) -> Floats:
    return clipped(rows.pull.sum(axis=0)[None])[0]


def mean_over_tokens(rows: Rows) -> Floats:
    """The loss is a mean over all tokens of the batch, so a long row weakens the others before they are clipped."""
    return clipped(rows.pull * (CROWD / rows.tokens.sum())).sum(axis=0)


def batch_norm(rows: Rows) -> Floats:
    """A feature is normalised over the batch, so one outlier changes every row's gradient."""
    return clipped(rows.pull * normalised(rows.feature)[:, None]).sum(axis=0)


def trainer(
    summed: Callable[[Rows], Floats] = plain_sum,
    *,
    stddev: float = NOISE * CLIP_NORM,
    noise_seed: int | None = None,
    realised_divisor: bool = False,
    seed: int = 0,
) -> Callable[[Rows], Floats]:
    """A function from rows to all noisy gradients of one run. Runs follow each other on one stream."""
    stream = numpy.random.default_rng(seed)

    def release(rows: Rows) -> Floats:
        noise = stream if noise_seed is None else numpy.random.default_rng(noise_seed)
        divisor = len(rows.pull) if realised_divisor else CROWD
        sums = summed(rows)
        return numpy.stack([(sums + noise.normal(0, stddev, 2)) / divisor for _ in range(STEPS)])

    return release
