"""One run of `hush pate`: settle the vote, train teachers, ask, pay, train the student, save."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import safetensors.torch
import torch
from torch import Tensor, nn

from hush import _check, data
from hush.cli import pate_models
from hush.cli.recipes import default_delta
from hush.data import Dataset
from hush.errors import BudgetExceeded, InvalidValue, Unreachable
from hush.ledger import Account, Ledger
from hush.pate import (
    ConfidentGNMax,
    GNMax,
    LNMax,
    PateCost,
    VoteCounts,
    cost_of,
    noise_for,
    queries_for,
    train_student,
    train_teachers,
)
from hush.pate.aggregate import Answers
from hush.pate.fixmatch import FixMatch
from hush.pate.queries import choose_queries
from hush.pate.single import classes
from hush.pate.student import METHODS
from hush.pate.student_rounds import Rounds
from hush.pate.teachers import Teachers
from hush.privacy import Budget, Relation
from hush.rng import Rng

MECHANISMS = ("gnmax", "confident", "lnmax")
_PUBLIC_SHARE = 0.9  # of the test part; the rest is for the accuracy
Aggregator = GNMax | ConfidentGNMax | LNMax


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the user asked for; None where a default decides. The fields are the options of `hush pate`."""

    epsilon: float
    delta: float | None
    teachers: int
    relation: Relation = "add_remove"
    mechanism: str = "gnmax"
    queries: int | None = None
    stddev: float | None = None
    threshold: float | None = None
    threshold_stddev: float | None = None
    scale: float | None = None
    teacher: str = "kernel"
    student: str | None = None
    student_steps: int | None = None
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Everything that a run needs, all of it public and fixed before a private row is read."""

    budget: Budget
    aggregator: Aggregator
    queries: int
    method: str
    student: FixMatch | Rounds


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came out. `votes` is private; the accuracies are of public rows whose true labels nobody learned from."""

    settled: Settled
    teachers: Teachers
    votes: VoteCounts
    answers: Answers
    cost: PateCost
    student: nn.Module
    label_accuracy: float
    test_accuracy: float
    test_rows: int
    folder: Path
    seconds: float


@dataclass(frozen=True)
class Parts:
    """The private rows, and the public ones: to ask about, and to test on."""

    dataset: Dataset
    public: Tensor
    public_labels: Tensor
    test: Tensor
    test_labels: Tensor


def load(name: str, folder: Path | None) -> Parts:
    """A data set by name; the first nine tenths of its test part are public rows without labels."""
    dataset = data.load(name, folder=folder)
    if dataset.num_classes is None or dataset.test is None:
        raise InvalidValue(f"hush pate needs classes and a test part; {name} has not both.")
    rows, labels = dataset.test.tensors
    cut = int(len(rows) * _PUBLIC_SHARE)
    return Parts(dataset, rows[:cut], labels[:cut], rows[cut:], labels[cut:])


def settle(parts: Parts, wishes: Wishes) -> Settled:
    """The vote: its noise, and how many queries the budget holds."""
    number = parts.dataset.num_examples
    delta = default_delta(number or 10**5) if wishes.delta is None else wishes.delta
    if number is not None and delta >= 1 / number:
        raise InvalidValue(f"delta must be below 1/num_examples, {1 / number:.3g}; got {delta:g}.")
    budget = Budget(epsilon=wishes.epsilon, delta=delta)
    _check.one_of("--mechanism", wishes.mechanism, MECHANISMS)
    _check.one_of("--teacher", wishes.teacher, pate_models.TEACHERS)
    aggregator, queries = _vote(wishes, budget, len(parts.public))
    pictures = len(parts.dataset.input_shape) == 3
    method = ("rounds" if pictures else "plain") if wishes.student is None else wishes.student
    _check.one_of("--student", method, METHODS)
    settings = _student_settings(method, wishes.student_steps)
    return Settled(budget=budget, aggregator=aggregator, queries=queries, method=method, student=settings)


