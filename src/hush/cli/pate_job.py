"""One run of `hush pate`: settle the vote, train teachers, ask, pay, train the student, save."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from hush import _check, data, report
from hush.cli import pate_models
from hush.cli.pate_progress import RELEASE, Payer, Progress, Released
from hush.cli.pate_vote import Aggregator, Release, Wishes, settle_release, settle_vote, split_budget
from hush.cli.recipes import default_delta
from hush.data import Dataset
from hush.errors import BudgetExceeded, InvalidValue
from hush.events import Composed
from hush.ledger import Account, Ledger
from hush.ledger.store import shown_place
from hush.pate import PateCost, UnpublishableEpsilon, VoteCounts, cost_of, train_student, train_teachers
from hush.pate.fixmatch import FixMatch
from hush.pate.queries import choose_queries
from hush.pate.single import classes
from hush.pate.student import METHODS
from hush.pate.student_rounds import Rounds
from hush.pate.teachers import Teachers
from hush.privacy import Budget, Guarantee, Relation
from hush.rng import Rng

_PUBLIC_SHARE = 0.9  # of the test part; the rest is for the accuracy


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Everything that a run needs, all of it public and fixed before a private row is read."""

    budget: Budget
    vote_budget: Budget
    aggregator: Aggregator
    release: Release | None
    queries: int
    method: str
    student: FixMatch | Rounds


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came out. The accuracies are of public rows whose true labels nobody learned from.

    `votes` and `data_dependent` are private; after an interruption they are gone.
    """

    settled: Settled
    released: Released
    votes: VoteCounts | None
    data_dependent: UnpublishableEpsilon | None
    student: nn.Module
    label_accuracy: float
    test_accuracy: float
    test_rows: int
    folder: Path
    seconds: float

    def promise(self) -> Guarantee:
        """What holds for everything in the folder, whatever the votes were: the labels, and the release if any."""
        labels, release = self.released.data_independent, self.settled.release
        if release is None:
            return labels
        epsilon = math.nextafter(labels.epsilon + release.price.epsilon, math.inf)
        notes = ("labels and the sanitised epsilon, by simple addition",)
        delta = math.nextafter(labels.delta + release.price.delta, math.inf)
        return Guarantee(epsilon=epsilon, delta=delta, relation=labels.relation, method=labels.method, notes=notes)


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
    _check.one_of("--teacher", wishes.teacher, pate_models.TEACHERS)
    if wishes.seed is not None:
        _check.whole("--seed", wishes.seed, least=0)
    pictures = len(parts.dataset.input_shape) == 3
    method = ("rounds" if pictures else "plain") if wishes.student is None else wishes.student
    _check.one_of("--student", method, METHODS)
    vote_budget, price = split_budget(budget, wishes.sanitise)
    most = len(parts.public) - (method != "plain")  # the other students learn from rows without labels too
    aggregator, queries = settle_vote(wishes, vote_budget, most)
    release = None
    if price is not None:
        release = settle_release(aggregator, price, vote_budget, parts.dataset.num_classes or 2)
    return Settled(
        budget=budget,
        vote_budget=vote_budget,
        aggregator=aggregator,
        release=release,
        queries=queries,
        method=method,
        student=_student_settings(method, wishes.student_steps),
    )


def _student_settings(method: str, steps: int | None) -> FixMatch | Rounds:
    """The student's training; `steps` are those of its last round, or all."""
    if method == "rounds":
        return Rounds() if steps is None else Rounds(steps=(250, 350, _check.whole("--student-steps", steps)))
    number = 1500 if steps is None else _check.whole("--student-steps", steps)
    return FixMatch(steps=number, first_steps=min(150, number // 3))


@dataclass(frozen=True)
class Begun:
    """A run that has its folder and knows who pays."""

    progress: Progress
    ledger: str | None
    account: str


def begin(
    parts: Parts,
    wishes: Wishes,
    folder: Path,
    *,
    ledger: str | None = None,
    account: str | None = None,
    resume: bool = False,
    with_votes: bool = False,
) -> Begun:
    """Open the folder, or the folder of an interrupted run if what is asked for is the same."""
    name = account or parts.dataset.name
    shown = None if ledger is None else shown_place(ledger)
    request = {"data": parts.dataset.name, "ledger": shown, "account": name, **asdict(wishes)}
    progress = Progress(folder, request, resume=resume)
    if with_votes and progress.has_labels:
        raise InvalidValue("--show-private needs the votes, which an interrupted run does not keep; leave it out.")
    return Begun(progress, ledger, name)


def carry_out(
    parts: Parts,
    wishes: Wishes,
    settled: Settled,
    begun: Begun,
    *,
    teachers_folder: Path | None = None,
    engine: str = "local",
) -> Outcome:
    """Train, ask, pay, train the student; everything that may be published is in the folder when this returns."""
    start = time.perf_counter()
    rng = Rng() if wishes.seed is None else Rng.from_seed(wishes.seed)
    progress, folder = begun.progress, begun.progress.folder
    payer = Payer(_account(begun.ledger, begun.account, settled.budget, wishes.relation, folder), progress.run)
    votes, dependent, released = None, None, progress.released(payer)
    if released is None:
        votes, cost, released = _ask(parts, wishes, settled, payer, rng, teachers_folder, engine)
        progress.keep(released)
        dependent = cost.data_dependent
    if not released.answered.any():
        raise BudgetExceeded("the vote answered nothing: the budget ended, or no query reached the threshold.")
    student = _student(parts, settled, released, rng)
    right = released.labels == parts.public_labels[released.rows].numpy()
    outcome = Outcome(
        settled=settled,
        released=released,
        votes=votes,
        data_dependent=dependent,
        student=student,
        label_accuracy=float(right[released.answered].mean()),
        test_accuracy=float((classes(student, parts.test) == parts.test_labels.numpy()).mean()),
        test_rows=len(parts.test),
        folder=folder,
        seconds=time.perf_counter() - start,
    )
    _save(outcome, wishes, progress)
    _describe(outcome, parts, begun)
    return outcome


def _ask(
    parts: Parts, wishes: Wishes, settled: Settled, payer: Payer, rng: Rng, teachers_folder: Path | None, engine: str
) -> tuple[VoteCounts, PateCost, Released]:
    """Train the teachers, pay, and ask. The release is paid first, so that the labels cannot use up its share."""
    release, seed = settled.release, None if wishes.seed is None else rng
    due = None if release is None or payer.has_paid(RELEASE) else release.price
    one = settled.aggregator.prices.of(1, 1)
    if payer.would_exceed(one if due is None else Composed(one, due)):
        raise BudgetExceeded(f"account {payer.account.name!r}: not one query fits under its cap; nothing was charged.")
    look = pate_models.look(wishes.teacher, parts.dataset)
    seen = look(parts.public)
    rows = choose_queries(seen, settled.queries, rng=Rng.from_seed(0))  # public rows: nobody's secret
    teachers = trained(parts, wishes, wishes.teachers, look(parts.dataset.train.tensors[0]), rng, seed, teachers_folder,
                       queries=seen[rows], engine=engine)  # fmt: skip
    votes = teachers.votes()
    if due is not None:
        payer.charge(due, RELEASE)
    vote, budget = settled.aggregator, settled.vote_budget
    answers = vote.answer(votes, account=payer, rng=seed, budget=budget, delta=budget.delta)
    cost = cost_of(
        vote,
        votes,
        answers,
        delta=budget.delta,
        relation=wishes.relation,
        release=None if release is None else release.plan,
        release_delta=None if release is None else release.price.delta,
        rng=seed,
    )
    asked = int(answers.asked.sum())
    return votes, cost, Released(rows, answers.labels, asked, cost.data_independent, cost.sanitised)


def _student(parts: Parts, settled: Settled, released: Released, rng: Rng) -> nn.Module:
    rest = torch.ones(len(parts.public), dtype=torch.bool)
    rest[torch.from_numpy(released.rows)] = False
    student: nn.Module = train_student(
        lambda: pate_models.student(parts.dataset, rng),
        parts.public[released.rows],
        released.labels,
        parts.public[rest],
        method=settled.method,
        settings=settled.student,
        rng=rng,
    )
    return student


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
    engine: str = "local",
) -> Teachers:
    """So many teachers on the private rows, as the teachers see them."""
    make, recipe = pate_models.teacher(wishes.teacher, parts.dataset, rows[0].numel(), rng)
    return train_teachers(
        make,
        rows,
        parts.dataset.train.tensors[1],
        number,
        None if parts.dataset.people is None else parts.dataset.people.numpy(),
        engine,
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


def _describe(outcome: Outcome, parts: Parts, begun: Begun) -> None:
    """What run.json does not say, for the report. The data have a name here, so their rows are public."""
    place = None if begun.ledger is None else repr(Ledger(begun.ledger))[len("Ledger('") : -2]  # without a password
    report.describe(
        outcome.folder,
        data=parts.dataset.name,
        model=outcome.settled.method,
        public_data=True,
        unit=parts.dataset.unit,
        ledger=place,
        account=begun.account,
        scores=report.Scores(name="test_accuracy", private=outcome.test_accuracy),
        facts={"share of right labels": outcome.label_accuracy, "test rows": outcome.test_rows},
    )


def _save(outcome: Outcome, wishes: Wishes, progress: Progress) -> None:
    """Labels, student and what was promised: all of it may be published. Votes and teachers are not written."""
    state = {name: value.contiguous().clone() for name, value in outcome.student.state_dict().items()}
    safetensors.torch.save_file(state, outcome.folder / "student.safetensors")
    released = outcome.released.to_dict()
    facts = {
        "aggregator": repr(outcome.settled.aggregator),
        "teachers": wishes.teachers,
        "promise": outcome.promise().to_dict(),
        "cost": {name: released.pop(name) for name in ("data_independent", "sanitised")},
        **released,
        "randomness": "operating-system entropy" if wishes.seed is None else f"seed {wishes.seed}: never release this",
    }
    progress.finish(facts)
