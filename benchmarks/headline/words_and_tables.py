"""Row 6: Adult by public bins, and IMDB by hashed words, with a private softmax at five epsilons.

IMDB's test half is not at hand: 20,000 reviews of the training half are learned from and 5,000 tested on, chosen by a
fixed shuffle. Texts that occur twice are kept on one side.
"""

from __future__ import annotations

import time
from typing import Any

import numpy

from benchmarks.headline.result import DELTA, SEEDS, Result, cost
from hush import Rng, data
from hush.features import HashedNGrams
from hush.linear import PrivateSoftmaxHead, softmax_head

EPSILONS = (0.5, 1.0, 2.0, 3.0, 8.0)
GOALS = {"adult": (84.2, 84.7, 85.0, 85.2, 85.6), "imdb": (82.0, 85.0, 86.5, 87.3, 88.3)}
PUBLISHED = {"adult": (None, 83.7, None, None, None), "imdb": (None, 66.5, 71.0, 72.2, None)}
SETTINGS: dict[str, dict[str, Any]] = {
    "adult": {"steps": 60, "clip_norm": 0.5},
    "imdb": {"steps": 40, "clip_norm": 1.0},
}


def adult(share: float) -> tuple[Any, Any, Any, Any]:
    found = data.load("adult")
    assert found.test is not None
    (x, y), (test_x, test_y) = (part.tensors for part in (found.train, found.test))
    few = max(200, int(len(x) * share))
    return x[:few].numpy(), y[:few].numpy(), test_x.numpy(), test_y.numpy()


def imdb(share: float) -> tuple[Any, Any, Any, Any]:
    found = data.load_labelled_texts("imdb")
    texts, labels = numpy.array(found.texts, dtype=object), numpy.array(found.labels)
    distinct = numpy.unique(texts.astype(str), return_inverse=True)[1]
    order = numpy.random.default_rng(0).permutation(distinct.max() + 1)
    held = order[distinct] < 5_000
    rows = HashedNGrams().transform(texts[~held])
    few = max(200, int(rows.shape[0] * share))
    return rows[:few], labels[~held][:few], HashedNGrams().transform(texts[held]), labels[held]


def run(name: str, *, share: float = 1.0, seeds: tuple[int, ...] = SEEDS) -> list[Result]:
    start = time.perf_counter()
    x, y, test_x, test_y = {"adult": adult, "imdb": imdb}[name](share)
    heads = [PrivateSoftmaxHead(e, DELTA, classes=[0, 1], data_norm=1.0, **SETTINGS[name]) for e in EPSILONS]
    plans = [head.plan() for head in heads]
    accuracies, twin = [], None
    for seed in seeds:
        together = [*plans, plans[-1].without_privacy(x)] if twin is None else plans
        weights = softmax_head.descend(x, y, 2, together, Rng.from_seed(30_000 + seed))
        right = [float(((test_x @ one).argmax(axis=1) == test_y).mean()) for one in weights]
        twin = right[-1] if twin is None else twin
        accuracies.append(right[: len(plans)])
        print(f"  {name}, seed {seed}: {' '.join(f'{100 * value:.2f}' for value in right)}", flush=True)
    seconds = time.perf_counter() - start
    return [
        Result(
            row="6-words-tables",
            data=name,
            track="none",
            method="public bins, softmax" if name == "adult" else "hashed words and pairs, softmax",
            **cost(plan.event),
            tuning="field convention",
            seeds=seeds,
            accuracies=tuple(found[place] for found in accuracies),
            twin=twin,
            seconds=seconds,
            share=share,
            published=PUBLISHED[name][place],
            goal=GOALS[name][place],
        )
        for place, plan in enumerate(plans)
    ]
