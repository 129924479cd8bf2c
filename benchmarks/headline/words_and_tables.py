"""Row 6: Adult by public bins, and IMDB by hashed words, privately weighed, with a private softmax at five epsilons.

IMDB's test half is not at hand: 20,000 reviews of the training half are learned from and 5,000 tested on, chosen by a
fixed shuffle. Texts that occur twice are kept on one side.
"""

from __future__ import annotations

import time
from typing import Any

import numpy

from benchmarks.headline.result import DELTA, SEEDS, Result, cost
from hush import Rng, data, events
from hush.cli.feature_recipes import RECIPES
from hush.linear import PrivateSoftmaxHead, softmax_head

EPSILONS = (0.5, 1.0, 2.0, 3.0, 8.0)
GOALS = {"adult": (84.2, 84.7, 85.0, 85.2, 85.6), "imdb": (82.0, 85.0, 86.5, 87.3, 88.3)}
PUBLISHED = {"adult": (None, 83.7, None, None, None), "imdb": (None, 64.1, 68.6, 70.4, None)}
SETTINGS: dict[str, dict[str, Any]] = {
    "adult": {"steps": 60, "clip_norm": 0.5, "learning_rate": 600.0},
    "imdb": {"steps": RECIPES["imdb-words"].steps, "clip_norm": RECIPES["imdb-words"].clip_norm},
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
    few, some = max(200, int((~held).sum() * share)), max(200, int(held.sum() * share))
    words, _ = RECIPES["imdb-words"].make(None)
    rows, test = (words.transform(part) for part in (texts[~held][:few], texts[held][:some]))
    return rows, labels[~held][:few], test, labels[held][:some]


def weighed(name: str, x: Any, test_x: Any, seed: int) -> tuple[Any, Any, events.Event | None]:
    """Columns of words weighed by a private sum; Adult's stay as they are."""
    if name == "adult":
        return x, test_x, None
    _, weights = RECIPES["imdb-words"].make(seed)
    weights.fit(x)
    return weights.transform(x), weights.transform(test_x), weights.event_


def run(
    name: str, *, share: float = 1.0, seeds: tuple[int, ...] = SEEDS, most_steps: int | None = None
) -> list[Result]:
    start = time.perf_counter()
    settings = {**SETTINGS[name], "steps": min(SETTINGS[name]["steps"], most_steps or SETTINGS[name]["steps"])}
    x, y, test_x, test_y = {"adult": adult, "imdb": imdb}[name](share)
    accuracies, twin = [], None
    for seed in seeds:
        rows, test, paid = weighed(name, x, test_x, seed)
        how = {"classes": [0, 1], "data_norm": 1.0, "spent": paid, **settings}
        plans = [PrivateSoftmaxHead(epsilon, DELTA, **how).plan() for epsilon in EPSILONS]
        together = [*plans, plans[-1].without_privacy(rows)] if twin is None else plans
        weights = softmax_head.descend(rows, y, 2, together, Rng.from_seed(30_000 + seed))
        right = [float(((test @ one).argmax(axis=1) == test_y).mean()) for one in weights]
        twin = right[-1] if twin is None else twin
        accuracies.append(right[: len(plans)])
        print(f"  {name}, seed {seed}: {' '.join(f'{100 * value:.2f}' for value in right)}", flush=True)
    seconds = time.perf_counter() - start
    return [
        Result(
            row="6-words-tables",
            data=name,
            track="none",
            method="public bins, softmax" if name == "adult" else "hashed words, those after negations marked, softmax",
            **cost(plan.event if paid is None else events.Composed(paid, plan.event)),
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