def _student_settings(method: str, steps: int | None) -> FixMatch | Rounds:
    """The student's training; `steps` are those of its last round, or all."""
    if method == "rounds":
        return Rounds() if steps is None else Rounds(steps=(250, 350, _check.whole("--student-steps", steps)))
    number = 1500 if steps is None else _check.whole("--student-steps", steps)
    return FixMatch(steps=number, first_steps=min(150, number // 3))


def _vote(wishes: Wishes, budget: Budget, most: int) -> tuple[Aggregator, int]:
    """The aggregator and the number of queries. The defaults follow from the number of teachers, never from votes."""
    _check.whole("--teachers", wishes.teachers, least=2)
    wanted = None if wishes.queries is None else min(_check.whole("--queries", wishes.queries), most)
    vote: Aggregator
    if wishes.mechanism == "confident":
        vote = ConfidentGNMax(
            threshold=0.6 * wishes.teachers if wishes.threshold is None else wishes.threshold,
            threshold_stddev=0.6 * wishes.teachers if wishes.threshold_stddev is None else wishes.threshold_stddev,
            stddev=wishes.teachers / 5 if wishes.stddev is None else wishes.stddev,
        )
        return vote, min(most, 4 * queries_for(vote, budget)) if wanted is None else wanted  # the budget ends the list
    if wishes.threshold is not None or wishes.threshold_stddev is not None:
        raise InvalidValue("--threshold and --threshold-stddev are for --mechanism confident.")
    if wishes.mechanism == "lnmax":
        if wishes.stddev is not None:
            raise InvalidValue("--stddev is for Gaussian noise; Laplace noise has a --scale.")
        scale = wishes.scale or (20.0 if wanted is None else noise_for(budget, queries=wanted, kind="lnmax"))
        vote = LNMax(scale)
    else:
        if wishes.scale is not None:
            raise InvalidValue("--scale is for --mechanism lnmax; Gaussian noise has a --stddev.")
        usual = wishes.teachers / 5 if wanted is None else noise_for(budget, queries=wanted)
        vote = GNMax(usual if wishes.stddev is None else wishes.stddev)
    fitting = queries_for(vote, budget)
    if not fitting:
        raise Unreachable("not one query fits this budget with this noise; use more noise, or a larger epsilon.")
    return vote, min(most, fitting if wanted is None else wanted)


def carry_out(
    parts: Parts,
    wishes: Wishes,
    settled: Settled,
    folder: Path,
    *,
    ledger: str | None = None,
    account: str | None = None,
    teachers_folder: Path | None = None,
) -> Outcome:
    """Train, ask, pay, train the student; everything that may be published is in the folder when this returns."""
    start = time.perf_counter()
    rng = Rng() if wishes.seed is None else Rng.from_seed(wishes.seed)
    seed = None if wishes.seed is None else rng
    folder.mkdir(parents=True, exist_ok=True)
    books = _account(ledger, account or parts.dataset.name, settled.budget, wishes.relation, folder)
    if books.would_exceed(settled.aggregator.prices.of(1, 1)):
        raise BudgetExceeded(f"account {books.name!r}: not one query fits under its cap; nothing was charged.")
    look = pate_models.look(wishes.teacher, parts.dataset)
    seen = look(parts.public)
    asked = choose_queries(seen, settled.queries, rng=Rng.from_seed(0))  # public rows: nobody's secret
    teachers = trained(parts, wishes, wishes.teachers, look(parts.dataset.train.tensors[0]), rng, seed, teachers_folder,
                       queries=seen[asked])  # fmt: skip
    votes = teachers.votes()
    delta = settled.budget.delta
    answers = settled.aggregator.answer(votes, account=books, rng=seed, budget=settled.budget, delta=delta)
    cost = cost_of(settled.aggregator, votes, answers, delta=delta, relation=wishes.relation)
    if not answers.answered.any():
        raise BudgetExceeded("the vote answered nothing: the budget ended, or no query reached the threshold.")
    rest = torch.ones(len(parts.public), dtype=torch.bool)
    rest[torch.from_numpy(asked)] = False
    student = train_student(
        lambda: pate_models.student(parts.dataset, rng),
        parts.public[asked],
        answers.labels,
        parts.public[rest],
        method=settled.method,
        settings=settled.student,
        rng=rng,
    )
    truth = parts.public_labels[asked].numpy()
    right = answers.labels[answers.answered] == truth[answers.answered]
    outcome = Outcome(
        settled=settled,
        teachers=teachers,
        votes=votes,
        answers=answers,
        cost=cost,
        student=student,
        label_accuracy=float(right.mean()) if len(right) else 0.0,
        test_accuracy=float((classes(student, parts.test) == parts.test_labels.numpy()).mean()),
        test_rows=len(parts.test),
        folder=folder,
        seconds=time.perf_counter() - start,
    )
    _save(outcome, asked, wishes)
    return outcome


def trained(
    parts: Parts,
    wishes: Wishes,
    number: int,
    rows: Tensor,
    rng: Rng,
    seed: Rng | None,
    folder: Path | None = None,
    *,
    queries: Tensor | None = None,
) -> Teachers:
    """So many teachers on the private rows, as the teachers see them."""
    make, recipe = pate_models.teacher(wishes.teacher, parts.dataset, rows[0].numel(), rng)
    return train_teachers(
        make,
        rows,
        parts.dataset.train.tensors[1],
        number,
        None if parts.dataset.people is None else parts.dataset.people.numpy(),
        num_classes=parts.dataset.num_classes,
        relation=wishes.relation,
        recipe=recipe,
        queries=queries,
        folder=folder,
        rng=seed,
    )


def _account(target: str | None, name: str, budget: Budget, relation: Relation, folder: Path) -> Account:
    """A shared ledger's account, or the run's own; a new one gets this run's budget as its cap."""
    ledger = Ledger(folder / "ledger.db" if target is None else target)
    is_known = any(account.name == name for account in ledger.accounts())
    return ledger.account(name, cap=None if is_known else budget, relation=relation)


def _save(outcome: Outcome, asked: numpy.ndarray[Any, numpy.dtype[numpy.int64]], wishes: Wishes) -> None:
    """Labels, student and what was promised: all of it may be published. Votes and teachers are not written."""
    state = {name: value.contiguous().clone() for name, value in outcome.student.state_dict().items()}
    safetensors.torch.save_file(state, outcome.folder / "student.safetensors")
    facts = {
        "aggregator": repr(outcome.settled.aggregator),
        "teachers": wishes.teachers,
        "cost": outcome.cost.to_dict(),
        "rows_asked": asked.tolist(),
        "labels": outcome.answers.labels.tolist(),
        "randomness": "operating-system entropy" if wishes.seed is None else f"seed {wishes.seed}: never release this",
    }
    (outcome.folder / "run.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
