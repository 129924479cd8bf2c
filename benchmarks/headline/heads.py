"""Rows 3 and 4: fixed features (scattering, patches) and a full-batch private softmax, at five epsilons.

All epsilons are trained side by side: one pass over the features serves them all.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy

from benchmarks.headline.data import pictures
from benchmarks.headline.result import DELTA, SEEDS, Result, cost
from hush import Rng, events
from hush.cli.feature_recipes import FeatureRecipe
from hush.features import Patches, PrivateTransformer
from hush.linear import PrivateSoftmaxHead, softmax_head

EPSILONS = (0.5, 1.0, 2.0, 3.0, 8.0)
GOALS = {
    "mnist": (97.8, 98.4, 98.8, 99.0, 99.2),
    "fashion-mnist": (87.5, 89.2, 90.2, 90.8, 91.6),
    "cifar10": (65.5, 69.5, 72.5, 74.5, 78.0),
}
PUBLISHED = {  # without public data: features-only for CIFAR-10 [shared notes of the field, docs/guides/results.md]
    "mnist": (None, 97.8, 98.5, 98.7, None),
    "fashion-mnist": (None, 86.3, 88.2, 89.7, None),
    "cifar10": (None, 63.2, 67.9, 69.6, None),
}


MOST_FILTERS = 32  # in a short run


def run(
    chosen: FeatureRecipe,
    row: str,
    *,
    share: float = 1.0,
    seeds: tuple[int, ...] = SEEDS,
    method: str = "",
    most_steps: int | None = None,
    validate: bool = False,
) -> list[Result]:
    """All epsilons for each seed. With `most_steps`, a short trial with few steps and filters."""
    if most_steps is not None:
        chosen = replace(chosen, make=partial(_few_filters, chosen), steps=min(most_steps, chosen.steps))
    start = time.perf_counter()
    x, y, test_x, test_y = pictures(chosen.data, share, validate=validate)
    classes = int(y.max()) + 1
    for one in _made(chosen, None, private=False):  # the same for all seeds
        x, test_x = one.fit_transform(x), one.transform(test_x)
    accuracies: list[list[float]] = [[] for _ in EPSILONS]
    twin = None
    for seed in seeds:
        rows, test = x, test_x
        transformers = _made(chosen, seed, private=True)
        for one in transformers:
            rows = one.fit_transform(rows)
            test = one.transform(test)
        paid = events.Composed(*(one.event_ for one in transformers))
        plans = [_head(epsilon, paid, chosen).plan() for epsilon in EPSILONS]
        together = [*plans, plans[-1].without_privacy(rows)] if seed == SEEDS[0] else plans
        weights = softmax_head.descend(rows, y, classes, together, Rng.from_seed(10_000 + seed))
        right = [float(((test @ one).argmax(axis=1) == test_y).mean()) for one in weights]
        twin = right[-1] if seed == SEEDS[0] else twin
        for place in range(len(EPSILONS)):
            accuracies[place].append(right[place])
        print(f"  {row} {chosen.data}, seed {seed}: {' '.join(f'{100 * value:.2f}' for value in right)}", flush=True)
    seconds = time.perf_counter() - start
    return [
        Result(
            row=row,
            data=chosen.data,
            track="none",
            method=method,
            **cost(events.Composed(paid, plan.event)),
            tuning="field convention",
            seeds=seeds,
            accuracies=tuple(found),
            twin=twin,
            seconds=seconds,
            share=share,
            published=PUBLISHED[chosen.data][place],
            goal=GOALS[chosen.data][place],
            notes=("seconds are of all epsilons together",),
        )
        for place, (plan, found) in enumerate(zip(plans, accuracies, strict=True))
    ]


def _few_filters(chosen: FeatureRecipe, seed: int | None) -> list[Any]:
    found = chosen.make(seed)
    for one in found:
        if isinstance(one, Patches):
            one.set_params(num_filters=MOST_FILTERS, num_directions=MOST_FILTERS)
    return found


def _made(chosen: FeatureRecipe, seed: int | None, *, private: bool) -> list[Any]:
    return [one for one in chosen.make(seed) if isinstance(one, PrivateTransformer) == private]


def _head(epsilon: float, paid: events.Event, chosen: FeatureRecipe) -> PrivateSoftmaxHead:
    return PrivateSoftmaxHead(
        epsilon, DELTA, classes=numpy.arange(10), data_norm=1.0, spent=paid,
        steps=chosen.steps, clip_norm=chosen.clip_norm,
    )  # fmt: skip
