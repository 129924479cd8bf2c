"""PATE on pictures: accuracy of the vote and of the student, at epsilons that hold whatever the votes are.

    python -m benchmarks.pate.mnist                                   # MNIST, the last 1,000 test pictures
    python -m benchmarks.pate.mnist --folds 5                         # each fifth of the test part in turn
    python -m benchmarks.pate.mnist --data fashion-mnist
    python -m benchmarks.pate.mnist --validate                        # no test picture: for choosing settings

The test part is public data without labels but for the pictures that the accuracy is measured on. With `--validate` the
last 10,000 training pictures stand in for the test part, and the teachers see the other 50,000 only.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from hush import Budget, Rng, data, events
from hush.cli.pate_models import student as make_student
from hush.pate import GNMax, LNMax, noise_for, train_student, train_teachers
from hush.pate.kernel_teacher import KernelTeacher
from hush.pate.queries import choose_queries
from hush.pate.single import classes
from hush.pate.strokes import strokes
from hush.pate.student_rounds import Rounds

RESULTS = Path(__file__).resolve().parents[1] / "results"
DELTA, SCALE = 1e-5, 20.0
# teachers, epsilon, queries: fixed before the test part was used; see docs/guides/pate.md
SETTINGS = ((250, 2.0, 220), (250, 1.0, 90), (500, 1.0, 300), (500, 0.5, 150))


@dataclass(frozen=True)
class Task:
    dataset: data.Dataset
    private: Tensor  # strokes
    private_labels: Tensor
    pool: Tensor  # pictures
    pool_labels: Tensor
    looks: Tensor  # strokes of the pool


def load(name: str, validate: bool) -> Task:
    dataset = data.load(name)
    X, y = dataset.train.tensors
    assert dataset.test is not None
    pool, truth = (X[50_000:], y[50_000:]) if validate else dataset.test.tensors
    private, labels = (X[:50_000], y[:50_000]) if validate else (X, y)
    return Task(dataset, strokes(private), labels, pool, truth, strokes(pool))


def parts(number: int, folds: int) -> list[tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]]:
    """Public rows without labels, and rows to test on."""
    rows = numpy.arange(number)
    if folds == 1:
        return [(rows[: number * 9 // 10], rows[number * 9 // 10 :])]
    return [(rows[rows * folds // number != fold], rows[rows * folds // number == fold]) for fold in range(folds)]


def run(
    task: Task,
    num_teachers: int,
    epsilon: float,
    queries: int,
    folds: int,
    seed: int,
    steps: tuple[int, ...],
    twin: bool = False,
) -> dict[str, Any]:
    """Teachers, their vote, and a student of it; with `twin` one more, of the first fold's vote without noise."""
    start = time.process_time()
    kinds = task.dataset.num_classes
    assert kinds is not None
    splits = parts(len(task.pool), folds)
    asked = [public[choose_queries(task.looks[public], queries, rng=Rng.from_seed(seed))] for public, _ in splits]
    # The last rows are for the accuracy of the vote itself, at the Laplace noise of Papernot et al. 2017.
    measured = numpy.concatenate([*asked, splits[-1][1]])
    teachers = train_teachers(
        lambda: KernelTeacher(kinds), task.private, task.private_labels, num_teachers, num_classes=kinds,
        queries=task.looks[measured], progress=False, rng=Rng.from_seed(1000 + seed),
    )  # fmt: skip
    votes = teachers.votes()
    plain = votes[len(measured) - len(splits[-1][1]) :]
    truth = task.pool_labels.numpy()
    laplace = LNMax(SCALE).answer(plain, rng=Rng.from_seed(seed))
    vote = GNMax(noise_for(Budget(epsilon=epsilon, delta=DELTA), queries=queries))
    result: dict[str, Any] = {
        "teachers": num_teachers, "queries": queries, "seed": seed, "stddev": vote.stddev, "folds": folds,
        "aggregator_accuracy_laplace_20": float((laplace.labels == truth[splits[-1][1]]).mean()),
        "delta": DELTA, "relation": "add_remove", "label_accuracy": [], "student_accuracy": [],
    }  # fmt: skip
    for fold, (public, test) in enumerate(splits):
        budget = Budget(epsilon=epsilon, delta=DELTA)
        answers = vote.answer(
            votes[fold * queries : (fold + 1) * queries], budget=budget, rng=Rng.from_seed(2000 + seed + fold)
        )
        result["epsilon"], result["event"] = answers.guarantee(delta=DELTA).epsilon, events.to_dict(answers.event)
        result["label_accuracy"].append(float((answers.labels == truth[asked[fold]])[answers.answered].mean()))
        right = learned(task, public, test, asked[fold], answers.labels, 3000 + seed + fold, steps)
        result["student_accuracy"].append(right)
        print(f"  fold {fold}: labels {result['label_accuracy'][-1]:.4f}, student {right:.4f}", flush=True)
    if twin:
        plain_labels = votes.counts[:queries].argmax(axis=1)
        result["twin_accuracy"] = learned(task, *splits[0], asked[0], plain_labels, 3000 + seed, steps)
    return {**result, "process_seconds": round(time.process_time() - start, 1)}


def learned(task: Task, public: Any, test: Any, asked: Any, labels: Any, seed: int, steps: tuple[int, ...]) -> float:
    """The accuracy on test rows of a student of these labels."""
    of_all = numpy.full(len(task.pool), -1)
    of_all[asked] = labels
    rng = Rng.from_seed(seed)
    student = train_student(
        partial(make_student, task.dataset, rng),
        task.pool[public],
        of_all[public],
        method="rounds",
        settings=Rounds(steps=steps),
        rng=rng,
        progress=False,
    )
    return float((classes(student, task.pool[test]) == task.pool_labels.numpy()[test]).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--folds", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--setting", type=float, nargs=3, action="append", help="teachers epsilon queries")
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    task = load(given.data, given.validate)
    rows = []
    for num_teachers, epsilon, queries in given.setting or SETTINGS:
        for seed in range(given.seeds):
            print(f"{given.data}: {num_teachers:g} teachers, epsilon {epsilon:g}, {queries:g} queries, seed {seed}")
            row = run(task, int(num_teachers), epsilon, int(queries), given.folds, seed, (250, 350, given.steps))
            rows.append({"data": given.data, "validation": given.validate, "student_steps": given.steps, **row})
            print(json.dumps(rows[-1]), flush=True)
    kind = "validation" if given.validate else "test"
    path = RESULTS / f"pate_{given.data.replace('-', '_')}_{kind}.json"
    before = json.loads(path.read_text()) if path.exists() else []
    path.write_text(json.dumps([*before, *rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
