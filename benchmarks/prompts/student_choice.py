"""How the student of PromptPATE was fixed: public rows with their labels and made-up errors, no private or test text.

    python -m benchmarks.prompts.student_choice trec|sst2

Needs HUSH_DATA and SmolLM2 (docs/start/install.md). Some sets of public rows stand for those that were asked about;
about as many of their labels are made wrong as the noisy vote gets wrong, towards what zero-shot finds likely. Prompts
of each set are tried on other public rows: by how the scores are calibrated (half of these rows for the other half),
alone and joined. The labels of these rows are not private and not in any epsilon. Results go to
prompts_student_choice.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch

from benchmarks.prompts.pate import parts
from hush.prompts.known_models import load_language_model
from hush.prompts.scoring import CONTENT_FREE, normalised
from hush.prompts.templates import TASKS

RESULTS = Path(__file__).resolve().parents[1] / "results" / "prompts_student_choice.json"
JOINS = [("zero",), ("a",), ("b",), ("all",), ("zero", "a"), ("zero", "all"), ("a", "b"), ("zero", "a", "b")]
WAYS = {  # part of the logarithm of the labels' share, and how often each label counts as seen beforehand
    "content free": None,
    "texts": (0.0, 1.0),
    "texts and 1/2 share, 1 seen": (0.5, 1.0),
    "texts and 1/2 share, 3 seen": (0.5, 3.0),
    "texts and 1/2 share, 6 seen": (0.5, 6.0),
    "texts and 3/4 share, 6 seen": (0.75, 6.0),
}
Scores = numpy.ndarray
Ask = Callable[[list[tuple[str, int]], list[str]], Scores]  # demonstrations, texts -> raw log-probabilities


@dataclass(frozen=True)
class Trial:
    """Which public rows, in the order of `parts`: the first `asked` are those of the real run and are left alone."""

    rows: int
    asked: int
    sets: int
    seed: int
    tried: int  # the first row of those that the prompts are tried on
    is_wrong: Callable[[Scores], Scores]  # of uniform draws
    by_shares: bool = False  # errors towards frequent labels


TRIALS = {
    "trec": Trial(600, 32, 6, 5, 367, lambda draws: draws < 0.4, by_shares=True),
    "sst2": Trial(300, 12, 4, 1, 200, lambda draws: draws > 0.66),
}


def made_up(trial: Trial, truth: Scores, zero_shot: Scores) -> list[tuple[Scores, Scores]]:
    """The sets: rows, and labels of which some are wrong."""
    stream, number = numpy.random.default_rng(trial.seed), zero_shot.shape[1]
    pool = stream.permutation(numpy.arange(trial.asked, trial.tried))
    level = normalised(zero_shot - zero_shot.mean(axis=0))
    if trial.by_shares:
        level = level + numpy.log(numpy.bincount(truth, minlength=number) / len(truth) + 0.01)
    sets = []
    for first in range(0, trial.asked * trial.sets, trial.asked):
        rows = pool[first : first + trial.asked]
        labels = truth[rows].copy()
        for place in numpy.flatnonzero(trial.is_wrong(stream.random(trial.asked))):
            chances = numpy.exp(level[rows[place]])
            chances[truth[rows[place]]] = 0
            labels[place] = stream.choice(number, p=chances / chances.sum())
        sets.append((rows, labels))
    return sets


def calibrated(raw: Scores, tried: int, unseen: list[int], way: tuple[float, float] | None, seen: Scores) -> Scores:
    """Scores of the tried rows; `raw` holds those, the asked ones and the content-free ones."""
    result = numpy.empty((tried, raw.shape[1]))
    for half in (0, 1):
        mine, others = numpy.arange(half, tried, 2), numpy.arange(1 - half, tried, 2)
        if way is None:
            offsets = -numpy.log(numpy.exp(raw[-len(CONTENT_FREE) :]).mean(axis=0))
        else:
            offsets = way[0] * numpy.log(seen + way[1]) - raw[[*others, *(tried + row for row in unseen)]].mean(axis=0)
        result[mine] = normalised(raw[mine] + offsets)
    return result


def measure(name: str, ask: Ask) -> dict[str, Any]:
    trial = TRIALS[name]
    _, (texts, truth), _ = parts(name, trial.rows, 1)
    tried, half = list(range(trial.tried, len(texts))), trial.asked // 2
    sets = made_up(trial, truth, ask([], texts))
    right: dict[tuple[str, str], list[float]] = {}
    for rows, labels in sets:
        asked = [texts[row] for row in (*tried, *rows)] + list(CONTENT_FREE)
        pairs = [(texts[row], int(label)) for row, label in zip(rows, labels, strict=True)]
        shown = {"zero": [], "a": list(range(half)), "b": list(range(half, trial.asked)), "all": range(trial.asked)}
        raw = {key: ask([pairs[place] for place in places], asked) for key, places in shown.items()}
        seen = numpy.bincount(labels, minlength=len(TASKS[name].labels))
        for (title, way), join in itertools.product(WAYS.items(), JOINS):
            unseen = {key: [place for place in range(trial.asked) if place not in shown[key]] for key in join}
            scores = sum(calibrated(raw[key], len(tried), unseen[key], way, seen) for key in join)
            share = float((numpy.asarray(scores).argmax(axis=1) == truth[tried]).mean())
            right.setdefault(("+".join(join), title), []).append(100 * share)
    return {
        "task": name,
        "sets": len(sets),
        "asked_in_each": trial.asked,
        "tried_rows": len(tried),
        "labels_right": [round(100 * float((labels == truth[rows]).mean()), 1) for rows, labels in sets],
        "right_mean_and_least": {
            join: {way: [round(numpy.mean(v), 1), round(min(v), 1)] for (j, way), v in right.items() if j == join}
            for join in dict.fromkeys(key for key, _ in right)
        },
    }


def asker(name: str) -> Ask:
    task, model = TASKS[name], load_language_model("smollm2")

    def ask(pairs: list[tuple[str, int]], texts: list[str]) -> Scores:
        prefix = task.template.prefix([(task.template.clean(text), task.labels[label]) for text, label in pairs])
        found = model.log_probs(prefix, [task.template.question(text) for text in texts], list(task.labels))
        return normalised(numpy.array([[sum(tokens) for tokens in row] for row in found]))

    return ask


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=sorted(TRIALS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    found = measure(given.task, asker(given.task))
    kept = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else []
    kept = [row for row in kept if row["task"] != given.task]
    given.out.write_text(json.dumps([*kept, found], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
